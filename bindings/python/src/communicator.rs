//! Communicators: where they come from, what they know, and how they end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use paceline_comm::{CallOptions, Collective, Communicator as Comm, Error};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::call::{Ask, Call, prepare};
use crate::errors;
use crate::group::Group;
use crate::interrupt;
use crate::options::{Links, Options, Time};
use crate::work::Work;

/// One rank's membership of a group of ranks.
#[pyclass(frozen, module = "paceline")]
pub struct Communicator {
    comm: Mutex<Option<Arc<Comm>>>,
    rank: usize,
    size: usize,
}

impl Communicator {
    fn over(comm: Comm) -> Communicator {
        let (rank, size) = (comm.rank(), comm.size());
        Communicator { comm: Mutex::new(Some(Arc::new(comm))), rank, size }
    }

    /// One that comes from nowhere else: its callers look for signals while they wait.
    fn first(comm: Comm) -> Communicator {
        comm.ask_while_waiting(interrupt::asked);
        Communicator::over(comm)
    }

    /// The library's, unless it has been closed.
    pub fn open(&self, py: Python<'_>) -> PyResult<Arc<Comm>> {
        let comm = self.comm.lock().expect("no panic while held").clone();
        comm.ok_or_else(|| {
            errors::invalid(py, &format!("rank {} of {}: the communicator is closed", self.rank, self.size))
        })
    }

    fn place(&self) -> (usize, usize) {
        (self.rank, self.size)
    }

    /// Runs a call and waits for its end.
    pub fn call(&self, py: Python<'_>, ask: Ask<'_, '_>) -> PyResult<Option<Py<PyAny>>> {
        interrupt::check_may_wait(py)?;
        let comm = self.open(py)?;
        let prepared = prepare(py, &comm, ask)?;
        let call = &prepared.call;
        // SAFETY: `prepared` holds the arrays in their places until the call has ended.
        let ended = py.detach(|| comm.run(unsafe { call.request() }));
        let ended = ended.map_err(|error| errors::of(py, self.place(), &error));
        interrupt::instead(py, ended)?;
        Ok(prepared.result)
    }

    /// Starts a call.
    pub fn start(&self, py: Python<'_>, ask: Ask<'_, '_>) -> PyResult<Work> {
        let comm = self.open(py)?;
        let prepared = prepare(py, &comm, ask)?;
        let kept = Arc::new(prepared.keep()?);
        let (call, keep) = (&prepared.call, kept.clone());
        // SAFETY: `keep` holds the arrays in their places until the call has ended.
        let started = py.detach(|| unsafe { comm.start_request(call.request(), Some(keep)) });
        let started = started.map_err(|error| errors::of(py, self.place(), &error))?;
        Ok(Work::new(started, comm.clone(), prepared.result, kept))
    }

    /// Runs collected calls as one and waits for their end.
    pub fn run_all(&self, py: Python<'_>, calls: &[Call]) -> PyResult<()> {
        interrupt::check_may_wait(py)?;
        let comm = self.open(py)?;
        let run = || {
            let mut group = comm.group();
            for call in calls {
                // SAFETY: the group that collected the calls holds their arrays until they have ended.
                group.add(unsafe { call.request() });
            }
            group.run()
        };
        let ended = py.detach(run).map_err(|error| errors::of(py, self.place(), &error));
        interrupt::instead(py, ended)
    }

    fn peer_below(&self, rank: usize) -> PyResult<usize> {
        let outside =
            || PyIndexError::new_err(format!("rank {rank} is not below the communicator's size, {}", self.size));
        (rank < self.size).then_some(rank).ok_or_else(outside)
    }
}

/// Meets the other ranks, in a thread of its own, so that signals are heard meanwhile.
fn meet(py: Python<'_>, make: impl FnOnce() -> Result<Comm, Error> + Send + 'static) -> PyResult<Communicator> {
    let made = interrupt::wait_for(py, make, || {})?;
    made.map(Communicator::first).map_err(|error| errors::alone(py, &error))
}

#[pymethods]
impl Communicator {
    /// The communicator of all ranks, as the environment says; without a launcher, of one rank.
    #[staticmethod]
    #[pyo3(signature = (*, timeout=None, init_timeout=None, job=None, token=None, interface=None, links=None, algorithm=None, profile=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords, each of which may be left out")]
    fn from_env(
        py: Python<'_>,
        timeout: Option<Time>,
        init_timeout: Option<Time>,
        job: Option<String>,
        token: Option<Vec<u8>>,
        interface: Option<String>,
        links: Option<Links>,
        algorithm: Option<String>,
        profile: Option<std::path::PathBuf>,
    ) -> PyResult<Communicator> {
        let options = Options { timeout, init_timeout, job, token, interface, links, algorithm, profile };
        let setup = options.on_environment().map_err(|error| errors::alone(py, &error.into()))?;
        meet(py, move || Comm::connect(&setup))
    }

