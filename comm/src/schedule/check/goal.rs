//! What each rank's output must hold in the end.

use super::fault::{CheckError, Fault};
use super::memory::Memory;
use super::shape::Shape;
use super::values::{Value, Values};
use crate::collective::Collective;
use crate::schedule::{Program, output};

/// Checks the outputs of all ranks.
pub fn check(
    collective: Collective,
    programs: &[Program],
    shapes: &[Shape],
    memories: &[Memory],
    values: &Values,
) -> Result<(), CheckError> {
    for ((program, shape), memory) in programs.iter().zip(shapes).zip(memories) {
        let error = |fault| CheckError { rank: program.me, at: None, fault };
        for chunk in 0..shape.n_output {
            let held = memory.read(shape, output(chunk), 0).unwrap_or(super::values::GARBAGE);
            match wanted(collective, program, chunk, values) {
                Wanted::One(value) if held == value => {}
                Wanted::One(value) => return Err(error(wrong(chunk, held, values.describe(value), values))),
                Wanted::Fold(of) if values.is_complete(held, of) => {
                    let everywhere = collective == Collective::AllReduce;
                    if everywhere && memories[0].read(&shapes[0], output(chunk), 0) != Ok(held) {
                        return Err(error(Fault::Order(chunk, 0)));
                    }
                }
                Wanted::Fold(of) => {
                    let want = format!("the fold of chunk {of} of all {} ranks", program.size);
                    return Err(error(wrong(chunk, held, want, values)));
                }
            }
        }
    }
    Ok(())
}

fn wrong(chunk: u32, held: Value, wanted: String, values: &Values) -> Fault {
    Fault::Result { chunk, holds: values.describe(held), wanted }
}

enum Wanted {
    /// That contribution.
    One(Value),
    /// The fold of all ranks' contributions to that chunk.
    Fold(u32),
}

fn wanted(collective: Collective, program: &Program, chunk: u32, values: &Values) -> Wanted {
    use Collective as C;
    let (me, root) = (program.me, program.root);
    match collective {
        C::AllReduce | C::Reduce => Wanted::Fold(chunk),
        C::ReduceScatter => Wanted::Fold(me),
        C::Broadcast => Wanted::One(values.contribution(root, chunk)),
        C::AllGather | C::Gather => Wanted::One(values.contribution(chunk, chunk)),
        C::Scatter => Wanted::One(values.contribution(root, me)),
        C::AllToAll => Wanted::One(values.contribution(chunk, me)),
        C::Barrier | C::Send | C::Recv | C::SendRecv => unreachable!("{collective} has no output"),
    }
}
