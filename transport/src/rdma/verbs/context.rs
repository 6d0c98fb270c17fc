//! Opened devices, their protection domains, and the events that belong to no queue.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ibverbs_sys as ffi;

use super::sys::{self, Functions};
use crate::forks;

/// An opened device.
pub(crate) struct Context {
    pub(super) functions: &'static Functions,
    pub(super) raw: *mut ffi::ibv_context,
    generation: u32,
}

// SAFETY: the library's functions may be called from any thread, and those that take a context lock what they change.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// What a port says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PortState {
    pub(crate) is_active: bool,
    /// The state's number: 1 down, 2 initializing, 3 armed, 4 active.
    pub(crate) state: u32,
    /// The path MTU in use, as verbs number it: 1 for 256 bytes, 5 for 4096.
    pub(crate) mtu: u8,
    pub(crate) max_mtu: u8,
    pub(crate) lid: u16,
    pub(crate) is_ethernet: bool,
}

/// What queue pairs of a device may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Work requests that a queue may hold.
    pub(crate) requests: u32,
    pub(crate) reads: Reads,
}

/// RDMA reads under way at once at a queue pair: those that it begins, and those of the other end's that it serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Reads {
    pub(crate) begun: u8,
    pub(crate) served: u8,
}

/// More reads under way gain nothing, and each takes memory of the device's.
const READS_MAX: i32 = 16;

impl Reads {
    /// What this end may have, if the other can do so much.
    pub(crate) fn against(self, other: Reads) -> Reads {
        Reads { begun: self.begun.min(other.served), served: self.served.min(other.begun) }
    }

    /// Whether both ends can read.
    pub(crate) fn are_possible(self) -> bool {
        self.begun > 0 && self.served > 0
    }
}

/// News of a device that belongs to no completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AsyncEvent {
    /// The device is gone, or will do nothing any more.
    DeviceFatal,
    PortDown,
    PortUp,
    /// Addresses of a port have changed.
    AddressChange,
    /// Another event, by its number.
    Other(u32),
}

fn null_error() -> io::Error {
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(0) => io::Error::other("refused without a reason"),
        error => error,
    }
}

/// What a function that returns a pointer came to.
pub(super) fn pointer<T>(made: *mut T) -> io::Result<*mut T> {
    if made.is_null() { Err(null_error()) } else { Ok(made) }
}

/// What a function that returns an error number came to.
pub(super) fn status(returned: i32) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        -1 => Err(null_error()),
        number => Err(io::Error::from_raw_os_error(number.abs())),
    }
}

/// The devices that the library sees. The outer error says why there is no library.
pub(crate) fn device_names() -> Result<io::Result<Vec<String>>, &'static str> {
    let functions = sys::functions()?;
    Ok(with_devices(functions, |devices| devices.iter().map(|device| name(*device)).collect()))
}

fn name(device: *mut ffi::ibv_device) -> String {
    // SAFETY: the list's devices are valid while it is held, and their names end in a zero.
    unsafe { CStr::from_ptr((*device).name.as_ptr()) }.to_string_lossy().into_owned()
}

fn with_devices<T>(functions: &Functions, look: impl FnOnce(&[*mut ffi::ibv_device]) -> T) -> io::Result<T> {
    let mut n_devices = 0;
    // SAFETY: the list has as many entries as it says, and is freed after its last use.
    unsafe {
        let list = pointer((functions.get_device_list)(&raw mut n_devices))?;
        let seen = look(std::slice::from_raw_parts(list, usize::try_from(n_devices).unwrap_or(0)));
        (functions.free_device_list)(list);
        Ok(seen)
    }
}

