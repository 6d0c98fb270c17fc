//! Memory that devices may reach, known to all ports: what the user has allocated for it, registered once, beside the first
//! calls, which copy as long as it is not ready; and what is lent for the length of a call.
//!
//! Only memory whose lifetime the library knows is here: `README.md`, "registering".

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::adapter::Adapter;
use super::errors::RdmaError;
use super::verbs::{Access, Registration};
use crate::machine;
use crate::memory::Region;

/// Registered memory, by address.
pub(crate) struct Registered {
    ports: Vec<Arc<Adapter>>,
    entries: Mutex<Vec<Entry>>,
    /// Whether memory can be lent, as far as is known.
    lends: AtomicBool,
}

struct Entry {
    start: usize,
    bytes: usize,
    owner: Owner,
    keys: Arc<OnceLock<Vec<Registration>>>,
}

/// Who keeps the memory mapped.
#[derive(Clone)]
enum Owner {
    Region(Weak<Region>),
    /// Whoever holds the loan.
    Loan {
        is_target: bool,
    },
}

/// What memory is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// For a peer to fetch it.
    Source,
    /// To be filled.
    Target,
}

/// Memory that was found. It stays registered as long as this lives.
#[derive(Clone)]
pub(super) struct Found {
    /// Keeps it mapped; `None` if it was lent.
    region: Option<Arc<Region>>,
    keys: Arc<OnceLock<Vec<Registration>>>,
}

/// Memory that is lent to the links for the length of a call: registered until this is dropped.
pub(crate) struct Loan {
    registered: Arc<Registered>,
    keys: Arc<OnceLock<Vec<Registration>>>,
}

/// Shorter memory is not worth registering for good.
const BYTES_MIN: usize = 64 << 10;
/// Shorter memory is not worth registering for one call.
pub(crate) const LOAN_BYTES_MIN: usize = 512 << 10;
/// From this version on the kernel gives a forked child copies of pages that devices use (Linux 5.12).
const COPIES_PINNED_PAGES: (u32, u32) = (5, 12);

/// Registers memory with a port.
///
/// # Safety
///
/// As [`Registration::new`].
pub(super) unsafe fn register(
    port: &Adapter,
    memory: (*mut u8, usize),
    access: Access,
    what: &'static str,
) -> Result<Registration, RdmaError> {
    // SAFETY: as the caller vouches.
    let made = unsafe { Registration::new(&port.domain, memory, access, port.relaxed) };
    made.map_err(|error| RdmaError::of_memory(port.device(), what, memory.1, &error))
}

impl Registered {
    /// None yet, for devices that have these ports; `lends` says whether ordinary memory may be lent to them. With `None` it is
    /// lent to software devices: hardware moves bytes while they are copied, but not before they are registered.
    pub(crate) fn new(ports: Vec<Arc<Adapter>>, lends: Option<bool>) -> Registered {
        let lends = lends.unwrap_or_else(|| ports.iter().all(|port| port.candidate.facts.is_software));
        // Before, a fork could part what devices see of private memory from what the process sees.
        let is_safe = machine::kernel_version() >= COPIES_PINNED_PAGES;
        if lends && !is_safe {
            tracing::info!("the kernel is too old to lend ordinary memory to devices: it is copied");
        }
        Registered { ports, entries: Mutex::default(), lends: AtomicBool::new(lends && is_safe) }
    }

