//! Other ranks' device memory: what they tell of it, and how this rank comes to reach it, if it can.
//!
//! Whether it can is found out by reading: every exported allocation begins with a random number, which must be read back
//! through the address at which it was mapped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::memory::read;
use super::{CudaError, Device, DeviceMemory, ImportedMemory, IpcHandle};
use crate::machine;

type Nonce = [u8; 16];

/// What a rank tells the others of its device and of one allocation there, so that they can try to reach it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct PeerFacts {
    /// The device's [`Device::uuid`].
    pub uuid: [u8; 16],
    /// The device's number in its process, for messages.
    pub ordinal: u32,
    /// Where the device sits, for messages.
    pub pci_bus_id: String,
    /// The process's number, for messages: containers may number alike.
    pub pid: u32,
    /// What tells the process from all others.
    pub process: [u8; 16],
    /// What tells the host from all others, as the caller says.
    pub host: Vec<u8>,
    /// What the allocation begins with.
    pub nonce: [u8; 16],
    /// How much the allocation is.
    pub bytes: u64,
    /// The handle by which processes of the host open it, or why there is none.
    pub handle: Result<IpcHandle, String>,
}

/// The allocations of this process of which others were told, by their random numbers.
static TOLD: Mutex<BTreeMap<Nonce, Weak<DeviceMemory>>> = Mutex::new(BTreeMap::new());

fn process() -> [u8; 16] {
    static PROCESS: OnceLock<Nonce> = OnceLock::new();
    *PROCESS.get_or_init(machine::random)
}

impl PeerFacts {
    /// How many bytes at the start of the memory keep the random number, until all peers have reached it.
    pub const RESERVED: usize = size_of::<Nonce>();

    /// Writes a random number to the start of the memory, and says how others can reach it. `host` is alike for all ranks of
    /// this host, and for no others.
    ///
    /// The first [`PeerFacts::RESERVED`] bytes stay as they are until all who are told have tried; then they are free to be
    /// used. To be told of the same memory again is fine. That it can't be exported is no error: ranks of the same process
    /// need no handle.
    ///
    /// # Errors
    /// If the memory is too small for the number, or if writing it fails.
    pub fn of(memory: &Arc<DeviceMemory>, host: &[u8]) -> Result<PeerFacts, CudaError> {
        if memory.bytes() < PeerFacts::RESERVED {
            let reason = format!("{} bytes are fewer than the {} that prove it", memory.bytes(), PeerFacts::RESERVED);
            return Err(CudaError::refused("tell others of device memory", reason));
        }
        let nonce = {
            let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
            told.retain(|_, memory| memory.strong_count() > 0);
            let known = told.iter().find(|(_, known)| known.as_ptr() == Arc::as_ptr(memory)).map(|(nonce, _)| *nonce);
            let nonce = known.unwrap_or_else(machine::random);
            told.insert(nonce, Arc::downgrade(memory));
            nonce
        };
        memory.write(0, &nonce)?;
        let handle = match memory.export() {
            Err(error) if error.is_fatal() => return Err(error),
            other => other.map_err(|error| error.to_string()),
        };
        let device = memory.device();
        Ok(PeerFacts {
            uuid: device.uuid(),
            ordinal: u32::try_from(device.ordinal()).unwrap_or(u32::MAX),
            pci_bus_id: device.pci_bus_id().to_owned(),
            pid: std::process::id(),
            process: process(),
            host: host.to_owned(),
            nonce,
            bytes: memory.bytes() as u64,
            handle,
        })
    }

    /// The facts as bytes that can be sent.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("plain data")
    }

    /// The facts that were encoded by another rank.
    ///
    /// # Errors
    /// If the bytes aren't such facts: cut, damaged, or of another version of paceline.
    pub fn decode(bytes: &[u8]) -> Result<PeerFacts, CudaError> {
        postcard::from_bytes(bytes).map_err(|error| {
            let reason = format!("{} bytes can't be read ({error}): do all ranks run the same version?", bytes.len());
            CudaError::refused("read what a rank tells of its device memory", reason)
        })
    }
}

/// Another rank's device memory, within reach; it stays so as long as this is held.
///
/// If the other rank is in this process the memory is held too. If not, the other process must keep it until this is dropped.
#[derive(Clone, Debug)]
pub struct PeerMemory {
    held: Held,
    bytes: usize,
    is_same_device: bool,
}

#[derive(Clone, Debug)]
enum Held {
    Here(Arc<DeviceMemory>),
    Imported(ImportedMemory),
}

/// Why another rank's device memory isn't within reach: reasons to go another way, which are no failures of this rank, but for
/// [`Unreachable::is_fatal`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreachable {
    /// It is on another host.
    #[error("process {pid} is on another host")]
    OtherHost {
        /// The other process.
        pid: u32,
    },
    /// It belongs to this process, and is freed.
    #[error("the memory is of this process, and has been dropped")]
    Gone,
    /// Its process has no handle of it.
    #[error("process {pid} could not export its device memory: {reason}")]
    NotExported {
        /// The other process.
        pid: u32,
        /// What it was told.
        reason: String,
    },
    /// It is on a device that this rank's can't access.
    #[error(
        "{mine} can't access the memory of {theirs}: `nvidia-smi topo -p2p r` shows which devices can; virtual machines, MIG and \
         some boards can't"
    )]
    NoPeerAccess {
        /// This rank's device.
        mine: String,
        /// The other's.
        theirs: String,
    },
    /// What was mapped isn't what the other rank has told of.
    #[error(
        "what is mapped isn't the memory of process {pid}: its random number isn't there; is the memory freed, or written to \
         too soon?"
    )]
    OtherContent {
        /// The other process.
        pid: u32,
    },
    /// A call of the driver failed.
    #[error(transparent)]
    Call(#[from] CudaError),
}

