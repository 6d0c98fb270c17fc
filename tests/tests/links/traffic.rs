//! Two ranks' ends of a link, and messages on their way between them.

use std::time::{Duration, Instant};

use paceline_tests::world::{PATIENCE, Wire, at_once};
use paceline_tests::{Random, mix};
use paceline_transport::rendezvous::Hub;
use paceline_transport::sim::{SimNetwork, SimOptions};
use paceline_transport::{Channel, Endpoint, Fabric, LinkError, Rendezvous, Stamp, endpoint};

/// How long anything may take.
pub const BOUND: Duration = Duration::from_secs(20);

/// The ranks of a small group, with what moves their clock if somebody must.
pub struct Group {
    pub wire: Wire,
    pub ends: Vec<Endpoint>,
    pub network: Option<SimNetwork>,
    begin: Instant,
}

impl Group {
    pub fn new(wire: Wire, size: usize) -> Group {
        let mut network = None;
        let ends = match wire {
            Wire::Inproc => endpoint::in_process(size).unwrap(),
            Wire::Sim => {
                let mut options = SimOptions::new(size, 5);
                (options.frame_bytes, options.window_bytes, options.piece_bytes) = (4000, 20_000, 1500);
                options.ragged = true;
                let made = network.insert(SimNetwork::new(options));
                endpoint::simulated(made).unwrap()
            }
            _ => {
                let hub = Hub::new(size);
                let setup = |rank| wire.setup(rank, size, Rendezvous::Hub(hub.clone()));
                at_once((0..size).map(setup).collect(), |setup| Fabric::join(&setup).unwrap().1)
            }
        };
        for (rank, end) in ends.iter().enumerate() {
            assert_eq!((end.me(), end.size()), (rank, size));
            for peer in 0..size {
                assert_eq!(end.link_kind(peer), (peer != rank).then_some(wire.kind()));
            }
        }
        Group { wire, ends, network, begin: Instant::now() }
    }

    /// Ends that were joined elsewhere.
    pub fn of(wire: Wire, ends: Vec<Endpoint>) -> Group {
        Group { wire, ends, network: None, begin: Instant::now() }
    }

    pub fn pair(wire: Wire) -> Group {
        Group::new(wire, 2)
    }

    /// What to do when nothing moved: let others run, or the clock go on.
    pub fn rest(&mut self) {
        self.ends.iter_mut().for_each(Endpoint::ring_peers);
        match &self.network {
            Some(network) => match network.next_event() {
                Some(next) => network.advance_to(next),
                None => panic!("nothing moves and nothing will ever happen\n{}", network.trace()),
            },
            None => std::thread::yield_now(),
        }
        assert!(self.begin.elapsed() < BOUND, "{:?}: nothing has moved for too long", self.wire);
    }

