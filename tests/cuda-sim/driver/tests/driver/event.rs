//! Events: recorded, waited for, asked.

use std::ptr;

use cudarc::driver::sys::{self, CUresult};

use crate::{Gate, Setting, allocate, copy, fill, free, is_idle, new_event, new_stream, ok, read, settle};

#[test]
fn a_stream_waits_for_what_was_recorded() {
    let Some(_) = Setting::new() else { return };
    let (one, other, event) = (new_stream(), new_stream(), new_event(2));
    let (from, to) = (allocate(64), allocate(64));
    // SAFETY: the handles are the driver's to check.
    unsafe {
        ok(sys::cuEventQuery(event));
        ok(sys::cuStreamWaitEvent(other, event, 0));
        settle(other);
        let gate = Gate::before(one);
        ok(fill(from, 3, 64, one));
        ok(sys::cuEventRecord(event, one));
        ok(sys::cuStreamWaitEvent(other, event, 0));
        ok(copy(to, from, 64, other));
        assert_eq!(sys::cuEventQuery(event), CUresult::CUDA_ERROR_NOT_READY);
        assert!(!is_idle(other), "it waits");
        // Recorded again elsewhere, it means something else to those who come later only.
        let third = new_stream();
        ok(sys::cuEventRecord(event, third));
        ok(sys::cuEventSynchronize(event));
        assert!(!is_idle(other), "it still waits for the first record");
        gate.open();
        settle(other);
        assert_eq!(read(to, 64), [3; 64]);
        ok(sys::cuEventDestroy_v2(event));
        assert_eq!(sys::cuEventRecord(event, one), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(sys::cuStreamWaitEvent(one, event, 0), CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    free(from);
    free(to);
}

#[test]
fn time_passes_between_events() {
    let Some(_) = Setting::new() else { return };
    let (stream, start, end) = (new_stream(), new_event(0), new_event(0));
    // SAFETY: the handles are the driver's to check.
    unsafe {
        let mut time = -1.0;
        assert_eq!(sys::cuEventElapsedTime(&mut time, start, end), CUresult::CUDA_ERROR_INVALID_HANDLE, "no records");
        ok(sys::cuEventRecord(start, stream));
        let gate = Gate::before(stream);
        ok(sys::cuEventRecord(end, stream));
        assert_eq!(sys::cuEventElapsedTime(&mut time, start, end), CUresult::CUDA_ERROR_NOT_READY);
        ok(sys::cuEventSynchronize(start));
        std::thread::sleep(std::time::Duration::from_millis(5));
        gate.open();
        ok(sys::cuEventSynchronize(end));
        ok(sys::cuEventElapsedTime(&mut time, start, end));
        assert!(time >= 5.0, "{time} ms");
        let untimed = new_event(2);
        ok(sys::cuEventRecord(untimed, stream));
        settle(stream);
        assert_eq!(sys::cuEventElapsedTime(&mut time, start, untimed), CUresult::CUDA_ERROR_INVALID_HANDLE);
        let mut event = ptr::null_mut();
        assert_eq!(sys::cuEventCreate(&mut event, 4), CUresult::CUDA_ERROR_INVALID_VALUE, "shared events have no time");
    }
}
