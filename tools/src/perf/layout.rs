//! Where a test's elements lie: how many a rank brings and gets, and which rank's elements belong where afterwards.

use super::sizes::{share, whole};
use super::traffic::Traffic;

/// What a layout depends on.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// This rank.
    pub rank: usize,
    /// All ranks.
    pub n: usize,
    /// The root, where there is one.
    pub root: usize,
    /// The size asked for.
    pub bytes: u64,
    /// Bytes of one element.
    pub element: usize,
    /// Who sends how much to whom, for `alltoallv`.
    pub traffic: &'a Traffic,
}

/// A test's elements on one rank. All numbers are elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The count argument, as the table shows it.
    pub count: usize,
    /// The size column: the larger of what the busiest rank brings and gets.
    pub size: usize,
    /// What this rank brings.
    pub input: usize,
    /// What this rank gets.
    pub output: usize,
    /// In place: where the input begins.
    pub input_at: usize,
    /// In place: where the output begins.
    pub output_at: usize,
    /// What the output holds afterwards, from its beginning, without gaps.
    pub holds: Vec<Segment>,
    /// For counts that differ by peer.
    pub peers: Option<Peers>,
}

/// A run of elements in the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// How many elements.
    pub count: usize,
    /// What they are.
    pub holds: Holds,
}

/// What elements are after the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// The reduction of all ranks' elements from `first` on.
    Reduced {
        /// The first element's index.
        first: usize,
    },
    /// A rank's elements from `first` on.
    Moved {
        /// Whose.
        rank: usize,
        /// The first element's index.
        first: usize,
    },
    /// What they were before.
    Before,
}

/// How much goes to and comes from each peer, and where it lies.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Peers {
    /// Elements for each rank.
    pub send_counts: Vec<usize>,
    /// Where they begin in the input.
    pub send_offsets: Vec<usize>,
    /// Elements from each rank.
    pub recv_counts: Vec<usize>,
    /// Where they begin in the output.
    pub recv_offsets: Vec<usize>,
}

impl Layout {
    /// Elements of the one buffer of a call in place.
    #[must_use]
    pub fn in_place(&self) -> usize {
        self.input.max(self.output)
    }
}

fn vector(ask: &Ask<'_>, holds: impl Fn(usize) -> Holds) -> Layout {
    let count = whole(ask.bytes, ask.element);
    let holds = vec![Segment { count, holds: holds(count) }];
    Layout { count, size: count, input: count, output: count, input_at: 0, output_at: 0, holds, peers: None }
}

fn blocks(ask: &Ask<'_>, count: usize, holds: impl Fn(usize) -> Holds) -> Vec<Segment> {
    (0..ask.n).map(|rank| Segment { count, holds: holds(rank) }).collect()
}

/// Everybody's vector in, the reduction out.
pub fn all_reduce(ask: &Ask<'_>) -> Layout {
    vector(ask, |_| Holds::Reduced { first: 0 })
}

/// The same, on the root only; nobody else's output changes.
pub fn reduce(ask: &Ask<'_>) -> Layout {
    vector(ask, |_| if ask.rank == ask.root { Holds::Reduced { first: 0 } } else { Holds::Before })
}

/// The root's vector.
pub fn broadcast(ask: &Ask<'_>) -> Layout {
    vector(ask, |_| Holds::Moved { rank: ask.root, first: 0 })
}

/// The previous rank's vector.
pub fn sendrecv(ask: &Ask<'_>) -> Layout {
    vector(ask, |_| Holds::Moved { rank: (ask.rank + ask.n - 1) % ask.n, first: 0 })
}

/// A block in, all ranks' blocks out.
pub fn all_gather(ask: &Ask<'_>) -> Layout {
    let count = share(ask.bytes, ask.element, ask.n);
    let (input_at, output) = (ask.rank * count, ask.n * count);
    let holds = blocks(ask, count, |rank| Holds::Moved { rank, first: 0 });
    Layout { count, size: output, input: count, output, input_at, output_at: 0, holds, peers: None }
}

/// The same, on the root only; nobody else's output changes.
pub fn gather(ask: &Ask<'_>) -> Layout {
    let everywhere = all_gather(ask);
    if ask.rank == ask.root {
        return everywhere;
    }
    Layout { holds: vec![Segment { count: everywhere.output, holds: Holds::Before }], ..everywhere }
}

/// All blocks in, the reduction of one's own block out.
pub fn reduce_scatter(ask: &Ask<'_>) -> Layout {
    let count = share(ask.bytes, ask.element, ask.n);
    let (first, input) = (ask.rank * count, ask.n * count);
    let holds = vec![Segment { count, holds: Holds::Reduced { first } }];
    Layout { count, size: input, input, output: count, input_at: 0, output_at: first, holds, peers: None }
}

/// All blocks in on the root, one's own block out.
pub fn scatter(ask: &Ask<'_>) -> Layout {
    let reduced = reduce_scatter(ask);
    let holds = Holds::Moved { rank: ask.root, first: ask.rank * reduced.count };
    Layout { holds: vec![Segment { count: reduced.count, holds }], ..reduced }
}

