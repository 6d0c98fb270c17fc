//! Memory: allocated, copied, filled, freed; and what is refused.

use std::ptr;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUpointer_attribute_enum as Attribute, CUresult};

use crate::{Gate, Setting, allocate, allocate_host, alone, fill, free, is_idle, new_stream, ok, read, settle, write};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

#[test]
fn bytes_go_there_and_back() {
    let Some(_) = Setting::new() else { return };
    let (one, other) = (allocate(1000), allocate(1000));
    let bytes: Vec<u8> = (0..1000u32).map(|n| (n * 7) as u8).collect();
    write(one, &bytes);
    // SAFETY: the addresses are the driver's to check.
    unsafe { ok(sys::cuMemcpyDtoD_v2(other + 1, one, 999)) };
    assert_eq!(read(other + 1, 999), bytes[..999]);
    // SAFETY: as above.
    unsafe {
        ok(sys::cuMemsetD8_v2(one + 3, 0x5a, 10));
        ok(sys::cuMemsetD32_v2(one + 100, 0x0102_0304, 2));
        assert_eq!(sys::cuMemsetD32_v2(one + 101, 0, 2), INVALID, "misaligned");
    }
    assert_eq!(read(one, 14)[2..], [[14].as_slice(), &[0x5a; 10], &[91]].concat());
    assert_eq!(read(one + 100, 8), [4, 3, 2, 1, 4, 3, 2, 1]);
    free(one);
    free(other);
}

#[test]
fn what_cant_be_meant_is_refused() {
    let Some(_) = Setting::new() else { return };
    let (address, pinned) = (allocate(100), allocate_host(100) as u64);
    let mut here = [0u8; 200];
    // SAFETY: the addresses are the driver's to check; what it accepts would fit.
    unsafe {
        let place = here.as_mut_ptr();
        assert_eq!(sys::cuMemcpyHtoD_v2(address, place.cast(), 101), INVALID, "too long");
        assert_eq!(sys::cuMemcpyHtoD_v2(address + 50, place.cast(), 51), INVALID, "too far");
        assert_eq!(sys::cuMemcpyHtoD_v2(place as u64, place.cast(), 10), INVALID, "the target is the host's");
        assert_eq!(sys::cuMemcpyDtoH_v2(address as *mut _, address, 10), INVALID, "the target is a device's");
        assert_eq!(sys::cuMemcpyDtoD_v2(address, place as u64, 10), INVALID, "the source is the host's");
        assert_eq!(sys::cuMemcpyDtoH_v2(pinned as *mut _, address, 101), INVALID, "more than was pinned");
        ok(sys::cuMemcpyDtoH_v2(pinned as *mut _, address, 100));
        ok(sys::cuMemcpyDtoD_v2(address, pinned, 100));
        assert_eq!(sys::cuMemsetD8_v2(address, 0, 101), INVALID, "too long");
        assert_eq!(sys::cuMemFree_v2(address + 1), INVALID, "not the start");
        assert_eq!(sys::cuMemFree_v2(pinned), INVALID, "the host's");
        free(address);
        assert_eq!(sys::cuMemFree_v2(address), INVALID, "twice");
        assert_eq!(sys::cuMemsetD8_v2(address, 0, 1), INVALID, "freed");
        assert_eq!(sys::cuMemcpyHtoD_v2(address, place.cast(), 1), INVALID, "freed");
        ok(sys::cuMemFreeHost(pinned as *mut _));
        assert_eq!(sys::cuMemFreeHost(pinned as *mut _), INVALID, "twice");
        let mut none = 0;
        assert_eq!(sys::cuMemAlloc_v2(&mut none, 0), INVALID);
    }
}

