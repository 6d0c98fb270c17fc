//! Bytes arrive in order on each channel, however the calls and the streams interleave.

use proptest::prelude::*;

use super::*;

const SIZES: [usize; 8] = [0, 1, 31, 4096, 65_535, (1 << 20) + 3, 0, 20 << 20];

/// Sends all sizes one after another while receiving, and asserts that they came.
fn check(host: IpAddr, n_streams: usize, kernel_bytes: Option<usize>, into_place: bool) {
    eprintln!("{host}, {n_streams} streams, {kernel_bytes:?}, into place {into_place}");
    let (mut near, mut far) = links(host, n_streams, kernel_bytes);
    let largest = if kernel_bytes.is_some() { 1 << 20 } else { usize::MAX };
    let sizes = SIZES.iter().filter(|&&bytes| bytes <= largest.saturating_add(3));
    let mut outbox = Outbox::new(5, sizes.map(|&bytes| message(bytes as u64, bytes)).collect());
    let mut inbox = Inbox::default();
    loop {
        let sent = !outbox.is_empty() && outbox.push(&mut near).unwrap();
        let came = inbox.pull(&mut far, 300_000, into_place).unwrap();
        if outbox.is_empty() && !sent && !came && is_quiet(&inbox, &outbox) {
            break;
        }
    }
    inbox.check(&[outbox]);
    assert!(!near.has_unfinished_output() && far.head().unwrap().is_none());
}

/// Loopback delivers late when the cores are busy: quiet is when the count is right.
fn is_quiet(inbox: &Inbox, outbox: &Outbox) -> bool {
    let came = inbox.channels.get(&outbox.channel.0);
    came.is_some_and(|messages| {
        messages.len() == outbox.messages.len() && messages.last().map(Vec::len) == outbox.messages.last().map(Vec::len)
    })
}

#[test]
fn every_size_on_every_number_of_streams() {
    for host in hosts() {
        for n_streams in [1, 2, 4] {
            check(host, n_streams, None, n_streams == 2);
        }
    }
    for (n_streams, into_place) in [(1, false), (1, true), (3, false), (4, true), (64, true)] {
        check(V4, n_streams, Some(4096), into_place);
    }
}

#[derive(Clone, Debug)]
enum Call {
    Send { direction: bool, channel: usize },
    Receive { direction: bool, limit: usize, into_place: bool },
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let send = (any::<bool>(), 0..4usize).prop_map(|(direction, channel)| Call::Send { direction, channel });
    let limit = prop_oneof![1..9usize, 1..5000usize, Just(1 << 20)];
    let receive = (any::<bool>(), limit, any::<bool>()).prop_map(|(direction, limit, into_place)| Call::Receive {
        direction,
        limit,
        into_place,
    });
    prop::collection::vec(prop_oneof![send, receive], 1..200)
}

