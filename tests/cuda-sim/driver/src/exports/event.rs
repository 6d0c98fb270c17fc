//! Events.

use std::ffi::c_uint;

use super::{api, put};
use crate::capture;
use crate::context::{current, stream};
use crate::error::{Code, refuse};
use crate::event::{DISABLE_TIMING, Event, INTERPROCESS, Shared};
use crate::ipc::new_event_file;
use std::sync::Arc;

/// A wait that another stream of the capture doesn't see.
const WAIT_EXTERNAL: c_uint = 1;

api! {
    fn cuEventCreate(event: *mut usize, flags: c_uint) {
        let (driver, context) = current()?;
        let is_shared = flags & INTERPROCESS != 0;
        if flags & !7 != 0 || is_shared && flags & DISABLE_TIMING == 0 {
            return refuse(Code::CUDA_ERROR_INVALID_VALUE, format_args!("cuEventCreate: flags {flags:#x}"));
        }
        if is_shared && !driver.knobs.has_ipc {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        let shared = if is_shared {
            let (file, nonce) = new_event_file()?;
            Some(Arc::new(Shared::new(file, nonce).map_err(|_| Code::CUDA_ERROR_OUT_OF_MEMORY)?))
        } else {
            None
        };
        let mut given = 0;
        driver.events.insert(|handle| {
            given = handle;
            Event::new(context, flags, shared)
        });
        put(event, given)
    }

    fn cuEventDestroy_v2(event: usize) {
        let (driver, _) = current()?;
        driver.events.remove(event).map(drop)
    }

    fn cuEventRecord(event: usize, handle: usize) {
        let (driver, stream) = stream(handle)?;
        driver.events.get(event)?.record(driver, &stream)
    }

    fn cuEventRecordWithFlags(event: usize, handle: usize, flags: c_uint) {
        let (driver, stream) = stream(handle)?;
        if flags != 0 {
            return refuse(Code::CUDA_ERROR_NOT_SUPPORTED, format_args!("external records are not simulated"));
        }
        driver.events.get(event)?.record(driver, &stream)
    }

    fn cuStreamWaitEvent(handle: usize, event: usize, flags: c_uint) {
        let (driver, stream) = stream(handle)?;
        if flags == WAIT_EXTERNAL {
            return refuse(Code::CUDA_ERROR_NOT_SUPPORTED, format_args!("external waits are not simulated"));
        }
        if flags != 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        driver.events.get(event)?.wait(driver, &stream)
    }

    fn cuEventQuery(event: usize) {
        let (driver, _) = current()?;
        let event = driver.events.get(event)?;
        capture::refuse_unsafe(driver)?;
        let is_done = event.query(driver)?;
        event.context.check()?;
        if is_done { Ok(()) } else { Err(Code::CUDA_ERROR_NOT_READY) }
    }

    fn cuEventSynchronize(event: usize) {
        let (driver, _) = current()?;
        let event = driver.events.get(event)?;
        capture::refuse_unsafe(driver)?;
        event.synchronise(driver)
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, start: usize, end: usize) {
        let (driver, _) = current()?;
        put(milliseconds, driver.events.get(start)?.until(&*driver.events.get(end)?)?)
    }

    fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: usize, end: usize) {
        let (driver, _) = current()?;
        put(milliseconds, driver.events.get(start)?.until(&*driver.events.get(end)?)?)
    }
}
