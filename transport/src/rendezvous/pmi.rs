//! The process manager of MPICH and Intel MPI, asked by the ranks of this process.
//!
//! A process has one connection to it, for its whole life: after `finalize` the manager speaks no more, and a process
//! that ends without it counts as crashed. So the connection is kept for all exchanges, and `finalize` is sent when the
//! process ends in good order. Several ranks in threads of the process use it in turn.
//!
//! On one host the ranks only take the job's name from it and meet at a Unix socket of that name. On several, rank 0
//! puts its addresses there. That needs a barrier, which tells nobody who is missing; afterwards the ranks meet at those
//! addresses, where everything is told.

mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use self::wire::Wire;
use super::board::Notice;
use super::error::seconds;
use super::{Period, RendezvousError, sys};

/// How to reach the process manager, and what this process is to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PmiPlace {
    /// How the process manager is reached.
    pub door: PmiDoor,
    /// This process's rank among the processes that the manager started; process 0 has rank 0.
    pub process: usize,
    /// Whether all processes run on one host.
    pub one_host: bool,
}

/// How the process manager is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PmiDoor {
    /// Through a connection that the process was started with.
    Descriptor(i32),
    /// At an address, host and port.
    Address {
        /// Where it listens.
        manager: String,
        /// What this process calls itself there.
        id: String,
    },
}

/// The connection, and what has been learned from it.
struct Manager {
    door: PmiDoor,
    pid: u32,
    wire: Mutex<Wire>,
    name: String,
    /// How many exchanges each rank of this process has begun.
    begun: Mutex<HashMap<usize, u64>>,
    /// Notices by exchange.
    notices: Mutex<HashMap<u64, Notice>>,
}

static MANAGER: Mutex<Option<Arc<Manager>>> = Mutex::new(None);

/// One rank's use of the process manager in one exchange.
pub(super) struct Session {
    manager: Arc<Manager>,
    number: u64,
    process: usize,
}

/// Begins an exchange of `rank`.
pub(super) fn session(place: &PmiPlace, rank: usize, period: Period) -> Result<Session, RendezvousError> {
    let manager = manager(&place.door, period.deadline)?;
    let mut begun = lock(&manager.begun);
    let next = begun.entry(rank).or_insert(0);
    let number = *next;
    *next += 1;
    drop(begun);
    Ok(Session { manager, number, process: place.process })
}

/// Asks a manager that is reached by address for this process's rank and the size; no variable holds them then.
pub(super) fn rank_and_size(door: &PmiDoor, deadline: Instant) -> Result<(usize, usize), RendezvousError> {
    let told = lock(&manager(door, deadline)?.wire).rank_and_size();
    told.ok_or_else(|| RendezvousError::Pmi("the manager told neither rank nor size".to_owned()))
}

/// Opens the connection, if this is the process's first use of it.
fn manager(door: &PmiDoor, deadline: Instant) -> Result<Arc<Manager>, RendezvousError> {
    let mut slot = lock(&MANAGER);
    let fresh = slot.as_ref().is_none_or(|manager| manager.door != *door || manager.pid != std::process::id());
    if fresh {
        let wire = Wire::open(door, deadline).map_err(RendezvousError::Pmi)?;
        let name = wire.name().to_owned();
        let (pid, wire) = (std::process::id(), Mutex::new(wire));
        let (begun, notices) = (Mutex::default(), Mutex::default());
        *slot = Some(Arc::new(Manager { door: door.clone(), pid, wire, name, begun, notices }));
        static AT_EXIT: std::sync::Once = std::sync::Once::new();
        AT_EXIT.call_once(|| sys::at_exit(finalize));
    }
    Ok(Arc::clone(slot.as_ref().expect("opened above")))
}

/// Tells the manager that the process ends in good order. A child of a fork has nothing to tell.
extern "C" fn finalize() {
    let Ok(Some(manager)) = MANAGER.try_lock().map(|slot| slot.clone()) else { return };
    if manager.pid != std::process::id() {
        return;
    }
    if let Ok(mut wire) = manager.wire.try_lock() {
        wire.finalize(Instant::now() + Duration::from_secs(1));
    }
}

impl Session {
    /// The job's name.
    pub(super) fn name(&self) -> &str {
        &self.manager.name
    }

    /// Puts the notice where all processes find it; waits until all have come for it.
    pub(super) fn publish(&self, notice: &Notice, period: Period) -> Result<(), RendezvousError> {
        let mut wire = lock(&self.manager.wire);
        let most = wire.longest_value();
        wire.put(&self.key(), &notice.to_line(most), period.deadline).map_err(RendezvousError::Pmi)?;
        lock(&self.manager.notices).insert(self.number, notice.clone());
        self.barrier(&mut wire, period)
    }

    /// The notice, if a rank of this process has put or fetched it.
    pub(super) fn noted(&self) -> Option<Notice> {
        lock(&self.manager.notices).get(&self.number).cloned()
    }

    /// The notice from the manager; `None` while another thread of this process is asking for it.
    pub(super) fn fetch(&self, period: Period) -> Result<Option<Notice>, RendezvousError> {
        if let Some(notice) = self.noted() {
            return Ok(Some(notice));
        }
        let mut wire = match self.manager.wire.try_lock() {
            Ok(wire) => wire,
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        if let Some(notice) = self.noted() {
            return Ok(Some(notice));
        }
        self.barrier(&mut wire, period)?;
        let text = wire.get(&self.key(), period.deadline).map_err(RendezvousError::Pmi)?;
        let unreadable = || RendezvousError::Pmi(format!("rank 0's address is unreadable: {text:?}"));
        let notice: Notice = text.parse().map_err(|()| unreadable())?;
        lock(&self.manager.notices).insert(self.number, notice.clone());
        Ok(Some(notice))
    }

    fn barrier(&self, wire: &mut Wire, period: Period) -> Result<(), RendezvousError> {
        wire.barrier(period.deadline).map_err(|problem| {
            RendezvousError::Pmi(format!(
                "process {} waited {} for the others at the manager's barrier: {problem}; the manager doesn't tell who \
                 is missing, a rendezvous at PACELINE_RENDEZVOUS=tcp://<host of rank 0>:29500 would",
                self.process,
                seconds(period.elapsed()),
            ))
        })
    }

    fn key(&self) -> String {
        format!("paceline-root-{}", self.number)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
