//! Proves that a set of programs, one for each rank, does what its collective promises.
//!
//! The programs are run once, over symbols in place of bytes, with no buffering: a message moves only when both its ends
//! are in progress. Senders are named and messages between two ranks keep their order, so what each step reads does not
//! depend on timing; and the steps of a round touch disjoint memory, so it does not depend on their order either. One
//! run therefore stands for all runs, with any amount of buffering. What is proved:
//!
//! - every output holds what it must: the right contributions, each exactly once;
//! - all ranks of an all-reduce fold each chunk in the same order, so they end with the same bits;
//! - nothing is read that nobody has written; the input is not written to, nor an output that the rank does not have;
//! - no two steps of a round touch the same memory, unless both read it;
//! - both ends of a message are equally long, whatever the lengths of blocks (or, for rows that need it, when all blocks
//!   are equally long);
//! - no rank waits forever, and no message is left over;
//! - no rank leaves a barrier before all have come.
//!
//! The proof holds for the number of ranks that was run.

mod barrier;
mod fault;
mod goal;
mod memory;
mod race;
mod shape;
mod values;

use barrier::Heard;
use memory::Memory;
use race::Races;
use shape::Shape;
use values::Values;

use super::run::{At, Stop, Watch, run};
use super::{Program, Rank, Span, Step};
use crate::algorithm::Row;
use crate::collective::Collective;

pub use fault::{CheckError, Fault};

/// The most cells and slots that all ranks of a checked set may have together.
pub const MAX_CELLS: u64 = 1 << 24;

/// The circumstances of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// Input and output share memory.
    pub in_place: bool,
    /// Ranks' blocks may differ in length. Vectors are always taken to be cut unevenly.
    pub uneven: bool,
}

/// What a proof has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Proof {
    /// The most rounds that a rank has.
    pub n_rounds: usize,
    /// How many messages all ranks send.
    pub n_messages: usize,
    /// How many chunks they carry.
    pub n_chunks: u64,
    /// The most slots of scratch that a rank has.
    pub n_scratch: u32,
}

/// Proves the programs of ranks 0, 1, ... for one collective.
///
/// # Errors
///
/// What is wrong, and where. When several things are, it is not said which one is named.
pub fn prove(collective: Collective, programs: &[Program], mode: Mode) -> Result<Proof, CheckError> {
    check_set(collective, programs)?;
    let mut check = Check::new(collective, programs, mode);
    match run(programs, &mut check) {
        Ok(()) => {}
        Err(Stop::Fault(error)) => return Err(error),
        Err(Stop::Stuck(waiting, rounds)) => return Err(deadlock(programs, &waiting, &rounds)),
    }
    if collective == Collective::Barrier {
        check.heard.check(programs.len() as u32)?;
    } else {
        goal::check(collective, programs, &check.shapes, &check.memories, &check.values)?;
    }
    Ok(check.proof)
}

/// Proves a row for `n` ranks and a root, in every mode that it declares.
///
/// # Errors
///
/// As [`prove`]; with the mode in which it failed.
///
/// # Panics
///
/// When the row does not fit `n`, or `root` is not below `n`.
pub fn prove_row(row: &Row, n: u32, root: Rank) -> Result<Proof, (Mode, CheckError)> {
    let programs = row.programs(n, root);
    let mut proof = Proof::default();
    for in_place in [false, true].into_iter().filter(|in_place| row.in_place || !in_place) {
        let mode = Mode { in_place, uneven: row.uneven };
        proof = prove(row.collective, &programs, mode).map_err(|error| (mode, error))?;
    }
    Ok(proof)
}

/// Whether the programs belong together.
fn check_set(collective: Collective, programs: &[Program]) -> Result<(), CheckError> {
    let n = programs.len() as u32;
    let error = |rank, fault| Err(CheckError { rank, at: None, fault });
    let set = |rank, how: String| error(rank, Fault::Set(how));
    let Some(first) = programs.first() else { return set(0, "there is no program".to_owned()) };
    let mut n_cells = 0;
    for (rank, program) in (0..n).zip(programs) {
        let (size, root, chunks) = (program.size, program.root, program.chunks);
        if program.me != rank || size != n {
            return set(rank, format!("program {rank} of {n} is written for rank {} of {size}", program.me));
        }
        if (root, chunks) != (first.root, first.chunks) {
            let firsts = format!("root {} and {} chunks", first.root, first.chunks);
            return set(rank, format!("written for root {root} and {chunks} chunks, rank 0 for {firsts}"));
        }
        if root >= n || chunks == 0 {
            return set(rank, format!("written for root {root} of {n} ranks and {chunks} chunks"));
        }
        n_cells += 2 * u64::from(chunks) + u64::from(program.scratch);
    }
    use Collective as C;
    let n_chunks = match collective {
        C::AllReduce | C::Reduce | C::Broadcast => first.chunks,
        C::AllGather | C::ReduceScatter | C::AllToAll | C::Gather | C::Scatter => n,
        C::Barrier => 1,
        C::Send | C::Recv | C::SendRecv => return set(0, format!("{collective} is not run from a schedule")),
    };
    if first.chunks != n_chunks {
        return set(0, format!("{collective} of {n} ranks has {n_chunks} chunks, not {}", first.chunks));
    }
    if n_cells > MAX_CELLS { error(0, Fault::TooLarge) } else { Ok(()) }
}

/// The error for ranks that wait for each other, or for one that has ended: the first step that waits.
fn deadlock(programs: &[Program], waiting: &[At], rounds: &[Option<usize>]) -> CheckError {
    let at = waiting[0];
    let step = programs[at.rank as usize].steps_of(at.round)[at.step];
    let peer = match step {
        Step::Send { to, .. } => to,
        Step::Recv { from, .. } | Step::RecvReduce { from, .. } => from,
        Step::Copy { .. } | Step::Reduce { .. } => unreachable!("a step without a peer waits for nobody"),
    };
    let fault = Fault::Deadlock(peer, rounds[peer as usize]);
    CheckError { rank: at.rank, at: Some((at.round, at.step, step)), fault }
}

