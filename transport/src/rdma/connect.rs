//! Making a link: what the two ends tell each other, and the writes that prove that each can reach the other.
//!
//! The words go over a connection on which both ends have proved who they are. Whether a way works is not concluded from
//! names or addresses: each end writes to the other, first little, then more than a packet holds.

use std::sync::Arc;
use std::time::Duration;

use super::adapter::{Adapter, Adapters};
use super::choice::Candidate;
use super::errors::RdmaError;
use super::frame::{FrameKind, HEADER_BYTES, Header};
use super::immediate::Immediate;
use super::link::RdmaLink;
use super::path::{self, Place, Route};
use super::rail::{Mode, Rail};
use super::registration::Registered;
use super::slab::{Geometry, Slab};
use super::verbs::{Destination, Piece, Reads};
use crate::clock::Clock;
use crate::link::{Channel, Stamp};
use crate::rendezvous::Family;

/// What an end says first.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Offer {
    geometry: Geometry,
    /// What this end's trial writes carry.
    nonce: u64,
    ports: Vec<PortOffer>,
}

/// A port, as the other end needs to know it.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
struct PortOffer {
    place: Place,
    mtu: u8,
    /// Where the slots are, and the key to them.
    slots: (u64, u32),
    /// Each queue pair's number, and that of its first packet.
    queues: Vec<(u32, u32)>,
    reads: Reads,
}

/// A link in the making.
pub(crate) struct Opening {
    rails: Vec<Rail>,
    slab: Slab,
    nonce: u64,
    /// By the place of the port among those of the rank.
    first_packets: Vec<Vec<u32>>,
    options: super::RdmaOptions,
    family: Family,
    memory: Arc<Registered>,
}

/// How long a trial write may take: much longer than any network, even an emulated one.
const TRIAL: Duration = Duration::from_secs(3);
/// Packet numbers have so many bits.
const PACKET_BITS: u32 = 24;
/// soft-RoCE takes seven retries for any number of them, and never says that a peer can't be reached.
const SOFTWARE_RETRIES_MAX: u8 = 6;
/// How much longer than a packet the second trial write is.
const PACKETS: usize = 2;

/// How much a trial write brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trial {
    /// A few bytes.
    Small,
    /// More than a packet holds.
    Large,
}

fn random_number() -> u64 {
    let bytes = crate::machine::random();
    u64::from_le_bytes(std::array::from_fn(|at| bytes[at]))
}

impl Opening {
    /// Makes this end, for a rank with that many peers.
    pub(crate) fn new(adapters: &Adapters, peers: usize) -> Result<(Opening, Offer), RdmaError> {
        let geometry = Geometry::for_peers(peers);
        let device = adapters.ports[0].device();
        let slab = Slab::new(geometry).map_err(|error| RdmaError::of_memory(device, "making slots", 0, &error))?;
        let options = adapters.options.clone();
        let rail = |port: (usize, &Arc<Adapter>)| Rail::new(port, &slab, options.queue_pairs, options.pkey_index);
        let rails = adapters.ports.iter().enumerate().map(rail).collect::<Result<Vec<_>, _>>()?;
        let first = |_| random_number() as u32 & ((1 << PACKET_BITS) - 1);
        let first_packets: Vec<Vec<u32>> =
            rails.iter().map(|rail| (0..rail.queues.len()).map(first).collect()).collect();
        let port = |(rail, first): (&Rail, &Vec<u32>)| PortOffer {
            place: place(&rail.adapter),
            mtu: rail.adapter.mtu,
            slots: (slab.start() as u64, rail.slots.remote_key()),
            queues: rail.queues.iter().map(|queue| queue.pair.number()).zip(first.iter().copied()).collect(),
            reads: rail.adapter.limits.reads,
        };
        let ports = rails.iter().zip(&first_packets).map(port).collect();
        let nonce = random_number();
        let offer = Offer { geometry, nonce, ports };
        Ok((
            Opening {
                rails,
                slab,
                nonce,
                first_packets,
                options,
                family: adapters.family,
                memory: adapters.memory.clone(),
            },
            offer,
        ))
    }

