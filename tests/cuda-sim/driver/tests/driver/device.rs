//! Devices and contexts.

use std::ffi::{CStr, c_char};
use std::ptr;

use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute, CUresult};
use cudarc::driver::{CudaContext, result};

use crate::{Setting, alone, ok};

fn attribute(attribute: Attribute, device: i32) -> i32 {
    let mut value = -1;
    // SAFETY: the place is of this type.
    ok(unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) });
    value
}

#[test]
fn devices_are_described() {
    let Some(Setting { .. }) = Setting::new() else { return };
    assert_eq!(result::device::get_count(), Ok(2));
    assert_eq!(result::device::get(2), Err(result::DriverError(CUresult::CUDA_ERROR_INVALID_DEVICE)));
    let name = result::device::get_name(result::device::get(1).expect("it is there")).expect("it has a name");
    assert!(name.contains("software"), "{name}");
    let uuids = [0, 1].map(|device| result::device::get_uuid(device).expect("it has one").bytes);
    assert_ne!(uuids[0], uuids[1]);
    // SAFETY: the device is there.
    assert_eq!(unsafe { result::device::total_mem(0) }, Ok(1 << 30));
    assert_eq!(attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0), 9);
    assert_eq!(attribute(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1), 32);
    assert_eq!(attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED, 1), 0);
    let mut bus = [0 as c_char; 32];
    // SAFETY: the buffer is that long.
    let bus = unsafe {
        ok(sys::cuDeviceGetPCIBusId(bus.as_mut_ptr(), 32, 1));
        CStr::from_ptr(bus.as_ptr())
    };
    assert_eq!(bus, c"0000:02:00.0");
    let mut version = 0;
    // SAFETY: the place is of this type.
    ok(unsafe { sys::cuDriverGetVersion(&mut version) });
    assert!(version >= 12_040, "{version}");
}

