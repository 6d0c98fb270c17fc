//! The eleven tests, one row each: what is called, how the elements lie, and what counts as bandwidth.

use paceline_comm::Collective;

use super::layout::{self, Ask, Layout};

/// One test.
#[derive(Clone, Copy, Debug)]
pub struct Benchmark {
    /// The program's name.
    pub name: &'static str,
    /// What is called.
    pub action: Action,
    /// How the elements lie.
    pub layout: fn(&Ask<'_>) -> Layout,
    /// How many times its share of the data each byte of bus bandwidth counts, for `n` ranks.
    pub bus_factor: fn(f64) -> f64,
    /// The part of the size column that algorithm bandwidth counts, for `n` ranks.
    pub moved: fn(f64) -> f64,
    /// Whether elements are combined.
    pub reduces: bool,
    /// Whether there is a root.
    pub rooted: bool,
    /// Whether the number of ranks has to be a power of two.
    pub power_of_two: bool,
}

/// What a test calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A collective.
    Collective(Collective),
    /// An all-to-all whose counts differ by pair.
    AllToAllV,
    /// A message to the next rank and one from the previous.
    Ring,
    /// An all-gather by exchanges with the ranks that differ in one bit.
    Hypercube,
}

fn one(_: f64) -> f64 {
    1.0
}

fn all_but_own(n: f64) -> f64 {
    (n - 1.0) / n
}

const BASE: Benchmark = Benchmark {
    name: "all_reduce_perf",
    action: Action::Collective(Collective::AllReduce),
    layout: layout::all_reduce,
    bus_factor: |n| 2.0 * (n - 1.0) / n,
    moved: one,
    reduces: true,
    rooted: false,
    power_of_two: false,
};

const MOVES: Benchmark = Benchmark { reduces: false, bus_factor: all_but_own, ..BASE };

/// All-reduce.
pub const ALL_REDUCE: Benchmark = BASE;

/// All-gather.
pub const ALL_GATHER: Benchmark = Benchmark {
    name: "all_gather_perf",
    action: Action::Collective(Collective::AllGather),
    layout: layout::all_gather,
    ..MOVES
};

/// Reduce-scatter.
pub const REDUCE_SCATTER: Benchmark = Benchmark {
    name: "reduce_scatter_perf",
    action: Action::Collective(Collective::ReduceScatter),
    layout: layout::reduce_scatter,
    bus_factor: all_but_own,
    ..BASE
};

/// Broadcast.
pub const BROADCAST: Benchmark = Benchmark {
    name: "broadcast_perf",
    action: Action::Collective(Collective::Broadcast),
    layout: layout::broadcast,
    bus_factor: one,
    rooted: true,
    ..MOVES
};

/// Reduce.
pub const REDUCE: Benchmark = Benchmark {
    name: "reduce_perf",
    action: Action::Collective(Collective::Reduce),
    layout: layout::reduce,
    bus_factor: one,
    rooted: true,
    ..BASE
};

/// All-to-all.
pub const ALLTOALL: Benchmark = Benchmark {
    name: "alltoall_perf",
    action: Action::Collective(Collective::AllToAll),
    layout: layout::alltoall,
    ..MOVES
};

/// All-to-all with counts that differ by pair.
pub const ALLTOALLV: Benchmark =
    Benchmark { name: "alltoallv_perf", action: Action::AllToAllV, layout: layout::alltoallv, ..MOVES };

/// Gather.
pub const GATHER: Benchmark = Benchmark {
    name: "gather_perf",
    action: Action::Collective(Collective::Gather),
    layout: layout::gather,
    rooted: true,
    ..MOVES
};

/// Scatter.
pub const SCATTER: Benchmark = Benchmark {
    name: "scatter_perf",
    action: Action::Collective(Collective::Scatter),
    layout: layout::scatter,
    rooted: true,
    ..MOVES
};