impl Unreachable {
    /// Whether the device's context is lost, so that there is no other way either.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self, Unreachable::Call(error) if error.is_fatal())
    }
}

impl PeerMemory {
    /// Tries to reach the memory of which another rank has told, for `device` and its streams. `host` is what this rank says
    /// of its own host in [`PeerFacts::of`].
    ///
    /// # Errors
    /// Why it isn't within reach.
    pub fn reach(device: &Device, host: &[u8], facts: &PeerFacts) -> Result<PeerMemory, Unreachable> {
        let pid = facts.pid;
        let held = if facts.process == process() {
            here(device, facts)?
        } else if facts.host == host {
            Held::Imported(imported(device, facts)?)
        } else {
            return Err(Unreachable::OtherHost { pid });
        };
        let bytes = usize::try_from(facts.bytes).map_err(|_| Unreachable::OtherContent { pid })?;
        let peer = PeerMemory { held, bytes, is_same_device: facts.uuid == device.uuid() };
        let mut found = Nonce::default();
        // SAFETY: what is mapped is no smaller than any allocation of the driver's, and what is held here was checked to have
        // as many bytes.
        unsafe { read(device, peer.address(), &mut found) }?;
        if found != facts.nonce {
            return Err(Unreachable::OtherContent { pid });
        }
        Ok(peer)
    }

    /// Where it begins, for the device that reached it.
    #[must_use]
    pub fn address(&self) -> u64 {
        match &self.held {
            Held::Here(memory) => memory.address(),
            Held::Imported(memory) => memory.address(),
        }
    }

    /// How much it is, as the other rank says.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the other rank is in this process.
    #[must_use]
    pub fn is_same_process(&self) -> bool {
        matches!(self.held, Held::Here(_))
    }

    /// Whether it is memory of the device that reached it.
    #[must_use]
    pub fn is_same_device(&self) -> bool {
        self.is_same_device
    }
}

fn here(device: &Device, facts: &PeerFacts) -> Result<Held, Unreachable> {
    let told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let memory = told.get(&facts.nonce).and_then(Weak::upgrade);
    drop(told);
    let memory = memory.filter(|memory| memory.bytes() as u64 == facts.bytes).ok_or(Unreachable::Gone)?;
    if !device.can_access(memory.device())? {
        return Err(no_access(device, facts));
    }
    device.enable_peer(memory.device())?;
    Ok(Held::Here(memory))
}

fn imported(device: &Device, facts: &PeerFacts) -> Result<ImportedMemory, Unreachable> {
    let handle = facts.handle.as_ref();
    let handle = handle.map_err(|reason| Unreachable::NotExported { pid: facts.pid, reason: reason.clone() })?;
    // A device that this process doesn't see may be reached all the same: trying tells.
    if device.can_access_uuid(facts.uuid)? == Some(false) {
        return Err(no_access(device, facts));
    }
    Ok(device.import(handle)?)
}

fn no_access(device: &Device, facts: &PeerFacts) -> Unreachable {
    let PeerFacts { ordinal, pci_bus_id, pid, .. } = facts;
    let theirs = format!("CUDA device {ordinal} of process {pid} ({pci_bus_id})");
    Unreachable::NoPeerAccess { mine: format!("{device:?}"), theirs }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> PeerFacts {
        PeerFacts {
            uuid: [7; 16],
            ordinal: 3,
            pci_bus_id: "0000:3B:00.0".to_owned(),
            pid: 4711,
            process: [1; 16],
            host: b"a host".to_vec(),
            nonce: [2; 16],
            bytes: 1 << 40,
            handle: Ok(IpcHandle([9; 64])),
        }
    }

    #[test]
    fn facts_arrive_as_they_were_sent() {
        let refused = PeerFacts { handle: Err("no IPC here".to_owned()), ..facts() };
        for facts in [facts(), refused] {
            let sent = facts.encode();
            assert_eq!(PeerFacts::decode(&sent), Ok(facts));
            for cut in 0..sent.len() {
                let error = PeerFacts::decode(&sent[..cut]).expect_err("it is cut").to_string();
                assert!(error.contains("same version"), "{error}");
            }
        }
    }

    #[test]
    fn reasons_name_the_other_process() {
        let reason = Unreachable::NotExported { pid: 12, reason: "cuIpcGetMemHandle: planted".to_owned() };
        assert_eq!(reason.to_string(), "process 12 could not export its device memory: cuIpcGetMemHandle: planted");
        assert!(Unreachable::OtherHost { pid: 12 }.to_string().contains("process 12"));
        let lost = CudaError::from(super::super::FailedCall::new("cuMemcpyAsync", Some(0), 700, None, None));
        assert!(Unreachable::from(lost).is_fatal());
        assert!(!Unreachable::Gone.is_fatal());
    }
}
