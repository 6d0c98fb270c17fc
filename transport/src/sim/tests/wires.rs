//! Wires: time, order, window, pieces, control events.

use super::*;
use crate::control::ControlEvent;
use crate::link::LinkError;

#[test]
fn a_mebibyte_takes_the_latency_and_its_bytes_over_the_bandwidth() {
    let (network, mut a, mut b) = pair(|_| {});
    let message = vec![7; 1 << 20];
    assert_eq!(send_all(&mut a, 3, &message), message.len());

    network.advance_to(Time(10_000 + 1_048_576 - 1));
    assert_eq!(read_here(&mut b).len(), 15, "all but the last of 16 frames");
    network.advance_to(Time(10_000 + 1_048_576));
    assert_eq!(read_here(&mut b).len(), 1);
}

#[test]
fn nothing_arrives_before_its_time() {
    let (network, mut a, mut b) = pair(|_| {});
    send_all(&mut a, 0, &[1; 1000]);
    assert_eq!(network.next_event(), Some(Time(11_000)));
    network.advance_to(Time(10_999));
    assert!(b.head().unwrap().is_none());
    network.advance_to(Time(11_000));
    assert_eq!(read_here(&mut b), [(0, vec![1; 1000])]);
}

#[test]
fn an_instant_wire_delivers_at_the_moment_of_sending() {
    let (network, mut a, mut b) = pair(|options| options.link = LinkProfile::instant());
    send_all(&mut a, 0, &[1, 2]);
    assert_eq!(read_here(&mut b), [(0, vec![1, 2])]);
    assert_eq!((network.now(), network.next_event()), (Time(0), None));
}

#[test]
fn frames_of_a_pair_keep_their_order_whatever_the_jitter() {
    for seed in 0..20 {
        let (network, mut a, mut b) = pair(|options| {
            options.seed = seed;
            options.frame_bytes = 8;
            options.link = jittery(Duration::from_millis(1));
        });
        let sent: Vec<_> = (0..100u8).map(|i| (u64::from(i % 3), vec![i; usize::from(i % 9)])).collect();
        for (channel, message) in &sent {
            assert_eq!(a.send(Channel(*channel), STAMP, message).unwrap(), Some(message.len()));
        }
        let_everything_happen(&network);
        assert_eq!(read_here(&mut b), sent, "seed {seed}");
    }
}

#[test]
fn frames_of_different_pairs_overtake_one_another() {
    let overtaken = (0..20u64).filter(|&seed| {
        let mut options = SimOptions::new(3, seed);
        options.link = jittery(Duration::from_millis(1));
        let network = SimNetwork::new(options);
        let (mut first, mut second) = (network.link(0, 2), network.link(1, 2));
        let (mut from_first, mut from_second) = (network.link(2, 0), network.link(2, 1));
        send_all(&mut first, 0, &[1]);
        send_all(&mut second, 0, &[2]);
        network.advance_to(network.next_event().unwrap());
        let here = (read_here(&mut from_first).len(), read_here(&mut from_second).len());
        assert_eq!(here.0 + here.1, 1, "seed {seed}: two frames at the same nanosecond");
        here.1 == 1
    });
    let n = overtaken.count();
    assert!(0 < n && n < 20, "{n} of 20 overtook");
}

#[test]
fn a_full_window_refuses_until_the_receiver_has_read() {
    let (network, mut a, mut b) = pair(|options| (options.window_bytes, options.frame_bytes) = (4096, 1024));
    let message = [5; 5000];
    assert_eq!(send_all(&mut a, 0, &message), 4096);
    assert_eq!(a.send(Channel(1), STAMP, &[]).unwrap(), None, "an empty frame needs room as well");
    let_everything_happen(&network);
    assert_eq!(a.send(Channel(0), STAMP, &message[4096..]).unwrap(), None, "arrived isn't read");

    let bytes = b.head().unwrap().unwrap().bytes.len();
    b.advance(bytes - 1);
    assert_eq!(network.next_event(), None, "a frame read in part gives nothing back");
    b.advance(1);
    let read_at = network.now();
    assert_eq!(a.send(Channel(0), STAMP, &message[4096..]).unwrap(), None, "the credit is on its way");
    assert_eq!(network.next_event(), Some(read_at.after(Duration::from_micros(10))));
    let_everything_happen(&network);
    assert_eq!(a.send(Channel(0), STAMP, &message[4096..]).unwrap(), Some(904));
}