/// Send and receive around a ring.
pub const SENDRECV: Benchmark =
    Benchmark { name: "sendrecv_perf", action: Action::Ring, layout: layout::sendrecv, bus_factor: one, ..MOVES };

/// All-gather on a hypercube. Its algorithm bandwidth counts what a rank receives.
pub const HYPERCUBE: Benchmark = Benchmark {
    name: "hypercube_perf",
    action: Action::Hypercube,
    layout: layout::all_gather,
    bus_factor: one,
    moved: all_but_own,
    power_of_two: true,
    ..MOVES
};

/// All tests.
pub const ALL: [Benchmark; 11] = [
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    BROADCAST,
    REDUCE,
    ALLTOALL,
    ALLTOALLV,
    GATHER,
    SCATTER,
    SENDRECV,
    HYPERCUBE,
];

/// Bandwidths in units of 1e9 bytes per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bandwidth {
    /// What the caller sees: bytes of the operation by its time.
    pub algorithm: f64,
    /// What the wires carry, comparable between numbers of ranks.
    pub bus: f64,
}

impl Benchmark {
    /// The bandwidths of one operation on `size` bytes (the size column) by `n` ranks that took `seconds`.
    #[must_use]
    pub fn bandwidth(&self, size: u64, n: usize, seconds: f64) -> Bandwidth {
        let n = n as f64;
        let algorithm = size as f64 * (self.moved)(n) / 1e9 / seconds;
        Bandwidth { algorithm, bus: algorithm * (self.bus_factor)(n) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_follow_the_reference_formulas() {
        // Name, count per call, type size, n, and the reference's (base bytes, factor).
        type Row = (&'static str, fn(f64, f64, f64) -> f64, fn(f64) -> f64);
        let rows: [Row; 11] = [
            ("all_reduce_perf", |c, t, _| c * t, |n| 2.0 * (n - 1.0) / n),
            ("all_gather_perf", |c, t, n| c * t * n, |n| (n - 1.0) / n),
            ("reduce_scatter_perf", |c, t, n| c * t * n, |n| (n - 1.0) / n),
            ("broadcast_perf", |c, t, _| c * t, |_| 1.0),
            ("reduce_perf", |c, t, _| c * t, |_| 1.0),
            ("alltoall_perf", |c, t, n| c * t * n, |n| (n - 1.0) / n),
            ("alltoallv_perf", |c, t, n| c * t * n, |n| (n - 1.0) / n),
            ("gather_perf", |c, t, n| c * t * n, |n| (n - 1.0) / n),
            ("scatter_perf", |c, t, n| c * t * n, |n| (n - 1.0) / n),
            ("sendrecv_perf", |c, t, _| c * t, |_| 1.0),
            ("hypercube_perf", |c, t, n| c * t * (n - 1.0), |_| 1.0),
        ];
        let traffic = super::super::traffic::Traffic::default();
        for (row, benchmark) in rows.into_iter().zip(ALL) {
            assert_eq!(row.0, benchmark.name);
            for n in [1usize, 2, 4, 8] {
                let ask = Ask { rank: 0, n, root: 0, bytes: 1 << 20, element: 4, traffic: &traffic };
                let layout = (benchmark.layout)(&ask);
                let got = benchmark.bandwidth(4 * layout.size as u64, n, 0.5);
                // The generated traffic of alltoallv fills the size but for rounding: compare with what it really moves.
                let base = match benchmark.action {
                    Action::AllToAllV => 4.0 * layout.size as f64,
                    _ => (row.1)(layout.count as f64, 4.0, n as f64),
                };
                let want = base / 1e9 / 0.5;
                assert!((got.algorithm - want).abs() <= 1e-12 * want, "{} n = {n}: {got:?}, want {want}", row.0);
                assert!((got.bus - want * (row.2)(n as f64)).abs() <= 1e-12 * want, "{} n = {n}: {got:?}", row.0);
            }
        }
    }
}
