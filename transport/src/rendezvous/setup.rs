//! What a rank must know before it can meet the others.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::environment::{Environment, EnvironmentError};
use crate::link::LinkKind;
use crate::rdma::RdmaOptions;
use crate::tcp::interface::{Family, Filter, FilterError};

use super::{Hub, Rendezvous, RendezvousError, Token, UniqueId, launcher};

/// What a rank must know before it can meet the others: who it is, where they meet, and what it may use.
#[derive(Clone, Debug)]
pub struct Setup {
    /// This rank.
    pub rank: usize,
    /// How many ranks there are.
    pub size: usize,
    /// This rank's place among those of its host, if a launcher said so.
    pub local_rank: Option<usize>,
    /// How many ranks the host has, if a launcher said so.
    pub local_size: Option<usize>,
    /// Where the ranks meet.
    pub how: Rendezvous,
    /// The job's name; ranks that come with another are turned away. May be empty.
    pub job_name: String,
    /// The secret that all ranks must know, if any.
    pub token: Option<Token>,
    /// How long a collective waits for a rank.
    pub timeout: Duration,
    /// How long the ranks wait for each other at the start.
    pub init_timeout: Duration,
    /// Which network interfaces may be used, in NCCL's syntax; checked for form only.
    pub interface: Option<String>,
    /// Which versions of IP may be used.
    pub family: Family,
    /// Which ports to listen on, if not the system's choice.
    pub ports: Option<RangeInclusive<u16>>,
    /// Which kinds of link may be used.
    pub links: Vec<LinkKind>,
    /// TCP connections to each peer, if not measured.
    pub tcp_streams: Option<usize>,
    /// What is set of links over InfiniBand and RoCE.
    pub rdma: RdmaOptions,
    /// The algorithm by collective, as text; checked by whoever knows collectives.
    pub algorithm: Option<String>,
    /// Where what was measured on this host is kept; read by whoever chooses by it.
    pub profile: ProfilePlace,
}

/// Where a host's measurements are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ProfilePlace {
    /// Nowhere: none are read.
    #[default]
    Nowhere,
    /// The usual place: without a file there, or with one that can't be used, the job goes on as if there were none.
    Usual(PathBuf),
    /// A place that somebody named: what can't be used there is an error.
    Named(PathBuf),
}

impl ProfilePlace {
    /// What the environment says: `PACELINE_PROFILE`, or the usual place in the user's cache.
    ///
    /// # Errors
    /// A value is not UTF-8.
    pub fn from_env(environment: &Environment) -> Result<ProfilePlace, EnvironmentError> {
        match environment.text("PACELINE_PROFILE")? {
            Some("none") => return Ok(ProfilePlace::Nowhere),
            Some(path) => return Ok(ProfilePlace::Named(path.into())),
            None => {}
        }
        let absolute =
            |name| environment.text(name).map(|text| text.map(PathBuf::from).filter(|path| path.is_absolute()));
        let cache = match absolute("XDG_CACHE_HOME")? {
            Some(cache) => Some(cache),
            None => absolute("HOME")?.map(|home| home.join(".cache")),
        };
        let name = format!("profile-{}.json", crate::machine::host_name());
        Ok(cache.map_or(ProfilePlace::Nowhere, |cache| ProfilePlace::Usual(cache.join("paceline").join(name))))
    }

    /// The file, if there is a place for one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            ProfilePlace::Nowhere => None,
            ProfilePlace::Usual(path) | ProfilePlace::Named(path) => Some(path),
        }
    }
}

impl Setup {
    /// The most ranks that a job may have.
    pub const MOST_RANKS: usize = 1 << 20;
    /// How long a collective waits where nothing is set.
    pub const TIMEOUT: Duration = Duration::from_secs(300);
    /// How long the ranks wait for each other at the start where nothing is set.
    pub const INIT_TIMEOUT: Duration = Duration::from_secs(120);

