//! A row's program as work of one stream per rank: copies, folds, and launches that tell and wait.
//!
//! A stream does one thing after the other, where the engine has many steps under way, and the bays are small: that it comes
//! to its end all the same is shown in `kernels/README.md`, "bays", and run for every row in the tests.

mod bays;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use bays::Bays;

use super::Call;
use super::flags::Signals;
use super::plan::digest_of;
use crate::engine::Plan;
use crate::reduce::ReduceOp;

/// Which memory a place lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Base {
    /// What the rank brings.
    Input,
    /// Where its result goes.
    Output,
    /// The bay of a rank, which may be this one.
    Bay(usize),
}

/// Where bytes begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) base: Base,
    pub(crate) at: u64,
}

/// One thing that a stream does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Tells other ranks, then waits for them.
    Tell(Box<Signals>),
    /// Copies. Where both places are the same address there is nothing to do.
    Copy { target: Place, source: Place, bytes: u64 },
    /// Folds the sources in order, in one pass. The target may be one of them.
    Reduce { target: Place, sources: Vec<Place>, elements: u64, also: Also },
}

/// What a fold does besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Also {
    Nothing,
    /// Multiplies the one source by the call's factor.
    Scales,
    /// Divides by the number of ranks.
    Divides,
}

/// What becomes of the input before the program reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Staging {
    /// The program reads it where it is.
    None,
    /// It is copied out of the way: the row can't do the call in place.
    Moved,
    /// It is multiplied by a factor.
    Scaled,
}

/// One rank's part of a call, in the order of its stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Streamed {
    pub(crate) ops: Vec<Op>,
    /// What is left to tell when all ranks meet at the end.
    pub(crate) last: Signals,
}

/// More than what anybody waits for a stream to be given.
const OPS_MAX: u64 = 1 << 22;

impl Streamed {
    /// Whether a call becomes so much work that it is left to the host: the same answer on all ranks.
    pub(crate) fn is_too_much(plan: &Plan, bays: &Bays) -> bool {
        windows(plan, bays) * u64::from(bays.most_steps()) > OPS_MAX
    }

    /// The translation of `plan`'s program. `bays` was made of the programs of all ranks, with a place for what is staged if
    /// anybody's input may be.
    pub(crate) fn new(plan: &Plan, op: ReduceOp, bays: &Bays, staging: Staging) -> Streamed {
        let mut writer = writer::Writer::new(plan, bays, staging);
        for slice in 0..plan.slices {
            let shapes = plan.shapes(slice);
            for window in 0..windows_of(shapes.message().widest() as u64, bays) {
                writer.open(&shapes, window * bays.unit());
                writer.program();
                if op == ReduceOp::Avg {
                    writer.divide(plan.summed_chunks());
                }
            }
        }
        writer.finish()
    }
}

/// The digest of a call by the row of that number.
pub(crate) fn digest(call: &Call<'_>, row: usize, plan: &Plan, bays: &Bays) -> u32 {
    let ranks = u64::from(plan.program.size) | u64::from(plan.program.chunks) << 32;
    digest_of(call, [STREAMED, row as u64, ranks, bays.unit(), plan.slices as u64])
}

/// Tells a call by streams from the same one by a kernel.
const STREAMED: u64 = 0x5354_5245_414d;

/// How many windows all chunks of a slice are cut into: each goes through the program by itself.
fn windows_of(widest: u64, bays: &Bays) -> u64 {
    widest.div_ceil(bays.unit()).max(1)
}

fn windows(plan: &Plan, bays: &Bays) -> u64 {
    windows_of(plan.shapes(0).message().widest() as u64, bays) * plan.slices as u64
}
