//! Boards: what ranks of one host show each other, in cache lines that carry their own number. `README.md` has the
//! reasoning.

mod line;
#[cfg(all(test, loom))]
mod model;

pub use line::Heading;
pub(crate) use line::{BoardLine, BoardMemory};

use crate::link::Stamp;
use crate::segment::SharedSegment;

/// How many turns a board keeps.
pub(crate) const SLOTS: usize = 16;
/// Lines of a slot.
pub(crate) const LINES: usize = 160;

/// The boards of a host: this rank's own, and its neighbours' to read.
pub struct Board {
    mine: BoardMemory,
    /// Each rank's; `None` at this rank's own place.
    theirs: Box<[Option<BoardMemory>]>,
    /// The turn that is next or under way.
    turn: u64,
    /// The highest turn plus one that each rank is known to have published.
    seen: Box<[u64]>,
    /// Bytes of this turn taken from each rank.
    taken: Box<[usize]>,
    /// Room for one message of each rank.
    scratch: Vec<u8>,
    _segments: Vec<SharedSegment>,
}

// SAFETY: the pointers are to memory kept mapped by the segments, and only this value writes its owner's board.
unsafe impl Send for Board {}

impl Board {
    /// The longest message.
    pub const BYTES: usize = BoardMemory::bytes_in(LINES);

    /// The boards of this rank and, by rank, its neighbours.
    pub(crate) fn new(mine: &SharedSegment, theirs: &[Option<SharedSegment>]) -> Board {
        let segments = theirs.iter().flatten().chain([mine]).cloned().collect();
        let memories = theirs.iter().map(|segment| segment.as_ref().map(|segment| segment.board())).collect();
        Board::over(mine.board(), memories, segments)
    }

    fn over(mine: BoardMemory, theirs: Box<[Option<BoardMemory>]>, segments: Vec<SharedSegment>) -> Board {
        let size = theirs.len();
        let seen = theirs.iter().map(|board| if board.is_some() { 0 } else { u64::MAX }).collect();
        Board { mine, theirs, turn: 0, seen, taken: vec![0; size].into(), scratch: Vec::new(), _segments: segments }
    }

    /// The turn that is next or under way.
    #[inline]
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// A rank that may still read what publishing this turn would overwrite.
    #[inline]
    pub fn crowded_by(&mut self) -> Option<usize> {
        let needed = (self.turn + 2).saturating_sub(self.mine.slots);
        (0..self.theirs.len()).find(|rank| self.seen[*rank] < needed && !self.has_published(*rank, needed))
    }

    #[cold]
    fn has_published(&mut self, rank: usize, needed: u64) -> bool {
        let board = self.theirs[rank].as_ref().expect("of another rank");
        // A later turn in the same slot shows that the needed one has been published, too.
        self.seen[rank] = self.seen[rank].max(board.published(needed - 1));
        self.seen[rank] >= needed
    }

    /// Publishes this rank's part of the turn. Nobody is [in the way](Board::crowded_by).
    ///
    /// # Panics
    ///
    /// If the message is longer than [`Board::BYTES`], or somebody is in the way.
    #[inline]
    pub fn publish(&mut self, heading: Heading, message: &[u8]) {
        assert!(self.crowded_by().is_none(), "a turn may be published when nobody reads the one it overwrites");
        // SAFETY: this value alone writes the board, and everybody has finished the turn that used the slot before.
        unsafe { self.mine.publish(self.turn, heading, message) };
    }

    /// What a rank says that the turn is, once it has published it.
    ///
    /// # Panics
    ///
    /// If it is this rank, here and in the calls below.
    #[inline]
    pub fn heading(&mut self, rank: usize) -> Option<Heading> {
        let heading = self.theirs[rank].as_ref().expect("of another rank").heading(self.turn)?;
        self.seen[rank] = self.turn + 1;
        Some(heading)
    }

    /// What this rank and another said of the last turns, latest first, as far as both boards still show it.
    pub fn earlier(&self, rank: usize) -> impl Iterator<Item = (Stamp, Stamp)> {
        let theirs = self.theirs[rank].as_ref().expect("of another rank");
        let kept = self.turn.saturating_sub(self.mine.slots - 1)..self.turn;
        kept.rev().filter_map(|turn| Some((self.mine.heading(turn)?.stamp, theirs.heading(turn)?.stamp)))
    }

    /// Takes bytes of a rank's message from `from` on, as far as they are there; whether all of `target` is filled now.
    ///
    /// What was taken before in this turn is not taken again: every call of a turn passes the same `from` and `target`.
    #[inline]
    pub fn take(&mut self, rank: usize, from: usize, target: &mut [u8]) -> bool {
        let board = self.theirs[rank].as_ref().expect("of another rank");
        let taken = &mut self.taken[rank];
        let rest = &mut target[*taken..];
        *taken += board.read(self.turn, from + *taken, rest);
        *taken == target.len()
    }

    /// As [`Board::take`], to [`Board::taken`].
    #[inline]
    pub fn take_aside(&mut self, rank: usize, from: usize, bytes: usize) -> bool {
        let mut scratch = std::mem::take(&mut self.scratch);
        if scratch.is_empty() {
            scratch.resize(self.theirs.len() * Board::BYTES, 0);
        }
        let done = self.take(rank, from, &mut scratch[rank * Board::BYTES..][..bytes]);
        self.scratch = scratch;
        done
    }

    /// What was taken aside of a rank's message.
    #[inline]
    #[must_use]
    pub fn taken(&self, rank: usize) -> &[u8] {
        &self.scratch[rank * Board::BYTES..][..self.taken[rank]]
    }

    /// Ends the turn: nothing of it is looked at any more.
    #[inline]
    pub fn finish(&mut self) {
        self.taken.fill(0);
        self.turn += 1;
    }
}
