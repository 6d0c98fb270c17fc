//! Loom models: two ranks that exchange messages of two lines, and one that only writes, in every interleaving with few
//! preemptions.

use super::line::{FIRST_BYTES, LINE_BYTES, PIECE_BYTES};
use super::pair::{CellLine, Pair, PairMemory};
use super::{Board, BoardLine, BoardMemory, FinishedLine, Heading};
use crate::link::Stamp;
use loom::sync::Arc;

const SLOTS: usize = 2;
const LINES: usize = 2;

struct Lines(Vec<BoardLine>, FinishedLine);

// SAFETY: the board orders all accesses; that is what the model checks.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

fn lines() -> Arc<Lines> {
    Arc::new(Lines((0..SLOTS * LINES).map(|_| BoardLine::new()).collect(), FinishedLine::new()))
}

fn memory(lines: &Lines) -> BoardMemory {
    let (hall, slots) = (std::ptr::null_mut(), SLOTS as u64);
    BoardMemory {
        finished: &lines.1,
        start: lines.0.as_ptr(),
        slots,
        lines: LINES,
        hall,
        hall_bytes: 0,
        crowded: false,
    }
}

fn board(mine: &Lines, theirs: &Lines, me: usize) -> Board {
    let theirs = Some(memory(theirs));
    Board::over(memory(mine), if me == 0 { [None, theirs].into() } else { [theirs, None].into() }, Vec::new())
}

fn heading(turn: u8) -> Heading {
    Heading { stamp: Stamp([u64::from(turn); 2]), history: u64::from(turn) }
}

fn exchange(board: &mut Board, me: usize, turn: u8, writes: bool, reads: bool) {
    const BYTES: usize = FIRST_BYTES + LINE_BYTES;
    let peer = 1 - me;
    let message = [turn * 2 + me as u8; BYTES];
    let message: &[u8] = if writes { &message } else { &[] };
    if board.published() <= u64::from(turn) {
        while board.crowded_by(message.len()).is_some() {
            loom::thread::yield_now();
        }
        board.publish(heading(turn), message);
    }
    if reads {
        let mut got = [0; BYTES];
        while board.heading(peer).is_none() || !board.take(peer, BYTES, &(0..BYTES), &mut got) {
            loom::thread::yield_now();
        }
        assert_eq!(got, [turn * 2 + peer as u8; BYTES]);
        assert_eq!(board.heading(peer), Some(heading(turn)));
    }
    board.finish();
}

/// Explores with at most this many preemptions: without a bound, three turns take hours.
const PREEMPTIONS: usize = 2;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

#[test]
fn messages_arrive_whole_and_in_order() {
    explore(|| {
        let both = [lines(), lines()];
        let theirs = both.clone();
        let other = loom::thread::spawn(move || {
            let mut board = board(&theirs[1], &theirs[0], 1);
            (0..3).for_each(|turn| exchange(&mut board, 1, turn, true, true));
        });
        let mut board = board(&both[0], &both[1], 0);
        (0..3).for_each(|turn| exchange(&mut board, 0, turn, true, true));
        other.join().unwrap();
    });
}

#[test]
fn a_writer_waits_for_its_reader() {
    explore(|| {
        let both = [lines(), lines()];
        let theirs = both.clone();
        let reader = loom::thread::spawn(move || {
            let mut board = board(&theirs[1], &theirs[0], 1);
            (0..3).for_each(|turn| exchange(&mut board, 1, turn, false, true));
        });
        let mut board = board(&both[0], &both[1], 0);
        (0..3).for_each(|turn| exchange(&mut board, 0, turn, true, false));
        reader.join().unwrap();
    });
}

/// Rank 0 publishes two turns before it looks at any, rank 1 one after the other.
#[test]
fn turns_may_be_published_ahead() {
    explore(|| {
        let both = [lines(), lines()];
        let theirs = both.clone();
        let other = loom::thread::spawn(move || {
            let mut board = board(&theirs[1], &theirs[0], 1);
            (0..4).for_each(|turn| exchange(&mut board, 1, turn, true, true));
        });
        let mut board = board(&both[0], &both[1], 0);
        for turn in 0..4 {
            let ahead = board.published() as u8;
            if (turn..4).contains(&ahead)
                && board.publish_ahead(heading(ahead), &[ahead * 2; FIRST_BYTES + LINE_BYTES])
                && ahead < 3
            {
                board.publish_ahead(heading(ahead + 1), &[(ahead + 1) * 2; FIRST_BYTES + LINE_BYTES]);
            }
            exchange(&mut board, 0, turn, true, true);
        }
        other.join().unwrap();
    });
}

struct Cells([CellLine; 2]);

