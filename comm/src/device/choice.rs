//! How a collective is done: in one shot or two, by how many blocks, in how many steps. From what all ranks know alike.

use super::{Board, Kernel};
use crate::collective::Collective;

/// What may be set, the same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// The most blocks of a launch; those of the board, if that has fewer.
    pub blocks: u32,
    /// The threads of each block: a multiple of 32.
    pub threads: u32,
    /// Up to how many bytes a vector goes in one shot, instead of what the table says.
    pub one_shot_bytes: Option<u64>,
}

impl Default for Tuning {
    /// As many blocks as the board allows, of 512 threads: 8 KiB at once each, so that all together have the half MiB
    /// under way that 450 GB/s at 1 us of latency take.
    fn default() -> Tuning {
        Tuning { blocks: Board::BLOCKS_MAX, threads: Kernel::THREADS_MAX, one_shot_bytes: None }
    }
}

/// Up to how many ranks, a vector of up to how many bytes goes in one shot. In one shot every rank reads the vectors of all
/// others, and they meet once; in two it reads two parts of each, and they meet once more, which takes about 2 us.
const ONE_SHOT: [(usize, u64); 4] = [
    // Both ways a rank reads as many bytes; one shot meets less often.
    (2, u64::MAX),
    // One and a half vectors more to read: 2 us at some 400 GB/s.
    (4, 512 << 10),
    // Five vectors more.
    (8, 256 << 10),
    // Thirteen vectors more.
    (16, 128 << 10),
];

/// Whether a collective of a vector of `bytes` bytes between `ranks` ranks goes in two shots.
pub(super) fn goes_in_two_shots(collective: Collective, ranks: usize, bytes: u64, tuning: &Tuning) -> bool {
    // One root alone reads from all or is read by all: through its link go as many vectors as in an all_reduce in one shot.
    if !matches!(collective, Collective::AllReduce | Collective::Reduce | Collective::Broadcast) {
        return false;
    }
    let row = ONE_SHOT.iter().find(|(up_to, _)| ranks <= *up_to).expect("a row for every number of ranks");
    ranks > 1 && bytes > tuning.one_shot_bytes.unwrap_or(row.1)
}

/// How a launch walks through its pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Walk {
    pub(super) blocks: u32,
    /// The bytes of a cell: what a block takes of each piece in a step.
    pub(super) span: u32,
    pub(super) steps: u64,
}

/// The walk through pieces of up to `longest` bytes, `cells` of which a block publishes at once and `width` of which it
/// reads or writes at once.
pub(super) fn walk(longest: u64, cells: u64, width: u64, board: &Board, tuning: &Tuning) -> Walk {
    let room = board.room() / cells / 16 * 16;
    let at_once = u64::from(tuning.threads) * 16;
    let blocks_max = u64::from(tuning.blocks.min(board.blocks()));
    // A block has something to do for all its threads, if there is enough.
    let blocks = longest.saturating_mul(width).div_ceil(at_once).clamp(1, blocks_max);
    let steps = longest.div_ceil(blocks).div_ceil(room).max(1);
    let span = longest.div_ceil(blocks * steps).next_multiple_of(16).max(16);
    debug_assert!(span <= room, "{span} bytes of {room}");
    // Rounded up to packs, fewer may do.
    let blocks = longest.div_ceil(span).clamp(1, blocks);
    Walk { blocks: blocks as u32, span: span as u32, steps: longest.div_ceil(span * blocks).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_covers_its_pieces_and_stays_within_its_room() {
        let boards = [(768, 1), (100_000, 3), (1 << 20, 64), (32 << 20, 64)];
        let boards = boards.map(|(scratch, blocks)| Board::new(scratch, blocks).expect("a board"));
        for board in boards {
            for threads in [32, 512] {
                for cells in [1, 2, 9, 17] {
                    for longest in [0, 1, 15, 16, 17, 511, 8192, 8193, 100_003, 1 << 20, (1 << 30) + 1, 1 << 40] {
                        let tuning = Tuning { threads, ..Tuning::default() };
                        let walk = walk(longest, cells, cells, &board, &tuning);
                        let what = format!("{board:?}, {threads} threads, {cells} cells, {longest} bytes: {walk:?}");
                        let span = u64::from(walk.span);
                        assert!(span % 16 == 0 && 0 < span && span * cells <= board.room(), "{what}");
                        assert!(span * u64::from(walk.blocks) * walk.steps >= longest, "{what}");
                        assert!(1 <= walk.blocks && walk.blocks <= board.blocks(), "{what}");
                        // No step is without any bytes, but the one of nothing at all.
                        assert!((walk.steps - 1) * u64::from(walk.blocks) * span < longest.max(1), "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn short_vectors_go_in_one_shot_and_long_ones_in_two() {
        let tuning = Tuning::default();
        let cases = [
            (Collective::AllReduce, 2, 1 << 30, false),
            (Collective::AllReduce, 4, 512 << 10, false),
            (Collective::AllReduce, 4, (512 << 10) + 1, true),
            (Collective::Reduce, 8, (256 << 10) + 1, true),
            (Collective::Broadcast, 5, 256 << 10, false),
            (Collective::AllReduce, 9, (128 << 10) + 1, true),
            (Collective::AllGather, 16, 1 << 30, false),
        ];
        for (collective, ranks, bytes, two) in cases {
            assert_eq!(goes_in_two_shots(collective, ranks, bytes, &tuning), two, "{collective} {ranks} {bytes}");
        }
        let tuned = Tuning { one_shot_bytes: Some(100), ..tuning };
        assert!(goes_in_two_shots(Collective::AllReduce, 2, 101, &tuned));
        assert!(!goes_in_two_shots(Collective::AllReduce, 16, 100, &tuned));
        assert!(!goes_in_two_shots(Collective::AllReduce, 1, 101, &tuned), "alone there is nothing to gather");
    }
}
