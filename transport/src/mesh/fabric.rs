//! The world's ranks and how to call them; endpoints for groups of them.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::card::{Allowed, Card};
use super::error::MeshError;
use super::line::Lines;
use super::listen::{Switchboard, listen_unix};
use crate::cores::Cores;
use crate::endpoint::{Endpoint, Peer};
use crate::link::LinkKind;
use crate::machine;
#[cfg(feature = "rdma")]
use crate::rdma::Adapters;
use crate::rendezvous::{self, Credentials, Family, Setup};
use crate::sim::SimNetwork;
use crate::tcp::interface::{self, Filter, Reach};
use crate::tcp::listen::{self, Place, PortRange};

/// Which group of ranks a connection belongs to: the same number at all its ranks, and no other group's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct GroupId(pub [u8; 16]);

impl GroupId {
    /// The group of all ranks.
    pub const WORLD: GroupId = GroupId([0; 16]);
}

/// One rank's knowledge of all ranks of its job, and its listening sockets.
pub struct Fabric {
    pub(super) credentials: Credentials,
    pub(super) cards: Arc<[Card]>,
    pub(super) rank: usize,
    pub(super) switchboard: Option<Switchboard>,
    #[cfg(feature = "rdma")]
    pub(super) adapters: Option<Adapters>,
    /// To the ranks whose memory this one sees.
    pub(super) lines: Lines,
}

/// How many TCP connections join two ranks where nothing is set.
const STREAMS: u32 = 1;

impl Fabric {
    /// Meets the other ranks as `setup` says, and joins them all.
    ///
    /// # Errors
    ///
    /// The ranks don't all come in time, this rank can't be called, or two ranks can't be joined by any allowed link.
    pub fn join(setup: &Setup) -> Result<(Arc<Fabric>, Endpoint), MeshError> {
        let mut joined = Fabric::join_threads(setup, 1)?;
        Ok(joined.remove(0))
    }

    /// As [`Fabric::join`], with `threads` ranks in this process. `setup` counts processes; ranks are numbered through
    /// all processes' threads in the order of the processes, which may bring different numbers of threads.
    ///
    /// # Errors
    ///
    /// As [`Fabric::join`].
    ///
    /// # Panics
    ///
    /// If `threads` is 0.
    pub fn join_threads(setup: &Setup, threads: usize) -> Result<Vec<(Arc<Fabric>, Endpoint)>, MeshError> {
        assert!(threads > 0, "a process brings one rank at least");
        setup.validate()?;
        machine::raise_file_limit();
        let deadline = Instant::now() + setup.init_timeout.min(Duration::from_secs(1 << 30));
        let alone = setup.size == 1 && threads == 1;
        let doors = (0..threads).map(|_| Door::open(setup, alone)).collect::<Result<Vec<_>, _>>()?;
        let mine: Vec<&Card> = doors.iter().map(|door| &door.card).collect();
        let mine = postcard::to_allocvec(&mine).expect("plain data");
        let met = rendezvous::exchange(setup, &mine, deadline)?;
        let (cards, first) = read_cards(&met.entries, setup.rank)?;
        let credentials = Credentials { job: met.job, token: setup.token.clone() };
        let fabric = |(number, door): (usize, Door)| {
            #[cfg(feature = "rdma")]
            let (door, adapters) = door.without_adapters();
            let switchboard = door.answer(&credentials)?;
            Ok::<_, MeshError>(Arc::new(Fabric {
                credentials: credentials.clone(),
                cards: cards.clone(),
                rank: first + number,
                switchboard,
                lines: Lines::default(),
                #[cfg(feature = "rdma")]
                adapters,
            }))
        };
        let fabrics = doors.into_iter().enumerate().map(fabric).collect::<Result<Vec<_>, _>>()?;
        let everyone: Vec<usize> = (0..cards.len()).collect();
        let connect = |fabric: &Arc<Fabric>| fabric.connect(GroupId::WORLD, &everyone, deadline);
        let endpoints: Vec<_> = if threads == 1 {
            vec![connect(&fabrics[0])]
        } else {
            std::thread::scope(|scope| {
                let joining: Vec<_> = fabrics.iter().map(|fabric| scope.spawn(|| connect(fabric))).collect();
                joining.into_iter().map(|thread| thread.join().expect("joining doesn't panic")).collect()
            })
        };
        let joined = fabrics.into_iter().zip(endpoints).map(|(fabric, endpoint)| Ok((fabric, endpoint?)));
        joined.collect()
    }

