//! Contexts: retained, made current, waited for.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::{api, put, put_if_asked};
use crate::capture;
use crate::context::{Context, current, pop, push, set_top, top};
use crate::driver::{Driver, driver};
use crate::error::{Code, Status, refuse};
use crate::handle::lock;
use crate::memory::Kind;
use crate::operation::free;
use crate::stream::wait_for;

/// Who retains and who releases primary contexts takes turns: a context that the last one gives up is none to be retained.
static RETAINED: Mutex<()> = Mutex::new(());

/// The device's primary context, if it was retained.
fn primary(driver: &Driver, device: usize) -> Option<Arc<Context>> {
    driver.contexts.all().into_iter().find(|context| context.device == device)
}

/// Ends a context: what waits in its streams ends, and its memory goes.
fn destroy(driver: &Driver, context: &Context) {
    let _ = driver.contexts.remove(context.handle);
    context.destroy();
    for stream in context.streams() {
        stream.close();
        let _ = driver.streams.remove(stream.handle);
        if let Some(last) = stream.last() {
            last.wait();
        }
    }
    lock(&driver.memory.opened).retain(|(_, of), _| *of != context.handle);
    let kinds = [Kind::Device, Kind::Pooled, Kind::Opened, Kind::Pinned, Kind::Registered];
    for allocation in driver.memory.of_context(context.handle) {
        if let Ok(allocation) = driver.memory.remove(allocation.address, &kinds, Code::CUDA_ERROR_INVALID_VALUE) {
            free(driver, &allocation);
        }
    }
}

fn release(driver: &Driver, device: usize) -> Status {
    let context = {
        let _turn = lock(&RETAINED);
        let context = primary(driver, device).ok_or(Code::CUDA_ERROR_INVALID_CONTEXT)?;
        if context.retained.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        let _ = driver.contexts.remove(context.handle);
        context
    };
    destroy(driver, &context);
    Ok(())
}

/// Waits for everything in a context.
pub fn synchronise(driver: &Driver, context: &Arc<Context>) -> Status {
    capture::refuse_unsafe(driver)?;
    let streams = context.streams();
    if let Some(captured) = streams.iter().find(|stream| lock(&stream.capture).is_some()) {
        return Err(capture::spoil(captured, Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    }
    let lasts: Vec<_> = streams.iter().filter_map(|stream| stream.last()).collect();
    wait_for(driver, &lasts);
    context.check()
}

api! {
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) {
        let driver = driver()?;
        let device = driver.device(device)?.ordinal;
        let _turn = lock(&RETAINED);
        let primary = primary(driver, device)
            .unwrap_or_else(|| driver.contexts.insert(|handle| Context::new(handle, device)));
        primary.retained.fetch_add(1, Ordering::AcqRel);
        put(context, primary.handle)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        let driver = driver()?;
        release(driver, driver.device(device)?.ordinal)
    }

    fn cuDevicePrimaryCtxReset_v2(device: c_int) {
        let driver = driver()?;
        if let Some(context) = primary(driver, driver.device(device)?.ordinal) {
            destroy(driver, &context);
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) {
        let driver = driver()?;
        let is_active = primary(driver, driver.device(device)?.ordinal).is_some();
        put(flags, 0)?;
        put(active, c_int::from(is_active))
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, _flags: c_uint) {
        let driver = driver()?;
        driver.device(device).map(drop)
    }

    fn cuCtxSetCurrent(context: usize) {
        let driver = driver()?;
        if context != 0 {
            driver.contexts.get(context).map_err(|_| Code::CUDA_ERROR_INVALID_CONTEXT)?;
        }
        set_top(Some(context).filter(|context| *context != 0));
        Ok(())
    }

    fn cuCtxGetCurrent(context: *mut usize) {
        driver()?;
        put(context, top().unwrap_or(0))
    }

    fn cuCtxPushCurrent_v2(context: usize) {
        driver()?.contexts.get(context).map_err(|_| Code::CUDA_ERROR_INVALID_CONTEXT)?;
        push(context);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: *mut usize) {
        driver()?;
        let popped = pop().ok_or(Code::CUDA_ERROR_INVALID_CONTEXT)?;
        put_if_asked(context, popped);
        Ok(())
    }

    fn cuCtxGetDevice(device: *mut c_int) {
        let (_, context) = current()?;
        put(device, context.device as c_int)
    }

    fn cuCtxSynchronize() {
        let (driver, context) = current()?;
        synchronise(driver, &context)
    }

    fn cuCtxGetFlags(flags: *mut c_uint) {
        current()?;
        put(flags, 0)
    }

    fn cuCtxSetFlags(_flags: c_uint) {
        current().map(drop)
    }

    fn cuCtxGetApiVersion(_context: *mut c_void, version: *mut c_uint) {
        driver()?;
        put(version, 3020)
    }

    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        current()?;
        put_if_asked(least, 0);
        put_if_asked(greatest, -5);
        Ok(())
    }

    fn cuCtxGetLimit(_value: *mut usize, _limit: c_uint) {
        current()?;
        Err(Code::CUDA_ERROR_UNSUPPORTED_LIMIT)
    }

    fn cuCtxSetLimit(_limit: c_uint, _value: usize) {
        current()?;
        Err(Code::CUDA_ERROR_UNSUPPORTED_LIMIT)
    }

    fn cuCtxEnablePeerAccess(peer: usize, flags: c_uint) {
        let (driver, context) = current()?;
        if flags != 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let peer = driver.contexts.get(peer).map_err(|_| Code::CUDA_ERROR_INVALID_CONTEXT)?;
        if peer.device == context.device {
            return refuse(Code::CUDA_ERROR_INVALID_DEVICE, format_args!("a device is no peer of itself"));
        }
        if !driver.knobs.has_peers {
            return Err(Code::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        let is_new = lock(&context.peers).insert(peer.device);
        if is_new { Ok(()) } else { Err(Code::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) }
    }

    fn cuCtxDisablePeerAccess(peer: usize) {
        let (driver, context) = current()?;
        let peer = driver.contexts.get(peer).map_err(|_| Code::CUDA_ERROR_INVALID_CONTEXT)?;
        let was_enabled = lock(&context.peers).remove(&peer.device);
        if was_enabled { Ok(()) } else { Err(Code::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) }
    }
}