#[test]
fn a_message_is_cut_to_the_room_there_is() {
    let (_network, mut a, _b) = pair(|options| (options.window_bytes, options.frame_bytes) = (1500, 1024));
    let message = [5; 3000];
    assert_eq!(a.send(Channel(0), STAMP, &message).unwrap(), Some(1024));
    assert_eq!(a.send(Channel(0), STAMP, &message[1024..]).unwrap(), Some(476));
    assert_eq!(a.send(Channel(0), STAMP, &message[1500..]).unwrap(), None);
}

#[test]
#[should_panic(expected = "isn't the rest of it")]
fn a_message_taken_up_at_the_wrong_byte_is_the_callers_mistake() {
    let (_network, mut a, _b) = pair(|options| options.frame_bytes = 10);
    let message = [5; 30];
    assert_eq!(a.send(Channel(0), STAMP, &message).unwrap(), Some(10));
    let _ = a.send(Channel(0), STAMP, &message[11..]);
}

#[test]
fn messages_of_several_channels_may_take_turns() {
    let (network, mut a, mut b) = pair(|options| options.frame_bytes = 10);
    let (one, two) = ([1; 15], [2; 15]);
    for at in [0, 10] {
        a.send(Channel(1), STAMP, &one[at..]).unwrap().unwrap();
        a.send(Channel(2), STAMP, &two[at..]).unwrap().unwrap();
    }
    let_everything_happen(&network);
    let lengths: Vec<_> = read_here(&mut b).iter().map(|(channel, bytes)| (*channel, bytes.len())).collect();
    assert_eq!(lengths, [(1, 10), (2, 10), (1, 5), (2, 5)]);
}

#[test]
fn a_frame_shows_itself_in_pieces_as_they_arrive() {
    let (network, mut a, mut b) = pair(|options| options.piece_bytes = 1000);
    send_all(&mut a, 0, &[9; 2500]);
    let mut shown = Vec::new();
    while let Some(next) = network.next_event() {
        network.advance_to(next);
        let head = b.head().unwrap().unwrap();
        assert_eq!((head.left, head.stamp), (2500, STAMP));
        shown.push((network.now().0, head.bytes.len()));
    }
    assert_eq!(shown, [(11_000, 1000), (12_000, 2000), (12_500, 2500)]);
}

#[test]
fn a_frame_is_read_in_pieces_of_any_length() {
    let (network, mut a, mut b) = pair(|options| (options.piece_bytes, options.ragged) = (16, true));
    let message: Vec<u8> = (0..=255).collect();
    send_all(&mut a, 0, &message);
    let (mut read, mut buffer) = (Vec::new(), [0; 5]);
    loop {
        match (b.recv_into(&mut buffer).unwrap(), network.next_event()) {
            (0, None) => break,
            (0, Some(next)) => network.advance_to(next),
            (bytes, _) => read.extend_from_slice(&buffer[..bytes]),
        }
    }
    assert_eq!(read, message);
}

#[test]
fn an_empty_frame_stays_until_it_is_given_back() {
    let (network, mut a, mut b) = pair(|_| {});
    a.send(Channel(4), STAMP, &[]).unwrap().unwrap();
    let_everything_happen(&network);
    assert_eq!(b.recv_into(&mut [0; 4]).unwrap(), 0);
    let head = b.head().unwrap().unwrap();
    assert_eq!((head.channel, head.left, head.bytes.len()), (Channel(4), 0, 0));
    b.advance(0);
    assert!(b.head().unwrap().is_none());
}

#[test]
#[should_panic(expected = "advance(3) after a head of 2 B")]
fn more_than_was_shown_cannot_be_given_back() {
    let (network, mut a, mut b) = pair(|_| {});
    send_all(&mut a, 0, &[1, 2]);
    let_everything_happen(&network);
    b.head().unwrap();
    b.advance(3);
}

#[test]
fn a_notice_overtakes_frames_and_keeps_order_among_notices() {
    let (network, mut a, mut b) = pair(|_| {});
    send_all(&mut a, 0, &[0; 1 << 20]);
    a.notify(b"one");
    a.notify(b"two");
    assert_eq!(b.control_event(), None);
    network.advance_to(us(10));
    assert_eq!(b.control_event(), Some(ControlEvent::Notice(b"one".to_vec())));
    assert_eq!(b.control_event(), Some(ControlEvent::Notice(b"two".to_vec())));
    assert_eq!(b.control_event(), None);
    assert!(b.head().unwrap().is_none(), "no frame is here yet");
}

#[test]
fn unread_notices_are_bounded_and_the_rest_lost() {
    let (network, mut a, mut b) = pair(|_| {});
    (0..10_000).for_each(|_| a.notify(b"x"));
    let_everything_happen(&network);
    assert_eq!(std::iter::from_fn(|| b.control_event()).count(), 4096);
}

