//! Messages that the device carries from memory to memory: between registered buffers, and from ordinary memory of large calls.

use std::sync::Barrier;
use std::time::Duration;

use paceline_comm::ReduceOp;
use paceline_tests::world::{Wire, on_each};
use paceline_tests::{is_asked_for, is_link_asked_for};
use paceline_transport::rdma::Traffic;

use crate::is_guest;

/// Between registered buffers the device carries every byte from where it lies to where it belongs.
#[test]
fn a_message_between_registered_buffers_is_never_copied() {
    if !is_guest() || !is_link_asked_for("rdma") {
        return eprintln!("skipped: only rdma carries bytes from memory to memory");
    }
    const WORDS_FIRST: usize = 32 << 10;
    let bytes: usize = if is_asked_for("PACELINE_BIG") { 1 << 30 } else { 64 << 20 };
    let meeting = Barrier::new(2);
    on_each(Wire::Rdma, 2, |comm| {
        let mut buffer = comm.alloc::<u64>(bytes / 8).unwrap();
        let carry = |buffer: &mut [u64]| match comm.rank() {
            0 => comm.send(buffer, 1).unwrap(),
            _ => comm.recv(buffer, 0).unwrap(),
        };
        // Registering goes on beside the first messages. Both ranks are threads here and see the same counters; rank 0 begins
        // the next message only when rank 1 has looked.
        let since = std::time::Instant::now();
        loop {
            meeting.wait();
            let before = Traffic::so_far();
            meeting.wait();
            carry(&mut buffer[..WORDS_FIRST]);
            meeting.wait();
            if Traffic::so_far().through_slots_since(&before) == 0 {
                break;
            }
            assert!(since.elapsed() < Duration::from_secs(30), "the memory is never registered");
        }
        let word = |place: usize| (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1;
        if comm.rank() == 0 {
            buffer.iter_mut().enumerate().for_each(|(place, found)| *found = word(place));
        }
        meeting.wait();
        let before = Traffic::so_far();
        meeting.wait();
        carry(&mut buffer);
        meeting.wait();
        let after = Traffic::so_far();
        assert_eq!((after.through_slots_since(&before), after.placed - before.placed), (0, bytes as u64));
        assert!(buffer.iter().enumerate().all(|(place, found)| *found == word(place)), "the message is garbled");
        println!("{bytes} bytes, none of them through slots");
        // What leaving writes is not counted above.
        meeting.wait();
    });
}

/// Ordinary memory of a large call is lent to the device: nothing is copied but what is combined, in the first call, too.
#[test]
fn ordinary_memory_of_a_large_call_is_lent() {
    if !is_guest() || !is_link_asked_for("rdma") {
        return eprintln!("skipped: only rdma carries bytes from memory to memory");
    }
    const WORDS: usize = 1 << 20;
    const BYTES: u64 = 8 * WORDS as u64;
    let meeting = Barrier::new(2);
    on_each(Wire::Rdma, 2, |comm| {
        let counted = |call: &mut dyn FnMut()| {
            meeting.wait();
            let before = Traffic::so_far();
            meeting.wait();
            call();
            meeting.wait();
            let now = Traffic::so_far();
            meeting.wait();
            (now.placed - before.placed, now.landed - before.landed, now.through_slots_since(&before))
        };
        let mine: Vec<u64> = (0..WORDS as u64).map(|word| word + 7 * comm.rank() as u64).collect();
        let mut theirs = vec![0; WORDS];
        let moved = counted(&mut || match comm.rank() {
            0 => comm.send(&mine, 1).unwrap(),
            _ => comm.recv(&mut theirs, 0).unwrap(),
        });
        assert_eq!(moved, (BYTES, 0, 0));
        let mut sum = vec![0; WORDS];
        // Each rank fetches a half to add it, and the other half of the sum to where it belongs.
        let moved = counted(&mut || comm.all_reduce(&mine, &mut sum, ReduceOp::Sum).unwrap());
        assert_eq!(moved, (BYTES, BYTES, BYTES));
        assert!(comm.rank() == 0 || theirs.iter().enumerate().all(|(place, word)| *word == place as u64));
        assert!(sum.iter().enumerate().all(|(place, word)| *word == 2 * place as u64 + 7));
    });
}
