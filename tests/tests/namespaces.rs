//! Communicators between hosts, played by network namespaces: IPv4, IPv6, shared memory inside and TCP across, the choice
//! of interfaces and ports, and a link that goes down.

use std::time::Duration;

use paceline_comm::topology::{Cluster, Trouble, Wire};
use paceline_comm::{LinkKind, Prices};
use paceline_tests::is_asked_for;
use paceline_tests::process::{Job, Namespaces, Net, Plan, Said, Socket, agree, sockets};

const ALL: &str = "join calls result";
const PORT: u16 = 29_500;

/// Which host each rank runs on.
type Places = &'static [usize];

fn plan(network: &Namespaces, places: Places, at: std::net::IpAddr, steps: &str) -> Plan {
    let prefixes: Vec<Vec<String>> = places.iter().map(|host| network.on(*host)).collect();
    let place = format!("tcp://{}", std::net::SocketAddr::new(at, PORT));
    Plan::new(places.len(), steps).variable("PACELINE_RENDEZVOUS", place).behind(move |rank| prefixes[rank].clone())
}

/// Ranks of one host must be joined by shared memory, those of different hosts by TCP.
fn check_links(places: Places, said: &[Said]) {
    for Said { rank, rest, .. } in said.iter().filter(|said| said.word == "joined") {
        let link = |peer: usize| match () {
            () if peer == *rank => "self",
            () if places[peer] == places[*rank] => "shm",
            () => "tcp",
        };
        let want: Vec<_> = (0..places.len()).map(link).collect();
        assert_eq!(*rest, want.join(","), "the links of rank {rank} of {places:?}");
    }
}

#[test]
fn every_collective_between_hosts() {
    let both = Net { hosts: 2, interfaces: 1, v4: true, v6: true };
    let cases: [(Net, Places); 7] = [
        (Net { v6: false, ..both }, &[0, 1]),
        (Net { v4: false, ..both }, &[0, 1]),
        (Net { v6: false, hosts: 3, ..both }, &[0, 1, 2]),
        (Net { v4: false, hosts: 3, ..both }, &[0, 1, 2]),
        (both, &[0, 0, 1, 1]),
        (both, &[0, 1, 1, 1]),
        (Net { hosts: 3, ..both }, &[2, 0, 1, 0, 2, 2, 1]),
    ];
    for (net, places) in cases {
        let Some(network) = Namespaces::make(net) else { return };
        let first = places[0];
        let at = if net.v4 { network.v4(first, 0) } else { network.v6(first, 0) };
        let said = plan(&network, places, at, ALL).all().succeed();
        agree(places.len(), &said);
        check_links(places, &said);
    }
}

/// What leaves the hosts, all together, in units of the message: a sum of each host's, twice; a block for each other host.
fn least(collective: &str, hosts: usize) -> f64 {
    let others = hosts as f64 - 1.0;
    if collective == "all_reduce" { 2.0 * others } else { others }
}

