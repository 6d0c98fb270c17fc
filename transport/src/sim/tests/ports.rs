//! Ports: what wires share is shared, in turn, and what they don't is not.

use super::super::{Port, Random, SimCluster};
use super::*;

/// A network of four ranks on wires that take no time but what their ports do, 1 GB/s each.
fn network(change: impl FnOnce(&mut SimOptions)) -> SimNetwork {
    let mut options = SimOptions::new(4, 7);
    options.link = LinkProfile::instant();
    change(&mut options);
    SimNetwork::new(options)
}

/// Sends a message at this moment over each of some wires, and answers when the last byte of each is there, in ns.
fn arrivals(network: &SimNetwork, wires: &[(usize, usize, usize)]) -> Vec<u64> {
    let start = network.now();
    let mut links: Vec<_> =
        wires.iter().map(|&(from, to, _)| (network.link(from, to), network.link(to, from))).collect();
    for ((link, _), &(.., bytes)) in links.iter_mut().zip(wires) {
        assert_eq!(send_all(link, 0, &vec![1; bytes]), bytes);
    }
    let (mut read, mut ends) = (vec![0; wires.len()], vec![0; wires.len()]);
    loop {
        for (wire, (_, link)) in links.iter_mut().enumerate() {
            let bytes: usize = read_here(link).iter().map(|(_, bytes)| bytes.len()).sum();
            if bytes > 0 {
                read[wire] += bytes;
                ends[wire] = network.now().since(start).as_nanos() as u64;
            }
        }
        let Some(next) = network.next_event() else { break };
        network.advance_to(next);
    }
    assert!(read.iter().zip(wires).all(|(read, &(.., bytes))| *read == bytes), "{read:?} of {wires:?}");
    ends
}

#[test]
fn wires_that_share_a_port_take_turns_and_others_do_not() {
    let network = network(|_| {});
    let shared = network.add_port("adapter", 1_000_000_000);
    let alone = network.add_port("other adapter", 1_000_000_000);
    network.set_routes(move |from, _| if from < 2 { vec![shared] } else { vec![alone] });
    let length = 16 * 65_536;
    let ends = arrivals(&network, &[(0, 3, length), (1, 3, length), (2, 3, length)]);
    assert_eq!(ends[1], 2 * length as u64, "two wires take twice as long");
    assert_eq!(ends[2], length as u64, "a wire with a port of its own isn't delayed");
    assert_eq!(network.port_use(shared).bytes, 2 * length as u64);
    assert_eq!(network.port_use(shared).busy, Duration::from_nanos(2 * length as u64));
    assert_eq!(network.port_use(alone).bytes, length as u64);
}

#[test]
fn wires_as_quick_as_their_port_share_it_evenly() {
    let network = network(|options| {
        options.link = LinkProfile { latency: Duration::ZERO, ..LinkProfile::default() };
        options.frame_bytes = 1000;
    });
    let shared = network.add_port("adapter", 1_000_000_000);
    network.set_routes(move |_, _| vec![shared]);
    let ends = arrivals(&network, &[(0, 2, 100_000), (1, 2, 100_000)]);
    assert_eq!(ends, [199_000, 200_000], "they end together, because their frames take turns");
}

#[test]
fn the_slowest_part_of_the_way_counts_and_not_the_sum() {
    for (rates, wire, want) in
        [([4, 2, 4], u64::MAX, 500_000), ([1, 4, 4], u64::MAX, 1_000_000), ([4, 4, 4], 500_000_000, 2_000_000)]
    {
        let network = network(|options| options.link.bytes_per_second = wire);
        let ports = rates.map(|rate| network.add_port("port", rate * 1_000_000_000));
        network.set_routes(move |_, _| ports.to_vec());
        assert_eq!(arrivals(&network, &[(0, 1, 1_000_000)]), [want], "{rates:?}");
        ports.iter().for_each(|&port| assert_eq!(network.port_use(port).bytes, 1_000_000));
    }
}

#[test]
fn a_port_that_waits_for_a_slow_one_carries_others_meanwhile() {
    let network = network(|options| options.frame_bytes = 1000);
    let (inward, outward) = (network.add_port("in", 1_000_000_000), network.add_port("out", 10_000_000_000));
    let slow = network.add_port("slow", 100_000_000);
    network.set_routes(move |from, _| match from {
        0 => vec![outward, slow, inward],
        _ => vec![outward, inward],
    });
    let ends = arrivals(&network, &[(0, 3, 100_000), (1, 3, 100_000)]);
    assert_eq!(ends[0], 1_000_000, "the slow port's pace");
    assert!((100_000..130_000).contains(&ends[1]), "{ends:?}: the inward port is free most of the time");
}

