//! Loom models: every interleaving of a sender and a receiver over a small ring, and of one sleep against one wake.

use super::cells::Cells;
use super::{CELLS, CreditLine, FrameLine, INLINE_BYTES, RingMemory, RingReceiver, RingSender, SlotLine};
use crate::link::{Channel, Stamp};
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::sync::Arc;

struct Shared {
    lines: Vec<SlotLine>,
    payload: Vec<UnsafeCell<u8>>,
    credit: CreditLine,
}

// SAFETY: the ring orders all accesses; that is what the model checks.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

fn shared(slots: usize) -> Arc<Shared> {
    let empty = FrameLine { channel: 0, stamp: [0; 2], bytes: 0, place: 0, inline: [0; INLINE_BYTES] };
    let line = || SlotLine { published: AtomicU64::new(0), frame: UnsafeCell::new(empty) };
    Arc::new(Shared {
        lines: (0..slots).map(|_| line()).collect(),
        payload: Vec::new(),
        credit: CreditLine { consumed: AtomicU64::new(0) },
    })
}

fn memory(shared: &Shared) -> RingMemory {
    RingMemory {
        lines: shared.lines.as_ptr(),
        payload: shared.payload.as_ptr().cast_mut().cast(),
        credit: &shared.credit,
        slots: shared.lines.len() as u64,
        cells: std::ptr::null_mut(),
        payload_bytes: 0,
        frame_bytes: INLINE_BYTES,
        cell_bytes: 0,
        crowded: false,
    }
}

#[test]
fn frames_arrive_whole_and_in_order() {
    loom::model(|| {
        let ring = shared(2);
        let theirs = ring.clone();
        let sender = loom::thread::spawn(move || {
            // SAFETY: the ring is zeroed, outlives the thread by the Arc, and has one sender.
            let mut sender = unsafe { RingSender::new(memory(&theirs)) };
            let mut cells = Cells::new(&memory(&theirs), &memory(&theirs));
            for k in 0..3u64 {
                while sender.send(&mut cells, Channel(k), Stamp([k; 2]), &k.to_le_bytes()).is_none() {
                    loom::thread::yield_now();
                }
            }
        });
        // SAFETY: as above, with one receiver.
        let mut receiver = unsafe { RingReceiver::new(memory(&ring)) };
        let mut cells = Cells::new(&memory(&ring), &memory(&ring));
        for k in 0..3u64 {
            loop {
                if let Some(head) = receiver.head(&cells).unwrap() {
                    assert_eq!(
                        (head.channel, head.stamp, head.bytes),
                        (Channel(k), Stamp([k; 2]), &k.to_le_bytes()[..])
                    );
                    break;
                }
                loom::thread::yield_now();
            }
            assert!(receiver.advance(&mut cells, 8));
        }
        sender.join().unwrap();
    });
}

/// The bytes of the cells as loom sees them: every access to one is told of, and two at once are a failure.
struct Tracked(Vec<UnsafeCell<u8>>);

// SAFETY: the rings order all accesses; that is what the model checks.
unsafe impl Send for Tracked {}
// SAFETY: as above.
unsafe impl Sync for Tracked {}

#[test]
fn a_cell_is_written_by_its_owner_only() {
    loom::model(|| {
        let rings = [shared(2), shared(2)];
        let tracked = Arc::new(Tracked((0..2 * CELLS).map(|_| UnsafeCell::new(0)).collect()));
        let end = |me: usize| (rings[me].clone(), rings[1 - me].clone(), tracked.clone());
        let run = |(leaving, arriving, tracked): (Arc<Shared>, Arc<Shared>, Arc<Tracked>), me: usize, frames: u64| {
            // SAFETY: the rings are zeroed, outlive the thread by the Arcs, and have one sender and one receiver each.
            let (mut sender, mut receiver) =
                unsafe { (RingSender::new(memory(&leaving)), RingReceiver::new(memory(&arriving))) };
            let mut none = Cells::new(&memory(&leaving), &memory(&arriving));
            // One cell to each, and what the frame carries is the number of the cell.
            let mut owned = vec![me];
            for k in 0..frames {
                let cell = owned.pop().expect("each has what it read last");
                // SAFETY: this rank has the cell, and loom tells if another touches it meanwhile.
                tracked.0[cell].with_mut(|byte| unsafe { *byte = k as u8 + 1 });
                let bytes = (cell as u64).to_le_bytes();
                assert!(sender.send(&mut none, Channel(k), Stamp([0; 2]), &bytes).is_some());
                let cell = loop {
                    if let Some(head) = receiver.head(&none).unwrap() {
                        break u64::from_le_bytes(head.bytes.try_into().unwrap()) as usize;
                    }
                    loom::thread::yield_now();
                };
                // SAFETY: read only, and loom tells if it is written meanwhile.
                assert_eq!(tracked.0[cell].with(|byte| unsafe { *byte }), k as u8 + 1);
                assert!(receiver.advance(&mut none, 8));
                owned.push(cell);
            }
        };
        let other = end(1);
        let thread = loom::thread::spawn(move || run(other, 1, 2));
        run(end(0), 0, 2);
        thread.join().unwrap();
    });
}

#[test]
fn a_sleeper_is_woken_or_sees_the_frame() {
    loom::model(|| {
        let published = Arc::new(AtomicU64::new(0));
        let sleeping = Arc::new(AtomicBool::new(false));
        let (theirs, flag) = (published.clone(), sleeping.clone());
        let waker = loom::thread::spawn(move || {
            theirs.store(1, Ordering::Release);
            fence(Ordering::SeqCst);
            flag.load(Ordering::Relaxed)
        });
        sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let seen = published.load(Ordering::Acquire) == 1;
        let woken = waker.join().unwrap();
        assert!(seen || woken, "the frame was missed and nobody rang");
    });
}