/// Ranks dealt out unevenly, and by turns: what passes between hosts is no more than what has to.
#[test]
fn no_more_leaves_a_host_than_has_to() {
    const BYTES: usize = 4 << 20;
    let net = Net { hosts: 2, interfaces: 1, v4: true, v6: false };
    let cases: [(usize, Places); 4] =
        [(2, &[0, 0, 1, 1]), (2, &[0, 1, 1, 1]), (2, &[0, 1, 0, 1, 0, 1, 1]), (3, &[2, 0, 1, 0, 2, 2, 1])];
    let mut wrong = Vec::new();
    for (hosts, places) in cases {
        let Some(network) = Namespaces::make(Net { hosts, ..net }) else { return };
        let collectives = ["all_reduce", "all_gather", "reduce_scatter", "broadcast"];
        let calls = collectives.iter().flat_map(|name| [(*name).to_owned(), format!("{name}/two_level")]);
        let calls: Vec<String> = calls.collect();
        let steps: Vec<String> = calls.iter().map(|call| format!("crossed={call},{BYTES}")).collect();
        let said =
            plan(&network, places, network.v4(places[0], 0), &format!("join {}", steps.join(" "))).all().succeed();
        let of_rank = |rank: usize| -> Vec<(String, f64)> {
            let lines = said.iter().filter(|said| said.rank == rank && said.word == "crossed");
            let parts = lines.map(|said| said.rest.split_once(' ').expect("an algorithm and a number"));
            parts.map(|(chosen, bytes)| (chosen.to_owned(), bytes.parse().expect("a number"))).collect()
        };
        // One rank of each host: its interface counts for all.
        let firsts = (0..hosts).map(|host| of_rank(places.iter().position(|place| *place == host).expect("a rank")));
        let firsts: Vec<_> = firsts.collect();
        for (number, call) in calls.iter().enumerate() {
            let left: f64 = firsts.iter().map(|calls| calls[number].1).sum::<f64>() / BYTES as f64;
            let least = least(call.split('/').next().expect("a name"), hosts);
            let chosen = &firsts[0][number].0;
            let line = format!("{places:?}: {call} by {chosen}: {left:.3} messages left the hosts, {least} have to");
            println!("{line}");
            if !(0.99 * least..1.06 * least).contains(&left) {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is predicted for links of a limited rate is what they take. Reports; where time is no matter (`PACELINE_FULL=1`) more
/// than a quarter beside it is a failure.
#[test]
fn calls_over_limited_links_take_what_is_predicted() {
    const MBIT_PER_S: usize = 400;
    let net = Net { hosts: 2, interfaces: 1, v4: true, v6: false };
    let places: Places = &[0, 0, 1, 1];
    let Some(network) = Namespaces::make(net) else { return };
    if !network.limit(0, MBIT_PER_S) {
        return;
    }
    // What of the limit is left when 1448 of 1514 bytes are a message's.
    let rate = MBIT_PER_S as f64 * 1e6 / 8.0 * 1448.0 / 1514.0;
    let wire = |prices: Prices| Wire {
        latency_s: prices.latency_s,
        message_s: prices.message_s,
        bytes_per_s: 1.0 / prices.byte_s,
    };
    let (near, far) = (wire(Prices::standard(LinkKind::Shm)), wire(Prices::standard(LinkKind::Tcp)));
    let cluster = Cluster {
        hosts: 2,
        ranks_per_host: 2,
        adapters_per_host: 1,
        near,
        far: Wire { bytes_per_s: rate, ..far },
        ..Cluster::named("cpu").expect("it is known")
    };
    let calls = [
        ("all_reduce", "two_level"),
        ("all_reduce", "ring"),
        ("all_reduce", "halving_doubling"),
        ("all_gather", "two_level"),
        ("all_gather", "ring"),
        ("reduce_scatter", "two_level"),
        ("broadcast", "two_level"),
        ("all_to_all", "pairwise"),
    ];
    let sizes = [1 << 20, 4 << 20];
    let asked: Vec<_> = calls.iter().flat_map(|call| sizes.map(|bytes| (call.0, call.1, bytes))).collect();
    let steps: Vec<_> = asked.iter().map(|(name, row, bytes)| format!("timed={name}/{row},{bytes}")).collect();
    let said = plan(&network, places, network.v4(0, 0), &format!("join {}", steps.join(" "))).all().succeed();
    let of_rank = |rank: usize| -> Vec<f64> {
        let times = said.iter().filter(|said| said.rank == rank && said.word == "timed");
        times.map(|said| said.rest.split(' ').nth(1).and_then(|us| us.parse().ok()).expect("a time")).collect()
    };
    let ranks: Vec<Vec<f64>> = (0..places.len()).map(of_rank).collect();
    let times = (0..asked.len()).map(|call| ranks.iter().map(|times| times[call]).fold(0.0, f64::max));
    let mut off = Vec::new();
    for ((name, row, bytes), us) in asked.iter().zip(times) {
        let collective = paceline_comm::Collective::named(name).expect("a collective");
        let all = cluster.estimate(collective, *bytes as u64, &Trouble::default()).expect("a sound cluster");
        let predicted = 1e6 * all.iter().find(|estimate| estimate.row == *row).expect("a row").seconds;
        let ratio = us / predicted;
        let line = format!("{name} {row} of {bytes} B: {us:.0} us, predicted {predicted:.0}, {ratio:.2}");
        println!("{line}");
        if !(0.75..=1.25).contains(&ratio) {
            off.push(line);
        }
    }
    assert!(off.is_empty() || !is_asked_for("PACELINE_FULL"), "{}", off.join("\n"));
}

/// Started calls go on while their callers compute; a rank that starts none has no thread for it.
#[test]
fn started_calls_end_beside_computing_over_a_slow_link() {
    let net = Net { interfaces: 1, v4: true, v6: false, hosts: 2 };
    for (hosts, places) in [(2, &[0usize, 1][..]), (3, &[0, 1, 2])] {
        let Some(network) = Namespaces::make(Net { hosts, ..net }) else { return };
        if !network.limit(0, 200) {
            return;
        }
        let steps = "join traffic=5000 threads beside=1 beside=40000 beside=700000 threads barrier beside=1001";
        let said = plan(&network, places, network.v4(0, 0), steps).all().succeed();
        check_links(places, &said);
        for rank in 0..places.len() {
            let of_rank = |word: &str| -> Vec<usize> {
                let lines = said.iter().filter(|said| said.rank == rank && said.word == word);
                lines.map(|said| said.rest.parse().expect("a number")).collect()
            };
            let (threads, looks) = (of_rank("threads"), of_rank("beside"));
            assert_eq!(threads[1], threads[0] + 1, "rank {rank} has one more thread once it has started calls");
            assert_eq!(looks.len(), 4, "rank {rank}");
            assert!(looks[2] > 1, "rank {rank}: 5.6 MB over 200 Mbit/s had not ended at the first look");
        }
    }
}

/// The addresses at which the sockets of a host are connected, and the ports at which they listen.
fn connected(job: &Job, rank: usize) -> (Vec<std::net::IpAddr>, Vec<u16>) {
    let sockets = sockets(job.ranks[rank].pid());
    let is_meeting = |socket: &&Socket| socket.local.port() == PORT;
    let (listening, connected): (Vec<Socket>, Vec<Socket>) = sockets.iter().partition(|socket| socket.listens);
    let ports = listening.iter().filter(|socket| !is_meeting(socket)).map(|socket| socket.local.port());
    (connected.iter().map(|socket| socket.local.ip()).collect(), ports.collect())
}

#[test]
fn the_interface_and_family_that_are_asked_for_are_used() {
    let net = Net { hosts: 2, interfaces: 2, v4: true, v6: true };
    let Some(network) = Namespaces::make(net) else { return };
    type Want = fn(&Namespaces, usize) -> std::net::IpAddr;
    let cases: [(&str, &str, Want); 4] = [
        ("eth1", "4", |network, host| network.v4(host, 1)),
        ("=eth0", "6", |network, host| network.v6(host, 0)),
        ("^lo,eth0", "any", |network, host| network.v4(host, 1)),
        ("eth1", "6", |network, host| network.v6(host, 1)),
    ];
    for (interface, family, want) in cases {
        let plan = plan(&network, &[0, 1], want(&network, 0), "join calls hold");
        let mut job = plan.variable("PACELINE_INTERFACE", interface).variable("PACELINE_FAMILY", family).all();
        job.hear_all(&["held"]);
        for rank in 0..2 {
            let (addresses, _) = connected(&job, rank);
            let wanted = want(&network, rank);
            assert!(!addresses.is_empty(), "rank {rank} has no connections");
            let all = addresses.iter().all(|address| *address == wanted);
            assert!(all, "{interface}, family {family}: rank {rank} is connected at {addresses:?}, not {wanted}");
        }
    }
}

#[test]
fn ports_stay_in_their_range() {
    let net = Net { hosts: 2, interfaces: 1, v4: true, v6: true };
    let Some(network) = Namespaces::make(net) else { return };
    let range = 41_000..=41_003;
    let text = format!("{}-{}", range.start(), range.end());
    let mut job =
        plan(&network, &[0, 0, 1, 1], network.v4(0, 0), "join calls hold").variable("PACELINE_PORTS", &text).all();
    job.hear_all(&["held"]);
    for rank in [0, 2] {
        let (_, ports) = connected(&job, rank);
        assert_eq!(ports.len(), 2, "two ranks listen on the host of rank {rank}: {ports:?}");
        assert!(ports.iter().all(|port| range.contains(port)), "ports {ports:?} are not in {text}");
    }
    drop(job);
    let narrow = plan(&network, &[0, 0, 1], network.v4(0, 0), "join").variable("PACELINE_PORTS", "41000");
    let narrow = narrow.variable("PACELINE_INIT_TIMEOUT", "4");
    let mut job = narrow.all();
    let said: Vec<Said> = job.hear_all(&["error"]);
    let told = said.iter().filter(|said| said.text().contains("port 41000 is in use")).count();
    assert_eq!(told, 1, "one of two ranks finds the port taken: {said:#?}");
}

#[test]
fn a_wrong_interface_fails_at_once_and_lists_those_there_are() {
    let net = Net { hosts: 2, interfaces: 2, v4: true, v6: false };
    let Some(network) = Namespaces::make(net) else { return };
    let plan = plan(&network, &[0, 1], network.v4(0, 0), "begin join").variable("PACELINE_INTERFACE", "ib0");
    let mut rank = plan.rank(1);
    let begun = rank.hear(&["begun"]);
    let error = rank.hear(&["error"]);
    for part in ["\"ib0\"", "eth0 (10.77.0.2", "eth1 (10.77.1.2", "lo (127.0.0.1"] {
        assert!(error.text().contains(part), "{part} in {}", error.text());
    }
    assert!(error.at - begun.at < Duration::from_secs(1), "it took {:?}", error.at - begun.at);
}

/// Nothing tells the ranks; their deadline does, and it names the rank behind the link that is down.
#[test]
fn a_link_that_goes_down_is_named_within_the_deadline() {
    let deadline = Duration::from_secs(3);
    let cases: [(Places, usize, &[usize]); 4] =
        [(&[0, 1], 1, &[1]), (&[0, 1, 2], 2, &[2]), (&[0, 1, 2], 0, &[0]), (&[0, 1, 2, 2], 1, &[1])];
    for (places, host, victims) in cases {
        let hosts = places.iter().max().unwrap() + 1;
        let Some(network) = Namespaces::make(Net { hosts, interfaces: 1, v4: true, v6: false }) else { return };
        let plan = plan(&network, places, network.v4(0, 0), "join churn=40").variable("PACELINE_TIMEOUT", "3");
        let mut job = plan.all();
        job.hear_all(&["churning"]);
        let cut = paceline_tests::process::now();
        network.cut(host, 0);
        for rank in (0..places.len()).filter(|rank| places[*rank] != host) {
            let error = job.ranks[rank].hear(&["error", "unharmed"]);
            assert_eq!(error.word, "error", "rank {rank} of {places:?}");
            assert_eq!(error.peers(), victims, "rank {rank} of {places:?}, host {host} cut off: {}", error.text());
            let took = error.at.saturating_sub(cut);
            assert!(took < deadline + Duration::from_secs(2), "rank {rank} took {took:?}: {}", error.text());
        }
        for rank in (0..places.len()).filter(|rank| places[*rank] == host) {
            let error = job.ranks[rank].hear(&["error", "unharmed"]);
            assert_eq!(error.word, "error", "rank {rank} of {places:?}, cut off");
        }
    }
}

/// Without a deadline that is near, the silence of a host is noticed by the control connection, in three quarters of a
/// minute. Runs only where time is no matter: `PACELINE_FULL=1`.
#[test]
fn a_host_that_is_gone_is_noticed_long_before_the_deadline() {
    if !paceline_tests::is_asked_for("PACELINE_FULL") {
        eprintln!("skipped: takes a minute; set PACELINE_FULL=1");
        return;
    }
    for steps in ["join churn=200", "join calls 2:sleep=200000 barrier"] {
        let Some(network) = Namespaces::make(Net { hosts: 3, interfaces: 1, v4: true, v6: false }) else { return };
        let plan = plan(&network, &[0, 1, 2], network.v4(0, 0), steps).variable("PACELINE_TIMEOUT", "280");
        let mut job = plan.all();
        job.hear_all(&["joined"]);
        std::thread::sleep(Duration::from_millis(500));
        let cut = paceline_tests::process::now();
        network.cut(2, 0);
        std::thread::sleep(Duration::from_secs(50));
        for rank in [0, 1] {
            let error = job.ranks[rank].hear(&["error", "unharmed"]);
            assert_eq!((error.kind(), error.peers()), ("peer-died", vec![2]), "{}", error.text());
            println!("{steps}: rank {rank} noticed after {:?}: {}", error.at.saturating_sub(cut), error.text());
        }
    }
}