// SAFETY: the protocol orders all accesses; that is what the model checks.
unsafe impl Send for Cells {}
// SAFETY: as above.
unsafe impl Sync for Cells {}

fn with_cells(board: Board, cells: &Cells, me: usize) -> Board {
    let lines = [&raw const cells.0[0], &raw const cells.0[1]];
    let memory = PairMemory { lines, payloads: [std::ptr::null_mut(); 2], payload_bytes: 0 };
    Board { pair: Some(Pair::new(memory, me)), ..board }
}

/// One turn over the cells, in which this rank needs the other's message or not.
fn swap(board: &mut Board, me: usize, turn: u8, reads: bool) {
    const BYTES: usize = 8;
    let peer = 1 - me;
    loop {
        board.begin(true);
        if board.crowded_by(BYTES).is_none() {
            break;
        }
        loom::thread::yield_now();
    }
    board.publish(heading(turn), &[turn * 2 + me as u8; BYTES]);
    if reads {
        let mut got = [0; BYTES];
        while board.heading(peer).is_none() || !board.take(peer, BYTES, &(0..BYTES), &mut got) {
            loom::thread::yield_now();
        }
        assert_eq!(got, [turn * 2 + peer as u8; BYTES]);
        assert_eq!(board.heading(peer), Some(heading(turn)));
    }
    board.finish();
}

/// Three turns, in which rank 1 always reads and rank 0 sometimes, and the second of which may be over the slots.
fn cells_go_to_and_fro(reads: [bool; 3], second_swaps: bool) {
    explore(move || {
        let both = [lines(), lines()];
        let cells = Arc::new(Cells([CellLine::new(), CellLine::new()]));
        let (theirs, shared) = (both.clone(), cells.clone());
        let turn = move |board: &mut Board, me: usize, turn: u8| {
            let reads = me == 1 || reads[usize::from(turn)];
            if turn == 1 && !second_swaps {
                board.begin(false);
                exchange(board, me, turn, true, reads);
            } else {
                swap(board, me, turn, reads);
            }
        };
        let other = loom::thread::spawn(move || {
            let mut board = with_cells(board(&theirs[1], &theirs[0], 1), &shared, 1);
            (0..3).for_each(|number| turn(&mut board, 1, number));
        });
        let mut board = with_cells(board(&both[0], &both[1], 0), &cells, 0);
        (0..3).for_each(|number| turn(&mut board, 0, number));
        other.join().unwrap();
    });
}

#[test]
fn what_is_read_is_written_next() {
    cells_go_to_and_fro([true; 3], true);
}

#[test]
fn a_rank_that_needs_nothing_waits_for_its_cell() {
    cells_go_to_and_fro([false; 3], true);
}

#[test]
fn turns_over_slots_may_lie_between() {
    cells_go_to_and_fro([false, true, false], false);
}

/// A message of two pieces of which the reader needs the first only, and then writes a longer one where it has read.
#[test]
fn a_cell_is_not_written_before_its_writer_is_done() {
    const LONG: usize = 2 * PIECE_BYTES;
    explore(|| {
        let cells = Arc::new(Cells([CellLine::new(), CellLine::new()]));
        let room = || vec![0u8; LONG].leak().as_mut_ptr();
        let payloads = [room(), room()];
        let shared = Arc::new(payloads.map(|payload| payload as usize));
        let pair = |cells: &Cells, shared: &[usize; 2], me| {
            let lines = [&raw const cells.0[0], &raw const cells.0[1]];
            let payloads = shared.map(|payload| payload as *mut u8);
            Pair::new(PairMemory { lines, payloads, payload_bytes: LONG }, me)
        };
        let (theirs, theirs_shared) = (cells.clone(), shared.clone());
        let reader = loom::thread::spawn(move || {
            let mut pair = pair(&theirs, &theirs_shared, 1);
            pair.publish(0, heading(0), &[]);
            while pair.arrived(LONG) < PIECE_BYTES {
                loom::thread::yield_now();
            }
            pair.finish();
            while !pair.has_the_last() {
                loom::thread::yield_now();
            }
            pair.publish(1, heading(1), &[7; LONG]);
        });
        let mut pair = pair(&cells, &shared, 0);
        pair.publish(0, heading(0), &[3; LONG]);
        while pair.heading().is_none() {
            loom::thread::yield_now();
        }
        pair.finish();
        while pair.arrived(LONG) < LONG {
            loom::thread::yield_now();
        }
        // SAFETY: they have arrived, and the exchange has not ended.
        let came = unsafe { pair.part(LONG, 0..LONG) };
        assert!(came.iter().all(|byte| *byte == 7), "the writer was not done");
        reader.join().unwrap();
        for payload in payloads {
            // SAFETY: leaked above with that length, and nobody uses it any more.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(payload, LONG)) });
        }
    });
}