#[test]
fn many_senders_into_one_port_take_as_long_as_their_bytes() {
    let network = network(|_| {});
    let outward: Vec<Port> = (0..4).map(|rank| network.add_port(&format!("out {rank}"), 1_000_000_000)).collect();
    let inward = network.add_port("in", 1_000_000_000);
    network.set_routes(move |from, _| vec![outward[from], inward]);
    let ends = arrivals(&network, &[(0, 3, 500_000), (1, 3, 500_000), (2, 3, 500_000)]);
    assert_eq!(ends.iter().max(), Some(&1_500_000));
}

#[test]
fn a_port_can_be_slow_or_closed_for_a_while() {
    let run = |strike: &dyn Fn(&SimNetwork, Port)| {
        let network = network(|options| options.frame_bytes = 10_000);
        let (struck, other) = (network.add_port("struck", 1_000_000_000), network.add_port("other", 1_000_000_000));
        network.set_routes(move |from, _| vec![if from == 0 { struck } else { other }]);
        strike(&network, struck);
        let ends = arrivals(&network, &[(0, 1, 100_000), (2, 3, 100_000)]);
        assert_eq!(ends[1], 100_000, "who doesn't pass the port isn't slowed");
        assert_eq!(network.port_use(struck).bytes, 100_000);
        ends[0]
    };
    assert_eq!(run(&|_, _| {}), 100_000);
    assert_eq!(run(&|network, port| network.slow_port(port, us(0), us(1000), 3)), 300_000);
    let one_of_ten = run(&|network, port| network.slow_port(port, us(50), us(60), 2));
    assert_eq!(one_of_ten, 110_000, "one piece of ten takes twice as long");
    let twice = |network: &SimNetwork, port| {
        [2, 3].into_iter().for_each(|times| network.slow_port(port, us(0), us(1000), times));
    };
    assert_eq!(run(&twice), 600_000);
    assert_eq!(run(&|network, port| network.close_port(port, us(20), us(500))), 580_000);
}

#[test]
fn a_port_that_is_closed_for_good_lets_nothing_pass_and_says_so() {
    let network = network(|options| options.frame_bytes = 1000);
    let port = network.add_port("adapter 0", 1_000_000_000);
    network.set_routes(move |_, _| vec![port]);
    network.close_port(port, us(3), Time::NEVER);
    let (mut one, mut other) = (network.link(0, 1), network.link(1, 0));
    send_all(&mut one, 0, &[1; 10_000]);
    let_everything_happen(&network);
    assert_eq!((read_here(&mut other).len(), network.now()), (3, us(3)));
    assert!(network.trace().contains("adapter 0: 7 pieces wait for it"), "{}", network.trace());
    assert_eq!(network.port_use(port).bytes, 3000);
}

#[test]
fn what_was_sent_arrives_before_a_goodbye_and_before_a_death() {
    for dies in [false, true] {
        let network = network(|options| options.detection = Duration::ZERO);
        let port = network.add_port("adapter", 1_000_000);
        network.set_routes(move |_, _| vec![port]);
        let (mut one, mut other) = (network.link(0, 1), network.link(1, 0));
        send_all(&mut one, 0, &[1; 200_000]);
        if dies {
            network.kill(0, us(1));
        } else {
            drop(one);
        }
        let mut read = 0;
        let error = loop {
            match other.head() {
                Ok(Some(head)) => {
                    let bytes = head.bytes.len();
                    read += bytes;
                    other.advance(bytes);
                }
                Ok(None) => network.advance_to(network.next_event().expect("an end comes")),
                Err(error) => break error,
            }
        };
        assert_eq!((read, network.now()), (200_000, us(200_000)), "{error}");
        assert_eq!(error.to_string().contains("killed"), dies, "{error}");
    }
}

#[test]
fn a_cut_loses_what_is_in_ports() {
    let network = network(|options| options.frame_bytes = 1000);
    let port = network.add_port("adapter", 1_000_000_000);
    network.set_routes(move |_, _| vec![port]);
    let (mut one, mut other) = (network.link(0, 1), network.link(1, 0));
    send_all(&mut one, 0, &[1; 10_000]);
    network.cut(0, 1, Time(4500));
    network.advance_to(us(4));
    assert_eq!(read_here(&mut other).len(), 4);
    let_everything_happen(&network);
    assert!(other.head().is_err(), "what came before the cut was read, and nothing follows");
}

