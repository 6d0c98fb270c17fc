//! Boards: what ranks of one host show each other, in cache lines that carry their own number. `README.md` has the
//! reasoning.

mod line;
#[cfg(all(test, loom))]
mod model;
mod pair;

use std::ops::Range;

pub use line::Heading;
pub(crate) use line::{BoardLine, BoardMemory, FinishedLine};
use pair::Pair;
pub(crate) use pair::{PAIR_BYTES, PairMemory};

use crate::extents::Extents;
use crate::link::Stamp;
use crate::segment::SharedSegment;

/// Lines of a slot.
pub(crate) const LINES: usize = 192;

/// Bytes that the slots, and that the halls, of one host take together, as far as there are few ranks.
const HOST_BYTES: usize = 32 << 20;
const SLOTS: std::ops::RangeInclusive<usize> = 16..=64;
/// The most is more than a core's own cache holds: see `extents.rs`.
const HALL_BYTES: std::ops::RangeInclusive<usize> = 128 << 10..=4 << 20;
/// The longest message, as a share of its hall, and at most.
const MESSAGES: usize = 8;
const MESSAGE_BYTES: usize = 512 << 10;

/// How much of a hall ranks use that share cores: room for so many messages, and so many bytes at least.
const CROWDED_MESSAGES: usize = 4;
const CROWDED_BYTES: usize = 256 << 10;

/// How many turns a board keeps, where that many ranks share a host.
pub(crate) fn slots(neighbours: usize) -> usize {
    let fair = HOST_BYTES / neighbours.max(1) / (LINES * size_of::<BoardLine>());
    (1 << fair.max(1).ilog2()).clamp(*SLOTS.start(), *SLOTS.end())
}

/// Bytes for long messages, where that many ranks share a host; 0 where there is no room for them.
pub(crate) fn hall_bytes(neighbours: usize) -> usize {
    let fair = HOST_BYTES / neighbours.max(1);
    if fair < *HALL_BYTES.start() { 0 } else { (1 << fair.ilog2()).min(*HALL_BYTES.end()) }
}

/// The boards of a host: this rank's own, and its neighbours' to read.
pub struct Board {
    mine: BoardMemory,
    /// Each rank's; `None` at this rank's own place.
    theirs: Box<[Option<BoardMemory>]>,
    /// The turn that is next or under way.
    turn: u64,
    /// How many turns each rank is known to have finished.
    finished: Box<[u64]>,
    /// How many turns of this rank are published: where it has got ahead, more than `turn + 1`.
    published: u64,
    /// Bytes of this turn taken from each rank.
    taken: Box<[usize]>,
    /// Where this rank's long messages lie.
    extents: Extents,
    /// Room for one short message of each rank.
    scratch: Vec<u8>,
    /// Of two ranks, the cells that they hand to and fro.
    pair: Option<Pair>,
    /// Whether the turn under way uses these.
    swaps: bool,
    /// The last turn that used them, until the other rank is known to have published it.
    swapped: Option<u64>,
    _segments: Vec<SharedSegment>,
}

/// Scratch for one rank: at least what fits into a slot's lines.
const SCRATCH_BYTES: usize = LINES * 64;

// SAFETY: the pointers are to memory kept mapped by the segments, and only this value writes its owner's board.
unsafe impl Send for Board {}

impl Board {
    /// The longest message, where all `size` ranks of a group share a host.
    #[must_use]
    pub fn longest(size: usize) -> usize {
        (hall_bytes(size) / MESSAGES).min(MESSAGE_BYTES).max(line::short_bytes(LINES))
    }