#[test]
fn freeing_waits_for_what_uses_the_memory() {
    let Some(_) = Setting::new() else { return };
    let (address, stream) = (allocate(64), new_stream());
    let gate = Gate::before(stream);
    // SAFETY: the addresses are the driver's to check.
    unsafe { ok(sys::cuMemsetD8Async(address, 1, 64, stream)) };
    let freeing = std::thread::spawn(move || {
        let Some(_) = Setting::new() else { return };
        free(address);
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!freeing.is_finished(), "the stream is held up");
    gate.open();
    freeing.join().expect("it is freed");
}

#[test]
fn freeing_waits_for_nothing_else() {
    let Some(_) = Setting::new() else { return };
    let (stream, mut address) = (new_stream(), 0);
    // SAFETY: the place is of this type.
    ok(unsafe { sys::cuMemAllocAsync(&mut address, 64, stream) });
    let gate = Gate::before(stream);
    ok(fill(address, 1, 64, stream));
    // Memory of a pool.
    free(address);
    let elsewhere = std::thread::spawn(|| {
        let Some(_) = Setting::of(1) else { return };
        free(allocate(64));
    });
    elsewhere.join().expect("another device's memory is freed");
    assert!(!is_idle(stream), "it is held up");
    gate.open();
    settle(stream);
}

#[test]
fn memory_in_a_streams_order() {
    let Some(_) = Setting::new() else { return };
    let (stream, mut address) = (new_stream(), 0);
    // SAFETY: the addresses are the driver's to check.
    unsafe {
        ok(sys::cuMemAllocAsync(&mut address, 64, stream));
        ok(sys::cuMemsetD8Async(address, 9, 64, stream));
        let mut handle = std::mem::zeroed();
        assert_eq!(sys::cuIpcGetMemHandle(&mut handle, address), INVALID, "as in CUDA");
        let gate = Gate::before(stream);
        ok(sys::cuMemFreeAsync(address, stream));
        assert_eq!(sys::cuMemsetD8Async(address, 9, 64, stream), INVALID, "it is being freed");
        assert_eq!(sys::cuMemFreeAsync(address, stream), INVALID, "twice");
        gate.open();
        settle(stream);
        assert_eq!(sys::cuMemFree_v2(address), INVALID, "freed");
    }
}

#[test]
fn pageable_sources_are_read_before_the_call_returns() {
    let Some(_) = Setting::new() else { return };
    let (stream, address) = (new_stream(), allocate(4));
    let gate = Gate::before(stream);
    let mut source = [1u8; 4];
    // SAFETY: the source is there.
    ok(unsafe { sys::cuMemcpyHtoDAsync_v2(address, source.as_ptr().cast(), 4, stream) });
    source.fill(2);
    gate.open();
    settle(stream);
    assert_eq!(read(address, 4), [1; 4]);
    assert_eq!(source, [2; 4]);
    free(address);
}

#[test]
fn host_memory_is_registered_once() {
    let Some(_) = Setting::new() else { return };
    let memory = vec![7u8; 8192];
    let (place, address) = (memory.as_ptr() as *mut std::ffi::c_void, allocate(64));
    // SAFETY: the memory stays until it is unregistered.
    unsafe {
        ok(sys::cuMemHostRegister_v2(place, 8192, 0));
        let twice = sys::cuMemHostRegister_v2(place.byte_add(100), 10, 0);
        assert_eq!(twice, CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        let mut device = 0;
        ok(sys::cuMemHostGetDevicePointer_v2(&mut device, place, 0));
        ok(sys::cuMemcpyDtoD_v2(address, device, 64));
        ok(sys::cuMemHostUnregister(place));
        assert_eq!(sys::cuMemHostUnregister(place), CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    }
    assert_eq!(read(address, 64), [7; 64]);
    free(address);
}

#[test]
fn pointers_say_what_they_are() {
    let Some(Setting { context, .. }) = Setting::of(1) else { return };
    let (address, pinned) = (allocate(5000), allocate_host(10) as u64);
    let ask = |attribute, address| {
        let mut answer = 0u64;
        // SAFETY: no answer is longer.
        let code = unsafe { sys::cuPointerGetAttribute((&raw mut answer).cast(), attribute, address) };
        (code == CUresult::CUDA_SUCCESS).then_some(answer)
    };
    assert_eq!(ask(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 9), Some(2));
    assert_eq!(ask(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned), Some(1));
    assert_eq!(ask(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, &raw const context as u64), None);
    assert_eq!(ask(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address), Some(1));
    assert_eq!(ask(Attribute::CU_POINTER_ATTRIBUTE_CONTEXT, address), Some(context as u64));
    assert_eq!(ask(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 4999), Some(address));
    assert_eq!(ask(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, address), Some(5000));
    assert_eq!(ask(Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address), Some(1));
    assert_eq!(ask(Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER, pinned), Some(pinned));
    // SAFETY: the places are of these types.
    unsafe {
        let (mut start, mut bytes) = (0, 0);
        ok(sys::cuMemGetAddressRange_v2(&mut start, &mut bytes, address + 4000));
        assert_eq!((start, bytes), (address, 5000));
        assert_eq!(
            sys::cuMemGetAddressRange_v2(&mut start, ptr::null_mut(), address + 5000),
            CUresult::CUDA_ERROR_NOT_FOUND
        );
        let (mut kind, mut device) = (9u32, 9i32);
        let mut attributes =
            [Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL];
        let mut places = [(&raw mut kind).cast(), (&raw mut device).cast()];
        ok(sys::cuPointerGetAttributes(2, attributes.as_mut_ptr(), places.as_mut_ptr(), address));
        assert_eq!((kind, device), (2, 1));
        ok(sys::cuPointerGetAttributes(2, attributes.as_mut_ptr(), places.as_mut_ptr(), &raw const start as u64));
        assert_eq!((kind, device), (0, -2), "not known, and no error");
    }
    free(address);
}

#[test]
fn a_device_is_full_at_some_point() {
    let small = |simulated: paceline_cuda_sim::Simulated| {
        simulated.memory(1 << 20).with("PACELINE_TEST_CUDA_FAIL_ALLOCATION", "4")
    };
    alone("memory::a_device_is_full_at_some_point", small, || {
        let context = CudaContext::new(0).expect("a device");
        assert_eq!(context.mem_get_info(), Ok((1 << 20, 1 << 20)));
        let address = allocate(1 << 19);
        assert_eq!(context.mem_get_info(), Ok((1 << 19, 1 << 20)));
        let mut none = 0;
        // SAFETY: the place is of this type.
        let refused = |bytes| unsafe { sys::cuMemAlloc_v2(&mut none, bytes) };
        let full = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let mut refused = refused;
        assert_eq!((refused((1 << 19) + 1), refused(usize::MAX)), (full, full));
        free(address);
        assert_eq!(context.mem_get_info(), Ok((1 << 20, 1 << 20)));
        assert_eq!(refused(1), full, "this is the one that is meant to fail");
        free(allocate(1 << 20));
    });
}