fn boxes() -> impl Strategy<Value = Vec<Vec<usize>>> {
    let size = prop_oneof![4 => 0..100usize, 3 => 1000..20_000usize, 1 => 60_000..900_000usize];
    prop::collection::vec(prop::collection::vec(size, 0..4), 4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_keeps_order(
        calls in calls(), sizes in [boxes(), boxes()], n_streams in 1..5usize, is_small: bool,
    ) {
        let (near, far) = links(V4, n_streams, is_small.then_some(4096));
        let mut ends = [near, far];
        let mut outboxes = sizes.map(|channels| {
            let messages = |sizes: Vec<usize>| {
                sizes.into_iter().enumerate().map(|(i, bytes)| message((bytes * 5 + i) as u64, bytes)).collect()
            };
            channels.into_iter().enumerate().map(|(i, sizes)| Outbox::new(i as u64, messages(sizes))).collect::<Vec<_>>()
        });
        let mut inboxes = [Inbox::default(), Inbox::default()];
        let mut apply = |call: &Call, outboxes: &mut [Vec<Outbox>; 2], inboxes: &mut [Inbox; 2]| match *call {
            Call::Send { direction, channel } => {
                let outbox = &mut outboxes[usize::from(direction)][channel];
                if !outbox.is_empty() {
                    outbox.push(&mut ends[usize::from(direction)]).unwrap();
                }
            }
            Call::Receive { direction, limit, into_place } => {
                let (inbox, end) = (&mut inboxes[usize::from(direction)], &mut ends[usize::from(!direction)]);
                inbox.pull(end, limit, into_place).unwrap();
            }
        };
        for call in &calls {
            apply(call, &mut outboxes, &mut inboxes);
        }
        let is_done = |outboxes: &[Vec<Outbox>; 2], inboxes: &[Inbox; 2]| {
            outboxes.iter().zip(inboxes).all(|(channels, inbox)| channels.iter().all(|outbox| {
                outbox.is_empty() && (outbox.messages.is_empty() || is_quiet(inbox, outbox))
            }))
        };
        while !is_done(&outboxes, &inboxes) {
            for direction in [false, true] {
                for channel in 0..4 {
                    apply(&Call::Send { direction, channel }, &mut outboxes, &mut inboxes);
                }
                let limit = 1 << 20;
                apply(&Call::Receive { direction, limit, into_place: direction }, &mut outboxes, &mut inboxes);
            }
        }
        for (inbox, channels) in inboxes.iter().zip(&outboxes) {
            inbox.check(channels);
        }
    }
}

#[test]
fn a_stream_in_mid_frame_carries_nothing_else() {
    let (mut near, mut far) = links(V4, 1, Some(4096));
    let (long, short) = (message(1, 300_000), message(2, 10));
    let accepted = near.send(Channel(1), Stamp::default(), &long).unwrap().unwrap();
    assert!(0 < accepted && accepted < long.len() && near.has_unfinished_output());
    for _ in 0..3 {
        assert_eq!(near.send(Channel(2), Stamp::default(), &short).unwrap(), None);
    }
    let mut sent = accepted;
    let mut came = Vec::new();
    let mut short_sent = false;
    while came.len() < long.len() + short.len() {
        if sent < long.len() {
            sent += near.send(Channel(1), Stamp::default(), &long[sent..]).unwrap().unwrap_or(0);
        } else if !short_sent {
            short_sent = near.send(Channel(2), Stamp::default(), &short).unwrap() == Some(short.len());
        }
        if let Some(head) = far.head().unwrap() {
            let bytes = head.bytes.len();
            assert_eq!(head.channel, Channel(if came.len() < long.len() { 1 } else { 2 }));
            came.extend_from_slice(head.bytes);
            far.advance(bytes);
        }
    }
    assert!(came == [long, short].concat() && !near.has_unfinished_output());
}

#[test]
fn other_streams_go_on_while_one_is_in_mid_frame() {
    let (mut near, mut far) = links(V4, 2, Some(4096));
    let long = message(1, 60_000);
    assert!(near.send(Channel(1), Stamp::default(), &long).unwrap().unwrap() < long.len());
    assert_eq!(near.send(Channel(2), Stamp::default(), b"other").unwrap(), Some(5));
    let head = far.head().unwrap().unwrap();
    assert_eq!((head.channel, head.left), (Channel(1), long.len()));
}

#[test]
fn a_reader_of_whole_elements_never_starves() {
    let (mut near, mut far) = streams(V4, 1, None);
    let mut far = TcpLink::new(std::mem::take(&mut far)).unwrap();
    let frame = super::super::frame::Frame { channel: Channel(1), stamp: Stamp::default(), sequence: 0, bytes: 16 };
    let near = &mut near[0];
    let mut write = |bytes: &[u8]| std::io::Write::write_all(near, bytes).unwrap();
    write(&frame.encode());
    write(&[1; 11]);
    while far.head().unwrap().is_none_or(|head| head.bytes.len() < 11) {}
    far.advance(8);
    assert_eq!(far.head().unwrap().unwrap().bytes, [1; 3]);
    write(&[1; 5]);
    while far.head().unwrap().unwrap().bytes.len() < 8 {}
    far.advance(8);
    assert!(far.head().unwrap().is_none());
}

/// Takes a few seconds: `cargo test -p paceline-transport --release -- --ignored beyond_four_gib`.
#[test]
#[ignore = "moves 4 GiB"]
fn a_message_beyond_four_gib() {
    let bytes = (4 << 30) + 70_001;
    let (mut near, mut far) = links(V4, 2, None);
    let mut outbox = Outbox::new(1, vec![vec![0; bytes]]);
    let mut target = vec![1; 1 << 20];
    let mut came = 0;
    while came < bytes {
        if !outbox.is_empty() {
            outbox.push(&mut near).unwrap();
        }
        let moved = far.recv_into(&mut target).unwrap();
        assert!(target[..moved].iter().all(|&byte| byte == 0));
        came += moved;
    }
    assert!(outbox.is_empty() && came == bytes && far.head().unwrap().is_none());
}