    /// The boards of this rank and, by rank, its neighbours.
    pub(crate) fn new(mine: &SharedSegment, theirs: &[Option<SharedSegment>]) -> Board {
        let segments = theirs.iter().flatten().chain([mine]).cloned().collect();
        let memories = theirs.iter().map(|segment| segment.as_ref().map(|segment| segment.board())).collect();
        let board = Board::over(mine.board(), memories, segments);
        let pair = match theirs {
            [None, Some(_)] => mine.pair().map(|memory| Pair::new(memory, 0)),
            [Some(theirs), None] => theirs.pair().map(|memory| Pair::new(memory, 1)),
            _ => None,
        };
        Board { pair, ..board }
    }

    fn over(mine: BoardMemory, theirs: Box<[Option<BoardMemory>]>, segments: Vec<SharedSegment>) -> Board {
        let size = theirs.len();
        let finished = theirs.iter().map(|board| if board.is_some() { 0 } else { u64::MAX }).collect();
        let (taken, scratch, extents) = (vec![0; size].into(), Vec::new(), Extents::new(mine.hall_bytes));
        let (pair, swaps, swapped) = (None, false, None);
        Board {
            mine,
            theirs,
            turn: 0,
            finished,
            published: 0,
            taken,
            extents,
            scratch,
            pair,
            swaps,
            swapped,
            _segments: segments,
        }
    }

    /// The turn that is next or under way.
    #[inline]
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// How many exchanges over cells have ended.
    pub(crate) fn exchange(&self) -> u64 {
        self.pair.as_ref().map_or(0, Pair::exchange)
    }

    /// Begins a turn, again and again until it is published: whether the messages of two ranks are in the cells that they
    /// hand to and fro. Both say the same. Then neither gets more than one turn ahead of the other.
    #[inline]
    pub fn begin(&mut self, swaps: bool) {
        self.swaps = swaps && self.pair.is_some();
    }

    /// The cells, in a turn that swaps.
    #[inline(always)]
    fn swapping(&mut self) -> Option<&mut Pair> {
        self.pair.as_mut().filter(|_| self.swaps)
    }

    /// A rank that may still read what publishing a message of `bytes` would overwrite.
    #[inline]
    pub fn crowded_by(&mut self, bytes: usize) -> Option<usize> {
        self.look_at_swapped();
        if self.swaps {
            return self.swapped.map(|_| self.other());
        }
        if let Some(rank) = self.behind((self.turn + 1).saturating_sub(self.mine.slots)) {
            return Some(rank);
        }
        while !self.mine.is_short(bytes) && self.find(bytes).is_none() {
            let oldest = self.extents.oldest().expect("an empty hall has room for the longest message");
            if let Some(rank) = self.behind(oldest + 1) {
                return Some(rank);
            }
            self.extents.release_below(oldest + 1);
        }
        None
    }

    /// Where in the hall a message of that many bytes may lie. Where ranks share cores they use no more of it than a few messages
    /// take: more wouldn't stay in the cores' caches, and each fresh page costs as much as a small call.
    #[inline]
    fn find(&self, bytes: usize) -> Option<usize> {
        let front = if self.mine.crowded { (CROWDED_MESSAGES * bytes).max(CROWDED_BYTES) } else { usize::MAX };
        self.extents.find_within(front, bytes)
    }

    /// Of two ranks, the one that isn't this.
    fn other(&self) -> usize {
        usize::from(self.theirs[0].is_none())
    }

    /// Looks whether the other rank has published the last turn that swapped.
    #[inline]
    fn look_at_swapped(&mut self) {
        if let Some(turn) = self.swapped
            && self.pair.as_ref().is_some_and(Pair::has_the_last)
        {
            let other = self.other();
            self.finished[other] = self.finished[other].max(turn);
            self.swapped = None;
        }
    }

    /// A rank that has not finished so many turns.
    #[inline]
    fn behind(&mut self, turns: u64) -> Option<usize> {
        (0..self.theirs.len()).find(|rank| self.finished[*rank] < turns && !self.has_finished(*rank, turns))
    }

    #[cold]
    fn has_finished(&mut self, rank: usize, turns: u64) -> bool {
        let board = self.theirs[rank].as_ref().expect("of another rank");
        self.finished[rank] = self.finished[rank].max(board.finished());
        self.finished[rank] >= turns
    }

