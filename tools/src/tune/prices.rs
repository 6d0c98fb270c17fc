//! What the link charges, from differences between rows, so that what every call costs alike drops out.

use std::time::Instant;

use paceline_comm::algorithm;
use paceline_comm::{CallOptions, Collective, Communicator, LinkKind, Prices, ReduceOp, Result};

use super::bench::{Bench, Effort, whole};

/// What is timed: two sizes at which messages cost next to nothing for their bytes, and in one piece.
const SMALL: usize = 64;
const MEDIUM: usize = 64 << 10;
const LARGE: usize = 256 << 10;
/// Two sizes on boards.
const BOARD: [usize; 2] = [512, 8 << 10];

/// Prices of the slowest kind of link, the same on all ranks; or why there are none.
pub fn measure(comm: &Communicator, effort: Effort) -> Result<std::result::Result<Prices, String>> {
    let among = comm.circumstances();
    if among.crowding > 1 {
        return Ok(Err(format!("{} ranks share a core; run with fewer to measure prices", among.crowding)));
    }
    let mut bench = Bench::new(comm, effort);
    let mut time = |collective: Collective, row: &str, bytes: usize| {
        let bytes = whole(collective, comm.size(), bytes);
        // What else the host does makes calls slower, never quicker.
        let samples = bench.samples(collective, &[row], bytes)?;
        Ok(samples[0].iter().copied().fold(f64::INFINITY, f64::min))
    };
    let n = comm.size();
    let mut times = Times {
        chain: time(Collective::Broadcast, "ring", SMALL)?,
        tree: [SMALL, MEDIUM, LARGE].map(|bytes| time(Collective::Broadcast, "binomial", bytes)).transposed()?,
        ring: time(Collective::AllReduce, "ring", SMALL)?,
        doubling: [SMALL, MEDIUM, LARGE].map(|b| time(Collective::AllReduce, "recursive_doubling", b)).transposed()?,
        board: None,
        copy_byte_s: copy_byte_s(),
    };
    let wish = CallOptions { algorithm: Some("direct".to_owned()), ..CallOptions::default() };
    if comm.with(wish).explain(Collective::AllGather, whole(Collective::AllGather, n, BOARD[1]))?.on_boards {
        times.board = Some(BOARD.map(|bytes| time(Collective::AllGather, "direct", bytes)).transposed()?);
    }
    let mut copy = [times.copy_byte_s];
    comm.all_reduce_in_place(&mut copy, ReduceOp::Max)?;
    times.copy_byte_s = copy[0];
    let quick = [LinkKind::Inproc, LinkKind::Shm, LinkKind::Rdma];
    let kind = quick.into_iter().find(|kind| kind.name() == among.link).unwrap_or(LinkKind::Tcp);
    Ok(times.prices(n as u32, Prices::standard(kind)))
}

/// Seconds of what was timed.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// Broadcast around a ring, in pieces.
    chain: f64,
    /// Broadcast down a tree, at three sizes.
    tree: [f64; 3],
    /// All-reduce around a ring.
    ring: f64,
    /// All-reduce by recursive doubling, at three sizes.
    doubling: [f64; 3],
    /// All-gather over the boards, at two sizes.
    board: Option<[f64; 2]>,
    copy_byte_s: f64,
}

impl Times {
    /// The prices that explain the times; without boards theirs are `standard`'s.
    ///
    /// All or none: prices that are measured and others that are assumed would not compare.
    fn prices(&self, n: u32, standard: Prices) -> std::result::Result<Prices, String> {
        let work = |collective, row| algorithm::row(collective, row).expect("it is in the table").work(n);
        let (chain, tree) = (work(Collective::Broadcast, "ring"), work(Collective::Broadcast, "binomial"));
        let (ring, doubling) = (work(Collective::AllReduce, "ring"), work(Collective::AllReduce, "recursive_doubling"));
        // Two differences, two unknowns: latencies and messages.
        let one =
            (chain.latencies - tree.latencies, chain.path.messages - tree.path.messages, self.chain - self.tree[0]);
        let two = (
            ring.latencies - doubling.latencies,
            ring.path.messages - doubling.path.messages,
            self.ring - self.doubling[0],
        );
        let determinant = one.0 * two.1 - two.0 * one.1;
        let latency_s = (one.2 * two.1 - two.2 * one.1) / determinant;
        let message_s = (one.0 * two.2 - two.0 * one.2) / determinant;
        let step = (LARGE - MEDIUM) as f64;
        let byte_s = (self.tree[2] - self.tree[1]) / step / tree.path.sent;
        let slope = (self.doubling[2] - self.doubling[1]) / step;
        let copy_byte_s = self.copy_byte_s;
        let beside_s = doubling.path.sent * byte_s + doubling.path.copied * copy_byte_s;
        let fold_byte_s = (slope - beside_s) / doubling.path.folded;
        let mut prices = Prices { latency_s, message_s, byte_s, fold_byte_s, copy_byte_s, ..standard };
        if let Some(board) = self.board {
            let call_s = (self.tree[0] - tree.latencies * latency_s - tree.path.messages * message_s).max(0.0);
            let sizes = BOARD.map(|bytes| whole(Collective::AllGather, n as usize, bytes) as f64);
            // In an all-gather a rank publishes its block and takes the others': the whole message.
            prices.board_byte_s = (board[1] - board[0]) / (sizes[1] - sizes[0]);
            let fixed_s = board[0] - sizes[0] * prices.board_byte_s - call_s;
            let usual_s = standard.board_latency_s + f64::from(n - 1) * standard.board_peer_s;
            // A call over the boards may cost less than another one without its messages.
            let share = (fixed_s / usual_s).max(0.1);
            prices.board_latency_s = share * standard.board_latency_s;
            prices.board_peer_s = share * standard.board_peer_s;
        }
        let near = |price: f64, usual: f64| (usual / FAR..usual * FAR).contains(&price);
        let pairs = prices.named().into_iter().zip(standard.named());
        let senseless: Vec<_> =
            pairs.filter(|((_, price), (_, usual))| !near(*price, *usual)).map(|((name, _), _)| name).collect();
        if senseless.is_empty() {
            return Ok(prices);
        }
        Err(format!("{} came out senseless, so the host was busy; try again", senseless.join(", ")))
    }
}