/// A block for everyone in, everyone's block for this rank out.
pub fn alltoall(ask: &Ask<'_>) -> Layout {
    let count = share(ask.bytes, ask.element, ask.n);
    let size = ask.n * count;
    let holds = blocks(ask, count, |rank| Holds::Moved { rank, first: ask.rank * count });
    Layout { count, size, input: size, output: size, input_at: 0, output_at: 0, holds, peers: None }
}

/// The same with counts that differ by pair of ranks.
pub fn alltoallv(ask: &Ask<'_>) -> Layout {
    let Ask { rank, n, bytes, element, traffic, .. } = *ask;
    let count = share(bytes, element, n);
    let sent = |from: usize, to: usize| traffic.elements(from, to, n, count, element);
    let sends = |from: usize| (0..n).map(move |to| sent(from, to));
    let receives = |to: usize| (0..n).map(move |from| sent(from, to));
    let size = (0..n).map(|rank| sends(rank).sum::<usize>().max(receives(rank).sum())).max().unwrap_or(0);
    let peers = Peers {
        send_counts: sends(rank).collect(),
        send_offsets: offsets(sends(rank)),
        recv_counts: receives(rank).collect(),
        recv_offsets: offsets(receives(rank)),
    };
    let first = |from: usize| (0..rank).map(|to| sent(from, to)).sum();
    let holds = (0..n)
        .map(|from| Segment { count: sent(from, rank), holds: Holds::Moved { rank: from, first: first(from) } })
        .collect();
    Layout {
        count: if traffic.is_generated() { count } else { 0 },
        size,
        input: peers.send_counts.iter().sum(),
        output: peers.recv_counts.iter().sum(),
        input_at: 0,
        output_at: 0,
        holds,
        peers: Some(peers),
    }
}

fn offsets(counts: impl Iterator<Item = usize>) -> Vec<usize> {
    counts
        .scan(0, |next, count| {
            let first = *next;
            *next += count;
            Some(first)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::benchmark::ALL;
    use super::*;

    #[test]
    fn outputs_are_covered_without_gaps_and_in_place_fits() {
        let traffic = Traffic::default();
        for benchmark in ALL {
            for n in 1..=9 {
                for bytes in [1, 8, 100, 4096, 100_000] {
                    for rank in 0..n {
                        let root = n / 2;
                        let layout = (benchmark.layout)(&Ask { rank, n, root, bytes, element: 4, traffic: &traffic });
                        let covered: usize = layout.holds.iter().map(|segment| segment.count).sum();
                        assert_eq!(covered, layout.output, "{} n = {n} {bytes} B rank {rank}", benchmark.name);
                        assert!(layout.size >= layout.in_place(), "{} n = {n}", benchmark.name);
                        assert!(layout.size > 0, "{} n = {n} {bytes} B: nothing measured", benchmark.name);
                        assert!(layout.input_at + layout.input <= layout.in_place());
                        assert!(layout.output_at + layout.output <= layout.in_place());
                    }
                }
            }
        }
    }

    #[test]
    fn sizes_and_counts_of_the_table() {
        let traffic = Traffic::default();
        // Test, bytes, n, then size and count columns for 4-byte elements, as nccl-tests prints them above zero.
        let rows = [
            ("all_reduce_perf", 1 << 20, 2, 1 << 20, 262_144),
            ("all_gather_perf", 1 << 20, 2, 1 << 20, 131_072),
            ("all_gather_perf", 1000, 3, 960, 80),
            ("reduce_scatter_perf", 1 << 20, 4, 1 << 20, 65_536),
            ("alltoall_perf", 1 << 20, 4, 1 << 20, 65_536),
            ("all_gather_perf", 8, 4, 16, 1),
            ("broadcast_perf", 10, 4, 8, 2),
            ("alltoallv_perf", 1 << 20, 2, 1 << 20, 131_072),
            ("alltoallv_perf", 1 << 20, 1, 1 << 20, 262_144),
        ];
        for (name, bytes, n, size, count) in rows {
            let benchmark = ALL.into_iter().find(|row| row.name == name).unwrap();
            let layout = (benchmark.layout)(&Ask { rank: 0, n, root: 0, bytes, element: 4, traffic: &traffic });
            assert_eq!((4 * layout.size, layout.count), (size, count), "{name} {bytes} B n = {n}");
        }
    }

    #[test]
    fn alltoallv_offsets_agree_between_sender_and_receiver() {
        let traffic = Traffic::default();
        let n = 5;
        let layouts: Vec<Layout> = (0..n)
            .map(|rank| alltoallv(&Ask { rank, n, root: 0, bytes: 3000, element: 2, traffic: &traffic }))
            .collect();
        for to in 0..n {
            for from in 0..n {
                let Holds::Moved { rank, first } = layouts[to].holds[from].holds else { panic!() };
                let sender = layouts[from].peers.as_ref().unwrap();
                let receiver = layouts[to].peers.as_ref().unwrap();
                assert_eq!((rank, first), (from, sender.send_offsets[to]));
                assert_eq!(sender.send_counts[to], receiver.recv_counts[from]);
            }
        }
    }
}