    /// Connects this end's queue pairs with those that the other offers, `is_lower` at one end only; by pair of ports, whether
    /// that was possible. Ports that find no partner are dropped.
    ///
    /// # Errors
    ///
    /// No port fits any of the peer's.
    pub(crate) fn connect(&mut self, offer: &Offer, is_lower: bool) -> Result<Vec<Result<(), RdmaError>>, RdmaError> {
        if !offer.geometry.is_sound() || offer.ports.is_empty() {
            return Err(RdmaError::Peer(format!("it offers slots that can't be, {:?}", offer.geometry)));
        }
        self.slab.recut(self.slab.geometry().common(offer.geometry));
        let mine: Vec<Place> = self.rails.iter().map(|rail| place(&rail.adapter)).collect();
        let (mine, theirs): (Vec<&Place>, Vec<&Place>) =
            (mine.iter().collect(), offer.ports.iter().map(|port| &port.place).collect());
        let pairs = match is_lower {
            true => path::pairs(&mine, &theirs, self.family),
            false => path::pairs(&theirs, &mine, self.family).into_iter().map(|(b, a)| (a, b)).collect(),
        };
        if pairs.is_empty() {
            return Err(path::unfit(mine[0], theirs[0]));
        }
        let mut rails: Vec<Option<Rail>> = self.rails.drain(..).map(Some).collect();
        let mut connected = Vec::new();
        for (a, b) in pairs {
            let mut rail = rails[a].take().expect("a port has one partner");
            let route = path::route(mine[a], theirs[b], self.family, is_lower)?;
            connected.push(self.connect_rail(&mut rail, &offer.ports[b], route));
            self.rails.push(rail);
        }
        let idle: Vec<String> = rails.into_iter().flatten().map(|rail| rail.adapter.name()).collect();
        if !idle.is_empty() {
            let offered: Vec<&str> = theirs.iter().map(|place| place.name.as_str()).collect();
            tracing::info!("{} not used to reach a peer whose ports are {}", idle.join(", "), offered.join(", "));
        }
        Ok(connected)
    }

    fn connect_rail(&self, rail: &mut Rail, theirs: &PortOffer, route: Route) -> Result<(), RdmaError> {
        rail.path = route.path;
        rail.mtu = rail.adapter.mtu.min(theirs.mtu);
        rail.theirs = theirs.slots;
        let reads = rail.adapter.limits.reads.against(theirs.reads);
        rail.reads = reads.are_possible();
        let n_queues = rail.queues.len().min(theirs.queues.len());
        rail.queues.truncate(n_queues);
        let most = if rail.adapter.candidate.facts.is_software { SOFTWARE_RETRIES_MAX } else { u8::MAX };
        let retries = self.options.retries.min(most);
        for (place, (queue, (their_number, their_first))) in rail.queues.iter_mut().zip(&theirs.queues).enumerate() {
            let connected = queue.pair.connect(Destination {
                port: rail.adapter.candidate.facts.port,
                number: *their_number,
                mtu: rail.mtu,
                their_first: *their_first,
                my_first: self.first_packets[rail.port][place],
                lid: route.lid,
                gid: route.gid,
                traffic_class: self.options.traffic_class,
                service_level: self.options.service_level,
                timeout: self.options.timeout,
                retries,
                reads,
            });
            connected.map_err(|error| RdmaError::of_connecting(&rail.adapter.name(), &rail.path, &error))?;
        }
        Ok(())
    }

