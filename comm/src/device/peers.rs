//! What a launch of a collective over boards is given, laid out as the kernels read it.

use super::{Board, Site};

const RANKS: usize = Board::RANKS_MAX;

/// The one argument of [`Kernel::Fold`](super::Kernel::Fold), [`Kernel::TwoShot`](super::Kernel::TwoShot) and
/// [`Kernel::Copy`](super::Kernel::Copy); `PeerArguments` in `kernels/board.cuh` is the same, and says what each field is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct PeerArguments {
    pub(super) boards: [u64; RANKS],
    pub(super) sources: [u64; RANKS],
    pub(super) outgoing: [u64; RANKS],
    pub(super) targets: [u64; RANKS],
    pub(super) incoming: [u64; RANKS],
    pub(super) says: [u32; RANKS],
    pub(super) expects: [u32; RANKS],
    pub(super) status: u64,
    pub(super) abort: u64,
    pub(super) limit_ns: u64,
    pub(super) factor: u64,
    pub(super) whole: u64,
    pub(super) half: u64,
    pub(super) room: u64,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) steps: u32,
    pub(super) span: u32,
    pub(super) pieces: u32,
    pub(super) piece: u32,
    pub(super) first: u32,
    pub(super) n_sources: u32,
    pub(super) divisor: u32,
    pub(super) reserved: u32,
}

const _: () = assert!(size_of::<PeerArguments>() == 864, "the kernels' text asserts the same");

impl PeerArguments {
    /// Says and expects something else than the same call by another kernel does.
    pub(super) fn mark(&mut self, mark: u32) {
        self.says.iter_mut().chain(&mut self.expects).for_each(|digest| *digest ^= mark);
    }

    /// A meeting of all ranks, who bring nothing but the same digest.
    pub(super) fn meeting(site: &Site<'_>, digest: u32) -> PeerArguments {
        let ranks = site.boards.len();
        let mut arguments = PeerArguments {
            status: site.status,
            abort: site.abort,
            limit_ns: u64::try_from(site.limit.as_nanos()).unwrap_or(u64::MAX),
            rank: site.rank as u32,
            ranks: ranks as u32,
            steps: 1,
            ..PeerArguments::default()
        };
        arguments.boards[..ranks].copy_from_slice(site.boards);
        arguments.says[..ranks].fill(digest);
        arguments.expects[..ranks].fill(digest);
        arguments
    }

    /// How many steps the launch takes: by so much the step in the board grows.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// The digests that this rank expects of each rank's call.
    #[must_use]
    pub fn digests(&self) -> &[u32] {
        &self.expects[..self.ranks as usize]
    }
}
