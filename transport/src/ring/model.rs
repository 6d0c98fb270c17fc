//! Loom models: every interleaving of a sender and a receiver over a small ring, and of one sleep against one wake.

use super::{CreditLine, FrameLine, INLINE_BYTES, RingMemory, RingReceiver, RingSender, SlotLine};
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
        payload_bytes: 0,
        frame_bytes: INLINE_BYTES,
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
            for k in 0..3u64 {
                while sender.send(Channel(k), Stamp([k; 2]), &k.to_le_bytes()).is_none() {
                    loom::thread::yield_now();
                }
            }
        });
        // SAFETY: as above, with one receiver.
        let mut receiver = unsafe { RingReceiver::new(memory(&ring)) };
        for k in 0..3u64 {
            loop {
                if let Some(head) = receiver.head().unwrap() {
                    assert_eq!(
                        (head.channel, head.stamp, head.bytes),
                        (Channel(k), Stamp([k; 2]), &k.to_le_bytes()[..])
                    );
                    break;
                }
                loom::thread::yield_now();
            }
            assert!(receiver.advance(8));
        }
        sender.join().unwrap();
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
