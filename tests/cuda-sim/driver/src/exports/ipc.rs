//! Memory and events between processes.

use std::ffi::{c_char, c_uint};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::sys::{CUipcEventHandle, CUipcMemHandle};

use super::{api, put};
use crate::capture;
use crate::context::{Context, current};
use crate::driver::Driver;
use crate::error::{Code, Status, refuse, say};
use crate::event::{DISABLE_TIMING, Event, INTERPROCESS, Shared};
use crate::handle::lock;
use crate::ipc::{Ticket, What};
use crate::mapping::{Mapping, in_pages};
use crate::memory::{Kind, Opened};
use crate::operation::free;

const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

fn bytes_of(handle: [c_char; 64]) -> [u8; 64] {
    handle.map(|byte| byte as u8)
}

fn open_memory(driver: &Driver, context: &Arc<Context>, ticket: &Ticket) -> Status<u64> {
    let mut opened = lock(&driver.memory.opened);
    if let Some(known) = opened.get_mut(&(ticket.nonce, context.handle)) {
        known.count += 1;
        return Ok(known.allocation.address);
    }
    let device = driver.device(ticket.device as i32)?.ordinal;
    if device != context.device && !driver.knobs.has_peers {
        let why = format_args!("device {} can't access device {device}, which the memory is of", context.device);
        return refuse(Code::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, why);
    }
    let file = ticket.open()?;
    let bytes = ticket.bytes as usize;
    let pages = in_pages(bytes).ok_or(Code::CUDA_ERROR_INVALID_VALUE)?;
    let mapping = Mapping::new(Some(file.as_fd()), pages).map_err(|error| {
        say(format_args!("memory of process {} can't be mapped: {error}", ticket.process));
        Code::CUDA_ERROR_MAP_FAILED
    })?;
    let allocation = driver.memory.keep_opened(context, mapping, bytes, device, ticket.nonce);
    let address = allocation.address;
    opened.insert((ticket.nonce, context.handle), Opened { allocation, count: 1 });
    Ok(address)
}

fn close_memory(driver: &Driver, address: u64) -> Status {
    let mut opened = lock(&driver.memory.opened);
    let Some((key, known)) = opened.iter_mut().find(|(_, known)| known.allocation.address == address) else {
        return refuse(Code::CUDA_ERROR_INVALID_VALUE, format_args!("{address:#x} is no opened memory"));
    };
    known.count -= 1;
    if known.count > 0 {
        return Ok(());
    }
    let key = *key;
    opened.remove(&key);
    drop(opened);
    let allocation = driver.memory.remove(address, &[Kind::Opened], Code::CUDA_ERROR_INVALID_VALUE)?;
    super::memory::settle(driver, &allocation);
    free(driver, &allocation);
    Ok(())
}

api! {
    fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: u64) {
        let (driver, _) = current()?;
        if !driver.knobs.has_ipc {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        let Some(allocation) = driver.memory.at(address).filter(|found| found.address == address) else {
            return refuse(Code::CUDA_ERROR_INVALID_VALUE, format_args!("{address:#x} is no start of an allocation"));
        };
        let Some(file) = &allocation.file else {
            let why = format_args!("{address:#x} is {:?} memory: only that of cuMemAlloc can be opened", allocation.kind);
            return refuse(Code::CUDA_ERROR_INVALID_VALUE, why);
        };
        allocation.is_shared.store(true, Ordering::Relaxed);
        let ticket = Ticket {
            kind: What::Memory,
            process: std::process::id(),
            descriptor: file.as_raw_fd() as u32,
            device: allocation.device as u32,
            bytes: allocation.bytes as u64,
            nonce: allocation.nonce,
        };
        put(handle, CUipcMemHandle { reserved: ticket.write().map(|byte| byte as c_char) })
    }

    fn cuIpcOpenMemHandle_v2(address: *mut u64, handle: CUipcMemHandle, flags: c_uint) {
        let (driver, context) = current()?;
        if !driver.knobs.has_ipc {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        capture::refuse_unsafe(driver)?;
        if flags != LAZY_ENABLE_PEER_ACCESS {
            return refuse(Code::CUDA_ERROR_INVALID_VALUE, format_args!("cuIpcOpenMemHandle: flags {flags:#x}"));
        }
        let ticket = Ticket::read(&bytes_of(handle.reserved), What::Memory)?;
        put(address, open_memory(driver, &context, &ticket)?)
    }

    fn cuIpcCloseMemHandle(address: u64) {
        let (driver, _) = current()?;
        capture::refuse_unsafe(driver)?;
        close_memory(driver, address)
    }

    fn cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: usize) {
        let (driver, _) = current()?;
        let event = driver.events.get(event)?;
        let Some(shared) = &event.shared else {
            let why = format_args!("the event was created without CU_EVENT_INTERPROCESS");
            return refuse(Code::CUDA_ERROR_INVALID_HANDLE, why);
        };
        let ticket = Ticket {
            kind: What::Event,
            process: std::process::id(),
            descriptor: shared.file.as_raw_fd() as u32,
            device: event.context.device as u32,
            bytes: 0,
            nonce: shared.nonce,
        };
        put(handle, CUipcEventHandle { reserved: ticket.write().map(|byte| byte as c_char) })
    }

    fn cuIpcOpenEventHandle(event: *mut usize, handle: CUipcEventHandle) {
        let (driver, context) = current()?;
        if !driver.knobs.has_ipc {
            return Err(Code::CUDA_ERROR_NOT_SUPPORTED);
        }
        capture::refuse_unsafe(driver)?;
        let ticket = Ticket::read(&bytes_of(handle.reserved), What::Event)?;
        let shared = Shared::new(ticket.open()?, ticket.nonce).map_err(|_| Code::CUDA_ERROR_MAP_FAILED)?;
        let mut given = 0;
        driver.events.insert(|handle| {
            given = handle;
            Event::new(context, DISABLE_TIMING | INTERPROCESS, Some(Arc::new(shared)))
        });
        put(event, given)
    }
}
