//! Blocks in levels: to every group once, then inside; or folded inside, then to where they belong.

use super::super::ring;
use super::{Spot, assumed};
use crate::schedule::Step::{Copy, Recv, RecvReduce, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, Rank, Span, input, output, scratch};

impl Spot<'_> {
    /// All ranks whose blocks pass by the rank at `place` of this one's group, of other groups and of this one.
    fn all_passing(&self, place: u32) -> impl Iterator<Item = Rank> + '_ {
        (0..self.level.len()).flat_map(move |group| self.passing(group, place))
    }
}

/// Each block to one rank of every group, then what came to each rank to all of its group.
pub fn all_gather(p: &mut Program) {
    let groups = p.groups();
    let Some(spot) = Spot::of(p, &groups) else { return ring::all_gather(p) };
    let me = p.me;
    for (round, (to, from)) in spot.group_pairs().enumerate() {
        let own = (round == 0).then_some(Copy { source: input(0), target: output(me) });
        let send = Send { to: spot.relay(to), source: input(0) };
        let receives = spot.passing(from, spot.place).map(|block| Recv { from: block, target: output(block) });
        p.round(own.into_iter().chain([send]).chain(receives).collect::<Vec<_>>());
    }
    for (to, from) in spot.pairs() {
        let (to, source) = (spot.range.start + to, spot.range.start + from);
        let sends = spot.all_passing(spot.place).map(|block| Send { to, source: output(block) });
        let receives = spot.all_passing(from).map(|block| Recv { from: source, target: output(block) });
        p.round(sends.chain(receives).collect::<Vec<_>>());
    }
}

/// The same backwards: what passes by each rank is folded inside, then goes to where it belongs.
pub fn reduce_scatter(p: &mut Program) {
    let groups = p.groups();
    let Some(spot) = Spot::of(p, &groups) else { return ring::reduce_scatter(p) };
    let (me, is_alone) = (p.me, spot.size() == 1);
    let mine: Vec<Rank> = spot.all_passing(spot.place).collect();
    let sum = |block: Rank| -> Span {
        let slot = mine.binary_search(&block).expect("it passes by this rank");
        if is_alone { input(block) } else { scratch(slot as u32, block) }
    };
    for (round, (to, from)) in spot.pairs().enumerate() {
        let (to, from) = (spot.range.start + to, spot.range.start + from);
        let place = to - spot.range.start;
        let sends = spot.all_passing(place).map(|block| Send { to, source: input(block) });
        let so_far = |block: Rank| if round == 0 { input(block) } else { sum(block) };
        let receives = mine.iter().map(|block| RecvReduce { from, source: so_far(*block), target: sum(*block) });
        p.round(sends.chain(receives).collect::<Vec<_>>());
    }
    for (round, (to, from)) in spot.group_pairs().enumerate() {
        let sends = spot.passing(to, spot.place).map(|block| Send { to: block, source: sum(block) });
        let so_far = if round == 0 { sum(me) } else { output(0) };
        let receive = RecvReduce { from: spot.relay(from), source: so_far, target: output(0) };
        p.round(sends.chain([receive]).collect::<Vec<_>>());
    }
}

/// One block to each group, then a block of every group's to each neighbour.
pub fn all_gather_work(n: u32) -> Work {
    let Some((group, n_groups)) = assumed(n) else { return ring::all_gather_work(n) };
    let whole = f64::from(n);
    let messages = n_groups * (group - 1.0) + n_groups - 1.0;
    Work::steady(group + n_groups - 2.0, Load::messages(messages, messages / whole).copying(1.0 / whole))
}

/// The same with folds.
pub fn reduce_scatter_work(n: u32) -> Work {
    if assumed(n).is_none() {
        return ring::reduce_scatter_work(n);
    }
    let Work { latencies, path, .. } = all_gather_work(n);
    Work::steady(latencies, path.folding(path.sent))
}
