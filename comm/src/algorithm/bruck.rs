//! Bruck: ⌈log₂ n⌉ rounds between ranks 1, 2, 4, ... apart, for any n.
//!
//! Bruck, Ho, Kipnis, Upfal, Weathersby: "Efficient algorithms for all-to-all communications in multiport
//! message-passing systems", 1997. The all-gather sends every block once to every rank, as few bytes as the ring. The
//! all-to-all sends a block once for every set bit of its distance: log₂ n / 2 times the bytes in far fewer messages.
//!
//! The all-gather for n = 4:
//!
//! ```text
//! all_gather bruck
//! ranks 4 root 0 chunks 4
//!      | 0             | 1              | 2             | 3              |
//!    0 | 0=i0 i0>3 1<1 | 1=i0 i0>0 2<2  | 2=i0 i0>1 3<3 | 3=i0 i0>2 0<0  |
//!    1 | 0..2>2 2..4<2 | 1..3>3 3<3 0<3 | 2..4>0 0..2<0 | 3>1 0>1 1..3<1 |
//! ```

use super::cyclic::cut;
use crate::schedule::Step::{Copy, Recv, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, Span, input, output, scratch};

/// 1, 2, 4, ..., below `n`.
fn doubling(n: u32) -> impl Iterator<Item = u32> {
    (0..u32::BITS).map(|i| 1 << i).take_while(move |held| *held < n)
}

/// One round of the all-gather: blocks `me .. me + held` are here; more arrive.
fn gather_round(p: &mut Program, held: u32, source: impl Fn(u32, u32) -> Span) {
    let n = p.size;
    let count = held.min(n - held);
    let (to, from) = (p.peer(-i64::from(held)), p.peer(i64::from(held)));
    let leaving = cut(p.me, count, n).map(|piece| Send { to, source: source(piece.block, piece.count) });
    let arriving = cut(from, count, n).map(|piece| Recv { from, target: output(piece.block).run(piece.count) });
    let own = (source(p.me, 1) == input(0)).then_some(Copy { source: input(0), target: output(p.me) });
    p.round(own.into_iter().chain(leaving).chain(arriving).collect::<Vec<_>>());
}

/// From chunk `me` of the output to all chunks of the output.
pub fn all_gather_phase(p: &mut Program) {
    for held in doubling(p.size) {
        gather_round(p, held, |block, count| output(block).run(count));
    }
}

/// Runs of blocks that double in length, straight into the output.
pub fn all_gather(p: &mut Program) {
    for held in doubling(p.size) {
        gather_round(p, held, |block, count| if held == 1 { input(0) } else { output(block).run(count) });
    }
}

/// Where the block for (and later: from) the rank `distance` away lies, at each stage of the all-to-all.
struct Stages {
    me: u32,
    n: u32,
    /// The first slot of what arrived in each round.
    arrivals: Vec<u32>,
}

impl Stages {
    /// The distances whose blocks move in a round, in order: those with that bit set.
    fn moving(&self, round: u32) -> impl Iterator<Item = u32> + use<> {
        (0..self.n).filter(move |distance| distance >> round & 1 == 1)
    }

    /// How many distances below `distance` have that bit set: the block's place in what moves.
    fn place(distance: u32, round: u32) -> u32 {
        let bit = 1 << round;
        (distance / (2 * bit)) * bit + (distance % (2 * bit)).saturating_sub(bit)
    }

    /// Where the block is before a round: in the input, or in what arrived when it moved last.
    fn held(&self, distance: u32, before_round: u32) -> Span {
        let moved = distance & ((1 << before_round) - 1);
        if moved == 0 {
            return input((self.me + distance) % self.n);
        }
        let round = moved.ilog2();
        let place = Stages::place(distance, round);
        scratch(self.arrivals[round as usize], 0).part(place, 1)
    }
}

/// Blocks hop by the bits of their distance. Each round packs what moves, so that it goes as one message.
pub fn all_to_all(p: &mut Program) {
    let (me, n) = (p.me, p.size);
    let n_rounds = u32::BITS - (n - 1).leading_zeros();
    let mut stages = Stages { me, n, arrivals: Vec::new() };
    // Slots 0 .. n / 2 hold what leaves; what arrives in each round lies behind.
    let mut free = n / 2;
    for round in 0..n_rounds {
        let leaving = scratch(0, 0);
        let packed = stages.moving(round).zip(0..);
        p.round(
            packed
                .map(|(distance, place)| Copy { source: stages.held(distance, round), target: leaving.part(place, 1) }),
        );
        let count = Stages::place(n, round);
        let (to, from) = (p.peer(1 << round), p.peer(-(1 << round)));
        p.round([Send { to, source: leaving.run(count) }, Recv { from, target: scratch(free, 0).run(count) }]);
        stages.arrivals.push(free);
        free += count;
    }
    p.round(
        (0..n).map(|distance| Copy {
            source: stages.held(distance, n_rounds),
            target: output((me + (n - distance)) % n),
        }),
    );
}

/// A round sends one message, and two where the run goes around the end; some rank always is there.
pub fn all_gather_phase_work(n: u32) -> Work {
    let messages: u32 = doubling(n).map(|held| held.min(n - held).min(2)).sum();
    Work::steady(doubling(n).count() as f64, Load::messages(f64::from(messages), f64::from(n - 1) / f64::from(n)))
}

/// The phase, and a copy of this rank's block.
pub fn all_gather_work(n: u32) -> Work {
    let Work { latencies, busiest, .. } = all_gather_phase_work(n);
    Work::steady(latencies, busiest.copying(1.0 / f64::from(n)))
}

/// Each round packs and sends about half of the blocks; a last round unpacks all.
pub fn all_to_all_work(n: u32) -> Work {
    let n_rounds = doubling(n).count() as u32;
    let moved: u32 = (0..n_rounds).map(|round| Stages::place(n, round)).sum();
    let moved = f64::from(moved) / f64::from(n);
    let load = Load::messages(f64::from(n_rounds), moved).copying(moved + 1.0);
    Work { latencies: f64::from(n_rounds), path: load, busiest: load }
}
