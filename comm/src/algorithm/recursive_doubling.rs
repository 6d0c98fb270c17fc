//! Recursive doubling: ⌊log₂ n⌋ rounds in which ranks 1, 2, 4, ... apart exchange all they have; any n.
//!
//! Thakur, Rabenseifner, Gropp: "Optimization of collective communication operations in MPICH", 2005, sections 4.1 and
//! 4.5. Where n is not a power of two, the ranks beyond it hand in before and get the result after.
//!
//! In the all-reduce the two ranks of a pair combine the same two operands, so both get the same bits.

use super::core_ranks::{Core, Role};
use crate::schedule::Step::{Copy, Recv, RecvReduce, Send};
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
            p.round(extra.map(|from| Recv { from, target: output(from) }).into_iter().chain([own]));
            doubling_phase(p, core, place);
            let Some(to) = extra else { return };
            let runs = [output(0).run(to), output(to + 1).run(p.size - to - 1)];
            p.round(runs.into_iter().filter(|run| run.count > 0).map(|source| Send { to, source }));
        }
    }
}

/// From each core rank's blocks in its output to all blocks in the output of all core ranks.
pub fn doubling_phase(p: &mut Program, core: Core, place: u32) {
    for r in 0..core.n_rounds {
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
