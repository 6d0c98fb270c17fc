//! Names of hosts to addresses, by a deadline.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Instant;

use super::Family;

/// The addresses of `host` that `family` allows, at least one, or why there are none.
///
/// The system's resolver knows no deadline, so it runs in a thread of its own, which is left behind if it is late.
pub(super) fn addresses(host: &str, family: Family, deadline: Instant) -> Result<Vec<IpAddr>, String> {
    if let Ok(address) = host.parse() {
        return allowed(vec![address], family);
    }
    let (sender, receiver) = mpsc::channel();
    let name = host.to_owned();
    let resolver = move || {
        let found = (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect());
        let _ = sender.send(found.map_err(|error| error.to_string()));
    };
    std::thread::Builder::new().name("resolver".to_owned()).spawn(resolver).map_err(|error| error.to_string())?;
    match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(found) => allowed(found?, family),
        Err(_) => Err("the resolver didn't answer in time".to_owned()),
    }
}

fn allowed(mut addresses: Vec<IpAddr>, family: Family) -> Result<Vec<IpAddr>, String> {
    addresses.retain(|address| family.admits(*address));
    match (addresses.is_empty(), family) {
        (false, _) => Ok(addresses),
        (true, Family::Any) => Err("it has no address".to_owned()),
        (true, Family::V4) => Err("it has no IPv4 address, and PACELINE_FAMILY asks for one".to_owned()),
        (true, Family::V6) => Err("it has no IPv6 address, and PACELINE_FAMILY asks for one".to_owned()),
    }
}
