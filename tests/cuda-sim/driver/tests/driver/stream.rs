//! Streams: their order, the legacy stream's, host functions.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{self, CUresult, CUstream};

use crate::{Gate, Setting, allocate, fill, free, is_idle, new_stream, ok, read, settle, stream_with};

const LEGACY: CUstream = ptr::null_mut();
const PER_THREAD: CUstream = 2 as CUstream;

#[test]
fn the_legacy_stream_and_blocking_ones_wait_for_each_other() {
    crate::alone(
        "stream::the_legacy_stream_and_blocking_ones_wait_for_each_other",
        |simulated| simulated,
        || {
            let Some(_) = Setting::new() else { return };
            for blocking in [stream_with(0), PER_THREAD] {
                let (late, free_one, address) = (stream_with(0), new_stream(), allocate(3));
                let gate = Gate::before(blocking);
                ok(fill(address, 1, 1, LEGACY));
                ok(fill(address + 1, 1, 1, late));
                ok(fill(address + 2, 1, 1, free_one));
                settle(free_one);
                assert!(!is_idle(LEGACY) && !is_idle(blocking), "the legacy stream waits for what came before");
                assert!(!is_idle(late), "who comes after the legacy stream's work waits for it");
                gate.open();
                settle(LEGACY);
                settle(late);
                assert_eq!(read(address, 3), [1; 3]);
                free(address);
            }
        },
    );
}

#[test]
fn streams_say_what_they_are() {
    let Some(Setting { context, .. }) = Setting::new() else { return };
    // SAFETY: the places are of these types.
    unsafe {
        let (mut least, mut greatest, mut stream, mut of) = (9, 9, ptr::null_mut(), ptr::null_mut());
        ok(sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
        assert!(greatest < least, "{least} {greatest}");
        ok(sys::cuStreamCreateWithPriority(&mut stream, 1, greatest - 7));
        let (mut priority, mut flags) = (9, 9);
        ok(sys::cuStreamGetPriority(stream, &mut priority));
        ok(sys::cuStreamGetFlags(stream, &mut flags));
        ok(sys::cuStreamGetCtx(stream, &mut of));
        assert_eq!((priority, flags, of), (greatest, 1, context));
        assert_eq!(sys::cuStreamCreate(&mut stream, 2), CUresult::CUDA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn a_destroyed_stream_does_what_it_was_given_and_takes_no_more() {
    let Some(_) = Setting::new() else { return };
    let (stream, address) = (new_stream(), allocate(8));
    let gate = Gate::before(stream);
    ok(fill(address, 7, 8, stream));
    // SAFETY: the handle is the driver's to check.
    unsafe {
        ok(sys::cuStreamDestroy_v2(stream));
        assert_eq!(sys::cuStreamDestroy_v2(stream), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(sys::cuStreamSynchronize(stream), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(sys::cuStreamDestroy_v2(LEGACY), CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    assert_eq!(fill(address, 1, 8, stream), CUresult::CUDA_ERROR_INVALID_HANDLE);
    gate.open();
    while read(address, 8) != [7; 8] {
        std::thread::yield_now();
    }
    free(address);
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the test gives a number that it leaves alone until the stream is done.
    let number = unsafe { &mut *data.cast::<u32>() };
    let mut least = 0;
    // SAFETY: the place is of this type.
    let code = unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, ptr::null_mut()) };
    *number = *number * 10 + if code == CUresult::CUDA_ERROR_NOT_PERMITTED { 1 } else { 2 };
}

#[test]
fn host_functions_run_in_order_and_may_not_call_the_driver() {
    let Some(_) = Setting::new() else { return };
    let (stream, mut number) = (new_stream(), 0u32);
    let gate = Gate::before(stream);
    // SAFETY: the number is left alone until the stream is done.
    unsafe {
        ok(sys::cuLaunchHostFunc(stream, Some(count), (&raw mut number).cast()));
        ok(sys::cuLaunchHostFunc(stream, Some(count), (&raw mut number).cast()));
        assert_eq!((&raw const number).read_volatile(), 0, "the stream is held up");
    }
    gate.open();
    settle(stream);
    assert_eq!(number, 11);
}
