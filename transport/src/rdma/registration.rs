//! Memory that the user has registered, known to all ports: the registrations are made once, beside the first calls, which
//! copy as long as they are not ready.
//!
//! Only memory whose lifetime the library knows is kept here. A cache of whatever addresses come along would have to notice
//! that the user has unmapped one and got another under the same address.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::adapter::Adapter;
use super::errors::RdmaError;
use super::verbs::Registration;
use crate::memory::Region;

/// Registered memory, by address.
#[derive(Default)]
pub(crate) struct Registered {
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    start: usize,
    bytes: usize,
    region: Weak<Region>,
    keys: Arc<OnceLock<Vec<Registration>>>,
}

/// Memory that was found. It stays mapped as long as this lives.
#[derive(Clone)]
pub(super) struct Found {
    region: Arc<Region>,
    keys: Arc<OnceLock<Vec<Registration>>>,
}

/// Shorter memory is not worth registering.
const BYTES_MIN: usize = 64 << 10;

impl Registered {
    /// Takes in a region. A thread registers it with all ports; what is sent from it before that is copied.
    pub(crate) fn admit(&self, region: &Arc<Region>, ports: &[Arc<Adapter>]) {
        if region.bytes() < BYTES_MIN {
            return;
        }
        let keys = Arc::new(OnceLock::new());
        let (start, bytes) = (region.start() as usize, region.bytes());
        let entry = Entry { start, bytes, region: Arc::downgrade(region), keys: keys.clone() };
        let gone: Vec<Entry> = {
            let mut entries = self.entries.lock().expect("no panic while held");
            let gone = entries.extract_if(.., |entry| entry.region.strong_count() == 0).collect();
            entries.push(entry);
            gone
        };
        drop(gone);
        let (ports, region) = (ports.to_vec(), region.clone());
        let work = move || {
            // SAFETY: whoever uses the keys holds the region (`Found`); the keys of one that is gone are not found.
            let register = |port: &Arc<Adapter>| unsafe {
                Registration::new(&port.domain, region.start(), region.bytes(), port.written_by_peers())
                    .map_err(|error| RdmaError::of_memory(port.device(), "registering memory", region.bytes(), &error))
            };
            match ports.iter().map(register).collect::<Result<Vec<_>, _>>() {
                Ok(made) => drop(keys.set(made)),
                Err(error) => tracing::warn!("memory is copied rather than reached directly: {error}"),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("paceline-register".into()).spawn(work) {
            tracing::warn!("memory is copied rather than reached directly: no thread to register it in ({error})");
        }
    }

    /// The registered memory in which all of these bytes lie.
    pub(super) fn find(&self, start: *const u8, bytes: usize) -> Option<Found> {
        let entries = self.entries.lock().expect("no panic while held");
        let start = start as usize;
        let holds = |entry: &&Entry| {
            entry.start <= start && start + bytes <= entry.start + entry.bytes && entry.keys.get().is_some()
        };
        // Where an old region's address was given to a new one, the old one is gone.
        let found = |entry: &Entry| Some(Found { region: entry.region.upgrade()?, keys: entry.keys.clone() });
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

    /// The bytes from an address on.
    ///
    /// # Safety
    ///
    /// Nobody writes them while they are borrowed.
    pub(super) unsafe fn bytes(&self, start: usize, bytes: usize) -> &[u8] {
        let first = self.region.start() as usize;
        assert!(first <= start && start + bytes <= first + self.region.bytes());
        // SAFETY: within the region, which is mapped as long as it is held; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts(self.region.start().add(start - first).cast_const(), bytes) }
    }
}