    /// Ranks of this process only, joined, in rank order.
    ///
    /// # Errors
    ///
    /// If `size` is 0, or memory or files can't be had.
    pub fn in_process(size: usize) -> Result<Vec<(Arc<Fabric>, Endpoint)>, MeshError> {
        machine::raise_file_limit();
        let made = crate::endpoint::in_process(size);
        let endpoints = made.map_err(|error| MeshError::System { what: "making ranks in this process", error })?;
        Ok(Fabric::without_doors(LinkKind::Inproc, endpoints))
    }

    /// All ranks of a simulated network, joined, in rank order. They can't be joined to groups.
    ///
    /// # Errors
    ///
    /// If files can't be had.
    pub fn simulated(network: &SimNetwork) -> Result<Vec<(Arc<Fabric>, Endpoint)>, MeshError> {
        machine::raise_file_limit();
        let made = crate::endpoint::simulated(network);
        let endpoints = made.map_err(|error| MeshError::System { what: "making simulated ranks", error })?;
        Ok(Fabric::without_doors(LinkKind::Sim, endpoints))
    }

    fn without_doors(kind: LinkKind, endpoints: Vec<Endpoint>) -> Vec<(Arc<Fabric>, Endpoint)> {
        let cards: Arc<[Card]> = endpoints.iter().map(|_| Card::here(&[kind], STREAMS)).collect();
        let credentials = Credentials { job: machine::random(), token: None };
        let fabric = |rank| Fabric {
            credentials: credentials.clone(),
            cards: cards.clone(),
            rank,
            switchboard: None,
            #[cfg(feature = "rdma")]
            adapters: None,
            lines: Lines::default(),
        };
        endpoints.into_iter().enumerate().map(|(rank, endpoint)| (Arc::new(fabric(rank)), endpoint)).collect()
    }

    /// How many of all ranks share this one's host, itself included.
    #[must_use]
    pub fn n_neighbours(&self) -> usize {
        let mine = &self.cards[self.rank];
        self.cards.iter().filter(|card| card.shares_kernel(mine)).count()
    }

    /// Where each of some ranks runs, for a group of these.
    pub(super) fn peers(&self, members: &[usize]) -> Arc<[Peer]> {
        let card = |rank: &usize| &self.cards[*rank];
        let house = |rank: &usize| members.iter().position(|other| card(other).shares_kernel(card(rank)));
        let peer = |rank: &usize| Peer {
            host: card(rank).host.clone(),
            pid: card(rank).pid,
            house: house(rank).expect("a rank shares a kernel with itself"),
            cores: 1,
        };
        let mut peers: Vec<Peer> = members.iter().map(peer).collect();
        for first in 0..peers.len() {
            if peers[first].house == first {
                let cores = self.cores_around(members[first]);
                peers.iter_mut().filter(|peer| peer.house == first).for_each(|peer| peer.cores = cores);
            }
        }
        peers.into()
    }

    /// How many cores the ranks of one rank's host may use together.
    fn cores_around(&self, rank: usize) -> usize {
        let shares = |card: &&Card| card.shares_kernel(&self.cards[rank]);
        Cores::together(self.cards.iter().filter(shares).map(|card| &card.cores))
    }

    /// Whether the ranks of this one's host share cores.
    pub(super) fn is_crowded(&self) -> bool {
        self.n_neighbours() > self.cores_around(self.rank)
    }
}

