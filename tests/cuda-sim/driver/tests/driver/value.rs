//! Streams that wait for values in memory, and write them.

use cudarc::driver::sys::{self, CUresult};

use crate::{Setting, allocate, fill, free, is_idle, new_stream, ok, read, settle, write};

#[test]
fn streams_hand_values_to_each_other() {
    let Some(_) = Setting::new() else { return };
    let (one, other, flags, data) = (new_stream(), new_stream(), allocate(16), allocate(4));
    write(flags, &[0; 16]);
    // SAFETY: the addresses and handles are the driver's to check.
    unsafe {
        ok(sys::cuStreamWaitValue64_v2(other, flags + 8, 1 << 40, 0));
        ok(fill(data, 2, 4, other));
        ok(sys::cuStreamWriteValue32_v2(other, flags, 77, 0));
        ok(sys::cuStreamWriteValue64_v2(one, flags + 8, (1 << 40) - 1, 0));
        settle(one);
        assert!(!is_idle(other), "not reached yet");
        ok(fill(data, 1, 4, one));
        ok(sys::cuStreamWriteValue64_v2(one, flags + 8, (1 << 40) + 5, 0));
        ok(sys::cuStreamWaitValue32_v2(one, flags, 77, 1));
        settle(one);
    }
    assert_eq!(read(data, 4), [2; 4], "the other wrote last");
    assert_eq!(read(flags, 4), 77u32.to_le_bytes());
    free(flags);
    free(data);
}

#[test]
fn values_lie_aligned_in_memory_that_devices_reach() {
    let Some(_) = Setting::new() else { return };
    let (stream, address, here) = (new_stream(), allocate(12), 0u64);
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    // SAFETY: the addresses and handles are the driver's to check.
    unsafe {
        assert_eq!(sys::cuStreamWriteValue32_v2(stream, address + 2, 1, 0), invalid);
        assert_eq!(sys::cuStreamWriteValue64_v2(stream, address + 8, 1, 0), invalid, "half of it lies outside");
        assert_eq!(sys::cuStreamWriteValue64_v2(stream, &raw const here as u64, 1, 0), invalid, "the host's");
        assert_eq!(sys::cuStreamWaitValue32_v2(stream, address, 1, 4), invalid, "no such comparison");
        ok(sys::cuStreamWriteValue32_v2(stream, address + 8, 1, 1));
    }
    settle(stream);
    free(address);
}