/// One check while it runs.
struct Check<'a> {
    collective: Collective,
    programs: &'a [Program],
    shapes: Vec<Shape>,
    memories: Vec<Memory>,
    races: Vec<Races>,
    values: Values,
    heard: Heard,
    /// The operands of the fold in hand.
    operands: Vec<values::Value>,
    proof: Proof,
}

impl<'a> Check<'a> {
    fn new(collective: Collective, programs: &'a [Program], mode: Mode) -> Check<'a> {
        let n = programs.len() as u32;
        let values = Values::new(n, programs[0].chunks);
        let shapes: Vec<Shape> = programs.iter().map(|program| Shape::new(collective, mode, program)).collect();
        let memories = shapes
            .iter()
            .zip(0..)
            .map(|(shape, me)| Memory::new(shape, |chunk| values.contribution(me, shape.block_of_input(chunk))))
            .collect();
        let races = shapes.iter().map(Races::new).collect();
        let n_rounds = programs.iter().map(Program::n_rounds).max().unwrap_or(0);
        let n_scratch = programs.iter().map(|program| program.scratch).max().unwrap_or(0);
        let proof = Proof { n_rounds, n_scratch, ..Proof::default() };
        let heard = Heard::new(if collective == Collective::Barrier { n } else { 0 });
        Check { collective, programs, shapes, memories, races, values, heard, operands: Vec::new(), proof }
    }

    fn step(&self, at: At) -> Step {
        self.programs[at.rank as usize].steps_of(at.round)[at.step]
    }

    /// Writes what `value` gives for each chunk to the span of a rank.
    fn write(
        &mut self,
        rank: Rank,
        target: Span,
        mut value: impl FnMut(&mut Check<'a>, u32) -> Result<values::Value, Fault>,
    ) -> Result<(), Fault> {
        let me = rank as usize;
        self.memories[me].clear(&self.shapes[me], target);
        for offset in 0..target.count {
            let value = value(self, offset)?;
            self.memories[me].write(&self.shapes[me], target, offset, value);
        }
        Ok(())
    }

    fn read(&self, rank: Rank, span: Span, offset: u32) -> Result<values::Value, Fault> {
        self.memories[rank as usize].read(&self.shapes[rank as usize], span, offset)
    }

    /// Does what a step without a peer does.
    fn local(&mut self, rank: Rank, step: Step) -> Result<(), Fault> {
        match step {
            Step::Copy { .. } if race::is_idle(&self.shapes[rank as usize], step) => Ok(()),
            Step::Copy { source, target } => self.write(rank, target, |c, offset| c.read(rank, source, offset)),
            Step::Reduce { source, runs, target } => self.write(rank, target, |c, offset| {
                let mut operands = std::mem::take(&mut c.operands);
                operands.clear();
                for run in 0..runs {
                    let source = Span { first: source.first + run * target.count, ..source };
                    operands.push(c.read(rank, source, offset)?);
                }
                let value = c.values.fold_many(&operands);
                c.operands = operands;
                value
            }),
            Step::Send { .. } | Step::Recv { .. } | Step::RecvReduce { .. } => Ok(()),
        }
    }

    fn message(&mut self, send: At, receive: At) -> Result<(), Fault> {
        let (sender, receiver) = (send.rank, receive.rank);
        let Step::Send { source: sent, .. } = self.step(send) else { unreachable!("a send is a send") };
        let (own, target) = match self.step(receive) {
            Step::Recv { target, .. } => (None, target),
            Step::RecvReduce { source, target, .. } => (Some(source), target),
            step => unreachable!("{step} does not receive"),
        };
        self.shapes[receiver as usize].check_lengths(target, &self.shapes[sender as usize], sent)?;
        self.proof.n_messages += 1;
        self.proof.n_chunks += u64::from(sent.count);
        if self.collective == Collective::Barrier {
            self.heard.transfer(sender, receiver);
            return Ok(());
        }
        self.write(receiver, target, |c, offset| {
            let arriving = c.read(sender, sent, offset)?;
            match own {
                None => Ok(arriving),
                Some(source) => {
                    let own = c.read(receiver, source, offset)?;
                    c.values.fold_two(own, arriving)
                }
            }
        })
    }
}

impl Watch for Check<'_> {
    type Fault = CheckError;

    fn begin(&mut self, rank: Rank, round: usize) -> Result<(), CheckError> {
        let steps = self.programs[rank as usize].steps_of(round);
        let error = |index: usize, fault| CheckError { rank, at: Some((round, index, steps[index])), fault };
        let shape = &self.shapes[rank as usize];
        for (index, step) in steps.iter().enumerate() {
            shape.check(*step).map_err(|fault| error(index, fault))?;
        }
        if self.collective != Collective::Barrier {
            self.races[rank as usize].check(shape, steps).map_err(|(index, fault)| error(index, fault))?;
        }
        for (index, step) in steps.iter().enumerate() {
            self.local(rank, *step).map_err(|fault| error(index, fault))?;
        }
        Ok(())
    }

    fn transfer(&mut self, send: At, receive: At) -> Result<(), CheckError> {
        self.message(send, receive).map_err(|fault| {
            let at = Some((receive.round, receive.step, self.step(receive)));
            CheckError { rank: receive.rank, at, fault }
        })
    }

    fn end(&mut self, rank: Rank, _round: usize) -> Result<(), CheckError> {
        if self.collective == Collective::Barrier {
            self.heard.end(rank);
        }
        Ok(())
    }
}