    /// Publishes the first turn that is not [published](Board::published) yet, before the ones in front of it are finished, if
    /// its message is short and nobody is in the way. Whether it did.
    pub fn publish_ahead(&mut self, heading: Heading, message: &[u8]) -> bool {
        let turn = self.published;
        let goes = self.gets_ahead() && self.mine.is_short(message.len());
        if !goes || self.behind((turn + 1).saturating_sub(self.mine.slots)).is_some() {
            return false;
        }
        // SAFETY: this value alone writes the board, and everybody has finished the turns that used the slot before.
        unsafe { self.mine.publish(turn, heading, message, 0) };
        self.published = turn + 1;
        true
    }

    /// Whether turns can be published ahead: two ranks hand cells to and fro instead.
    #[inline]
    #[must_use]
    pub fn gets_ahead(&self) -> bool {
        self.pair.is_none()
    }

    /// How many turns of this rank are published.
    #[inline]
    #[must_use]
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Publishes this rank's part of the turn. Nobody is [in the way](Board::crowded_by).
    ///
    /// # Panics
    ///
    /// If the message is longer than [`Board::longest`], or somebody is in the way.
    #[inline]
    pub fn publish(&mut self, heading: Heading, message: &[u8]) {
        assert!(
            self.crowded_by(message.len()).is_none(),
            "a turn may be published when nobody reads the one it overwrites"
        );
        let turn = self.turn;
        debug_assert_eq!(turn, self.published, "a turn is published once");
        self.published = turn + 1;
        if let Some(pair) = self.swapping() {
            return pair.publish(turn, heading, message);
        }
        let place = if self.mine.is_short(message.len()) { None } else { self.find(message.len()) };
        if let Some(place) = place {
            self.extents.take(self.turn, &(place..place + message.len()));
        }
        // SAFETY: this value alone writes the board, and everybody has finished the turns that used the slot and the place
        // before.
        unsafe { self.mine.publish(self.turn, heading, message, place.unwrap_or(0)) };
    }

    /// What a rank says that the turn is, once it has published it.
    ///
    /// # Panics
    ///
    /// If it is this rank, here and in the calls below.
    #[inline]
    pub fn heading(&self, rank: usize) -> Option<Heading> {
        let board = self.theirs[rank].as_ref().expect("of another rank");
        let in_slot = || board.heading(self.turn);
        let in_cell = || self.pair.as_ref()?.heading();
        // In the other place it shows that the rank makes another call, which the heading says. What is in the slot is of this
        // turn; what is in the cell may be of a later one, and then this one's is in the slot by now.
        match self.swaps {
            true => in_cell().map(|later| in_slot().unwrap_or(later)).or_else(in_slot),
            false => in_slot().or_else(|| in_cell().map(|later| in_slot().unwrap_or(later))),
        }
    }

    /// What this rank and another said of the last turns, latest first, as far as both boards still show it.
    pub fn earlier(&self, rank: usize) -> impl Iterator<Item = (Stamp, Stamp)> {
        let theirs = self.theirs[rank].as_ref().expect("of another rank");
        let kept = self.turn.saturating_sub(self.mine.slots - 1)..self.turn;
        let in_slots =
            kept.rev().filter_map(|turn| Some((self.mine.heading(turn)?.stamp, theirs.heading(turn)?.stamp)));
        let in_cell = self.pair.as_ref().and_then(|pair| {
            let turn = pair.other_turn(self.turn)?;
            Some((self.mine.heading(turn)?.stamp, pair.heading()?.stamp))
        });
        in_cell.into_iter().chain(in_slots)
    }