/// So many times the standard price, or that part of it, is no price.
const FAR: f64 = 30.0;

/// What a byte costs that is copied within the cache, on this rank.
fn copy_byte_s() -> f64 {
    let (source, mut target) = (vec![1u8; LARGE], vec![0u8; LARGE]);
    let once = |_| {
        let begin = Instant::now();
        target.copy_from_slice(std::hint::black_box(&source));
        std::hint::black_box(&mut target);
        begin.elapsed().as_secs_f64()
    };
    (0..20).map(once).fold(f64::INFINITY, f64::min) / LARGE as f64
}

trait Transposed<T, const N: usize> {
    fn transposed(self) -> Result<[T; N]>;
}

impl<T: Copy + Default, const N: usize> Transposed<T, N> for [Result<T>; N] {
    fn transposed(self) -> Result<[T; N]> {
        let mut all = [T::default(); N];
        for (place, one) in all.iter_mut().zip(self) {
            *place = one?;
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_comm::schedule::cost::Costs;

    /// Times that known prices would lead to give these prices back.
    #[test]
    fn prices_come_back_from_the_times_they_lead_to() {
        let standard = Prices::standard(LinkKind::Shm);
        let known = Prices { latency_s: 2e-7, message_s: 9e-8, byte_s: 2e-10, fold_byte_s: 3e-11, ..standard };
        let Prices { latency_s, message_s, byte_s, fold_byte_s, copy_byte_s, .. } = known;
        let costs = Costs { latency_s, message_s, byte_s, fold_byte_s, copy_byte_s };
        let call_s = 3e-7;
        for n in [2, 4, 8] {
            let seconds = |collective, row, bytes: usize| {
                call_s + algorithm::row(collective, row).unwrap().price(n, bytes as u64, &costs)
            };
            let sizes = [SMALL, MEDIUM, LARGE];
            let fixed_s = known.board_latency_s + f64::from(n - 1) * known.board_peer_s + call_s;
            let times = Times {
                chain: seconds(Collective::Broadcast, "ring", 0),
                tree: sizes
                    .map(|bytes| seconds(Collective::Broadcast, "binomial", if bytes == SMALL { 0 } else { bytes })),
                ring: seconds(Collective::AllReduce, "ring", 0),
                doubling: sizes
                    .map(|b| seconds(Collective::AllReduce, "recursive_doubling", if b == SMALL { 0 } else { b })),
                board: Some(BOARD.map(|bytes| fixed_s + bytes as f64 * known.board_byte_s)),
                copy_byte_s,
            };
            for ((name, want), (_, have)) in known.named().into_iter().zip(times.prices(n, standard).unwrap().named()) {
                assert!((have / want - 1.0).abs() < 1e-6, "n = {n}: {name} is {have}, not {want}");
            }
        }
    }

    #[test]
    fn senseless_differences_give_no_prices() {
        let standard = Prices::standard(LinkKind::Tcp);
        let (board, copy_byte_s) = (None, standard.copy_byte_s);
        let flat = Times { chain: 1.0, tree: [1.0; 3], ring: 1.0, doubling: [1.0; 3], board, copy_byte_s };
        let why = flat.prices(2, standard).unwrap_err();
        assert!(why.starts_with("latency_s, message_s, byte_s, fold_byte_s came out senseless"), "{why}");
    }
}
