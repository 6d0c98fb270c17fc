//! Where communicators come from: this process alone, or processes that meet.

use std::sync::Arc;
use std::time::Duration;

use paceline_transport::machine::{Machine, Whereabouts};
use paceline_transport::sim::SimNetwork;
use paceline_transport::{Clock, Environment, Fabric, GroupId, LinkKind, MeshError, ProfilePlace, Setup};

use super::{Communicator, Roots};
use crate::engine::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::request::CallOptions;
use crate::select::{Brought, Facts, Profile};
use crate::topology::Spot;

impl Communicator {
    /// Communicators of `size` ranks in this process, in rank order: one for each thread.
    ///
    /// # Errors
    ///
    /// If `size` is 0, or memory or files for the links can't be had.
    pub fn in_process(size: usize) -> Result<Vec<Communicator>> {
        Communicator::within(size, Driver::Threads)
    }

    /// As [`Communicator::in_process`], for one thread that has all ranks: calls are started, never waited in, and move
    /// when [`Communicator::step`] is called on each rank in turn.
    ///
    /// # Errors
    ///
    /// As [`Communicator::in_process`].
    pub fn in_one_thread(size: usize) -> Result<Vec<Communicator>> {
        Communicator::within(size, Driver::Steps)
    }

    fn within(size: usize, driver: Driver) -> Result<Vec<Communicator>> {
        let members: Arc<[usize]> = (0..size).collect();
        let joined = Fabric::in_process(size)?;
        let comm = |(fabric, endpoint)| {
            let (facts, group) = (Facts::in_process(size), (GroupId::WORLD, members.clone()));
            Communicator::driven((driver, Clock::Real), endpoint, Roots::of(fabric), group, facts, Setup::TIMEOUT)
        };
        Ok(joined.into_iter().map(comm).collect())
    }

    /// Communicators of all ranks of a simulated network, in rank order.
    ///
    /// Their clock is the network's. Calls are started, never waited in, and move when [`Communicator::step`] is called:
    /// see [`paceline_transport::sim::run`]. They can't be split.
    ///
    /// # Errors
    ///
    /// If files can't be had.
    pub fn simulated(network: &SimNetwork, timeout: Duration) -> Result<Vec<Communicator>> {
        Communicator::simulated_with(network, &Facts::simulated(network.ranks()), timeout)
    }

    /// As [`Communicator::simulated`], of ranks that are on hosts: rank `r` at `spots[r]`. Rows are chosen, and ranks placed in
    /// them, as between such hosts; how long messages take, and what they share, is up to the network
    /// ([`paceline_transport::sim::SimCluster`]).
    ///
    /// # Errors
    ///
    /// As [`Communicator::simulated`].
    ///
    /// # Panics
    ///
    /// When there are not as many spots as ranks.
    pub fn simulated_at(network: &SimNetwork, spots: &[Spot], timeout: Duration) -> Result<Vec<Communicator>> {
        assert!(spots.len() == network.ranks(), "{} ranks are told where {} are", network.ranks(), spots.len());
        Communicator::simulated_with(network, &Facts::simulated_at(spots), timeout)
    }

    fn simulated_with(network: &SimNetwork, facts: &Facts, timeout: Duration) -> Result<Vec<Communicator>> {
        let size = network.ranks();
        let members: Arc<[usize]> = (0..size).collect();
        let joined = Fabric::simulated(network)?;
        let comm = |(fabric, endpoint)| {
            let driven = (Driver::Steps, network.clock());
            Communicator::driven(
                driven,
                endpoint,
                Roots::of(fabric),
                (GroupId::WORLD, members.clone()),
                facts.clone(),
                timeout,
            )
        };
        Ok(joined.into_iter().map(comm).collect())
    }

    /// The communicator of all ranks, as the environment says: see `docs/environment.md`. Without a launcher, one rank.
    ///
    /// # Errors
    ///
    /// The environment contradicts itself, or as [`Communicator::connect`].
    pub fn from_env() -> Result<Communicator> {
        let setup = Setup::from_env(&Environment::from_process()).map_err(MeshError::from)?;
        Communicator::connect(&setup)
    }

    /// As [`Communicator::from_env`], with `threads` ranks in this process: one communicator for each thread.
    ///
    /// The launcher's ranks are processes; ranks are numbered through all processes' threads.
    ///
    /// # Errors
    ///
    /// As [`Communicator::from_env`].
    ///
    /// # Panics
    ///
    /// If `threads` is 0.
    pub fn from_env_threads(threads: usize) -> Result<Vec<Communicator>> {
        let setup = Setup::from_env(&Environment::from_process()).map_err(MeshError::from)?;
        Communicator::connect_threads(&setup, threads)
    }

