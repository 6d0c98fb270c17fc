//! Races: seen where nothing orders two streams, and nowhere else.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{self, CUstream, CUstreamCaptureMode};
use paceline_cuda_sim::Simulated;

use crate::{Setting, allocate, allocate_host, alone, copy, fill, new_stream, ok, order, settle, stream_with, write};

fn races() -> u64 {
    Simulated::load().expect("it is loaded").races()
}

/// Gives two streams work, and says how many races that was.
fn seen(work: impl FnOnce(CUstream, CUstream)) -> u64 {
    let (before, one, other) = (races(), new_stream(), new_stream());
    work(one, other);
    settle(one);
    settle(other);
    races() - before
}

static IS_TOLD: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn tell(_: *mut c_void) {
    IS_TOLD.store(true, Ordering::Release);
}

#[test]
fn races_are_seen_where_they_are() {
    alone(
        "race::races_are_seen_where_they_are",
        |simulated| simulated.delayed(200, 3),
        || {
            let Some(_) = Setting::new() else { return };
            let (address, elsewhere, pinned) = (allocate(64), allocate(64), allocate_host(64) as u64);
            let both_write = |one, other| {
                ok(fill(address, 1, 64, one));
                ok(fill(address + 63, 2, 1, other));
            };
            assert_eq!(seen(both_write), 1);
            let one_reads = |one, other| {
                ok(copy(elsewhere, address, 64, one));
                ok(fill(address, 2, 64, other));
            };
            assert_eq!(seen(one_reads), 1);
            let both_read = |one, other| {
                ok(copy(elsewhere, address, 32, one));
                ok(copy(elsewhere + 32, address, 32, other));
            };
            assert_eq!(seen(both_read), 0, "both read, and write different bytes");
            let pinned_too = |one, other| {
                ok(copy(pinned, address, 64, one));
                ok(fill(pinned, 1, 1, other));
            };
            assert_eq!(seen(pinned_too), 1, "pinned memory is looked after, too");
            let wrong_way = |one, other| {
                ok(fill(address, 1, 64, one));
                order(other, one);
                ok(fill(address, 2, 64, other));
            };
            assert_eq!(seen(wrong_way), 1, "the event orders something else");
            let not_yet = |one, other| {
                order(one, other);
                ok(fill(address, 1, 64, one));
                ok(fill(address, 2, 64, other));
            };
            assert_eq!(seen(not_yet), 1, "the event was recorded before");
            let at_once = |one, _| {
                ok(fill(address, 1, 64, one));
                write(address, &[1]);
            };
            assert_eq!(seen(at_once), 1, "a copy at once doesn't wait for a stream that doesn't block");
        },
    );
}

#[test]
fn no_races_are_seen_where_there_is_order() {
    alone(
        "race::no_races_are_seen_where_there_is_order",
        |simulated| simulated.delayed(200, 4),
        || {
            let Some(_) = Setting::new() else { return };
            let (address, flag) = (allocate(64), allocate(4));
            write(flag, &[0; 4]);
            let by_an_event = |one, other| {
                ok(fill(address, 1, 64, one));
                order(one, other);
                ok(fill(address, 2, 64, other));
            };
            assert_eq!(seen(by_an_event), 0);
            let by_two_events = |one, other| {
                let third = new_stream();
                ok(fill(address, 1, 64, one));
                order(one, third);
                order(third, other);
                ok(fill(address, 2, 64, other));
            };
            assert_eq!(seen(by_two_events), 0);
            let by_the_host = |one, other| {
                ok(fill(address, 1, 64, one));
                settle(one);
                ok(fill(address, 2, 64, other));
            };
            assert_eq!(seen(by_the_host), 0);
            // SAFETY: the addresses and handles are the driver's to check.
            let by_a_value = |one, other| unsafe {
                ok(sys::cuStreamWaitValue32_v2(other, flag, 8, 0));
                ok(fill(address, 2, 64, other));
                ok(fill(address, 1, 64, one));
                ok(sys::cuStreamWriteValue32_v2(one, flag, 8, 0));
            };
            assert_eq!(seen(by_a_value), 0);
            // SAFETY: as above.
            let by_a_copied_value = |one, other| unsafe {
                ok(sys::cuStreamWaitValue32_v2(other, flag, 0x0a0a_0a0a, 1));
                ok(fill(address, 2, 64, other));
                ok(fill(address, 1, 64, one));
                ok(fill(flag, 10, 4, one));
            };
            assert_eq!(seen(by_a_copied_value), 0);
            let by_a_host_function = |one, other| {
                ok(fill(address, 1, 64, one));
                // SAFETY: the function takes nothing.
                ok(unsafe { sys::cuLaunchHostFunc(one, Some(tell), ptr::null_mut()) });
                while !IS_TOLD.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                ok(fill(address, 2, 64, other));
            };
            assert_eq!(seen(by_a_host_function), 0);
            let by_the_legacy_stream = |_, _| {
                let (one, other) = (stream_with(0), stream_with(0));
                ok(fill(address, 1, 64, one));
                ok(fill(flag, 1, 4, ptr::null_mut()));
                ok(fill(address, 2, 64, other));
                settle(other);
            };
            assert_eq!(seen(by_the_legacy_stream), 0);
        },
    );
}

#[test]
fn a_graphs_branches_race() {
    alone(
        "race::a_graphs_branches_race",
        |simulated| simulated,
        || {
            let Some(_) = Setting::new() else { return };
            let address = allocate(64);
            let captured = |overlap: u64| {
                let (one, other, before) = (new_stream(), new_stream(), races());
                let mut graph = ptr::null_mut();
                // SAFETY: the handles and addresses are the driver's to check.
                unsafe {
                    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
                    ok(sys::cuStreamBeginCapture_v2(one, mode));
                    order(one, other);
                    ok(fill(address, 1, 32, one));
                    ok(fill(address + 32 - overlap, 2, 32, other));
                    order(other, one);
                    ok(fill(address, 3, 64, one));
                    ok(sys::cuStreamEndCapture(one, &mut graph));
                }
                races() - before
            };
            assert_eq!((captured(0), captured(1)), (0, 1));
        },
    );
}
