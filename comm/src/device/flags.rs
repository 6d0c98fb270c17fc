//! Launches that only tell and wait, between what streams copy by themselves.

use super::plan::check_site;
use super::{Board, Grid, PeerArguments, Site, Tuning};
use crate::error::Result;

const RANKS: usize = Board::RANKS_MAX;

/// What a launch tells the other ranks of the messages of a call, by rank, and then waits for; 0 where there is nothing. Numbers
/// count from 1 in each call, apart for each pair of ranks and direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Signals {
    /// How many messages have been put into each rank's bay.
    pub puts: [u32; RANKS],
    /// How many have been taken of those that each rank has put into this one's.
    pub takes: [u32; RANKS],
    /// How many each rank must have put into this one's.
    pub awaited_puts: [u32; RANKS],
    /// How many each rank must have taken of those that this one has put there.
    pub awaited_takes: [u32; RANKS],
}

impl Signals {
    /// Whether there is something to wait for.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.awaited_puts.iter().chain(&self.awaited_takes).any(|number| *number != 0)
    }
}

/// The one argument of [`Kernel::Flags`](super::Kernel::Flags); `FlagsArguments` in `kernels/flags.cuh` is the same, and says what each field is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct FlagsArguments {
    given: PeerArguments,
    puts: [u32; RANKS],
    takes: [u32; RANKS],
    awaited_puts: [u32; RANKS],
    awaited_takes: [u32; RANKS],
    meets: u32,
    reserved: u32,
}

const _: () = assert!(size_of::<FlagsArguments>() == 864 + 4 * 64 + 8, "the kernel's text asserts the same");

/// A launch of [`Kernel::Flags`](super::Kernel::Flags).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlagsPlan {
    /// The kernel's one argument.
    pub arguments: FlagsArguments,
}

impl FlagsPlan {
    /// Exactly so many threads: one for each rank, and no more than a warp.
    pub const GRID: Grid = Grid { blocks: 1, threads: 32 };

    /// The launch that tells and waits for `signals`, in a call of which all ranks know `digest`; with `meets`, all ranks meet after
    /// that. A call begins and ends with a launch that meets. It may be launched in a captured graph.
    ///
    /// # Errors
    ///
    /// What no launch can do, as [`Plan::new`](super::Plan::new).
    pub fn new(signals: &Signals, meets: bool, digest: u32, site: &Site<'_>) -> Result<FlagsPlan> {
        check_site("a call", site, &Tuning::default())?;
        let Signals { puts, takes, awaited_puts, awaited_takes } = *signals;
        let (given, meets) = (PeerArguments::meeting(site, digest), u32::from(meets));
        Ok(FlagsPlan {
            arguments: FlagsArguments { given, puts, takes, awaited_puts, awaited_takes, meets, reserved: 0 },
        })
    }

    /// What the launch has in common with those of collectives.
    #[must_use]
    pub fn given(&self) -> &PeerArguments {
        &self.arguments.given
    }
}
