//! Memory that the driver knows: of devices, of other processes, and of the host where it is pinned.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::context::Context;
use crate::driver::Driver;
use crate::error::{Code, Status, refuse, say};
use crate::handle::lock;
use crate::mapping::{Mapping, in_pages, shared_file};
use crate::race::Accesses;

/// What an allocation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A device's, which other processes may open.
    Device,
    /// A device's, allocated in a stream's order: other processes may not.
    Pooled,
    /// Another process's, opened here.
    Opened,
    /// The host's, allocated by the driver.
    Pinned,
    /// The host's, made known to the driver.
    Registered,
}

impl Kind {
    /// Whether it is a device's memory, and not the host's.
    pub fn is_of_device(self) -> bool {
        matches!(self, Kind::Device | Kind::Pooled | Kind::Opened)
    }
}

/// One allocation.
pub struct Allocation {
    pub address: u64,
    pub bytes: usize,
    pub kind: Kind,
    pub device: usize,
    pub context: usize,
    /// Which one it is, of all in all processes' lives.
    pub nonce: u64,
    /// Its pages, unless they are the caller's.
    _mapping: Option<Mapping>,
    /// Its file, if other processes may open it.
    pub file: Option<OwnedFd>,
    /// Whether another process may write and read it.
    pub is_shared: AtomicBool,
    /// Whether a stream is going to free it.
    pub is_leaving: AtomicBool,
    pub accesses: Mutex<Accesses>,
}

/// Another process's memory, and how often it was opened.
pub struct Opened {
    pub allocation: Arc<Allocation>,
    pub count: usize,
}

/// All allocations, by address.
pub struct Memory {
    table: Mutex<BTreeMap<u64, Arc<Allocation>>>,
    /// What was opened, by nonce and context.
    pub opened: Mutex<HashMap<(u64, usize), Opened>>,
    /// The latest that are gone, for messages: address and bytes.
    gone: Mutex<VecDeque<(u64, usize)>>,
    allocations: AtomicU64,
}

/// What new memory is filled with, as far as this goes: it holds nothing yet.
const FILL: u8 = 0xcb;
const FILLED: usize = 1 << 20;

impl Memory {
    pub fn new() -> Memory {
        Memory {
            table: Mutex::default(),
            opened: Mutex::default(),
            gone: Mutex::default(),
            allocations: AtomicU64::new(0),
        }
    }

