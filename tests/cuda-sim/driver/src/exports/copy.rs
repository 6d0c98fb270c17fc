//! Copies and fills.

use std::ffi::{c_uchar, c_uint, c_ushort};
use std::sync::Arc;

use super::api;
use crate::capture;
use crate::context::{current, stream};
use crate::driver::{Driver, driver};
use crate::error::{Code, Status, refuse};
use crate::handle::lock;
use crate::operation::{End, Operation, Pattern, Source};
use crate::stream::{Stream, wait_for};

/// What an end of a copy is said to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Device,
    Host,
    /// Whatever the address says.
    Any,
}

/// A copy as it is asked for.
struct Copy {
    what: &'static str,
    to: (u64, Side),
    from: (u64, Side),
    bytes: usize,
}

fn find(driver: &Driver, (address, side): (u64, Side), bytes: usize, what: &str) -> Status<End> {
    let allocation = match side {
        Side::Device => Some(driver.memory.accessible(address, bytes, what)?),
        Side::Host => driver.memory.of_host(address, bytes, what)?,
        Side::Any if driver.memory.at(address).is_some() => Some(driver.memory.accessible(address, bytes, what)?),
        Side::Any => driver.memory.of_host(address, bytes, what)?,
    };
    Ok(End { address, allocation })
}

/// Copies in a stream. What comes from host memory that isn't pinned is read at once; what goes there is there when this
/// returns; both are as CUDA's documentation says.
///
/// # Safety
///
/// Host memory is what the caller says.
unsafe fn copy(driver: &'static Driver, stream: &Arc<Stream>, copy: &Copy) -> Status {
    let Copy { what, to, from, bytes } = *copy;
    if bytes == 0 {
        return Ok(());
    }
    let to = find(driver, to, bytes, what)?;
    let from = find(driver, from, bytes, what)?;
    let is_captured = lock(&stream.capture).is_some();
    let (waits, from) = match &from.allocation {
        None if !is_captured => {
            // SAFETY: the caller has that many bytes there.
            let staged = unsafe { std::slice::from_raw_parts(from.address as *const u8, bytes) };
            (false, Source::Staged(staged.into()))
        }
        _ => (to.allocation.is_none(), Source::End(from)),
    };
    if let Some(end) = stream.submit(driver, Operation::Copy { to, from, bytes })?
        && waits
    {
        wait_for(driver, &[end]);
        stream.context.check()?;
    }
    Ok(())
}

/// The same in the legacy stream; the call returns when the copy has ended, unless both ends are a device's.
///
/// # Safety
///
/// As for [`copy`].
unsafe fn copy_at_once(asked: &Copy) -> Status {
    let (driver, stream) = stream(0)?;
    capture::refuse_unsafe(driver)?;
    // SAFETY: as the caller says.
    unsafe { copy(driver, &stream, asked)? };
    let of_host = |(address, _): (u64, Side)| driver.memory.at(address).is_none_or(|found| !found.kind.is_of_device());
    if of_host(asked.to) || of_host(asked.from) {
        wait_for(driver, &stream.lasts(driver));
        stream.context.check()?;
    }
    Ok(())
}

fn fill(driver: &'static Driver, stream: &Arc<Stream>, address: u64, pattern: Pattern, count: usize) -> Status {
    let bytes = count.checked_mul(pattern.bytes()).ok_or(Code::CUDA_ERROR_INVALID_VALUE)?;
    if bytes == 0 {
        return Ok(());
    }
    if !address.is_multiple_of(pattern.bytes() as u64) {
        return refuse(Code::CUDA_ERROR_INVALID_VALUE, format_args!("cuMemset: {address:#x} is misaligned"));
    }
    let allocation = Some(driver.memory.accessible(address, bytes, "cuMemset")?);
    stream.submit(driver, Operation::Fill { to: End { address, allocation }, pattern, count }).map(drop)
}

fn fill_at_once(address: u64, pattern: Pattern, count: usize) -> Status {
    let (driver, stream) = stream(0)?;
    capture::refuse_unsafe(driver)?;
    fill(driver, &stream, address, pattern, count)
}

/// A copy between devices needs contexts that exist.
fn check_contexts(contexts: [usize; 2]) -> Status {
    current()?;
    for context in contexts {
        driver()?.contexts.get(context).map_err(|_| Code::CUDA_ERROR_INVALID_CONTEXT)?.check()?;
    }
    Ok(())
}

use Side::{Any, Device, Host};

api! {
    fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        copy_at_once(&Copy { what: "cuMemcpy", to: (to, Any), from: (from, Any), bytes })
    }

    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, handle: usize) {
        let (driver, stream) = stream(handle)?;
        copy(driver, &stream, &Copy { what: "cuMemcpyAsync", to: (to, Any), from: (from, Any), bytes })
    }

    fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) {
        copy_at_once(&Copy { what: "cuMemcpyHtoD", to: (to, Device), from: (from, Host), bytes })
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, handle: usize) {
        let (driver, stream) = stream(handle)?;
        copy(driver, &stream, &Copy { what: "cuMemcpyHtoDAsync", to: (to, Device), from: (from, Host), bytes })
    }

    fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) {
        copy_at_once(&Copy { what: "cuMemcpyDtoH", to: (to, Host), from: (from, Device), bytes })
    }

    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, handle: usize) {
        let (driver, stream) = stream(handle)?;
        copy(driver, &stream, &Copy { what: "cuMemcpyDtoHAsync", to: (to, Host), from: (from, Device), bytes })
    }

    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        copy_at_once(&Copy { what: "cuMemcpyDtoD", to: (to, Device), from: (from, Device), bytes })
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, handle: usize) {
        let (driver, stream) = stream(handle)?;
        copy(driver, &stream, &Copy { what: "cuMemcpyDtoDAsync", to: (to, Device), from: (from, Device), bytes })
    }

    fn cuMemcpyPeer(to: u64, to_context: usize, from: u64, from_context: usize, bytes: usize) {
        check_contexts([to_context, from_context])?;
        copy_at_once(&Copy { what: "cuMemcpyPeer", to: (to, Device), from: (from, Device), bytes })
    }

    fn cuMemcpyPeerAsync(to: u64, to_context: usize, from: u64, from_context: usize, bytes: usize, handle: usize) {
        check_contexts([to_context, from_context])?;
        let (driver, stream) = stream(handle)?;
        copy(driver, &stream, &Copy { what: "cuMemcpyPeerAsync", to: (to, Device), from: (from, Device), bytes })
    }

    fn cuMemsetD8_v2(address: u64, byte: c_uchar, count: usize) {
        fill_at_once(address, Pattern::Byte(byte), count)
    }

    fn cuMemsetD8Async(address: u64, byte: c_uchar, count: usize, handle: usize) {
        let (driver, stream) = stream(handle)?;
        fill(driver, &stream, address, Pattern::Byte(byte), count)
    }

    fn cuMemsetD16_v2(address: u64, half: c_ushort, count: usize) {
        fill_at_once(address, Pattern::Half(half), count)
    }

    fn cuMemsetD16Async(address: u64, half: c_ushort, count: usize, handle: usize) {
        let (driver, stream) = stream(handle)?;
        fill(driver, &stream, address, Pattern::Half(half), count)
    }

    fn cuMemsetD32_v2(address: u64, word: c_uint, count: usize) {
        fill_at_once(address, Pattern::Word(word), count)
    }

    fn cuMemsetD32Async(address: u64, word: c_uint, count: usize, handle: usize) {
        let (driver, stream) = stream(handle)?;
        fill(driver, &stream, address, Pattern::Word(word), count)
    }
}