    /// Takes in a region. A thread registers it with all ports; what is sent from it before that is copied.
    pub(crate) fn admit(&self, region: &Arc<Region>) {
        if region.bytes() < BYTES_MIN {
            return;
        }
        let keys = Arc::new(OnceLock::new());
        let (start, bytes) = (region.start() as usize, region.bytes());
        let entry = Entry { start, bytes, owner: Owner::Region(Arc::downgrade(region)), keys: keys.clone() };
        let gone: Vec<Entry> = {
            let mut entries = self.entries.lock().expect("no panic while held");
            let is_gone = |owner: &Owner| matches!(owner, Owner::Region(region) if region.strong_count() == 0);
            let gone = entries.extract_if(.., |entry| is_gone(&entry.owner)).collect();
            entries.push(entry);
            gone
        };
        drop(gone);
        let (ports, region) = (self.ports.clone(), region.clone());
        let work = move || {
            let (memory, access) = ((region.start(), region.bytes()), Access::ReadByPeersAndFilled);
            // SAFETY: whoever uses the keys holds the region (`Found`); the keys of one that is gone are not found.
            let made = ports.iter().map(|port| unsafe { register(port, memory, access, "registering memory") });
            match made.collect::<Result<Vec<_>, _>>() {
                Ok(made) => drop(keys.set(made)),
                Err(error) => tracing::warn!("memory is copied rather than reached directly: {error}"),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("paceline-register".into()).spawn(work) {
            tracing::warn!("memory is copied rather than reached directly: no thread to register it in ({error})");
        }
    }

    /// Registers memory for the length of a call, if that is worth it: [`crate::Endpoint::lend`].
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn lend(self: &Arc<Self>, (start, bytes): (*mut u8, usize), is_target: bool) -> Option<Loan> {
        let wanted = if is_target { Use::Target } else { Use::Source };
        let is_worth_it = LOAN_BYTES_MIN <= bytes && self.lends.load(Ordering::Relaxed);
        if !is_worth_it || self.find(start, bytes, wanted).is_some() {
            return None;
        }
        let access = if is_target { Access::ReadByPeersAndFilled } else { Access::ReadByPeers };
        // SAFETY: the caller keeps the memory until the loan is dropped.
        let made =
            self.ports.iter().map(|port| unsafe { register(port, (start, bytes), access, "registering memory") });
        match made.collect::<Result<Vec<_>, _>>() {
            Ok(made) => {
                let keys = Arc::new(OnceLock::from(made));
                let entry =
                    Entry { start: start as usize, bytes, owner: Owner::Loan { is_target }, keys: keys.clone() };
                self.entries.lock().expect("no panic while held").push(entry);
                Some(Loan { registered: self.clone(), keys })
            }
            Err(error) => {
                // What is locked for all may be used up: to try again for each call would take longer than copying.
                self.lends.store(false, Ordering::Relaxed);
                tracing::warn!("large messages from ordinary memory are copied from now on: {error}");
                None
            }
        }
    }

    /// The registered memory in which all of these bytes lie.
    pub(super) fn find(&self, start: *const u8, bytes: usize, wanted: Use) -> Option<Found> {
        let entries = self.entries.lock().expect("no panic while held");
        let start = start as usize;
        let holds = |entry: &&Entry| {
            entry.start <= start && start + bytes <= entry.start + entry.bytes && entry.keys.get().is_some()
        };
        // Where an old region's address was given to a new one, the old one is gone.
        let found = |entry: &Entry| {
            let region = match &entry.owner {
                Owner::Region(region) => Some(region.upgrade()?),
                Owner::Loan { is_target: false } if wanted == Use::Target => return None,
                Owner::Loan { .. } => None,
            };
            Some(Found { region, keys: entry.keys.clone() })
        };
        entries.iter().filter(holds).find_map(found)
    }
}

impl Found {
    fn of_port(&self, port: usize) -> &Registration {
        &self.keys.get().expect("found only when set")[port]
    }

    pub(super) fn local_key(&self, port: usize) -> u32 {
        self.of_port(port).local_key()
    }

    pub(super) fn remote_key(&self, port: usize) -> u32 {
        self.of_port(port).remote_key()
    }

    /// Whether it belongs to whoever makes a call, and only as long as that runs.
    pub(super) fn is_lent(&self) -> bool {
        self.region.is_none()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let ended = {
            let mut entries = self.registered.entries.lock().expect("no panic while held");
            let place = entries.iter().position(|entry| Arc::ptr_eq(&entry.keys, &self.keys));
            place.map(|place| entries.swap_remove(place))
        };
        drop(ended);
    }
}