    /// New memory of the context's device, or of the host.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for no bytes, `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn allocate(&self, driver: &Driver, context: &Context, bytes: usize, kind: Kind) -> Status<Arc<Allocation>> {
        if bytes == 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let device = &driver.devices[context.device];
        if kind.is_of_device() {
            let nth = self.allocations.fetch_add(1, Ordering::Relaxed) + 1;
            if driver.knobs.failing_allocation == Some(nth) {
                return refuse(Code::CUDA_ERROR_OUT_OF_MEMORY, format_args!("allocation {nth} is meant to fail"));
            }
        }
        let pages = in_pages(bytes).ok_or(Code::CUDA_ERROR_OUT_OF_MEMORY)?;
        if kind.is_of_device() {
            device.take(pages as u64)?;
        }
        let mapped = || -> rustix::io::Result<(Mapping, Option<OwnedFd>, u64)> {
            let nonce = nonce();
            let file = match kind {
                Kind::Device => Some(shared_file(&file_name(nonce), pages)?),
                _ => None,
            };
            Ok((Mapping::new(file.as_ref().map(AsFd::as_fd), pages)?, file, nonce))
        };
        let (mapping, file, nonce) = mapped().map_err(|error| {
            if kind.is_of_device() {
                device.give_back(pages as u64);
            }
            say(format_args!("{bytes} bytes can't be mapped: {error}"));
            Code::CUDA_ERROR_OUT_OF_MEMORY
        })?;
        let allocation = Allocation {
            address: mapping.address(),
            bytes,
            kind,
            device: context.device,
            context: context.handle,
            nonce,
            _mapping: Some(mapping),
            file,
            is_shared: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            accesses: Mutex::default(),
        };
        let filled = bytes.min(FILLED);
        // SAFETY: the pages are new, and as many.
        unsafe { std::ptr::write_bytes(allocation.address as *mut u8, FILL, filled) };
        Ok(self.keep(allocation))
    }

    /// Another process's memory, mapped here.
    pub fn keep_opened(
        &self,
        context: &Context,
        mapping: Mapping,
        bytes: usize,
        device: usize,
        nonce: u64,
    ) -> Arc<Allocation> {
        self.keep(Allocation {
            address: mapping.address(),
            bytes,
            kind: Kind::Opened,
            device,
            context: context.handle,
            nonce,
            _mapping: Some(mapping),
            file: None,
            is_shared: AtomicBool::new(true),
            is_leaving: AtomicBool::new(false),
            accesses: Mutex::default(),
        })
    }

    /// Memory of the host that its owner makes known.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED` when a part of it is known.
    pub fn register(&self, context: &Context, address: u64, bytes: usize) -> Status {
        if address == 0 || bytes == 0 || address.checked_add(bytes as u64).is_none() {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        if !matches!(self.place(address, bytes), Place::Unknown) {
            return Err(Code::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.keep(Allocation {
            address,
            bytes,
            kind: Kind::Registered,
            device: context.device,
            context: context.handle,
            nonce: nonce(),
            _mapping: None,
            file: None,
            is_shared: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            accesses: Mutex::default(),
        });
        Ok(())
    }

    fn keep(&self, allocation: Allocation) -> Arc<Allocation> {
        let allocation = Arc::new(allocation);
        lock(&self.table).insert(allocation.address, allocation.clone());
        allocation
    }

    /// Takes the allocation that begins at `address`, if it is of one of these kinds, out of the table.
    ///
    /// # Errors
    ///
    /// `code`, and why.
    pub fn remove(&self, address: u64, kinds: &[Kind], code: Code) -> Status<Arc<Allocation>> {
        let mut table = lock(&self.table);
        let found = table.get(&address).filter(|found| kinds.contains(&found.kind));
        if found.is_some_and(|found| !found.is_leaving.load(Ordering::Acquire)) {
            let allocation = table.remove(&address).expect("it was found");
            drop(table);
            self.forget(&allocation);
            return Ok(allocation);
        }
        drop(table);
        refuse(code, format_args!("{address:#x} is no start of memory of the kind {kinds:?}{}", self.history(address)))
    }

    /// Takes an allocation out that a stream was going to free.
    pub fn remove_leaving(&self, allocation: &Allocation) {
        lock(&self.table).remove(&allocation.address);
        self.forget(allocation);
    }

    fn forget(&self, allocation: &Allocation) {
        let mut gone = lock(&self.gone);
        gone.push_front((allocation.address, allocation.bytes));
        gone.truncate(1024);
    }

    /// What to add to a message about an address that is nobody's.
    pub fn history(&self, address: u64) -> &'static str {
        let gone = lock(&self.gone);
        let held = |(start, bytes): &(u64, usize)| *start <= address && address - start < *bytes as u64;
        if gone.iter().any(held) { ": it was freed, closed or unregistered" } else { "" }
    }

    /// All allocations of a context.
    pub fn of_context(&self, context: usize) -> Vec<Arc<Allocation>> {
        lock(&self.table).values().filter(|found| found.context == context).cloned().collect()
    }

    /// The allocation that holds this address.
    pub fn at(&self, address: u64) -> Option<Arc<Allocation>> {
        let table = lock(&self.table);
        let (start, allocation) = table.range(..=address).next_back()?;
        (address - start < allocation.bytes as u64).then(|| allocation.clone())
    }

    /// Where a range of addresses lies.
    fn place(&self, address: u64, bytes: usize) -> Place {
        let table = lock(&self.table);
        let Some(end) = address.checked_add(bytes as u64) else { return Place::Partly };
        let Some((_, last)) = table.range(..end).next_back() else { return Place::Unknown };
        let (start, stop) = (last.address, last.address + last.bytes as u64);
        if stop <= address {
            Place::Unknown
        } else if start <= address && end <= stop {
            Place::Inside(last.clone())
        } else {
            Place::Partly
        }
    }

    /// The allocation that all of a range lies in, where memory that devices can access is needed.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE`, and why.
    pub fn accessible(&self, address: u64, bytes: usize, what: &str) -> Status<Arc<Allocation>> {
        match self.place(address, bytes) {
            Place::Inside(allocation) if !allocation.is_leaving.load(Ordering::Acquire) => Ok(allocation),
            Place::Inside(_) => invalid(format_args!("{what}: {bytes} bytes at {address:#x}: a stream frees them")),
            Place::Partly => invalid(format_args!("{what}: {bytes} bytes at {address:#x} exceed what was allocated")),
            Place::Unknown => {
                let history = self.history(address);
                invalid(format_args!("{what}: {bytes} bytes at {address:#x} are no memory of a device{history}"))
            }
        }
    }

    /// The allocation that all of a range of the host's memory lies in; none if it isn't pinned.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE`, and why.
    pub fn of_host(&self, address: u64, bytes: usize, what: &str) -> Status<Option<Arc<Allocation>>> {
        match self.place(address, bytes) {
            Place::Inside(allocation) if !allocation.kind.is_of_device() => Ok(Some(allocation)),
            Place::Inside(_) => invalid(format_args!("{what}: {bytes} bytes at {address:#x} are a device's memory")),
            Place::Partly => invalid(format_args!("{what}: {bytes} bytes at {address:#x} exceed what was pinned")),
            Place::Unknown if address == 0 => invalid(format_args!("{what}: no address")),
            Place::Unknown => Ok(None),
        }
    }
}

enum Place {
    Inside(Arc<Allocation>),
    Partly,
    Unknown,
}

fn invalid<T>(why: std::fmt::Arguments<'_>) -> Status<T> {
    refuse(Code::CUDA_ERROR_INVALID_VALUE, why)
}

/// A number that no other allocation has.
pub fn nonce() -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("the kernel has random numbers");
    u64::from_ne_bytes(bytes)
}

/// What an allocation's file is called: other processes know by it that they have the right one.
pub fn file_name(nonce: u64) -> String {
    format!("paceline-cuda-{nonce:016x}")
}
