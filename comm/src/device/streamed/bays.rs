//! How the ranks' bays are shared out for a row: what lies where in each, from the programs of all ranks.

use std::collections::BTreeMap;

use super::super::{Arguments, Board};
use crate::schedule::{Buffer, Program, Step};

/// What all bays have room for, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bays {
    /// The bytes of a chunk in a window.
    unit: u64,
    shares: Vec<Share>,
    most_steps: u32,
}

/// One rank's bay, in chunks: its scratch, its staged input, and the messages from each rank.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Share {
    scratch: u32,
    /// The chunks of the input that the program reads, in order.
    staged: Vec<u32>,
    channels: Vec<Channel>,
}

/// Messages from one rank to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Channel {
    /// Where they lie in the receiver's bay, in chunks.
    first: u32,
    /// The chunks of the longest.
    width: u32,
    /// How many may lie there.
    pub(super) depth: u32,
}

/// What chunks in bays are aligned to: more than any element.
const ALIGNMENT: u64 = 16;

/// The messages of one channel in one round of either end, and the longest of all.
#[derive(Default)]
struct Traffic {
    at_once: u32,
    width: u32,
}

impl Bays {
    /// Shares out bays of `bytes` bytes for these programs, one for each rank. `stages` leaves room for inputs. `None`, for all
    /// ranks alike, where there is no room, or a program folds more than a launch can.
    pub(crate) fn new(programs: &[Program], stages: bool, bytes: u64) -> Option<Bays> {
        if programs.len() > Board::RANKS_MAX {
            return None;
        }
        let folds_most = programs.iter().flat_map(Program::rounds).flatten().map(|step| match step {
            Step::Reduce { runs, .. } => *runs as usize,
            _ => 0,
        });
        if folds_most.max().unwrap_or(0) > Arguments::SOURCES_MAX {
            return None;
        }
        let mut traffic = traffic(programs);
        let shares: Vec<(Share, u64)> = programs
            .iter()
            .map(|program| {
                let staged = if stages { inputs(program) } else { Vec::new() };
                let mut end = program.scratch + staged.len() as u32;
                let channel = |from: u32| {
                    let Traffic { at_once, width } = traffic.remove(&(from, program.me)).unwrap_or_default();
                    // Twice what goes at once is what it takes for no stream to stand still: see `kernels/README.md`.
                    let channel = Channel { first: end, width, depth: 2 * at_once };
                    end += channel.width * channel.depth;
                    channel
                };
                let channels = (0..program.size).map(channel).collect();
                (Share { scratch: program.scratch, staged, channels }, u64::from(end))
            })
            .collect();
        let most = shares.iter().map(|(_, chunks)| *chunks).max()?.max(1);
        let unit = bytes / most / ALIGNMENT * ALIGNMENT;
        let steps = |program: &Program| program.rounds().map(|round| round.len() as u32 + 2).sum::<u32>();
        let most_steps = programs.iter().map(steps).max()?;
        (unit > 0).then(|| Bays { unit, shares: shares.into_iter().map(|(share, _)| share).collect(), most_steps })
    }

    /// The bytes of a chunk in a window.
    pub(crate) fn unit(&self) -> u64 {
        self.unit
    }

    /// About how much the busiest rank's stream does in a window.
    pub(super) fn most_steps(&self) -> u32 {
        self.most_steps
    }

    pub(super) fn channel(&self, from: usize, to: usize) -> Channel {
        self.shares[to].channels[from]
    }

    /// Where the message of a number, from 1 on, lies in the receiver's bay.
    pub(super) fn message_at(&self, channel: Channel, number: u32) -> u64 {
        u64::from(channel.first + (number - 1) % channel.depth * channel.width) * self.unit
    }

    /// Where a slot of the scratch of rank `me` lies in its bay.
    pub(super) fn scratch_at(&self, slot: u32) -> u64 {
        u64::from(slot) * self.unit
    }

    /// The chunks of its input that rank `me` stages.
    pub(super) fn staged(&self, me: usize) -> &[u32] {
        &self.shares[me].staged
    }

    /// Where a staged chunk of its input lies in its bay.
    pub(super) fn staged_at(&self, me: usize, chunk: u32) -> u64 {
        let share = &self.shares[me];
        let place = share.staged.binary_search(&chunk).expect("the program reads the chunk");
        (u64::from(share.scratch) + place as u64) * self.unit
    }
}

/// What goes between each two ranks, by sender and receiver.
fn traffic(programs: &[Program]) -> BTreeMap<(u32, u32), Traffic> {
    let mut all: BTreeMap<(u32, u32), Traffic> = BTreeMap::new();
    for program in programs {
        for round in program.rounds() {
            let mut counts: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            for step in round {
                let pair = match *step {
                    Step::Send { to, .. } => (program.me, to),
                    Step::Recv { from, .. } | Step::RecvReduce { from, .. } => (from, program.me),
                    Step::Copy { .. } | Step::Reduce { .. } => continue,
                };
                *counts.entry(pair).or_default() += 1;
                let traffic = all.entry(pair).or_default();
                traffic.width = traffic.width.max(step.count());
            }
            for (pair, count) in counts {
                let traffic = all.entry(pair).or_default();
                traffic.at_once = traffic.at_once.max(count);
            }
        }
    }
    all
}

/// The chunks of the input that a program reads.
fn inputs(program: &Program) -> Vec<u32> {
    let mut chunks: Vec<u32> = program
        .rounds()
        .flatten()
        .filter_map(|step| match step {
            Step::Send { source, .. } | Step::RecvReduce { source, .. } | Step::Copy { source, .. } => Some(source),
            Step::Recv { .. } | Step::Reduce { .. } => None,
        })
        .filter(|source| source.buffer == Buffer::Input)
        .flat_map(|source| source.first..source.end())
        .collect();
    chunks.sort_unstable();
    chunks.dedup();
    chunks
}