/// Everything random: who sends what when, over which ports; each wire's order is kept, and no byte is lost.
fn drawn(seed: u64) -> String {
    let random = &mut Random::new(seed);
    let network = network(|options| {
        (options.seed, options.ragged, options.frame_bytes, options.piece_bytes) = (seed, true, 3000, 1000);
        options.trace_events = 100_000;
        options.link = LinkProfile { jitter: Jitter::Uniform(Duration::from_micros(50)), ..LinkProfile::default() };
    });
    let ports: Vec<Port> =
        (0..5).map(|number| network.add_port(&format!("port {number}"), 100_000_000 << random.below(6))).collect();
    let routes: Vec<Vec<Port>> =
        (0..16).map(|_| ports.iter().copied().filter(|_| random.chance(500)).collect()).collect();
    let known = routes.clone();
    network.set_routes(move |from, to| routes[4 * from + to].clone());
    let at = |random: &mut Random| us(random.below(500));
    for &port in &ports {
        let (from, until) = (at(random), at(random));
        network.slow_port(port, from, until, 1 + random.below(5) as u32);
        network.close_port(port, until, until.after(Duration::from_micros(random.below(99))));
    }
    let pairs: Vec<_> = (0..4).flat_map(|from| (0..4).map(move |to| (from, to))).filter(|(a, b)| a != b).collect();
    let mut ends: Vec<_> = pairs.iter().map(|&(from, to)| network.link(from, to)).collect();
    let (mut sent, mut read) = (vec![Vec::new(); pairs.len()], vec![Vec::new(); pairs.len()]);
    for step in 0..300u32 {
        let pair = random.below(pairs.len() as u64) as usize;
        let message: Vec<u8> = (0..random.below(4000)).map(|byte| (byte as u8) ^ step as u8).collect();
        let accepted = send_all(&mut ends[pair], 0, &message);
        assert_eq!(accepted, message.len());
        sent[pair].extend(message);
        network.advance_to(network.now().after(Duration::from_micros(random.below(5))));
    }
    let_everything_happen(&network);
    for (pair, &(from, to)) in pairs.iter().enumerate() {
        let back = pairs.iter().position(|&other| other == (to, from)).unwrap();
        read_here(&mut ends[back]).iter().for_each(|(_, bytes)| read[pair].extend_from_slice(bytes));
        assert!(read[pair] == sent[pair], "seed {seed}: {from}->{to} over {:?}", known[4 * from + to]);
    }
    for port in ports {
        let over = pairs.iter().zip(&sent).filter(|((from, to), _)| known[4 * from + to].contains(&port));
        let bytes: usize = over.map(|(_, sent)| sent.len()).sum();
        assert_eq!(network.port_use(port).bytes, bytes as u64, "seed {seed}: {}", network.port_use(port).name);
    }
    network.trace()
}

#[test]
fn order_is_kept_no_byte_is_lost_and_the_same_seed_is_the_same_run() {
    (0..20).for_each(|seed| assert!(drawn(seed) == drawn(seed), "seed {seed}"));
    assert_ne!(drawn(1), drawn(2));
}

#[test]
fn clusters_route_by_hosts_adapters_and_leaves() {
    let gb = 1_000_000_000;
    let instant = LinkProfile::instant();
    let options = SimOptions { link: instant, ..SimOptions::new(7, 1) };
    let network = SimNetwork::new(options);
    let cluster = SimCluster {
        adapters_per_host: 2,
        leaves: vec![0, 0, 1],
        uplink_bytes_per_second: gb / 4,
        rank_bytes_per_second: 4 * gb,
        ..SimCluster::new(&[0, 1, 0, 1, 0, 2, 0], instant, instant, gb)
    };
    assert_eq!((cluster.n_hosts(), cluster.adapters()), (3, vec![0, 0, 0, 1, 1, 0, 1]));
    let ports = network.set_cluster(&cluster);
    let million = 1_000_000;
    assert_eq!(arrivals(&network, &[(0, 2, million), (0, 4, million)]), [250_000, 500_000], "a rank's port");
    let both = arrivals(&network, &[(0, 2, million), (4, 2, million)]);
    assert_eq!(both.iter().max(), Some(&500_000), "a rank's port, in");
    assert_eq!(arrivals(&network, &[(0, 1, million), (4, 3, million)]), [million as u64; 2], "two adapters");
    assert_eq!(arrivals(&network, &[(0, 1, million), (2, 3, million)])[1], 2 * million as u64, "one adapter");
    assert_eq!(arrivals(&network, &[(0, 5, million)]), [4 * million as u64], "the uplinks");
    assert_eq!(ports.host_bytes(&network), [[5 * million as u64, 0], [0, 4 * million as u64], [0, million as u64]]);
    let uplinks = ports.uplinks.iter().map(|both| both.map(|port| network.port_use(port).bytes));
    assert_eq!(uplinks.collect::<Vec<_>>(), [[million as u64, 0], [0, million as u64]]);
    assert_eq!(network.port_use(ports.adapters[1][1][1]).name, "adapter 1 of host 1, in");
}

#[test]
fn a_port_that_is_named_twice_carries_everything_twice() {
    let network = network(|_| {});
    let port = network.add_port("adapter", 1_000_000_000);
    network.set_routes(move |_, _| vec![port, port]);
    assert_eq!(arrivals(&network, &[(0, 1, 1000)]), [2000]);
    assert_eq!(network.port_use(port).bytes, 2000);
}