    /// The kinds of link that may be used where nothing is set: all that this build has.
    pub const LINKS: &[LinkKind] = match cfg!(feature = "rdma") {
        true => &[LinkKind::Inproc, LinkKind::Shm, LinkKind::Rdma, LinkKind::Tcp],
        false => &[LinkKind::Inproc, LinkKind::Shm, LinkKind::Tcp],
    };

    /// Rank `rank` of `size` that meets the others at `how`; all else as where nothing is set, and without a profile.
    #[must_use]
    pub fn new(rank: usize, size: usize, how: Rendezvous) -> Setup {
        Setup {
            rank,
            size,
            local_rank: None,
            local_size: None,
            how,
            job_name: String::new(),
            token: None,
            timeout: Setup::TIMEOUT,
            init_timeout: Setup::INIT_TIMEOUT,
            interface: None,
            family: Family::Any,
            ports: None,
            links: Setup::LINKS.to_vec(),
            tcp_streams: None,
            rdma: RdmaOptions::default(),
            algorithm: None,
            profile: ProfilePlace::Nowhere,
        }
    }

    /// The only rank.
    #[must_use]
    pub fn alone() -> Setup {
        Setup { local_rank: Some(0), local_size: Some(1), ..Setup::new(0, 1, Rendezvous::Alone) }
    }

    /// A thread that meets the others in `hub`.
    #[must_use]
    pub fn in_hub(hub: &Hub, rank: usize) -> Setup {
        let size = hub.size();
        Setup { local_rank: Some(rank), local_size: Some(size), ..Setup::new(rank, size, Rendezvous::Hub(hub.clone())) }
    }

    /// Rank `rank` of `size` that meets the others with the id that one of them has made. The token is the id's.
    #[must_use]
    pub fn with_id(rank: usize, size: usize, id: &UniqueId) -> Setup {
        let token = Some(id.token());
        Setup { token, ..Setup::new(rank, size, Rendezvous::Unique(Box::new(id.clone()))) }
    }

    /// The same with what the environment says of everything but who the rank is, where the ranks meet, and, where there is
    /// one already, the token.
    ///
    /// # Errors
    /// A value can't be used.
    pub fn with_options_of(self, environment: &Environment) -> Result<Setup, RendezvousError> {
        environment.warn_of_unknown();
        let token = self.token.clone();
        let mut setup = self;
        setup.read_options(environment)?;
        setup.token = token.or(setup.token);
        setup.validate()?;
        Ok(setup)
    }

    /// What the environment says: paceline's variables first, then those of torchrun, Open MPI, MPICH and Intel MPI, and
    /// Slurm; with none of them, [`alone`](Setup::alone). Warns of `PACELINE_*` variables that mean nothing.
    ///
    /// # Errors
    /// A value can't be used, sources contradict each other, or the ranks have nowhere to meet.
    pub fn from_env(environment: &Environment) -> Result<Setup, RendezvousError> {
        environment.warn_of_unknown();
        let mut setup = launcher::who_and_where(environment)?;
        setup.read_options(environment)?;
        setup.validate()?;
        Ok(setup)
    }

