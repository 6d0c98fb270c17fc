//! Streams: created, waited for, and what they wait for and write in memory.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::{api, put};
use crate::capture;
use crate::context::{current, stream};
use crate::error::{Code, Status, refuse};
use crate::operation::{Call, Operation};
use crate::stream::{Kind, Stream, are_reached, wait_for};
use crate::value::{Place, Until, WaitValue, WriteValue};

/// Priorities from the least to the greatest.
const PRIORITIES: std::ops::RangeInclusive<c_int> = -5..=0;

fn create(flags: c_uint, priority: c_int) -> Status<usize> {
    let (driver, context) = current()?;
    let kind = match flags {
        0 => Kind::Blocking,
        1 => Kind::NonBlocking,
        _ => return Err(Code::CUDA_ERROR_INVALID_VALUE),
    };
    let priority = priority.clamp(*PRIORITIES.start(), *PRIORITIES.end());
    let stream = driver.streams.insert(|handle| Stream::new(handle, context.clone(), kind, priority));
    context.adopt(&stream);
    Ok(stream.handle)
}

/// The stream and the place that a wait or a write is for.
fn place(
    handle: usize,
    address: u64,
    is_wide: bool,
    what: &str,
) -> Status<(&'static crate::driver::Driver, std::sync::Arc<Stream>, Place)> {
    let (driver, stream) = stream(handle)?;
    if !driver.knobs.has_stream_memory {
        return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
    }
    let bytes = if is_wide { 8 } else { 4 };
    if !address.is_multiple_of(bytes) {
        return refuse(Code::CUDA_ERROR_INVALID_VALUE, format_args!("{what}: {address:#x} is misaligned"));
    }
    let allocation = driver.memory.accessible(address, bytes as usize, what)?;
    Ok((driver, stream, Place { address, allocation, is_wide }))
}

fn wait_value(handle: usize, address: u64, value: u64, flags: c_uint, is_wide: bool) -> Status {
    let until = Until::of(flags)?;
    let (driver, stream, place) = place(handle, address, is_wide, "cuStreamWaitValue")?;
    stream.submit(driver, Operation::WaitValue(WaitValue { place, value, until })).map(drop)
}

fn write_value(handle: usize, address: u64, value: u64, flags: c_uint, is_wide: bool) -> Status {
    if flags > 1 {
        return Err(Code::CUDA_ERROR_INVALID_VALUE);
    }
    let (driver, stream, place) = place(handle, address, is_wide, "cuStreamWriteValue")?;
    stream.submit(driver, Operation::WriteValue(WriteValue { place, value })).map(drop)
}

api! {
    fn cuStreamCreate(handle: *mut usize, flags: c_uint) {
        put(handle, create(flags, 0)?)
    }

    fn cuStreamCreateWithPriority(handle: *mut usize, flags: c_uint, priority: c_int) {
        put(handle, create(flags, priority)?)
    }

    fn cuStreamDestroy_v2(handle: usize) {
        if handle <= 2 {
            return Err(Code::CUDA_ERROR_INVALID_HANDLE);
        }
        let (driver, stream) = stream(handle)?;
        driver.streams.remove(stream.handle)?;
        // A capture that the stream takes part in can't be ended any more.
        capture::spoil(&stream, Code::CUDA_SUCCESS);
        stream.close();
        Ok(())
    }

    fn cuStreamSynchronize(handle: usize) {
        let (driver, stream) = stream(handle)?;
        capture::refuse_captured(&stream)?;
        capture::refuse_unsafe(driver)?;
        wait_for(driver, &stream.lasts(driver));
        stream.context.check()
    }

    fn cuStreamQuery(handle: usize) {
        let (driver, stream) = stream(handle)?;
        capture::refuse_captured(&stream)?;
        capture::refuse_unsafe(driver)?;
        let is_done = are_reached(driver, &stream.lasts(driver));
        stream.context.check()?;
        if is_done { Ok(()) } else { Err(Code::CUDA_ERROR_NOT_READY) }
    }

    fn cuStreamGetCtx(handle: usize, context: *mut usize) {
        let (_, stream) = stream(handle)?;
        put(context, stream.context.handle)
    }

    fn cuStreamGetDevice(handle: usize, device: *mut c_int) {
        let (_, stream) = stream(handle)?;
        put(device, stream.context.device as c_int)
    }

    fn cuStreamGetFlags(handle: usize, flags: *mut c_uint) {
        let (_, stream) = stream(handle)?;
        put(flags, c_uint::from(stream.kind == Kind::NonBlocking))
    }

    fn cuStreamGetPriority(handle: usize, priority: *mut c_int) {
        let (_, stream) = stream(handle)?;
        put(priority, stream.priority)
    }

    fn cuStreamGetId(handle: usize, id: *mut c_ulonglong) {
        let (_, stream) = stream(handle)?;
        put(id, stream.handle as c_ulonglong)
    }

    fn cuLaunchHostFunc(handle: usize, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void) {
        let (driver, stream) = stream(handle)?;
        let function = function.ok_or(Code::CUDA_ERROR_INVALID_VALUE)?;
        stream.submit(driver, Operation::Call(Call { function, data: data as usize })).map(drop)
    }

    fn cuStreamWaitValue32(handle: usize, address: u64, value: u32, flags: c_uint) {
        wait_value(handle, address, value.into(), flags, false)
    }

    fn cuStreamWaitValue32_v2(handle: usize, address: u64, value: u32, flags: c_uint) {
        wait_value(handle, address, value.into(), flags, false)
    }

    fn cuStreamWaitValue64(handle: usize, address: u64, value: u64, flags: c_uint) {
        wait_value(handle, address, value, flags, true)
    }

    fn cuStreamWaitValue64_v2(handle: usize, address: u64, value: u64, flags: c_uint) {
        wait_value(handle, address, value, flags, true)
    }

    fn cuStreamWriteValue32(handle: usize, address: u64, value: u32, flags: c_uint) {
        write_value(handle, address, value.into(), flags, false)
    }

    fn cuStreamWriteValue32_v2(handle: usize, address: u64, value: u32, flags: c_uint) {
        write_value(handle, address, value.into(), flags, false)
    }

    fn cuStreamWriteValue64(handle: usize, address: u64, value: u64, flags: c_uint) {
        write_value(handle, address, value, flags, true)
    }

    fn cuStreamWriteValue64_v2(handle: usize, address: u64, value: u64, flags: c_uint) {
        write_value(handle, address, value, flags, true)
    }
}
