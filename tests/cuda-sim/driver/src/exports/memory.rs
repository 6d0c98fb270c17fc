//! Memory: allocated, freed, pinned.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{api, put};
use crate::capture;
use crate::context::{current, stream};
use crate::driver::Driver;
use crate::error::{Code, Status, refuse, say};
use crate::handle::lock;
use crate::memory::{Allocation, Kind};
use crate::operation::{Operation, free};

/// Waits until nothing uses an allocation that was enqueued in its context. Memory of pools is not waited for, as CUDA's
/// documentation says.
pub fn settle(driver: &Driver, allocation: &Arc<Allocation>) {
    if allocation.kind == Kind::Pooled {
        if Arc::strong_count(allocation) > 1 {
            let address = allocation.address;
            say(format_args!(
                "cuMemFree of {address:#x}: a stream or a graph still uses it, and cuMemFree doesn't wait"
            ));
        }
        return;
    }
    let Ok(context) = driver.contexts.get(allocation.context) else { return };
    let lasts: Vec<_> = context.streams().into_iter().filter_map(|stream| stream.last()).collect();
    crate::stream::wait_for(driver, &lasts);
}

fn allocate(bytes: usize, kind: Kind) -> Status<u64> {
    let (driver, context) = current()?;
    capture::refuse_unsafe(driver)?;
    Ok(driver.memory.allocate(driver, &context, bytes, kind)?.address)
}

fn release(address: u64, kinds: &[Kind], code: Code) -> Status {
    let (driver, _) = current()?;
    if address == 0 {
        return Ok(());
    }
    capture::refuse_unsafe(driver)?;
    let allocation = driver.memory.remove(address, kinds, code)?;
    settle(driver, &allocation);
    free(driver, &allocation);
    Ok(())
}

/// Flags of host memory: portable, mapped, and two that are for other processors and for reading.
const HOST_FLAGS: c_uint = 0xf;

api! {
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        put(address, allocate(bytes, Kind::Device)?)
    }

    fn cuMemFree_v2(address: u64) {
        release(address, &[Kind::Device, Kind::Pooled], Code::CUDA_ERROR_INVALID_VALUE)
    }

    fn cuMemAllocAsync(address: *mut u64, bytes: usize, handle: usize) {
        let (driver, stream) = stream(handle)?;
        if !driver.knobs.has_pools {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        if lock(&stream.capture).is_some() {
            let code = capture::spoil(&stream, Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            return refuse(code, format_args!("the software driver's graphs can't allocate"));
        }
        put(address, driver.memory.allocate(driver, &stream.context, bytes, Kind::Pooled)?.address)
    }

    fn cuMemFreeAsync(address: u64, handle: usize) {
        let (driver, stream) = stream(handle)?;
        if address == 0 {
            return Ok(());
        }
        let allocation = driver.memory.at(address).filter(|found| {
            found.address == address && matches!(found.kind, Kind::Device | Kind::Pooled)
        });
        let Some(allocation) = allocation else {
            return refuse(Code::CUDA_ERROR_INVALID_VALUE, format_args!("{address:#x} is no start of a device's memory"));
        };
        if lock(&stream.capture).is_some() {
            return Err(capture::spoil(&stream, Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        }
        if allocation.is_leaving.swap(true, Ordering::AcqRel) {
            return refuse(Code::CUDA_ERROR_INVALID_VALUE, format_args!("{address:#x} is freed twice"));
        }
        stream.submit(driver, Operation::Free(allocation)).map(drop)
    }

    fn cuMemAllocManaged(_address: *mut u64, _bytes: usize, _flags: c_uint) {
        current()?;
        Err(Code::CUDA_ERROR_NOT_SUPPORTED)
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let (driver, context) = current()?;
        let device = &driver.devices[context.device];
        put(free, device.free() as usize)?;
        put(total, device.memory as usize)
    }

    fn cuMemHostAlloc(address: *mut u64, bytes: usize, flags: c_uint) {
        if flags & !HOST_FLAGS != 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        put(address, allocate(bytes, Kind::Pinned)?)
    }

    fn cuMemAllocHost_v2(address: *mut u64, bytes: usize) {
        put(address, allocate(bytes, Kind::Pinned)?)
    }

    fn cuMemFreeHost(address: u64) {
        release(address, &[Kind::Pinned], Code::CUDA_ERROR_INVALID_VALUE)
    }

    fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: c_uint) {
        let (driver, context) = current()?;
        capture::refuse_unsafe(driver)?;
        if flags & !HOST_FLAGS != 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        driver.memory.register(&context, address, bytes)
    }

    fn cuMemHostUnregister(address: u64) {
        release(address, &[Kind::Registered], Code::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    }

    fn cuMemHostGetDevicePointer_v2(device: *mut u64, host: u64, flags: c_uint) {
        let (driver, _) = current()?;
        if flags != 0 || driver.memory.of_host(host, 1, "cuMemHostGetDevicePointer")?.is_none() {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        put(device, host)
    }

    fn cuMemHostGetFlags(flags: *mut c_uint, host: u64) {
        let (driver, _) = current()?;
        let found = driver.memory.of_host(host, 1, "cuMemHostGetFlags")?;
        put(flags, found.map(|_| 2).ok_or(Code::CUDA_ERROR_INVALID_VALUE)?)
    }

    fn cuMemGetAddressRange_v2(start: *mut u64, bytes: *mut usize, address: u64) {
        let (driver, _) = current()?;
        let found = driver.memory.at(address).filter(|found| found.kind.is_of_device());
        let found = found.ok_or(Code::CUDA_ERROR_NOT_FOUND)?;
        super::put_if_asked(start, found.address);
        super::put_if_asked(bytes, found.bytes);
        Ok(())
    }

    fn cuMemPrefetchAsync(_address: u64, _bytes: usize, _device: c_int, _stream: usize) {
        current()?;
        Err(Code::CUDA_ERROR_INVALID_VALUE)
    }
}