#[test]
fn errors_have_names() {
    let Some(Setting { .. }) = Setting::new() else { return };
    let error = result::DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assert_eq!(error.error_name(), Ok(c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED"));
    assert!(error.error_string().is_ok_and(|text| !text.is_empty()));
}

#[test]
fn contexts_are_retained_and_current() {
    let Some(Setting { context, device, .. }) = Setting::new() else { return };
    // SAFETY: the places are of these types.
    unsafe {
        let (mut again, mut current, mut of) = (ptr::null_mut(), ptr::null_mut(), -1);
        ok(sys::cuDevicePrimaryCtxRetain(&mut again, device));
        assert_eq!(again, context);
        ok(sys::cuDevicePrimaryCtxRelease_v2(device));
        ok(sys::cuCtxGetCurrent(&mut current));
        assert_eq!(current, context);
        ok(sys::cuDevicePrimaryCtxRetain(&mut again, 1));
        assert_ne!(again, context);
        ok(sys::cuCtxPushCurrent_v2(again));
        ok(sys::cuCtxGetDevice(&mut of));
        assert_eq!(of, 1);
        ok(sys::cuCtxPopCurrent_v2(&mut current));
        assert_eq!(current, again);
        ok(sys::cuCtxGetDevice(&mut of));
        assert_eq!(of, 0);
        std::thread::spawn(|| {
            let mut of = 0;
            assert_eq!(sys::cuCtxGetDevice(&mut of), CUresult::CUDA_ERROR_INVALID_CONTEXT, "it is another thread's");
        })
        .join()
        .expect("it holds");
        assert_eq!(sys::cuCtxSetCurrent(1234 as _), CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
}

#[test]
fn a_context_that_is_released_is_gone() {
    alone(
        "device::a_context_that_is_released_is_gone",
        |simulated| simulated.devices(1),
        || {
            let context = CudaContext::new(0).expect("a device");
            let handle = context.cu_ctx();
            let stream = context.new_stream().expect("a stream");
            let raw = stream.cu_stream();
            let slice = stream.alloc_zeros::<u8>(100).expect("memory");
            let (address, free) = (
                cudarc::driver::DevicePtr::device_ptr(&slice, &stream).0,
                context.mem_get_info().expect("a context").0,
            );
            std::mem::forget((slice, stream));
            // SAFETY: the handles are the driver's to check.
            unsafe {
                ok(sys::cuDevicePrimaryCtxRelease_v2(0));
                assert_eq!(sys::cuStreamSynchronize(raw), CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
                assert_eq!(sys::cuCtxSetCurrent(handle), CUresult::CUDA_ERROR_INVALID_CONTEXT);
            }
            std::mem::forget(context);
            let context = CudaContext::new(0).expect("a new one");
            assert_eq!(context.mem_get_info().expect("a context").0, free + 4096, "the memory was given back");
            // SAFETY: as above.
            assert_eq!(unsafe { sys::cuMemFree_v2(address) }, CUresult::CUDA_ERROR_INVALID_VALUE);
        },
    );
}

#[test]
fn peers_are_enabled_once() {
    let Some(Setting { context, .. }) = Setting::of(1) else { return };
    // SAFETY: the places are of these types.
    unsafe {
        let (mut can, mut other) = (0, ptr::null_mut());
        ok(sys::cuDeviceCanAccessPeer(&mut can, 0, 1));
        assert_eq!(can, 1);
        ok(sys::cuDeviceCanAccessPeer(&mut can, 1, 1));
        assert_eq!(can, 0);
        ok(sys::cuDevicePrimaryCtxRetain(&mut other, 0));
        ok(sys::cuCtxEnablePeerAccess(other, 0));
        assert_eq!(sys::cuCtxEnablePeerAccess(other, 0), CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        ok(sys::cuCtxDisablePeerAccess(other));
        assert_eq!(sys::cuCtxDisablePeerAccess(other), CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        assert_eq!(sys::cuCtxEnablePeerAccess(context, 0), CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
}

#[test]
fn a_machine_that_lacks_things_says_so() {
    let lacking = |simulated: paceline_cuda_sim::Simulated| {
        let simulated = simulated.devices(3).without_ipc().without_peers().without_stream_memory().without_pools();
        simulated.with("PACELINE_TEST_CUDA_CAPABILITY", "7.5")
    };
    alone("device::a_machine_that_lacks_things_says_so", lacking, || {
        let context = CudaContext::new(2).expect("a device");
        assert_eq!((CudaContext::device_count(), context.compute_capability()), (Ok(3), Ok((7, 5))));
        assert!(!context.has_async_alloc());
        for lacked in [
            Attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
            Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
            Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
        ] {
            assert_eq!(attribute(lacked, 2), 0, "{lacked:?}");
        }
        // SAFETY: the places are of these types.
        unsafe {
            let (mut can, mut event, mut address) = (1, ptr::null_mut(), 0);
            let mut handle = std::mem::zeroed();
            ok(sys::cuDeviceCanAccessPeer(&mut can, 0, 1));
            assert_eq!(can, 0);
            assert_eq!(sys::cuEventCreate(&mut event, 6), CUresult::CUDA_ERROR_NOT_SUPPORTED);
            ok(sys::cuMemAlloc_v2(&mut address, 64));
            assert_eq!(sys::cuIpcGetMemHandle(&mut handle, address), CUresult::CUDA_ERROR_NOT_SUPPORTED);
            let stream = context.new_stream().expect("a stream").cu_stream();
            assert_eq!(sys::cuStreamWriteValue32_v2(stream, address, 1, 0), CUresult::CUDA_ERROR_INVALID_HANDLE);
            let code = sys::cuStreamWriteValue32_v2(ptr::null_mut(), address, 1, 0);
            assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
    });
}

#[test]
fn a_machine_without_devices() {
    alone(
        "device::a_machine_without_devices",
        |simulated| simulated.devices(0),
        || {
            assert_eq!(result::device::get_count(), Err(result::DriverError(CUresult::CUDA_ERROR_NOT_INITIALIZED)));
            assert_eq!(result::init(), Err(result::DriverError(CUresult::CUDA_ERROR_NO_DEVICE)));
        },
    );
}

#[test]
fn a_context_that_is_retained_can_be_used_whoever_releases_it() {
    alone(
        "device::a_context_that_is_retained_can_be_used_whoever_releases_it",
        |simulated| simulated,
        || {
            let Some(_) = Setting::new() else { return };
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..5000 {
                            let (mut context, mut popped) = (ptr::null_mut(), ptr::null_mut());
                            // SAFETY: the places are of these types.
                            unsafe {
                                ok(sys::cuDevicePrimaryCtxRetain(&mut context, 1));
                                ok(sys::cuCtxPushCurrent_v2(context));
                                ok(sys::cuCtxPopCurrent_v2(&mut popped));
                                ok(sys::cuDevicePrimaryCtxRelease_v2(1));
                            }
                        }
                    });
                }
            });
        },
    );
}
