//! Boards: the memory that each rank lends its peers, and where everything lies in it.

use crate::error::{Error, Result};

/// How a rank's board is laid out: a head with its flags, two halves of cells, slots for messages, and a bay for what streams
/// copy. The same on all ranks.
///
/// A board is memory of its owner's device, mapped by all peers, at an address that is a multiple of 256. It is all zeros
/// before the first launch, and a launch that failed leaves it unusable: `kernels/README.md` says what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Board {
    blocks: u32,
    room: u64,
}

impl Board {
    /// The most ranks that share boards.
    pub const RANKS_MAX: usize = 16;

    /// The most blocks of a launch.
    pub const BLOCKS_MAX: u32 = 64;

    /// Scratch for any job: a step of all blocks then moves up to 16 MiB, which takes tens of microseconds at some hundred GB/s,
    /// beside which the few of a meeting count little; and both halves stay in the cache of a large GPU.
    pub const SCRATCH: u64 = 32 << 20;

    /// Where the last step of the launches that have ended lies: a `u32` that the kernels count on.
    pub const STEP_AT: u64 = 0;

    /// Where the flags of collectives end that begin at byte 256, eight bytes each; those of messages follow.
    pub const FLAGS_END: u64 = 256 + 8 * Board::BLOCKS_MAX as u64 * Board::RANKS_MAX as u64;

    /// Where the cells begin.
    pub const CELLS_AT: u64 = Board::FLAGS_END
        + (8 * Board::SLOTS + 8 + 4 + 4) * Board::LANES_MAX as u64 * Board::RANKS_MAX as u64
        + 32 * Board::BLOCKS_MAX as u64
        + (8 + 8) * Board::RANKS_MAX as u64;

    /// The most blocks that move one message.
    pub const LANES_MAX: u32 = 32;

    /// How many chunks of messages to one rank a block may have lying in its slots.
    pub const SLOTS: u64 = 2;

    /// What a bay has at least: rows ask for up to some hundred places in it.
    const BAY_MIN: u64 = 64 << 10;

    /// What a block needs at least: a cell of 16 bytes for each rank, and one for what it folds itself.
    const ROOM_MIN: u64 = (Board::RANKS_MAX as u64 + 1) * 16;

    /// What the cells of one block are aligned to.
    const ROOM_STEP: u64 = 128;

    /// A board with `scratch` bytes of cells, half as many of slots and as many of its bay, for launches of up to `blocks` blocks.
    ///
    /// # Errors
    ///
    /// More blocks than [`Board::BLOCKS_MAX`], or none, or too few bytes for them.
    pub fn new(scratch: u64, blocks: u32) -> Result<Board> {
        if blocks == 0 || blocks > Board::BLOCKS_MAX {
            let cause = format!("a board for launches of {blocks} blocks");
            return Err(Error::invalid(cause).hint(format!("choose 1 to {} blocks", Board::BLOCKS_MAX)));
        }
        let room = scratch / 2 / u64::from(blocks) / Board::ROOM_STEP * Board::ROOM_STEP;
        if room < Board::ROOM_MIN {
            let needed = 2 * u64::from(blocks) * Board::ROOM_MIN.next_multiple_of(Board::ROOM_STEP);
            let cause = format!("{scratch} bytes of scratch have no room for the cells of {blocks} blocks");
            return Err(Error::invalid(cause).hint(format!("give at least {needed} bytes, or fewer blocks")));
        }
        if room > u64::from(u32::MAX) {
            let cause = format!("{scratch} bytes of scratch for {blocks} blocks");
            return Err(Error::invalid(cause).hint("a block has use for 4 GiB at most; some MiB are enough"));
        }
        Ok(Board { blocks, room })
    }

    /// The bytes of a whole board.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bay_at() + self.bay_bytes()
    }

    /// Where the bay begins, behind the slots: where the streams of the other ranks put what they have for this one.
    #[must_use]
    pub fn bay_at(&self) -> u64 {
        self.slots_at() + self.slots_bytes()
    }

    /// The bytes of the bay.
    #[must_use]
    pub fn bay_bytes(&self) -> u64 {
        self.half().max(Board::BAY_MIN).next_multiple_of(256)
    }

    /// Where the slots begin, behind the cells.
    #[must_use]
    pub fn slots_at(&self) -> u64 {
        Board::CELLS_AT + 2 * self.half()
    }

    /// The most blocks that move one message over these boards.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.blocks.min(Board::LANES_MAX)
    }

    /// The bytes of one slot, where there are so many ranks: each block that moves a message has [`Board::SLOTS`] for each rank.
    #[must_use]
    pub fn slot(&self, ranks: usize) -> u64 {
        self.slots_bytes() / (ranks as u64 * u64::from(self.lanes()) * Board::SLOTS) / 16 * 16
    }

    fn slots_bytes(&self) -> u64 {
        let least = Board::RANKS_MAX as u64 * u64::from(self.lanes()) * Board::SLOTS * 16;
        self.half().max(least).next_multiple_of(256)
    }

    /// The most blocks of a launch over these boards.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The bytes of one block's cells in one half.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.room
    }

    /// The bytes of all cells of one half.
    #[must_use]
    pub fn half(&self) -> u64 {
        self.room * u64::from(self.blocks)
    }

    /// Where in a board a block's flag from a peer lies: the peer's step in the upper half of eight bytes, the digest of its
    /// call in the lower.
    ///
    /// # Panics
    ///
    /// When there is no such block or peer.
    #[must_use]
    pub fn flag_at(block: u32, peer: usize) -> u64 {
        assert!(block < Board::BLOCKS_MAX && peer < Board::RANKS_MAX, "block {block}, peer {peer}");
        256 + 8 * (u64::from(block) * Board::RANKS_MAX as u64 + peer as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_and_blocks_have_room_of_their_own() {
        let board = Board::new(1 << 20, 64).expect("room");
        assert_eq!((board.room(), board.half(), board.bytes()), (8192, 1 << 19, 106 * 256 + (2 << 20)));
        assert_eq!((board.slots_at(), board.lanes()), (106 * 256 + (1 << 20), 32));
        assert_eq!((board.bay_at(), board.bay_bytes()), (106 * 256 + (3 << 19), 1 << 19));
        assert_eq!((board.slot(2), board.slot(3), board.slot(16)), (4096, 2720, 512));
        // What is left over is left.
        let board = Board::new(100_000, 3).expect("room");
        assert_eq!((board.room(), board.half()), (16_640, 49_920));
        assert_eq!(Board::flag_at(0, 0), 256);
        assert_eq!(Board::flag_at(63, 15) + 8, Board::FLAGS_END);
        let small = Board::new(2 * 384, 1).expect("just enough");
        assert_eq!((small.slot(16), small.slots_bytes(), small.bay_bytes()), (16, 512, 64 << 10));
    }

    #[test]
    fn boards_that_are_too_small_or_too_wide_are_refused() {
        assert_eq!(Board::new(2 * 384, 1).expect("just enough").room(), 384);
        for (scratch, blocks, says) in [
            (2 * 384 - 1, 1, "give at least 768 bytes"),
            (0, 64, "give at least 49152 bytes"),
            (1 << 20, 0, "choose 1 to 64 blocks"),
            (1 << 20, 65, "choose 1 to 64 blocks"),
            (1 << 40, 1, "some MiB are enough"),
        ] {
            let error = Board::new(scratch, blocks).expect_err("no board");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
