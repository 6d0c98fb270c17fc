//! In which order the messages of a group go into streams, where calls run one after the other: so that none waits for ever.
//!
//! The k-th message from rank a to rank b belongs to round (k, (b - a) mod n), at both ends alike. Every rank goes through the
//! rounds in the same order, and does both halves of a round as one call: what it sends to the rank d further on, and what it
//! receives from the rank d before. A round then waits for the same round of two ranks and for nothing else, and by induction
//! over the rounds all end.

#![forbid(unsafe_code)]

/// One half of a message: whether it leaves, and the rank at its other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Half {
    pub(crate) leaves: bool,
    pub(crate) peer: usize,
}

/// The halves by their places in `halves`, in rounds: what leaves in each, and what arrives.
pub(crate) fn rounds(halves: &[Half], me: usize, ranks: usize) -> Vec<(Option<usize>, Option<usize>)> {
    let mut seen: Vec<(usize, bool, usize)> = Vec::new();
    let mut ordered: Vec<((usize, usize), bool, usize)> = Vec::with_capacity(halves.len());
    for (place, Half { leaves, peer }) in halves.iter().copied().enumerate() {
        let known = seen.iter().position(|(other, way, _)| (*other, *way) == (peer, leaves));
        let number = known.unwrap_or_else(|| {
            seen.push((peer, leaves, 0));
            seen.len() - 1
        });
        let lap = seen[number].2;
        seen[number].2 += 1;
        // What is out of range is told when the call is made.
        let (from, to) = if leaves { (me, peer) } else { (peer, me) };
        let distance = (to + ranks).wrapping_sub(from) % ranks;
        ordered.push(((lap, distance), !leaves, place));
    }
    ordered.sort_unstable();
    let mut rounds: Vec<(Option<usize>, Option<usize>)> = Vec::new();
    let mut last = None;
    for (key, arrives, place) in ordered {
        if last != Some(key) {
            rounds.push((None, None));
        }
        last = Some(key);
        let round = rounds.last_mut().expect("one was begun");
        *(if arrives { &mut round.1 } else { &mut round.0 }) = Some(place);
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether all ranks' rounds end, if a call needs the other ends of both of its halves to be in their calls.
    fn all_end(groups: &[Vec<Half>]) -> bool {
        let n = groups.len();
        let rounds: Vec<_> = groups.iter().enumerate().map(|(me, halves)| rounds(halves, me, n)).collect();
        let mut at = vec![0; n];
        // Halves that have met their other half, by rank, in the call that is under way.
        let mut met = vec![(false, false); n];
        loop {
            let mut moved = false;
            for me in 0..n {
                let Some((leaving, arriving)) = rounds[me].get(at[me]).copied() else { continue };
                if let Some(place) = leaving
                    && !met[me].0
                {
                    let to = groups[me][place].peer;
                    let waiting = rounds[to].get(at[to]).and_then(|round| round.1);
                    if waiting.is_some_and(|place| groups[to][place].peer == me) && !met[to].1 {
                        (met[me].0, met[to].1, moved) = (true, true, true);
                    }
                }
                if leaving.is_none_or(|_| met[me].0) && arriving.is_none_or(|_| met[me].1) {
                    (at[me], met[me], moved) = (at[me] + 1, (false, false), true);
                }
            }
            if !moved {
                return (0..n).all(|me| at[me] == rounds[me].len());
            }
        }
    }

    #[test]
    fn whatever_is_sent_arrives() {
        let mut state = 7u64;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for n in 1..7 {
            for turn in 0..200 {
                let mut groups = vec![Vec::new(); n];
                let messages = if turn == 0 { n * n } else { draw(3 * n) };
                for message in 0..messages {
                    let (from, to) = if turn == 0 { (message / n, message % n) } else { (draw(n), draw(n)) };
                    groups[from].push(Half { leaves: true, peer: to });
                    groups[to].push(Half { leaves: false, peer: from });
                }
                // In whatever order they are noted, but that messages between two ranks keep theirs.
                for halves in &mut groups {
                    halves.sort_by_key(|half| (half.peer * 7 + usize::from(half.leaves) * 3 + turn) % 5);
                }
                assert!(all_end(&groups), "n = {n}, turn {turn}: {groups:?}");
            }
        }
    }
}
