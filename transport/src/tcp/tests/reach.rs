//! A peer is reached at whichever of its addresses answers, or each failure is told.

use std::cell::Cell;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use super::super::connect::connect;
use super::*;
use crate::clock::{Clock, Time};

/// Far more than what succeeds takes.
fn patience() -> Time {
    Clock::Real.now().after(Duration::from_secs(20))
}

/// An address where nothing listens and, as long as the socket lives, nothing will.
fn refusing(host: IpAddr) -> (std::os::fd::OwnedFd, SocketAddr) {
    let family = if host.is_ipv4() { rustix::net::AddressFamily::INET } else { rustix::net::AddressFamily::INET6 };
    let socket = rustix::net::socket(family, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::new(host, 0)).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
    (socket, address)
}

#[test]
fn the_candidate_that_answers_wins() {
    let (_held, refused) = refusing(V4);
    for host in hosts() {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        // Reserved for documentation: unreachable, or dropped on the way.
        let nowhere: SocketAddr = "[2001:db8::1]:9".parse().unwrap();
        for candidates in
            [vec![address], vec![refused, address], vec![nowhere, refused, address], vec![address, refused]]
        {
            let (mut stream, reached) = connect(&candidates, patience(), || false).unwrap();
            assert_eq!((reached, stream.peer_addr().unwrap()), (address, address));
            let mut accepted = listener.accept().unwrap().0;
            std::io::Write::write_all(&mut accepted, b"hello").unwrap();
            let mut bytes = [0; 5];
            std::io::Read::read_exact(&mut stream, &mut bytes).expect("a stream that blocks");
        }
    }
}

#[test]
fn a_late_listener_is_reached() {
    let (held, address) = refusing(V4);
    let (n_asked, held) = (Cell::new(0), Cell::new(Some(held)));
    let listener = Cell::new(None);
    let is_aborted = || {
        n_asked.set(n_asked.get() + 1);
        if n_asked.get() == 5 {
            let socket = held.take().unwrap();
            rustix::net::listen(&socket, 1).unwrap();
            listener.set(Some(socket));
        }
        false
    };
    assert_eq!(connect(&[address], patience(), is_aborted).unwrap().1, address);
    assert!(n_asked.get() >= 5);
}

#[test]
fn failures_are_listed() {
    let (_held, refused) = refusing(V4);
    let (_other, also_refused) = refusing(V4);
    let deadline = Clock::Real.now().after(Duration::from_millis(120));
    let text = connect(&[refused, also_refused], deadline, || false).unwrap_err().to_string();
    assert!(Clock::Real.now() >= deadline);
    assert!(text.starts_with("no connection within 0."), "{text}");
    for address in [refused, also_refused] {
        let at = text.find(&address.to_string()).unwrap_or_else(|| panic!("{address} isn't in {text}"));
        assert!(text[at..].contains("tries: Connection refused (os error 111); nothing listens there"), "{text}");
    }
    let text = connect(&[refused], Time::default(), || false).unwrap_err().to_string();
    assert!(text.contains(&format!("{refused} (not tried)")), "{text}");
    assert_eq!(connect(&[], patience(), || false).unwrap_err().to_string(), "there is no address to connect to");
}

#[test]
fn abort_ends_it() {
    let (_held, refused) = refusing(V4);
    let n_asked = Cell::new(0);
    let is_aborted = || n_asked.replace(n_asked.get() + 1) == 10;
    let text = connect(&[refused], Time::NEVER, is_aborted).unwrap_err().to_string();
    assert!(text.starts_with(&format!("connecting to {refused} (")) && text.ends_with(" was aborted"), "{text}");
}

#[test]
fn a_socket_does_not_reach_itself() {
    // Binding first makes the kernel use one port for both ends: what chance does to an ephemeral port.
    let (socket, address) = refusing(V4);
    rustix::net::connect(&socket, &address).unwrap();
    assert_eq!(rustix::net::getpeername(&socket).unwrap(), rustix::net::getsockname(&socket).ok());
    assert_eq!(super::super::connect::outcome(&socket), Some(Err(rustix::io::Errno::CONNREFUSED)));
}

#[test]
fn a_link_local_address_gets_its_scope() {
    let all = super::super::interface::interfaces().unwrap();
    let link_local = all.iter().filter(|interface| interface.is_up && !interface.is_loopback).find_map(|interface| {
        let is_link_local = |ip: &&IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        interface.addresses.iter().find(is_link_local).map(|&ip| (ip, interface.index))
    });
    let Some((ip, scope)) = link_local else {
        eprintln!("skipped: no interface has a link-local IPv6 address");
        return;
    };
    let place = super::super::interface::Address { interface: String::new(), ip, scope };
    let listening = super::super::listen::listen(super::super::listen::Place::At(&place), None).unwrap();
    let SocketAddr::V6(advertised) = listening.addresses[0] else { panic!("{listening:?}") };
    assert_eq!(advertised.scope_id(), 0);
    let (_stream, reached) = connect(&listening.addresses, patience(), || false).unwrap();
    assert_eq!(reached, place.with_port(advertised.port()));
}