    /// Takes the bytes `range` of a rank's message of `bytes`, as far as they are there; whether all of `target` is filled.
    ///
    /// What was taken before in this turn is not taken again: every call of a turn passes the same arguments, here and in
    /// [`Board::has`].
    #[inline]
    pub fn take(&mut self, rank: usize, bytes: usize, range: &Range<usize>, target: &mut [u8]) -> bool {
        let board = self.theirs[rank].as_ref().expect("of another rank");
        let taken = &mut self.taken[rank];
        if let Some(pair) = self.pair.as_mut().filter(|_| self.swaps) {
            let there = (pair.arrived(bytes).clamp(range.start, range.end) - range.start).max(*taken);
            // SAFETY: they have arrived, and this turn is not finished meanwhile.
            let part = unsafe { pair.part(bytes, range.start + *taken..range.start + there) };
            target[*taken..there].copy_from_slice(part);
            *taken = there;
        } else if board.is_short(bytes) {
            *taken += board.read(self.turn, range.start + *taken, &mut target[*taken..]);
        } else {
            let there = board.arrived(self.turn, range, *taken);
            // SAFETY: they have arrived, and this turn is not finished meanwhile.
            let part = unsafe { board.part(self.turn, range.start + *taken..range.start + there) };
            target[*taken..there].copy_from_slice(part);
            *taken = there;
        }
        *taken == target.len()
    }

    /// How many bytes of `range` of a rank's message of `bytes` are there, for [`Board::part`] to show: of a short message
    /// all or none.
    #[inline]
    pub fn has(&mut self, rank: usize, bytes: usize, range: &Range<usize>) -> usize {
        let board = self.theirs[rank].as_ref().expect("of another rank");
        if let Some(pair) = self.pair.as_mut().filter(|_| self.swaps) {
            self.taken[rank] = pair.arrived(bytes).clamp(range.start, range.end) - range.start;
            return self.taken[rank];
        }
        if !board.is_short(bytes) {
            self.taken[rank] = board.arrived(self.turn, range, self.taken[rank]);
            return self.taken[rank];
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        if scratch.is_empty() {
            scratch.resize(self.theirs.len() * SCRATCH_BYTES, 0);
        }
        let whole = self.take(rank, bytes, range, &mut scratch[rank * SCRATCH_BYTES..][..range.len()]);
        self.scratch = scratch;
        if whole { range.len() } else { 0 }
    }

    /// What is there of `range` of a rank's message of `bytes`, from byte `from` of the range on.
    ///
    /// # Panics
    ///
    /// If that is not as much as `len`.
    #[inline]
    #[must_use]
    pub fn part(&self, rank: usize, bytes: usize, range: &Range<usize>, from: usize, len: usize) -> &[u8] {
        assert!(from + len <= self.taken[rank], "bytes that are not there yet");
        let board = self.theirs[rank].as_ref().expect("of another rank");
        if let Some(pair) = self.pair.as_ref().filter(|_| self.swaps) {
            // SAFETY: they have arrived (`has`), and the turn is not finished while `self` is borrowed.
            return unsafe { pair.part(bytes, range.start + from..range.start + from + len) };
        }
        if board.is_short(bytes) {
            return &self.scratch[rank * SCRATCH_BYTES..][from..from + len];
        }
        // SAFETY: they have arrived (`has`), and the turn is not finished while `self` is borrowed.
        unsafe { board.part(self.turn, range.start + from..range.start + from + len) }
    }

    /// The next [`Board::take`] of this rank's message in this turn is of another range.
    #[inline]
    pub fn take_anew(&mut self, rank: usize) {
        self.taken[rank] = 0;
    }

    /// Ends the turn: nothing of it is looked at any more. Whether another rank may wait for that.
    #[inline]
    pub fn finish(&mut self) -> bool {
        let swaps = self.swaps;
        if let Some(pair) = self.swapping() {
            pair.finish();
            self.swapped = Some(self.turn);
        } else {
            self.mine.finish(self.turn + 1);
        }
        self.taken.fill(0);
        self.swaps = false;
        self.turn += 1;
        !swaps
    }
}