/// A rank's listening sockets before anybody may call, and the card that says where they are.
struct Door {
    card: Card,
    unix: Option<UnixListener>,
    tcp: Option<TcpListener>,
    #[cfg(feature = "rdma")]
    adapters: Option<Adapters>,
}

impl Door {
    /// Without sockets if nobody will call.
    fn open(setup: &Setup, alone: bool) -> Result<Door, MeshError> {
        let streams = setup.tcp_streams.map_or(STREAMS, |n| n as u32);
        let mut card = Card::here(&setup.links, streams);
        #[cfg(feature = "rdma")]
        let adapters = if alone { None } else { super::rdma::open(setup, &mut card)? };
        let unix = if alone || !card.allows(Allowed::Shm) { None } else { Some(bind_unix(&mut card)?) };
        let tcp = if alone || !card.can_be_called() { None } else { bind_tcp(setup, &mut card)? };
        Ok(Door {
            card,
            unix,
            tcp,
            #[cfg(feature = "rdma")]
            adapters,
        })
    }

    #[cfg(feature = "rdma")]
    fn without_adapters(mut self) -> (Door, Option<Adapters>) {
        let adapters = self.adapters.take();
        (self, adapters)
    }

    fn answer(self, credentials: &Credentials) -> Result<Option<Switchboard>, MeshError> {
        if self.unix.is_none() && self.tcp.is_none() {
            return Ok(None);
        }
        let started = Switchboard::start(credentials.clone(), self.unix, self.tcp);
        started.map(Some).map_err(|error| MeshError::System { what: "starting to listen", error })
    }
}

/// All ranks' cards, and the first rank of process `process`.
fn read_cards(entries: &[Vec<u8>], process: usize) -> Result<(Arc<[Card]>, usize), MeshError> {
    let (mut cards, mut first) = (Vec::new(), 0);
    for (number, bytes) in entries.iter().enumerate() {
        if number == process {
            first = cards.len();
        }
        let read: Vec<Card> = postcard::from_bytes(bytes).map_err(|error| MeshError::Peer {
            peer: number,
            who: "unknown".into(),
            problem: format!("its card can't be read ({error}); does it run the same version?"),
        })?;
        cards.extend(read);
    }
    Ok((cards.into(), first))
}

fn bind_unix(card: &mut Card) -> Result<UnixListener, MeshError> {
    let (listener, name) =
        listen_unix().map_err(|error| MeshError::System { what: "listening for neighbours", error })?;
    tracing::trace!("listening on Unix socket {:?}", listener.as_fd());
    card.unix = Some(name);
    Ok(listener)
}

fn bind_tcp(setup: &Setup, card: &mut Card) -> Result<Option<TcpListener>, MeshError> {
    let listen_error = |error: &dyn std::fmt::Display| MeshError::Listen(error.to_string());
    let family = match setup.family {
        Family::Any => interface::Family::Any,
        Family::V4 => interface::Family::V4,
        Family::V6 => interface::Family::V6,
    };
    let text = setup.interface.as_deref().unwrap_or_default();
    let filter: Filter = text.parse().map_err(|error| listen_error(&error))?;
    let interfaces = interface::interfaces().map_err(|error| listen_error(&error))?;
    let chosen = match interface::choose(&interfaces, &filter, family, Reach::OtherHosts) {
        Ok(chosen) => chosen,
        Err(error) if text.is_empty() && family == interface::Family::Any => {
            tracing::info!("no tcp links: {error}");
            return Ok(None);
        }
        Err(error) => return Err(listen_error(&error)),
    };
    let ports = setup.ports.as_ref().and_then(|ports| PortRange::new(*ports.start(), *ports.end()));
    let place = if text.is_empty() { Place::Everywhere { family, advertised: &chosen } } else { Place::At(&chosen[0]) };
    let listening = listen::listen(place, ports).map_err(|error| listen_error(&error))?;
    card.tcp = listening.addresses;
    Ok(Some(listening.listener))
}