    /// Writes to the peer over every queue pair and waits for the peer's writes; by port, whether all have come. Both ends
    /// are connected.
    pub(crate) fn try_out(&mut self, trial: Trial, offer: &Offer) -> Vec<Result<(), RdmaError>> {
        let mut results: Vec<Result<(), RdmaError>> =
            self.rails.iter_mut().map(|rail| begin_trial(rail, &mut self.slab, self.nonce, trial)).collect();
        let deadline = Clock::Real.now().after(TRIAL);
        let mut arrived: Vec<usize> = vec![0; self.rails.len()];
        loop {
            let mut waits = false;
            for (number, rail) in self.rails.iter_mut().enumerate() {
                if results[number].is_err() {
                    continue;
                }
                let polled = rail.poll(|immediate, _| {
                    arrived[number] += usize::from(matches!(Immediate::decode(immediate), Immediate::Ping(_)));
                });
                if let Err(failure) = polled {
                    let port = rail.adapter.name();
                    results[number] = Err(RdmaError::of_status(&port, &rail.path, failure.status, failure.vendor));
                    continue;
                }
                waits |= arrived[number] < rail.queues.len() || !rail.is_quiet();
            }
            if !waits || deadline <= Clock::Real.now() {
                break;
            }
            std::thread::yield_now();
        }
        for (number, rail) in self.rails.iter().enumerate() {
            let is_missing = arrived[number] < rail.queues.len() || !rail.is_quiet();
            if results[number].is_ok() && is_missing {
                results[number] = Err(self.missing(rail, trial));
            } else if results[number].is_ok() && !self.holds(offer.nonce) {
                results[number] = Err(RdmaError::Peer("its trial write brought other bytes".to_owned()));
            }
        }
        results
    }

    fn missing(&self, rail: &Rail, trial: Trial) -> RdmaError {
        let (port, path, seconds) = (rail.adapter.name(), rail.path.clone(), TRIAL.as_secs());
        match trial {
            Trial::Small => RdmaError::Silent { port, path, seconds },
            Trial::Large => {
                let mtu = mtu_bytes(rail.mtu);
                RdmaError::MtuMismatch { port, path, bytes: large_bytes(rail, &self.slab), mtu }
            }
        }
    }

    /// Whether the peer's trial writes have brought what they should.
    fn holds(&self, nonce: u64) -> bool {
        self.slab.payload(0, 8) == nonce.to_le_bytes()
    }

    /// Drops the ports that don't work at both ends.
    pub(crate) fn keep(&mut self, works: &[bool]) {
        let mut works = works.iter();
        self.rails.retain(|_| *works.next().unwrap_or(&false));
    }

    /// The link.
    pub(crate) fn finish(self) -> RdmaLink {
        RdmaLink::new(self.rails, self.slab, self.memory)
    }
}

fn mtu_bytes(mtu: u8) -> usize {
    128 << mtu.min(5)
}

fn large_bytes(rail: &Rail, slab: &Slab) -> usize {
    (PACKETS * mtu_bytes(rail.mtu)).min(slab.geometry().payload_bytes as usize)
}

fn begin_trial(rail: &mut Rail, slab: &mut Slab, nonce: u64, trial: Trial) -> Result<(), RdmaError> {
    let bytes = if trial == Trial::Small { 8 } else { large_bytes(rail, slab) };
    let mut payload = vec![0; bytes];
    payload[..8].copy_from_slice(&nonce.to_le_bytes());
    let header =
        Header { channel: Channel(0), stamp: Stamp::default(), credit: 0, bytes: bytes as u32, kind: FrameKind::Here };
    let (start, offset) = (slab.stage(0, &header, &payload), slab.geometry().header_offset(0));
    let piece = Piece { start, bytes: (HEADER_BYTES + bytes) as u32, key: rail.slots.local_key() };
    for queue in 0..rail.queues.len() {
        let immediate = Immediate::Ping(queue as u32);
        // SAFETY: the slot is in the slab, which outlives the rail, and isn't staged again before the writes have ended, or
        // with the same bytes.
        unsafe { rail.write(queue, offset, immediate, Mode::Reported, &[piece]) }?;
    }
    Ok(())
}

fn place(adapter: &Adapter) -> Place {
    let Candidate { facts, gids } = &adapter.candidate;
    Place { name: facts.name(), layer: facts.layer, lid: adapter.lid, gids: gids.clone() }
}
