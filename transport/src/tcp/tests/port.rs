//! Which ports are waited on, and what is said when there is none.

use std::net::{SocketAddr, TcpStream};

use super::super::interface::{Address, Family};
use super::super::listen::{Listening, Place, PortRange, listen};
use super::*;

fn address(ip: IpAddr) -> Address {
    Address { interface: "lo".to_owned(), ip, scope: 0 }
}

fn port(listening: &Listening) -> u16 {
    listening.listener.local_addr().unwrap().port()
}

#[test]
fn ranges_are_read() {
    let rows = [
        ("29500", Some((29500, 29500))),
        ("29500-29531", Some((29500, 29531))),
        (" 1 - 65535 ", Some((1, 65535))),
        ("0", None),
        ("0-5", None),
        ("9-8", None),
        ("70000", None),
        ("1-2-3", None),
        ("", None),
        ("a-b", None),
    ];
    for (text, want) in rows {
        let got = text.parse::<PortRange>();
        assert_eq!(got.as_ref().ok().map(|range| (range.first(), range.last())), want, "{text:?}");
        if let Err(error) = got {
            assert!(error.to_string().contains(&format!("port range {text:?}")), "{error}");
        }
    }
}

#[test]
fn everywhere_is_reached_by_both_families() {
    let advertised: Vec<Address> = hosts().into_iter().map(address).collect();
    for family in [Family::Any, Family::V4, Family::V6] {
        if family == Family::V6 && advertised.len() == 1 {
            continue;
        }
        let listening = listen(Place::Everywhere { family, advertised: &advertised }, None).unwrap();
        let want: Vec<SocketAddr> = hosts()
            .into_iter()
            .filter(|&host| family.admits(host))
            .map(|host| SocketAddr::new(host, port(&listening)))
            .collect();
        assert_eq!(listening.addresses, want);
        for host in hosts() {
            let reached = TcpStream::connect((host, port(&listening))).is_ok();
            assert_eq!(reached, family.admits(host), "{family} at {host}");
        }
    }
}

#[test]
fn one_address_is_not_reached_by_others() {
    for host in hosts() {
        let listening = listen(Place::At(&address(host)), None).unwrap();
        assert_eq!(listening.addresses, [listening.listener.local_addr().unwrap()]);
        for other in hosts() {
            assert_eq!(TcpStream::connect((other, port(&listening))).is_ok(), other == host, "{other}");
        }
    }
}

#[test]
fn a_taken_port_is_skipped_or_named() {
    let everywhere = Place::Everywhere { family: Family::Any, advertised: &[] };
    let first = listen(everywhere, None).unwrap();
    let taken = port(&first);
    let text = listen(everywhere, PortRange::new(taken, taken)).unwrap_err().to_string();
    assert!(text.starts_with(&format!("port {taken} is in use on ::")), "{text}");
    let text = listen(Place::At(&address(V4)), PortRange::new(taken, taken)).unwrap_err().to_string();
    assert!(text.starts_with(&format!("port {taken} is in use on 127.0.0.1")), "{text}");

    let last = taken.saturating_add(20);
    let second = listen(everywhere, PortRange::new(taken, last)).unwrap();
    assert!(taken < port(&second) && port(&second) <= last);

    // The port between, if there is one, may belong to others: hold what can be had, then all are taken.
    let range = PortRange::new(taken, port(&second)).unwrap();
    let _between: Vec<_> = std::iter::from_fn(|| listen(everywhere, Some(range)).ok()).collect();
    let text = listen(everywhere, Some(range)).unwrap_err().to_string();
    assert!(text.contains(&format!("ports from {taken}-{} are in use on ::", port(&second))), "{text}");
}

#[test]
fn an_address_of_another_host_is_refused() {
    let text = listen(Place::At(&address(IpAddr::from([203, 0, 113, 77]))), None).unwrap_err().to_string();
    assert!(text.contains("203.0.113.77:0") && text.contains("no interface of this host has the address"), "{text}");
}

#[test]
fn a_port_is_free_again_at_once() {
    let listening = listen(Place::At(&address(V4)), None).unwrap();
    let _client = TcpStream::connect(listening.addresses[0]).unwrap();
    let served = listening.listener.accept().unwrap().0;
    let used = port(&listening);
    drop((listening, served));
    listen(Place::At(&address(V4)), PortRange::new(used, used)).unwrap();
}