    /// The communicator of all ranks that meet as `setup` says. Every rank calls it; it returns when all have come.
    ///
    /// # Errors
    ///
    /// Ranks are missing at the deadline (the error names them), come twice, disagree on how many they are, don't know
    /// the token, or can't be joined by an allowed link; or the setup names a profile that can't be used.
    pub fn connect(setup: &Setup) -> Result<Communicator> {
        Ok(Communicator::connect_threads(setup, 1)?.remove(0))
    }

    /// As [`Communicator::connect`], with `threads` ranks in this process; `setup` counts processes.
    ///
    /// # Errors
    ///
    /// As [`Communicator::connect`].
    ///
    /// # Panics
    ///
    /// If `threads` is 0.
    pub fn connect_threads(setup: &Setup, threads: usize) -> Result<Vec<Communicator>> {
        let overrides = setup.algorithm.as_deref().unwrap_or_default().parse()?;
        let brought = Arc::new(Brought { overrides, profile: read_profile(&setup.profile)? });
        let joined = Fabric::join_threads(setup, threads)?;
        let size = joined[0].1.size();
        let members: Arc<[usize]> = (0..size).collect();
        let begin = |(fabric, endpoint)| {
            let facts = Facts::unknown(size, brought.clone());
            Communicator::over(endpoint, Roots::of(fabric), (GroupId::WORLD, members.clone()), facts, setup.timeout)
                .agree(setup.init_timeout)
        };
        if threads == 1 {
            return joined.into_iter().map(begin).collect();
        }
        std::thread::scope(|scope| {
            let begun: Vec<_> = joined.into_iter().map(|rank| scope.spawn(|| begin(rank))).collect();
            begun.into_iter().map(|thread| thread.join().expect("joining doesn't panic")).collect()
        })
    }

    /// Where this rank is: its host is named by the first rank that shares memory with it.
    fn spot(&self) -> Spot {
        let is_near = |link: &Option<LinkKind>| matches!(link, None | Some(LinkKind::Inproc | LinkKind::Shm));
        let host = self.inner.links.iter().position(is_near).unwrap_or(self.rank());
        let number = self.inner.links[..self.rank()].iter().filter(|link| is_near(link)).count();
        let Whereabouts { node, port } = Machine::here().whereabouts(number);
        let place = |place: Option<usize>| place.map_or(0, |place| place as u16 + 1);
        // Ranks that talk by TCP share an interface, whatever is near.
        let port = port.filter(|_| self.inner.links.contains(&Some(LinkKind::Rdma)));
        Spot { host: host as u32, domain: place(node), adapter: place(port) }
    }

    /// Makes sure that all ranks know the same facts, on which the choice of rows depends.
    pub(super) fn agree(mut self, timeout: Duration) -> Result<Communicator> {
        if self.size() == 1 {
            return Ok(self);
        }
        let links = self.inner.links.iter().flatten();
        let slowest = links.copied().max().expect("there are two ranks");
        let mine = self.inner.facts.encode(slowest, (self.local_size(), self.peer(self.rank()).cores), self.spot());
        let mut all = vec![0u8; mine.len() * self.size()];
        let first = CallOptions { timeout: Some(timeout), algorithm: Some("bruck".into()) };
        self.with(first).all_gather(&mine, &mut all)?;
        let facts = self.inner.facts.decode(self.rank(), &all)?;
        let inner = Arc::get_mut(&mut self.inner).expect("nobody else knows the communicator yet");
        inner.facts = facts;
        Ok(self)
    }
}

/// What was measured on this host, and the file that says so.
fn read_profile(place: &ProfilePlace) -> Result<Option<(Profile, String)>> {
    let Some(path) = place.path() else { return Ok(None) };
    let (name, named) = (path.display().to_string(), matches!(place, ProfilePlace::Named(_)));
    let why = match std::fs::read_to_string(path) {
        Ok(text) => match Profile::parse(&text) {
            Ok(profile) => return Ok(Some((profile, name))),
            Err(error) => error.to_string(),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !named => return Ok(None),
        Err(error) => error.to_string(),
    };
    if named {
        let hint = "write it with `paceline tune`, or set PACELINE_PROFILE=none";
        return Err(Error::invalid(format!("the profile {name} can't be used: {why}")).hint(hint));
    }
    tracing::warn!("the profile {name} is ignored: {why}");
    Ok(None)
}

impl From<MeshError> for Error {
    fn from(error: MeshError) -> Error {
        let kind = match &error {
            MeshError::System { .. } | MeshError::Files { .. } => ErrorKind::System,
            _ => ErrorKind::Rendezvous,
        };
        Error::new(kind, error.to_string()).blaming(error.peers())
    }
}
