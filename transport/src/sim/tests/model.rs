//! Random operations on a network of three ranks, against a model that knows only queues, windows and earliest arrivals.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Operation {
    Send { wire: usize, bytes: usize },
    Read { wire: usize, most: usize },
    Notify { wire: usize },
    Pass { nanos: u64 },
    Jump,
}

const WIRES: [(usize, usize); 6] = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
const WINDOW: usize = 500;
const FRAME: usize = 100;

fn operation() -> impl Strategy<Value = Operation> {
    let wire = 0..WIRES.len();
    prop_oneof![
        4 => (wire.clone(), 0..300usize).prop_map(|(wire, bytes)| Operation::Send { wire, bytes }),
        4 => (wire.clone(), 0..200usize).prop_map(|(wire, most)| Operation::Read { wire, most }),
        1 => wire.prop_map(|wire| Operation::Notify { wire }),
        1 => (0..30_000u64).prop_map(|nanos| Operation::Pass { nanos }),
        3 => Just(Operation::Jump),
    ]
}

/// What a wire must still deliver: frames as (earliest arrival of the first byte, bytes not yet read), and how many
/// notices.
#[derive(Default)]
struct Expected {
    frames: VecDeque<(Time, VecDeque<u8>)>,
    n_frames_sent: u64,
    taken_max: usize,
    n_notices: usize,
}

struct Tried {
    network: SimNetwork,
    links: HashMap<(usize, usize), SimLink>,
    expected: HashMap<(usize, usize), Expected>,
    grain: usize,
}

impl Tried {
    fn new(seed: u64, piece_bytes: usize, grain_bytes: usize, ragged: bool) -> Tried {
        let mut options = SimOptions::new(3, seed);
        options.link = jittery(Duration::from_micros(20));
        (options.window_bytes, options.frame_bytes, options.piece_bytes) = (WINDOW, FRAME, piece_bytes);
        (options.grain_bytes, options.ragged) = (grain_bytes, ragged);
        let grain = grain_bytes;
        let network = SimNetwork::new(options);
        let links = WIRES.iter().map(|&(me, peer)| ((me, peer), network.link(me, peer))).collect();
        let expected = WIRES.iter().map(|&wire| (wire, Expected::default())).collect();
        Tried { network, links, expected, grain }
    }

    fn send(&mut self, (from, to): (usize, usize), bytes: usize) {
        let expected = self.expected.get_mut(&(from, to)).unwrap();
        let link = self.links.get_mut(&(from, to)).unwrap();
        let message: Vec<u8> = (0..bytes).map(|i| (expected.n_frames_sent as usize * 31 + i) as u8).collect();
        let stamp = Stamp([from as u64, expected.n_frames_sent]);
        let unread: usize = expected.frames.iter().map(|(_, bytes)| bytes.len().max(1)).sum();
        match link.send(Channel(expected.n_frames_sent), stamp, &message).unwrap() {
            Some(accepted) => {
                assert!(
                    accepted <= FRAME && accepted <= bytes && (accepted > 0 || bytes == 0),
                    "{accepted} of {bytes}"
                );
                assert!(accepted == bytes || accepted.is_multiple_of(self.grain), "{accepted} of {bytes}");
                assert!(unread + accepted.max(1) <= WINDOW, "{unread} B are unread and {accepted} more were accepted");
                let earliest = self.network.now().after(Duration::from_micros(10));
                expected.frames.push_back((earliest, message[..accepted].iter().copied().collect()));
                expected.n_frames_sent += 1;
                expected.taken_max = expected.taken_max.max(accepted);
            }
            None => {
                assert!(self.network.next_event().is_some() || unread > 0, "an idle wire with nothing unread is full")
            }
        }
    }

    /// Reads up to `most` bytes; answers whether a byte or a frame went.
    fn read(&mut self, (from, to): (usize, usize), most: usize) -> bool {
        let expected = self.expected.get_mut(&(from, to)).unwrap();
        let link = self.links.get_mut(&(to, from)).unwrap();
        let Some(head) = link.head().unwrap() else { return false };
        let (earliest, bytes) = expected.frames.front_mut().expect("no frame is there that wasn't sent");
        assert_eq!(head.left, bytes.len());
        assert_eq!((head.channel.0, head.stamp.0[0]), (head.stamp.0[1], from as u64));
        assert!(*earliest <= self.network.now(), "a frame came before its latency was over");
        let (take, was_empty) = (most.min(head.bytes.len()), head.left == 0);
        let wanted: Vec<u8> = bytes.drain(..take).collect();
        assert_eq!(head.bytes[..take], wanted);
        link.advance(take);
        if bytes.is_empty() {
            expected.frames.pop_front();
        }
        take > 0 || was_empty
    }

    fn finish(mut self) {
        loop {
            let moved = WIRES.iter().filter(|&&wire| self.read(wire, usize::MAX)).count();
            match self.network.next_event() {
                _ if moved > 0 => {}
                Some(next) => self.network.advance_to(next),
                None => break,
            }
        }
        for wire @ (from, to) in WIRES {
            let expected = &self.expected[&wire];
            assert!(expected.frames.is_empty(), "{} frames of {wire:?} never arrived", expected.frames.len());
            let link = self.links.get_mut(&(to, from)).unwrap();
            let n_notices = std::iter::from_fn(|| link.control_event()).count();
            assert_eq!(n_notices, expected.n_notices, "notices of {wire:?}");
            let link = self.links.get_mut(&(from, to)).unwrap();
            let (message, whole) = (vec![0; 2 * WINDOW], WINDOW - WINDOW % self.grain);
            let sent = send_all(link, u64::MAX, &message);
            assert!(whole <= sent + self.grain && sent <= WINDOW, "{sent} B: the window of {wire:?} came back whole");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_byte_arrives_once_in_order_and_in_time(
        seed: u64,
        piece_bytes in 1..150usize,
        grain in 1..20usize,
        ragged: bool,
        operations in prop::collection::vec(operation(), 1..200),
    ) {
        let mut tried = Tried::new(seed, piece_bytes, grain, ragged);
        for operation in operations {
            match operation {
                Operation::Send { wire, bytes } => tried.send(WIRES[wire], bytes),
                Operation::Read { wire, most } => {
                    tried.read(WIRES[wire], most);
                }
                Operation::Notify { wire } => {
                    tried.links.get_mut(&WIRES[wire]).unwrap().notify(b"notice");
                    tried.expected.get_mut(&WIRES[wire]).unwrap().n_notices += 1;
                }
                Operation::Pass { nanos } => {
                    let to = tried.network.now().after(Duration::from_nanos(nanos));
                    tried.network.advance_to(to);
                }
                Operation::Jump => {
                    if let Some(next) = tried.network.next_event() {
                        tried.network.advance_to(next);
                    }
                }
            }
        }
        tried.finish();
    }
}