impl Context {
    /// Opens a device. The outer error says why there is no library.
    pub(crate) fn open(device: &str) -> Result<io::Result<Arc<Context>>, &'static str> {
        let functions = sys::functions()?;
        let opened = with_devices(functions, |devices| {
            let found = devices.iter().find(|found| name(**found) == device);
            let found =
                found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "libibverbs has no such device"))?;
            // SAFETY: the device is one of the list, which is held.
            let raw = pointer(unsafe { (functions.open_device)(*found) })?;
            let context = Context { functions, raw, generation: forks::generation() };
            rustix::io::ioctl_fionbio(context.events(), true)?;
            Ok(Arc::new(context))
        });
        Ok(opened.and_then(|opened| opened))
    }

    /// Whether this process is a forked child of the one that opened it.
    pub(super) fn is_foreign(&self) -> bool {
        self.generation != forks::generation()
    }

    pub(crate) fn port(&self, port: u8) -> io::Result<PortState> {
        // Zeros are valid, and what an older library doesn't fill.
        let mut attributes = MaybeUninit::<ffi::ibv_port_attr>::zeroed();
        // SAFETY: the library fills a prefix of the structure, and zeros are valid for the rest.
        let said = unsafe {
            status((self.functions.query_port)(self.raw, port, attributes.as_mut_ptr()))?;
            attributes.assume_init()
        };
        Ok(PortState {
            is_active: said.state == ffi::ibv_port_state::IBV_PORT_ACTIVE,
            state: said.state,
            mtu: said.active_mtu as u8,
            max_mtu: said.max_mtu as u8,
            lid: said.lid,
            is_ethernet: u32::from(said.link_layer) == ffi::IBV_LINK_LAYER_ETHERNET,
        })
    }

    /// What queue pairs may have.
    pub(crate) fn limits(&self) -> io::Result<Limits> {
        let mut attributes = MaybeUninit::<ffi::ibv_device_attr>::zeroed();
        // SAFETY: the library fills the structure, for which zeros are valid.
        let said = unsafe {
            status((self.functions.query_device)(self.raw, attributes.as_mut_ptr()))?;
            attributes.assume_init()
        };
        let reads = |most: i32| most.clamp(0, READS_MAX) as u8;
        let (begun, served) = (reads(said.max_qp_init_rd_atom), reads(said.max_qp_rd_atom));
        Ok(Limits { requests: said.max_qp_wr.max(1) as u32, reads: Reads { begun, served } })
    }

    /// The file that is readable when there are events.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the file is open as long as the device is.
        unsafe { BorrowedFd::borrow_raw((*self.raw).async_fd) }
    }

    /// The next event, without waiting. After [`AsyncEvent::DeviceFatal`] no more is to be asked for.
    pub(crate) fn event(&self) -> Option<AsyncEvent> {
        let mut event = MaybeUninit::<ffi::ibv_async_event>::zeroed();
        // SAFETY: on success the library has filled the event, which is acknowledged once.
        let kind = unsafe {
            if (self.functions.get_async_event)(self.raw, event.as_mut_ptr()) != 0 {
                // The kernel closes the file of a device that is removed.
                let none_now = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
                let is_gone = !none_now.contains(&io::Error::last_os_error().kind());
                return is_gone.then_some(AsyncEvent::DeviceFatal);
            }
            let mut event = event.assume_init();
            (self.functions.ack_async_event)(&raw mut event);
            event.event_type
        };
        Some(match kind {
            ffi::IBV_EVENT_DEVICE_FATAL => AsyncEvent::DeviceFatal,
            ffi::IBV_EVENT_PORT_ERR => AsyncEvent::PortDown,
            ffi::IBV_EVENT_PORT_ACTIVE => AsyncEvent::PortUp,
            ffi::IBV_EVENT_GID_CHANGE | ffi::IBV_EVENT_LID_CHANGE => AsyncEvent::AddressChange,
            other => AsyncEvent::Other(other),
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.is_foreign() {
            // SAFETY: what was made from it held it, and is freed.
            unsafe { (self.functions.close_device)(self.raw) };
        }
    }
}

/// What memory and queue pairs must share to work together.
pub(crate) struct Domain {
    pub(super) context: Arc<Context>,
    pub(super) raw: *mut ffi::ibv_pd,
}

// SAFETY: as of `Context`.
unsafe impl Send for Domain {}
// SAFETY: as of `Context`.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn new(context: &Arc<Context>) -> io::Result<Arc<Domain>> {
        // SAFETY: the context is open, and held by the domain.
        let raw = pointer(unsafe { (context.functions.alloc_pd)(context.raw) })?;
        Ok(Arc::new(Domain { context: context.clone(), raw }))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if !self.context.is_foreign() {
            // SAFETY: what was made in it held it, and is freed.
            unsafe { (self.context.functions.dealloc_pd)(self.raw) };
        }
    }
}