#[test]
fn what_was_sent_before_leaving_arrives_and_then_the_link_is_closed() {
    let (network, mut a, mut b) = pair(|_| {});
    send_all(&mut a, 0, &[1; 100_000]);
    drop(a);
    network.advance_to(us(10));
    assert_eq!(b.control_event(), None, "a goodbye doesn't overtake frames");
    assert!(b.send(Channel(0), STAMP, &[1]).unwrap().is_some(), "until the end arrives, what is sent vanishes");
    let_everything_happen(&network);
    let mut read = 0;
    while let Ok(Some(head)) = b.head() {
        let bytes = head.bytes.len();
        read += bytes;
        b.advance(bytes);
    }
    assert_eq!(read, 100_000);
    assert!(matches!(b.head(), Err(LinkError::Closed)));
    assert!(matches!(b.send(Channel(0), STAMP, &[1]), Err(LinkError::Closed)));
    assert_eq!(b.control_event(), Some(ControlEvent::Left));
    assert_eq!(b.control_event(), None, "one goodbye is enough");
}

#[test]
fn an_end_that_has_left_is_of_no_more_use_and_says_goodbye_once() {
    let (network, mut a, mut b) = pair(|options| options.piece_bytes = 1000);
    send_all(&mut b, 0, &[1; 2000]);
    network.advance_to(us(11));
    assert_eq!(a.head().unwrap().unwrap().bytes.len(), 1000);
    a.control().leave();
    assert_eq!(a.head().unwrap_err().to_string(), "this rank has left the connection");
    assert_eq!(a.send(Channel(0), STAMP, &[1]).unwrap_err().to_string(), "this rank has left the connection");
    a.notify(b"lost");
    let_everything_happen(&network);
    assert_eq!(b.control_event(), Some(ControlEvent::Left));
    drop(b);
    assert!(a.head().is_err(), "the connection's memory may be gone, the error stays");
    drop(a);
    let_everything_happen(&network);
}

#[test]
fn ends_are_joined_in_the_order_in_which_they_are_made() {
    let network = SimNetwork::new(SimOptions::new(2, 0));
    let (mut first, mut second) = (network.link(0, 1), network.link(0, 1));
    send_all(&mut first, 1, &[1]);
    send_all(&mut second, 2, &[2]);
    let_everything_happen(&network);
    let (mut first_end, mut second_end) = (network.link(1, 0), network.link(1, 0));
    assert_eq!(read_here(&mut first_end), [(1, vec![1])]);
    assert_eq!(read_here(&mut second_end), [(2, vec![2])]);
    drop((first, first_end));
    send_all(&mut second_end, 3, &[3]);
    let_everything_happen(&network);
    assert_eq!(read_here(&mut second), [(3, vec![3])]);
}

#[test]
fn profiles_are_set_per_wire_and_per_function() {
    let mut options = SimOptions::new(3, 0);
    options.link.bytes_per_second = u64::MAX;
    let network = SimNetwork::new(options);
    network.set_links(|from, to| LinkProfile {
        latency: Duration::from_micros((10 * from + to) as u64),
        bytes_per_second: u64::MAX,
        ..LinkProfile::default()
    });
    network.set_link(2, 0, LinkProfile { slowdown: 3, ..LinkProfile::default() });
    let arrival = |from: usize, to: usize, bytes: usize| {
        let start = network.now();
        let (mut source, _target) = (network.link(from, to), network.link(to, from));
        send_all(&mut source, 0, &vec![0; bytes]);
        let next = network.next_event().unwrap();
        drop(source);
        let_everything_happen(&network);
        next.since(start).as_nanos()
    };
    assert_eq!(arrival(0, 1, 500), 1_000);
    assert_eq!(arrival(1, 2, 500), 12_000);
    assert_eq!(arrival(2, 0, 500), 3 * 10_500);
}

#[test]
fn the_trace_has_a_line_per_event_and_busy_wire_and_forgets_the_oldest() {
    let (network, mut a, _b) = pair(|options| options.trace_events = 3);
    send_all(&mut a, 7, &[0; 4096]);
    a.notify(b"abc");
    let_everything_happen(&network);
    let trace = network.trace();
    let lines: Vec<&str> = trace.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "(1 earlier events forgotten)",
            "0.000 us  0->1 3 B notice is sent",
            "10.000 us  0->1 3 B notice arrives",
            "14.096 us  0->1 channel 7 stamp 1:2 4096 B frame arrives",
            "0->1 Open, 4096 B of the window taken, 0 items under way, 1 frames arrived, the first of channel 7 with \
             4096 B, 1 control events unread",
        ]
    );
}