    /// Rank `rank` of `size` that meet at `url`: tcp://host:port, file:///path or local://name. Looks at no environment variable.
    #[staticmethod]
    #[pyo3(signature = (url, rank, size, *, timeout=None, init_timeout=None, job=None, token=None, interface=None, links=None, algorithm=None, profile=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords, each of which may be left out")]
    fn from_url(
        py: Python<'_>,
        url: &str,
        rank: usize,
        size: usize,
        timeout: Option<Time>,
        init_timeout: Option<Time>,
        job: Option<String>,
        token: Option<Vec<u8>>,
        interface: Option<String>,
        links: Option<Links>,
        algorithm: Option<String>,
        profile: Option<std::path::PathBuf>,
    ) -> PyResult<Communicator> {
        let options = Options { timeout, init_timeout, job, token, interface, links, algorithm, profile };
        let setup = options.at(url, rank, size).map_err(|error| errors::alone(py, &error.into()))?;
        meet(py, move || Comm::connect(&setup))
    }

    /// Communicators of `size` ranks in this process, in rank order: one for each thread.
    #[staticmethod]
    fn in_process(py: Python<'_>, size: usize) -> PyResult<Vec<Communicator>> {
        let made = Comm::in_process(size).map_err(|error| errors::alone(py, &error))?;
        Ok(made.into_iter().map(Communicator::first).collect())
    }

    /// This rank's number, from 0.
    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// This rank's number among the ranks of its host, from 0.
    #[getter]
    fn local_rank(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.open(py)?.local_rank())
    }

    /// How many ranks share this rank's host.
    #[getter]
    fn local_size(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.open(py)?.local_size())
    }

    /// How many hosts there are.
    #[getter]
    fn n_hosts(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.open(py)?.n_hosts())
    }

    /// How long a call may take.
    #[getter]
    fn timeout(&self, py: Python<'_>) -> PyResult<Duration> {
        Ok(self.open(py)?.timeout())
    }

    /// Whether it has been closed.
    #[getter]
    fn closed(&self) -> bool {
        self.comm.lock().expect("no panic while held").is_none()
    }

    /// Where a rank runs: its host's name and its process.
    fn peer<'py>(&self, py: Python<'py>, rank: usize) -> PyResult<Bound<'py, PyDict>> {
        let comm = self.open(py)?;
        let peer = comm.peer(self.peer_below(rank)?);
        let told = PyDict::new(py);
        told.set_item("host", &peer.host)?;
        told.set_item("pid", peer.pid)?;
        told.set_item("link", comm.link_kind(rank).map(|kind| kind.name()))?;
        Ok(told)
    }

    /// Which algorithm a call of so many bytes would run, and why.
    fn explain(&self, py: Python<'_>, collective: &str, bytes: usize) -> PyResult<String> {
        let known = Collective::named(collective);
        let named = known.ok_or_else(|| errors::invalid(py, &format!("there is no collective {collective:?}")))?;
        let told = self.open(py)?.explain(named, bytes);
        told.map(|told| told.to_string()).map_err(|error| errors::of(py, self.place(), &error))
    }

    /// Another handle of the same communicator, whose calls have other options.
    #[pyo3(signature = (*, timeout=None, algorithm=None))]
    fn with_options(&self, py: Python<'_>, timeout: Option<Time>, algorithm: Option<String>) -> PyResult<Communicator> {
        let options = CallOptions { timeout: timeout.map(|time| time.0), algorithm };
        Ok(Communicator::over(self.open(py)?.with(options)))
    }

    /// Splits the communicator: ranks of one color make a new one, ordered by key, then by their rank here. Every rank calls
    /// it; one without a color gets None.
    #[pyo3(signature = (color, key=0))]
    fn split(&self, py: Python<'_>, color: Option<u64>, key: i64) -> PyResult<Option<Communicator>> {
        let comm = self.open(py)?;
        let splits = comm.clone();
        let give_up = || comm.abort("split was interrupted");
        let part = interrupt::wait_for(py, move || splits.split(color, key), give_up)?;
        part.map(|part| part.map(Communicator::over)).map_err(|error| errors::of(py, self.place(), &error))
    }

    /// Calls that run as one: `with comm.group() as group: group.send(...); group.recv(...)`.
    fn group(slf: Py<Communicator>) -> Group {
        Group::new(slf)
    }

    /// Ends every call under way on all ranks, and all later ones, with an error that gives the reason. Waits for nobody.
    #[pyo3(signature = (reason="abort was called"))]
    fn abort(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let comm = self.open(py)?;
        py.detach(|| comm.abort(reason));
        Ok(())
    }

    /// Lets the communicator go: local, and waits for nobody. Calls that were started go on as long as their works live.
    fn close(&self, py: Python<'_>) {
        let comm = self.comm.lock().expect("no panic while held").take();
        py.detach(|| drop(comm));
    }

    fn __enter__(slf: Py<Communicator>) -> Py<Communicator> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let end = if self.closed() { ", closed" } else { "" };
        format!("<paceline.Communicator: rank {} of {}{end}>", self.rank, self.size)
    }
}
