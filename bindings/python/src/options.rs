//! Options of Python as the library's.

use std::path::PathBuf;
use std::time::Duration;

use paceline_comm::{Environment, LinkKind, ProfilePlace, Rendezvous, Setup};
use paceline_transport::rendezvous::Token;
use paceline_transport::{MeshError, RendezvousError};
use pyo3::prelude::*;
use pyo3::types::PyDelta;

use crate::errors;

/// A length of time: a number of seconds, or a `timedelta`.
pub struct Time(pub Duration);

impl<'a, 'py> FromPyObject<'a, 'py> for Time {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Time> {
        let seconds: f64 = match object.cast::<PyDelta>() {
            Ok(delta) => delta.call_method0("total_seconds")?.extract()?,
            Err(_) => object.extract()?,
        };
        Duration::try_from_secs_f64(seconds)
            .map(Time)
            .map_err(|_| errors::invalid(object.py(), &format!("{seconds} seconds are no time to wait")))
    }
}

/// What may be said of how ranks meet and talk.
#[derive(Default)]
pub struct Options {
    pub timeout: Option<Time>,
    pub init_timeout: Option<Time>,
    pub job: Option<String>,
    pub token: Option<Vec<u8>>,
    pub interface: Option<String>,
    pub links: Option<Links>,
    pub algorithm: Option<String>,
    pub profile: Option<PathBuf>,
}

impl Options {
    /// What the environment says, changed as these say.
    pub fn on_environment(self) -> Result<Setup, MeshError> {
        let setup = Setup::from_env(&Environment::from_process())?;
        self.on(setup)
    }

    /// A rank that meets the others at a URL.
    pub fn at(self, url: &str, rank: usize, size: usize) -> Result<Setup, MeshError> {
        let how: Rendezvous = url.parse()?;
        self.on(Setup::new(rank, size, how))
    }

    fn on(self, mut setup: Setup) -> Result<Setup, MeshError> {
        fn set<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        set(&mut setup.timeout, self.timeout.map(|time| time.0));
        set(&mut setup.init_timeout, self.init_timeout.map(|time| time.0));
        set(&mut setup.job_name, self.job);
        set(&mut setup.interface, self.interface.map(Some));
        set(&mut setup.links, self.links.map(|links| links.0));
        set(&mut setup.algorithm, self.algorithm.map(Some));
        set(&mut setup.profile, self.profile.map(ProfilePlace::Named));
        if let Some(secret) = self.token {
            let least = Token::LEAST;
            let short = || RendezvousError::Setup(format!("a token has at least {least} bytes"));
            setup.token = Some(Token::new(secret).ok_or_else(short)?);
        }
        setup.validate()?;
        Ok(setup)
    }
}

/// Kinds of links: their names, in a list or between commas.
pub struct Links(Vec<LinkKind>);

impl<'a, 'py> FromPyObject<'a, 'py> for Links {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Links> {
        let names: Vec<String> = match object.extract::<String>() {
            Ok(text) => text.split(',').map(|name| name.trim().to_owned()).collect(),
            Err(_) => object.extract()?,
        };
        let kinds = [LinkKind::Inproc, LinkKind::Shm, LinkKind::Rdma, LinkKind::Tcp];
        let named = |name: &String| {
            let known = kinds.into_iter().find(|kind| kind.name() == name);
            let cause = || format!("{name:?} is no kind of link; take inproc, shm, rdma or tcp");
            known.ok_or_else(|| errors::invalid(object.py(), &cause()))
        };
        names.iter().map(named).collect::<PyResult<_>>().map(Links)
    }
}
