//! A hub: where threads of one process meet, and where ranks that share a process find what they share.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::{Exchanged, Period, RankIdentity, RendezvousError, Setup, sys};

/// A place in this process for the ranks of one job. Clones are the same place.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
    shared: Mutex<HashMap<String, Shared>>,
}

struct State {
    /// How many exchanges have ended.
    ended: u64,
    arrived: Vec<Option<(RankIdentity, Vec<u8>)>>,
    /// The failures of exchanges that ended before a rank came, for that rank: everyone learns of each exchange once.
    owed: Vec<VecDeque<RendezvousError>>,
    /// The outcome of ended exchanges, with how many ranks have yet to take it.
    outcomes: HashMap<u64, (Result<Arc<Exchanged>, RendezvousError>, usize)>,
}

/// How many failures are kept for a rank that doesn't come.
const OWED_MAX: usize = 16;

struct Shared {
    value: Arc<dyn Any + Send + Sync>,
    takers_left: usize,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("size", &self.inner.size).finish_non_exhaustive()
    }
}

impl Hub {
    /// A hub for `size` ranks.
    ///
    /// # Panics
    /// `size` is 0.
    #[must_use]
    pub fn new(size: usize) -> Hub {
        assert!(size > 0, "a hub is for at least one rank");
        let state =
            State { ended: 0, arrived: vec![None; size], owed: vec![VecDeque::new(); size], outcomes: HashMap::new() };
        let inner =
            Inner { size, state: Mutex::new(state), changed: Condvar::new(), shared: Mutex::new(HashMap::new()) };
        Hub { inner: Arc::new(inner) }
    }

    /// This process's hub for the ranks of job `job` (from [`Exchanged`]), of which there are `size` in all processes
    /// together. It is the same for all that ask while one of them keeps it.
    ///
    /// # Panics
    /// `size` is 0.
    #[must_use]
    pub fn of_job(job: [u8; 16], size: usize) -> Hub {
        static HUBS: Mutex<Vec<([u8; 16], Weak<Inner>)>> = Mutex::new(Vec::new());
        let mut hubs = lock(&HUBS);
        hubs.retain(|(_, inner)| inner.strong_count() > 0);
        let known = hubs.iter().find(|(known, _)| *known == job).and_then(|(_, inner)| inner.upgrade());
        known.map(|inner| Hub { inner }).unwrap_or_else(|| {
            let hub = Hub::new(size);
            hubs.push((job, Arc::downgrade(&hub.inner)));
            hub
        })
    }

    /// How many ranks the hub is for.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// The object called `key`, which `takers` ranks share: the first to ask makes it, and when the last has asked the
    /// hub forgets it, so that the name is free again.
    ///
    /// # Panics
    /// The object called `key` is of another type, or `takers` is 0.
    pub fn share<T: Send + Sync + 'static>(&self, key: &str, takers: usize, make: impl FnOnce() -> T) -> Arc<T> {
        assert!(takers > 0, "{key} is for nobody");
        let mut shared = lock(&self.inner.shared);
        let entry =
            shared.entry(key.to_owned()).or_insert_with(|| Shared { value: Arc::new(make()), takers_left: takers });
        entry.takers_left -= 1;
        let value = Arc::clone(&entry.value);
        if entry.takers_left == 0 {
            shared.remove(key);
        }
        value.downcast().unwrap_or_else(|_| panic!("{key} is shared as another type"))
    }

    pub(super) fn exchange(&self, setup: &Setup, mine: &[u8], period: Period) -> Result<Exchanged, RendezvousError> {
        let thread = std::thread::current();
        let address = format!("thread {:?} {}", thread.id(), thread.name().unwrap_or("without a name"));
        let who = RankIdentity { rank: setup.rank, host: sys::host(), pid: std::process::id(), address };
        let size = self.inner.size;
        let mut state = lock(&self.inner.state);
        if setup.size != size {
            let root = Box::new(RankIdentity { rank: 0, address: "the hub".to_owned(), ..who.clone() });
            let (other, other_size) = (Box::new(who), setup.size);
            let error = RendezvousError::SizeMismatch { root, root_size: size, other, other_size };
            return self.end(&mut state, Err(error), Some(setup.rank)).map(Arc::unwrap_or_clone);
        }
        if let Some(error) = state.owed[setup.rank].pop_front() {
            return Err(error);
        }
        if let Some((first, _)) = &state.arrived[setup.rank] {
            let error = RendezvousError::Duplicate { first: Box::new(first.clone()), second: Box::new(who) };
            return self.end(&mut state, Err(error), None).map(Arc::unwrap_or_clone);
        }
        state.arrived[setup.rank] = Some((who, mine.to_vec()));
        let mine = state.ended;
        if state.arrived.iter().all(Option::is_some) {
            let entries = state.arrived.iter_mut().flatten().map(|(_, entry)| std::mem::take(entry)).collect();
            let _ = self.end(&mut state, Ok(Arc::new(Exchanged { job: sys::random(), entries })), None);
        }
        loop {
            if let Some((result, left)) = state.outcomes.get_mut(&mine) {
                let result = result.clone();
                *left -= 1;
                if *left == 0 {
                    state.outcomes.remove(&mine);
                }
                drop(state);
                return result.map(Arc::unwrap_or_clone);
            }
            if period.deadline <= Instant::now() {
                let missing = (0..size).filter(|rank| state.arrived[*rank].is_none()).collect();
                let arrived = state.arrived.iter().flatten().map(|(who, _)| who.clone()).collect();
                let (limit, limited_by) = (period.total(), setup.rank);
                let error = RendezvousError::Incomplete { size, limit, limited_by, arrived, missing };
                let _ = self.end(&mut state, Err(error), None);
                continue;
            }
            let waited = self.inner.changed.wait_timeout(state, period.left());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the exchange under way: for all ranks that arrived, and, if it failed, for those that have yet to come, but for
    /// `told`, which is told by the caller.
    fn end(
        &self,
        state: &mut State,
        result: Result<Arc<Exchanged>, RendezvousError>,
        told: Option<usize>,
    ) -> Result<Arc<Exchanged>, RendezvousError> {
        if let Err(error) = &result {
            for rank in (0..self.inner.size).filter(|rank| state.arrived[*rank].is_none() && told != Some(*rank)) {
                state.owed[rank].push_back(error.clone());
                if state.owed[rank].len() > OWED_MAX {
                    state.owed[rank].pop_front();
                }
            }
        }
        let waiting = state.arrived.iter_mut().filter_map(Option::take).count();
        if waiting > 0 {
            state.outcomes.insert(state.ended, (result.clone(), waiting));
        }
        state.ended += 1;
        self.inner.changed.notify_all();
        result
    }
}

/// Locks; the state holds at every point where a panic can strike, so a poisoned lock is as good as another.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
