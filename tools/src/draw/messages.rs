//! What meets what: which send a receive waits for, and in which row of a picture each round goes.

use std::collections::{HashMap, VecDeque};

use paceline_comm::schedule::{Program, Rank, Span, Step};

/// One message, from the round in which it is sent to that in which it is received.
pub struct Message {
    pub from: Rank,
    pub to: Rank,
    pub sent_in: usize,
    pub received_in: usize,
    /// What is sent, and where it goes.
    pub source: Span,
    pub receive: Step,
}

/// The messages of all ranks' programs: the k-th send from one rank to another meets the k-th receive there.
///
/// # Errors
///
/// A send or a receive is left over.
pub fn messages(programs: &[Program]) -> Result<Vec<Message>, String> {
    let mut sends: HashMap<(Rank, Rank), VecDeque<(usize, Span)>> = HashMap::new();
    for program in programs {
        for (round, steps) in program.rounds().enumerate() {
            for step in steps {
                if let Step::Send { to, source } = *step {
                    sends.entry((program.me, to)).or_default().push_back((round, source));
                }
            }
        }
    }
    let mut messages = Vec::new();
    for program in programs {
        let to = program.me;
        for (received_in, steps) in program.rounds().enumerate() {
            for &receive in steps {
                let (Step::Recv { from, .. } | Step::RecvReduce { from, .. }) = receive else { continue };
                let send = sends.get_mut(&(from, to)).and_then(VecDeque::pop_front);
                let (sent_in, source) = send.ok_or_else(|| format!("rank {to} waits for a message of rank {from}"))?;
                messages.push(Message { from, to, sent_in, received_in, source, receive });
            }
        }
    }
    match sends.iter().find(|(_, left)| !left.is_empty()) {
        Some(((from, to), _)) => Err(format!("a message of rank {from} to rank {to} is left over")),
        None => Ok(messages),
    }
}

/// The row of each rank's rounds: below those before it, and not above the round of another in which something is sent that
/// it receives. Ranks count only rounds in which they do something, so that their numbers alone don't say what meets.
pub fn rows(programs: &[Program], messages: &[Message]) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = programs.iter().map(|program| (0..program.n_rounds()).collect()).collect();
    let n_rounds: usize = rows.iter().map(Vec::len).sum();
    // Each turn settles at least one round of a program that ends.
    for _ in 0..=n_rounds {
        let mut has_moved = false;
        for message in messages {
            let sent = rows[message.from as usize][message.sent_in];
            let receiver = &mut rows[message.to as usize];
            let (mut round, mut least) = (message.received_in, sent);
            while round < receiver.len() && receiver[round] < least {
                (receiver[round], has_moved) = (least, true);
                (round, least) = (round + 1, least + 1);
            }
        }
        if !has_moved {
            break;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_comm::algorithm::ROWS;

    #[test]
    fn every_message_goes_downwards_and_rounds_keep_their_order() {
        for row in ROWS {
            for n in [1, 2, 3, 5, 8, 12].into_iter().filter(|n| (row.fits)(*n)) {
                let programs = row.programs(n, n / 2);
                let messages = messages(&programs).unwrap();
                let rows = rows(&programs, &messages);
                let name = format!("{} {} of {n}", row.collective, row.name);
                for Message { from, to, sent_in, received_in, .. } in messages {
                    assert!(rows[from as usize][sent_in] <= rows[to as usize][received_in], "{name}");
                }
                assert!(rows.iter().all(|rows| rows.is_sorted_by(|a, b| a < b)), "{name}");
                let last = rows.iter().flatten().max().copied().unwrap_or(0);
                assert!(last < 4 * (n as usize + 4), "{name}: {last} rows");
            }
        }
    }

    #[test]
    fn what_meets_nothing_is_named() {
        let mut programs = ROWS[0].programs(2, 0);
        programs[1] = Program::new(1, 2, 0, programs[1].chunks);
        assert!(messages(&programs).is_err_and(|why| why.contains("rank 0")));
    }
}
