//! Proves that a set of programs, one for each rank, does what its collective promises.
//!
//! The programs are run once, over symbols in place of bytes, with no buffering: a message moves only when both its
//! ends are in progress. Senders are named and messages between two ranks keep their order, so what each step reads
//! does not depend on timing; and the steps of a round touch disjoint memory, so it does not depend on their order
//! either. One run therefore stands for all runs, with any amount of buffering. What is proved:
//!
//! - every output holds what it must: the right contributions, each exactly once;
//! - all ranks of an all-reduce fold each chunk in the same order, so they end with the same bits;
//! - nothing is read that nobody has written; the input is not written to, nor an output that the rank does not have;
//! - no two steps of a round touch the same memory, unless both read it;
//! - both ends of a message are equally long, whatever the lengths of blocks (or, for rows that need it, when all
//!   blocks are equally long);
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
mod symbolic;
mod values;

use super::run::{At, Stop, run};
use super::{Program, Step};
use crate::collective::Collective;

pub use fault::{CheckError, Fault, Place};

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
    let mut check = symbolic::Check::new(collective, programs, mode);
    match run(programs, &mut check) {
        Ok(()) => check.result(),
        Err(Stop::Fault(error)) => Err(error),
        Err(Stop::Stuck(waiting, rounds)) => Err(deadlock(programs, &waiting, &rounds)),
    }
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
    let n_chunks = match collective {
        _ if collective.is_message() => return set(0, format!("{collective} is not run from a schedule")),
        Collective::Barrier => 1,
        _ if collective.has_blocks() => n,
        _ => first.chunks,
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
    CheckError { rank: at.rank, at: Some(Box::new(Place { round: at.round, index: at.step, step })), fault }
}
