//! Making a link: what the two ends tell each other, and the writes that prove that each can reach the other.
//!
//! The words go over a connection on which both ends have proved who they are. Whether a way works is not concluded from
//! names or addresses: each end writes to the other, first little, then more than a packet holds.

use std::sync::Arc;
use std::time::Duration;

use super::adapter::{Adapter, Adapters};
use super::errors::RdmaError;
use super::facts::LinkLayer;
use super::frame::{FrameKind, HEADER_BYTES, Header};
use super::gid::{self, Offered};
use super::immediate::Immediate;
use super::link::RdmaLink;
use super::rail::{Mode, Rail};
use super::registration::Registered;
use super::slab::{Geometry, Slab};
use super::verbs::{Destination, Piece};
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
    name: String,
    layer: LinkLayer,
    lid: u16,
    mtu: u8,
    gids: Vec<Offered>,
    /// Where the slots are, and the key to them.
    slots: (u64, u32),
    /// Each queue pair's number, and that of its first packet.
    queues: Vec<(u32, u32)>,
}

/// A link in the making.
pub(crate) struct Opening {
    rails: Vec<Rail>,
    slab: Slab,
    nonce: u64,
    first_packets: Vec<Vec<u32>>,
    options: super::RdmaOptions,
    family: Family,
    memory: Arc<Registered>,
}

/// How long a trial write may take: much longer than any network, even an emulated one.
const TRIAL: Duration = Duration::from_secs(3);
/// Packet numbers have so many bits.
const PACKET_BITS: u32 = 24;
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
            name: rail.adapter.name(),
            layer: rail.adapter.candidate.facts.layer,
            lid: rail.adapter.lid,
            mtu: rail.adapter.mtu,
            gids: rail.adapter.candidate.gids.clone(),
            slots: (slab.start() as u64, rail.slots.remote_key()),
            queues: rail.queues.iter().map(|queue| queue.pair.number()).zip(first.iter().copied()).collect(),
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

    /// Connects this end's queue pairs with those that the other offers; `is_lower` at one end only. Ports go together in
    /// the order in which each end prefers them; those that find no partner are dropped.
    pub(crate) fn connect(&mut self, offer: &Offer, is_lower: bool) -> Result<(), RdmaError> {
        if !offer.geometry.is_sound() || offer.ports.is_empty() {
            return Err(RdmaError::Peer(format!("it offers slots that can't be, {:?}", offer.geometry)));
        }
        self.slab.recut(self.slab.geometry().common(offer.geometry));
        let n_ports = self.rails.len().min(offer.ports.len());
        self.rails.truncate(n_ports);
        for (number, theirs) in offer.ports[..n_ports].iter().enumerate() {
            let rail = &mut self.rails[number];
            let route = route(&rail.adapter, theirs, self.family, is_lower)?;
            rail.path = route.path;
            rail.theirs = theirs.slots;
            let n_queues = rail.queues.len().min(theirs.queues.len());
            rail.queues.truncate(n_queues);
            for (place, (queue, (their_number, their_first))) in rail.queues.iter_mut().zip(&theirs.queues).enumerate()
            {
                let connected = queue.pair.connect(Destination {
                    port: rail.adapter.candidate.facts.port,
                    number: *their_number,
                    mtu: rail.adapter.mtu.min(theirs.mtu),
                    their_first: *their_first,
                    my_first: self.first_packets[number][place],
                    lid: theirs.lid,
                    gid: route.gid,
                    traffic_class: self.options.traffic_class,
                    service_level: self.options.service_level,
                    timeout: self.options.timeout,
                    retries: self.options.retries,
                });
                connected.map_err(|error| {
                    let what = "connecting a queue pair";
                    RdmaError::Refused {
                        device: format!("{} ({})", rail.adapter.name(), rail.path),
                        what,
                        error: error.to_string(),
                    }
                })?;
            }
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
                let mtu = mtu_bytes(rail.adapter.mtu);
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
    (PACKETS * mtu_bytes(rail.adapter.mtu)).min(slab.geometry().payload_bytes as usize)
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

/// How to go to a port of the peer's.
struct Route {
    gid: Option<(u8, [u8; 16])>,
    path: String,
}

fn route(adapter: &Adapter, theirs: &PortOffer, family: Family, is_lower: bool) -> Result<Route, RdmaError> {
    let mine = &adapter.candidate.gids;
    let listed = |gids: &[Offered]| {
        gids.iter().map(|offered| format!("{:?} {}", offered.class, offered.gid)).collect::<Vec<_>>().join(", ")
    };
    let (lower, upper) = if is_lower { (mine, &theirs.gids) } else { (&theirs.gids, mine) };
    let agreed = gid::agree(lower, upper, family).filter(|_| adapter.candidate.facts.layer == theirs.layer);
    let Some((a, b)) = agreed else {
        return Err(RdmaError::NoCommonGid {
            mine: adapter.name(),
            theirs: theirs.name.clone(),
            here: listed(mine),
            there: listed(&theirs.gids),
        });
    };
    let (own, other) = if is_lower { (a, b) } else { (b, a) };
    // Within an InfiniBand subnet the LID says the way.
    let by_address = adapter.is_ethernet() || own.gid.prefix() != other.gid.prefix();
    let path = match by_address {
        true => format!("{} to {}", own.gid, other.gid),
        false => format!("LID {} to {}", adapter.lid, theirs.lid),
    };
    Ok(Route { gid: by_address.then_some((own.index, other.gid.0)), path })
}