    fn read_options(&mut self, environment: &Environment) -> Result<(), RendezvousError> {
        if let Some(name) = environment.text("PACELINE_JOB")? {
            self.job_name = name.to_owned();
        }
        self.token = token(environment)?;
        self.timeout = environment.duration("PACELINE_TIMEOUT")?.unwrap_or(Setup::TIMEOUT);
        self.init_timeout = environment.duration("PACELINE_INIT_TIMEOUT")?.unwrap_or(Setup::INIT_TIMEOUT);
        let form = "eth,ib (beginnings of names), =eth0,ib0 (exactly these), ^docker,lo (all but these)";
        let sound = |text: &str| text.parse::<Filter>().is_ok().then(|| text.to_owned());
        self.interface = environment.parsed("PACELINE_INTERFACE", form, sound)?;
        let families = [("4", Family::V4), ("6", Family::V6), ("any", Family::Any)];
        self.family = environment.one_of("PACELINE_FAMILY", &families)?.unwrap_or_default();
        self.ports = environment.ports("PACELINE_PORTS")?;
        let kinds = [LinkKind::Inproc, LinkKind::Shm, LinkKind::Rdma, LinkKind::Tcp].map(|kind| (kind.name(), kind));
        if let Some(links) = environment.list_of("PACELINE_LINKS", &kinds)? {
            self.links = links;
        }
        self.rdma = RdmaOptions::from_env(environment)?;
        self.tcp_streams = environment.count("PACELINE_TCP_STREAMS", 1..=64)?;
        self.algorithm = environment.text("PACELINE_ALGORITHM")?.map(str::to_owned);
        self.profile = ProfilePlace::from_env(environment)?;
        Ok(())
    }

    /// Checks what can be checked without the other ranks.
    ///
    /// # Errors
    /// Something in the setup is senseless.
    pub fn validate(&self) -> Result<(), RendezvousError> {
        if self.size == 0 || Setup::MOST_RANKS < self.size {
            let problem = format!("a size of {}; a job has 1 to {} ranks", self.size, Setup::MOST_RANKS);
            return Err(RendezvousError::Setup(problem));
        }
        if self.size <= self.rank {
            return Err(RendezvousError::RankOutOfRange { rank: self.rank, size: self.size });
        }
        if let (Some(rank), Some(size)) = (self.local_rank, self.local_size)
            && (size <= rank || self.size < size)
        {
            let problem = format!("local rank {rank} of {size} local ranks, of {} in all, can't be", self.size);
            return Err(RendezvousError::Setup(problem));
        }
        self.filter()?;
        if self.links.is_empty() {
            return Err(RendezvousError::Setup("no kind of link may be used".to_owned()));
        }
        if !cfg!(feature = "rdma") && self.links.contains(&LinkKind::Rdma) {
            let problem =
                "this build has no rdma links; build it with the feature `rdma`, or leave rdma out of PACELINE_LINKS";
            return Err(RendezvousError::Setup(problem.to_owned()));
        }
        if self.size > 1 && matches!(self.how, Rendezvous::Alone) {
            return Err(RendezvousError::NowhereToMeet { size: self.size });
        }
        Ok(())
    }

    /// The interface filter, read.
    pub(super) fn filter(&self) -> Result<Filter, RendezvousError> {
        let text = self.interface.as_deref().unwrap_or_default();
        text.parse().map_err(|error: FilterError| RendezvousError::Setup(error.to_string()))
    }
}

fn token(environment: &Environment) -> Result<Option<Token>, RendezvousError> {
    let form = format!("a secret of at least {} bytes", Token::LEAST);
    let inline = environment.parsed("PACELINE_TOKEN", &form, |text| Token::new(text))?;
    let path = environment.text("PACELINE_TOKEN_FILE")?;
    for name in ["PACELINE_TOKEN", "PACELINE_TOKEN_FILE"] {
        if environment.is_present(name) && environment.text(name)?.is_none() {
            let (variable, value) = (name.to_owned(), String::new());
            let allowed = format!("{form}, or not set; an empty one would leave the job open");
            return Err(EnvironmentError { variable, value, allowed }.into());
        }
    }
    let Some(path) = path else { return Ok(inline) };
    if inline.is_some() {
        let (first, second) = ("PACELINE_TOKEN is set".to_owned(), "PACELINE_TOKEN_FILE is too".to_owned());
        return Err(RendezvousError::Contradiction { first, second });
    }
    let refuse = |problem: String| RendezvousError::Setup(format!("token file {path}: {problem}"));
    let secret = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    Token::new(secret.trim_ascii()).map(Some).ok_or_else(|| refuse(format!("it doesn't hold {form}")))
}
