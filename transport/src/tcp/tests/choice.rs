//! Which of a host's addresses are used, in which order.

use super::super::interface::{Family, Filter, Interface, Reach, choose, interfaces};

/// `name index addresses...`, with `-` behind the name of an interface that is down.
fn host(lines: &[&str]) -> Vec<Interface> {
    let interface = |line: &&str| {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap();
        Interface {
            name: name.trim_end_matches('-').to_owned(),
            index: words.next().unwrap().parse().unwrap(),
            is_up: !name.ends_with('-'),
            is_loopback: name == "lo",
            addresses: words.map(|word| word.parse().unwrap()).collect(),
        }
    };
    lines.iter().map(interface).collect()
}

const HOST: [&str; 8] = [
    "lo 1 127.0.0.1 ::1",
    "docker0 2 172.17.0.1 fe80::2",
    "eth0 3 10.0.0.5 fd00::5 fe80::3",
    "eth1- 4 10.1.0.5",
    "ib0 5 fe80::5 192.168.7.5",
    "usb0 6 169.254.1.1",
    "eth2 7",
    "veth7 8 fe80::8",
];

#[test]
fn addresses_come_best_first() {
    use Family::{Any, V4, V6};
    use Reach::{OtherHosts, ThisHost};
    let rows = [
        (
            &HOST[..],
            "",
            Any,
            OtherHosts,
            "10.0.0.5 fd00::5 192.168.7.5 fe80::3 fe80::5 169.254.1.1 172.17.0.1 fe80::2 fe80::8",
        ),
        (&HOST, "", V4, OtherHosts, "10.0.0.5 192.168.7.5 169.254.1.1 172.17.0.1"),
        (&HOST, "", V4, ThisHost, "127.0.0.1 10.0.0.5 192.168.7.5 169.254.1.1 172.17.0.1"),
        (&HOST, "", V6, ThisHost, "::1 fd00::5 fe80::3 fe80::5 fe80::2 fe80::8"),
        (&HOST, "ib", Any, OtherHosts, "192.168.7.5 fe80::5"),
        (&HOST, "=eth0", V4, ThisHost, "10.0.0.5"),
        (&HOST, "lo,eth", V4, OtherHosts, "10.0.0.5 127.0.0.1"),
        (&HOST, "=lo", Any, OtherHosts, "127.0.0.1 ::1"),
        (&HOST, "^eth,ib,usb,veth", V4, OtherHosts, "172.17.0.1"),
        (&HOST, "^eth,ib,usb,veth,docker", V4, OtherHosts, "127.0.0.1"),
        (&HOST[..1], "", Any, OtherHosts, "127.0.0.1 ::1"),
        (&HOST[..2], "", Any, OtherHosts, "172.17.0.1 fe80::2"),
    ];
    for (lines, filter, family, reach, want) in rows {
        let chosen = choose(&host(lines), &filter.parse().unwrap(), family, reach).unwrap();
        let got: Vec<String> = chosen.iter().map(|address| address.ip.to_string()).collect();
        assert_eq!(got.join(" "), want, "filter {filter:?}, {family}, {reach:?}");
    }
}

#[test]
fn link_local_addresses_have_a_scope() {
    let chosen = choose(&host(&HOST), &"=eth0".parse().unwrap(), Family::V6, Reach::OtherHosts).unwrap();
    let with_port: Vec<String> = chosen.iter().map(|address| address.with_port(80).to_string()).collect();
    assert_eq!(with_port, ["[fd00::5]:80", "[fe80::3%3]:80"]);
    assert_eq!(chosen[1].to_string(), "fe80::3 (eth0)");
}

#[test]
fn no_choice_lists_what_there_is() {
    let known = "lo (127.0.0.1, ::1); docker0 (172.17.0.1, fe80::2); eth0 (10.0.0.5, fd00::5, fe80::3); \
                 eth1 (down, 10.1.0.5)";
    let rows = [
        ("wlan0", Family::Any, format!("interface filter \"wlan0\" matches nothing; this host has {known}")),
        ("^l,d,e", Family::Any, format!("interface filter \"^l,d,e\" matches nothing; this host has {known}")),
        ("=eth1", Family::Any, format!("matches filter \"=eth1\" has an IPv4 or IPv6 address; this host has {known}")),
        ("eth1,lo", Family::V6, String::new()),
        ("eth1", Family::V4, "no interface that is up and matches".to_owned()),
    ];
    for (filter, family, want) in rows {
        match choose(&host(&HOST[..4]), &filter.parse().unwrap(), family, Reach::OtherHosts) {
            Ok(chosen) => assert!(want.is_empty(), "{filter:?} chose {chosen:?}"),
            Err(error) => assert!(!want.is_empty() && error.to_string().contains(&want), "{filter:?}: {error}"),
        }
    }
    let error = choose(&[], &Filter::default(), Family::V6, Reach::OtherHosts).unwrap_err().to_string();
    assert_eq!(error, "no interface that is up has an IPv6 address; this host has no interfaces");
}

#[test]
fn this_host_has_loopback() {
    let all = interfaces().unwrap();
    assert!(all.iter().any(|interface| interface.is_loopback && interface.is_up && interface.index > 0), "{all:?}");
    assert!(all.is_sorted_by_key(|interface| interface.index));
    let chosen = choose(&all, &Filter::default(), Family::Any, Reach::ThisHost).unwrap();
    assert!(chosen[0].ip.is_loopback(), "{chosen:?}");
}
