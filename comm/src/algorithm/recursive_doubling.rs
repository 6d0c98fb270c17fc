//! Recursive doubling: ⌊log₂ n⌋ rounds in which ranks 1, 2, 4, ... apart exchange all they have; any n.
//!
//! Thakur, Rabenseifner, Gropp: "Optimization of collective communication operations in MPICH", 2005, sections 4.1 and
//! 4.5. Where n is not a power of two, the ranks beyond it hand in before and get the result after.
//!
//! In the all-reduce the two ranks of a pair combine the same two operands, so both get the same bits.
//!
//! The all-reduce for n = 5:
//!
//! ```text
//! all_reduce recursive_doubling
//! ranks 5 root 0 chunks 1
//!      | 0                     | 1    | 2                 | 3                 | 4                 |
//!    0 | s0[0]=i0+1            | i0>0 | i0>0 s0[0]=i0+0   | i0>4 s0[0]=i0+4   | i0>3 s0[0]=i0+3   |
//!    1 | s0[0]>2 s1[0]=s0[0]+2 | 0<0  | s0[0]>4 0=s0[0]+4 | s0[0]>0 0=s0[0]+0 | s0[0]>2 0=s0[0]+2 |
//!    2 | s1[0]>3 0=s1[0]+3     |      |                   |                   |                   |
//!    3 | 0>1                   |      |                   |                   |                   |
//! ```

use super::core_ranks::{Core, Role};
use crate::schedule::Step::{Copy, Recv, RecvReduce, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Buffer, Program, input, output, scratch};

/// Everyone exchanges whole vectors: fewest rounds, log₂ n vectors sent.
pub fn all_reduce(p: &mut Program) {
    let core = Core::of(p);
    let (place, extra) = match core.role(p.me) {
        Role::Core(place, extra) => (place, extra),
        Role::Extra(first) => {
            p.round([Send { to: first, source: input(0) }]);
            p.round([Recv { from: first, target: output(0) }]);
            return;
        }
    };
    let mut held = input(0);
    if let Some(from) = extra {
        p.round([RecvReduce { from, source: held, target: scratch(0, 0) }]);
        held = scratch(0, 0);
    }
    for r in 0..core.n_rounds {
        let peer = core.rank(place ^ (1 << r));
        // What is held is being sent, so the result goes elsewhere: to the output if it is the last and the output
        // cannot be what is held (in place the input is the output).
        let target = match held.buffer {
            Buffer::Scratch if r + 1 == core.n_rounds => output(0),
            Buffer::Scratch => scratch(1 - held.first, 0),
            Buffer::Input | Buffer::Output => scratch(0, 0),
        };
        p.round([Send { to: peer, source: held }, RecvReduce { from: peer, source: held, target }]);
        held = target;
    }
    if held.buffer == Buffer::Scratch {
        p.round([Copy { source: held, target: output(0) }]);
    }
    if let Some(to) = extra {
        p.round([Send { to, source: output(0) }]);
    }
}

/// Runs of blocks that double in length.
pub fn all_gather(p: &mut Program) {
    let core = Core::of(p);
    let own = Copy { source: input(0), target: output(p.me) };
    match core.role(p.me) {
        Role::Extra(first) => {
            p.round([Send { to: first, source: input(0) }, own]);
            let (before, after) = (p.me, p.size - p.me - 1);
            let runs = [output(0).run(before), output(p.me + 1).run(after)];
            p.round(runs.into_iter().filter(|run| run.count > 0).map(|target| Recv { from: first, target }));
        }
        Role::Core(place, extra) => {
            if let Some(from) = extra {
                p.round([Recv { from, target: output(from) }, own]);
            } else {
                let (block, count) = core.blocks(place ^ 1, 1);
                let peer = core.rank(place ^ 1);
                let target = output(block).run(count);
                p.round([Send { to: peer, source: input(0) }, Recv { from: peer, target }, own]);
            }
            doubling_phase(p, core, place, u32::from(extra.is_none()));
            let Some(to) = extra else { return };
            let runs = [output(0).run(to), output(to + 1).run(p.size - to - 1)];
            p.round(runs.into_iter().filter(|run| run.count > 0).map(|source| Send { to, source }));
        }
    }
}

/// From each core rank's blocks in its output to all blocks in the output of all core ranks; from that round on.
pub fn doubling_phase(p: &mut Program, core: Core, place: u32, first_round: u32) {
    for r in first_round..core.n_rounds {
        let width = 1 << r;
        let (mine, theirs) = (place & !(width - 1), (place & !(width - 1)) ^ width);
        let peer = core.rank(place ^ width);
        let [leaving, arriving] = [mine, theirs].map(|first| {
            let (block, count) = core.blocks(first, width);
            output(block).run(count)
        });
        p.round([Send { to: peer, source: leaving }, Recv { from: peer, target: arriving }]);
    }
}

/// Whole vectors, and two more messages where there are pairs.
pub fn all_reduce_work(n: u32) -> Work {
    let n_rounds = f64::from(n.ilog2());
    if n.is_power_of_two() {
        let path = Load::messages(n_rounds, n_rounds).folding(n_rounds).copying(if n == 2 { 1.0 } else { 0.0 });
        return Work { latencies: n_rounds, path, busiest: path };
    }
    let path = Load::messages(n_rounds + 2.0, n_rounds + 2.0).folding(n_rounds + 1.0);
    let busiest = Load::messages(n_rounds + 1.0, n_rounds + 1.0).folding(n_rounds + 1.0);
    Work { latencies: n_rounds + 2.0 - latencies_spared(n), path, busiest }
}

/// Blocks, and two more messages' time where there are pairs.
pub fn all_gather_work(n: u32) -> Work {
    let core = Work::steady(f64::from(n.ilog2()), doubling_load(n));
    let block = 1.0 / f64::from(n);
    if n.is_power_of_two() {
        return Work::steady(core.latencies, core.busiest.copying(block));
    }
    let before =
        Work { latencies: 1.0 - latencies_spared(n), path: Load::messages(1.0, block), busiest: Load::default() };
    let after = Work::steady(1.0, Load::messages(2.0, 1.0 - block).copying(block));
    before.then(core).then(after)
}

/// Where no more than half of the core ranks stand for two, each of those exchanges in the last round with one that had
/// no wait at the start: its message is there already.
pub fn latencies_spared(n: u32) -> f64 {
    let n_core = 1 << n.ilog2();
    if n_core < n && n - n_core <= n_core / 2 { 1.0 } else { 0.0 }
}

/// What the core rank that stands for most blocks sends or receives in the doubling phase.
pub fn doubling_load(n: u32) -> Load {
    let core = Core { n_rounds: n.ilog2(), n_pairs: n - (1 << n.ilog2()) };
    let blocks: u32 = (0..core.n_rounds).map(|r| core.blocks(0, 1 << r).1).sum();
    Load::messages(f64::from(core.n_rounds), f64::from(blocks) / f64::from(n))
}