    /// Lets everything that is under way arrive.
    pub fn settle(&mut self) {
        match &self.network {
            Some(network) => {
                while let Some(next) = network.next_event() {
                    network.advance_to(next);
                }
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }

    /// Moves all messages to their ends, as fast as it goes. The receiver reads in the ways that `random` draws.
    pub fn carry(&mut self, leaving: &mut [Leaving], arriving: &mut [Arriving], random: &mut Random) {
        loop {
            let mut moved = false;
            for message in leaving.iter_mut() {
                moved |= message.push(&mut self.ends);
            }
            for message in arriving.iter_mut() {
                moved |= message.pull(&mut self.ends, random);
            }
            if leaving.iter().all(|message| message.done) && arriving.iter().all(|message| message.done) {
                return;
            }
            if !moved {
                self.rest();
            }
        }
    }
}

/// Bytes that no other message has.
pub fn bytes(number: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(mix(number));
    let mut bytes: Vec<u8> = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub fn stamp(number: u64) -> Stamp {
    Stamp([mix(number), number])
}

/// A message that is sent.
pub struct Leaving {
    pub from: usize,
    pub to: usize,
    pub channel: Channel,
    pub stamp: Stamp,
    pub bytes: Vec<u8>,
    pub sent: usize,
    pub done: bool,
}

impl Leaving {
    pub fn new(from: usize, to: usize, channel: u64, number: u64, len: usize) -> Leaving {
        let (channel, stamp) = (Channel(channel), stamp(number));
        Leaving { from, to, channel, stamp, bytes: bytes(number, len), sent: 0, done: false }
    }

    /// Sends what goes now; whether any of it went.
    pub fn push(&mut self, ends: &mut [Endpoint]) -> bool {
        self.push_from(&mut ends[self.from])
    }

    pub fn push_from(&mut self, end: &mut Endpoint) -> bool {
        if self.done {
            return false;
        }
        let sent = end.send(self.to, self.channel, self.stamp, &self.bytes[self.sent..]).unwrap();
        if let Some(sent) = sent {
            self.sent += sent;
            assert!(self.sent <= self.bytes.len(), "accepted more than there is");
            assert!(sent > 0 || self.bytes.is_empty(), "accepted nothing: that is `None`");
            self.done = self.sent == self.bytes.len();
        }
        sent.is_some()
    }
}

/// A message that is received.
pub struct Arriving {
    pub at: usize,
    pub from: usize,
    pub channel: Channel,
    pub stamp: Stamp,
    pub want: Vec<u8>,
    pub got: Vec<u8>,
    pub done: bool,
}

impl Arriving {
    pub fn of(message: &Leaving) -> Arriving {
        Arriving {
            at: message.to,
            from: message.from,
            channel: message.channel,
            stamp: message.stamp,
            want: message.bytes.clone(),
            got: Vec::new(),
            done: false,
        }
    }

    /// Receives what is here; whether there was anything.
    pub fn pull(&mut self, ends: &mut [Endpoint], random: &mut Random) -> bool {
        self.pull_at(&mut ends[self.at], random).unwrap()
    }

    pub fn pull_at(&mut self, end: &mut Endpoint, random: &mut Random) -> Result<bool, LinkError> {
        if self.done {
            return Ok(false);
        }
        let Some(head) = end.head(self.from, self.channel)? else { return Ok(false) };
        let missing = self.want.len() - self.got.len();
        assert_eq!((head.channel, head.stamp), (self.channel, self.stamp));
        assert!(head.left <= missing, "a frame of {} more bytes spans two messages: {missing} are missing", head.left);
        assert!(head.bytes.len() <= head.left);
        if self.want.is_empty() {
            end.advance(self.from, self.channel, 0);
            self.done = true;
            return Ok(true);
        }
        if head.bytes.is_empty() {
            return Ok(false);
        }
        let here = head.bytes.len();
        match random.below(3) {
            // All that is here; the front of it; or into memory of the receiver's, which may be shorter or longer.
            0 => self.got.extend_from_slice(head.bytes),
            1 => self.got.extend_from_slice(&head.bytes[..1 + random.below(here as u64) as usize]),
            _ => {
                let room = 1 + random.below(missing.min(2 * here) as u64) as usize;
                let start = self.got.len();
                self.got.resize(start + room, 0);
                let moved = end.recv_into(self.from, self.channel, &mut self.got[start..])?;
                assert!(0 < moved && moved <= room, "{moved} bytes into {room}");
                self.got.truncate(start + moved);
                return Ok(self.check(start));
            }
        }
        let before = self.want.len() - missing;
        end.advance(self.from, self.channel, self.got.len() - before);
        Ok(self.check(before))
    }

    /// Looks at the bytes from `before` on, which are new.
    fn check(&mut self, before: usize) -> bool {
        let have = self.got.len();
        assert!(self.got[before..] == self.want[before..have], "bytes {before} to {have} are wrong");
        self.done = have == self.want.len();
        true
    }
}

/// The next control event of a rank, which is looked for as a sleeper does.
pub fn event(group: &mut Group, rank: usize) -> (usize, paceline_transport::ControlEvent) {
    let begin = Instant::now();
    loop {
        if let Some(event) = group.ends[rank].control_event() {
            return event;
        }
        if group.network.is_some() {
            group.rest();
        } else {
            group.ends[rank].about_to_sleep();
            group.ends[rank].sleep(Duration::from_millis(100)).unwrap();
            group.ends[rank].awake();
        }
        assert!(begin.elapsed() < PATIENCE, "{:?}: no news", group.wire);
    }
}
