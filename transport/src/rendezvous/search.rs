//! Where a rank looks for the root, which may change from one look to the next.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Period, RendezvousError, Setup, TcpPlace, board, resolve};

/// How long a name may fail to resolve: in some clusters it appears only when its host is up.
const NAME_PATIENCE: Duration = Duration::from_secs(5);

/// An address to try.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Tcp(SocketAddr),
    Local(String),
}

/// Where the root may be at the moment.
pub(super) struct Sighting {
    pub(super) targets: Vec<Target>,
    /// The name that the root's job must have.
    pub(super) name: [u8; 16],
    /// Whether there is one target and the root can be nowhere else, so that it pays to be patient with it.
    pub(super) only: bool,
    /// Why there are no targets, if there are none.
    pub(super) note: String,
}

/// Where to look for the root.
pub(super) trait Search {
    fn look(&mut self, setup: &Setup, period: Period) -> Result<Sighting, RendezvousError>;

    /// In words.
    fn place(&self) -> String;
}

/// At a TCP port that all ranks know.
pub(super) struct AtPlace<'a> {
    place: &'a TcpPlace,
    name: [u8; 16],
}

impl<'a> AtPlace<'a> {
    pub(super) fn new(place: &'a TcpPlace, name: [u8; 16]) -> AtPlace<'a> {
        AtPlace { place, name }
    }
}

impl Search for AtPlace<'_> {
    fn look(&mut self, setup: &Setup, period: Period) -> Result<Sighting, RendezvousError> {
        let mut targets = Vec::new();
        let mut unresolved = None;
        for host in &self.place.hosts {
            match resolve::addresses(host, setup.family, period.deadline) {
                Ok(addresses) => {
                    let pairs = self.place.ports.iter().flat_map(|port| addresses.iter().map(|ip| (*ip, *port)));
                    targets.extend(pairs.map(|pair| Target::Tcp(pair.into())));
                }
                Err(problem) => unresolved = Some((host.clone(), problem)),
            }
        }
        let note = match unresolved {
            Some((host, problem)) if targets.is_empty() => {
                if NAME_PATIENCE.min(period.total()) <= period.elapsed() {
                    return Err(RendezvousError::Unresolved { host, problem });
                }
                problem
            }
            _ => String::new(),
        };
        Ok(Sighting { only: targets.len() == 1, targets, name: self.name, note })
    }

    fn place(&self) -> String {
        self.place.to_string()
    }
}

/// At an abstract Unix socket.
pub(super) struct OnThisHost<'a> {
    local: &'a str,
    name: [u8; 16],
}

impl<'a> OnThisHost<'a> {
    pub(super) fn new(local: &'a str, name: [u8; 16]) -> OnThisHost<'a> {
        OnThisHost { local, name }
    }
}

impl Search for OnThisHost<'_> {
    fn look(&mut self, _: &Setup, _: Period) -> Result<Sighting, RendezvousError> {
        let targets = vec![Target::Local(self.local.to_owned())];
        Ok(Sighting { targets, name: self.name, only: true, note: String::new() })
    }

    fn place(&self) -> String {
        format!("local://{}", self.local)
    }
}

/// At an address that the root publishes.
pub(super) struct AtBoard<'a> {
    board: &'a mut dyn board::Board,
    addresses: Vec<SocketAddr>,
}

impl<'a> AtBoard<'a> {
    pub(super) fn new(board: &'a mut dyn board::Board) -> AtBoard<'a> {
        AtBoard { board, addresses: Vec::new() }
    }
}

impl Search for AtBoard<'_> {
    fn look(&mut self, setup: &Setup, period: Period) -> Result<Sighting, RendezvousError> {
        match self.board.look(period)? {
            Ok(notice) => {
                self.addresses = notice.addresses;
                self.addresses.retain(|address| setup.family.admits(address.ip()));
                let targets = self.addresses.iter().copied().map(Target::Tcp).collect();
                let note = "rank 0 published no address of the family that PACELINE_FAMILY asks for".to_owned();
                Ok(Sighting { targets, name: notice.name, only: false, note })
            }
            Err(note) => Ok(Sighting { targets: Vec::new(), name: [0; 16], only: false, note }),
        }
    }

    fn place(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        match addresses.is_empty() {
            true => self.board.place(),
            false => format!("{} (from {})", addresses.join(", "), self.board.place()),
        }
    }
}
