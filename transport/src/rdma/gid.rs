//! Which addresses of two ports to use: the best kind that both have, and of these the ones nearest to each other.
//!
//! RoCE v2 is preferred (it is routed, and what switches are set up for), with an IPv4 address (what they are set up with),
//! unless the user wants IPv6. A v4 address never reaches a v6 one, and versions don't mix, so both ends choose together.

#![forbid(unsafe_code)]

use super::facts::{Gid, GidKind, GidRow, LinkLayer, PortFacts};
use crate::rendezvous::Family;

/// Addresses of one class reach each other, as far as the network lets them. Better ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum Class {
    RoceV1,
    RoceV2LinkLocal,
    RoceV2Global,
    RoceV2Ipv4,
    InfiniBand,
}

/// An address that a port offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Offered {
    pub(super) index: u8,
    pub(super) gid: Gid,
    pub(super) class: Class,
}

/// The most addresses that a port offers.
const OFFERED_MAX: usize = 8;

fn class(row: &GidRow) -> Class {
    match row.kind {
        GidKind::InfiniBand => Class::InfiniBand,
        GidKind::RoceV1 => Class::RoceV1,
        GidKind::RoceV2 if row.gid.ipv4().is_some() => Class::RoceV2Ipv4,
        GidKind::RoceV2 if row.gid.is_link_local() => Class::RoceV2LinkLocal,
        GidKind::RoceV2 => Class::RoceV2Global,
    }
}

/// How much an address of that class is wanted.
pub(super) fn rank(class: Class, family: Family) -> u8 {
    match (class, family) {
        (Class::RoceV2Global, Family::V6) => 10,
        (Class::RoceV2LinkLocal, Family::V6) => 9,
        _ => class as u8,
    }
}

/// The addresses that a port has to offer, best first; an error says why there is none.
pub(super) fn offered(port: &PortFacts, family: Family, index: Option<u8>) -> Result<Vec<Offered>, String> {
    let offer = |row: &GidRow| Offered { index: row.index, gid: row.gid, class: class(row) };
    if let Some(index) = index {
        let row = port.gids.iter().find(|row| row.index == index);
        return row.map(|row| vec![offer(row)]).ok_or_else(|| {
            let used: Vec<String> = port.gids.iter().map(|row| row.index.to_string()).collect();
            format!("row {index} of its GID table is empty; those in use: {}", used.join(", "))
        });
    }
    let mut rows: Vec<Offered> = port.gids.iter().map(offer).collect();
    // InfiniBand needs none beside the first, which names the port.
    if port.layer == LinkLayer::InfiniBand {
        rows.truncate(1);
    }
    rows.sort_by_key(|row| std::cmp::Reverse(rank(row.class, family)));
    rows.truncate(OFFERED_MAX);
    match rows.is_empty() {
        true => Err("its GID table is empty".to_owned()),
        false => Ok(rows),
    }
}

/// How many bits at the front two addresses have in common.
pub(super) fn in_common(a: Gid, b: Gid) -> u32 {
    (u128::from_be_bytes(a.0) ^ u128::from_be_bytes(b.0)).leading_zeros()
}

/// Which of the lower rank's addresses goes with which of the upper's; the same at both. `None` if none fit.
pub(super) fn agree(lower: &[Offered], upper: &[Offered], family: Family) -> Option<(Offered, Offered)> {
    let pairs = lower.iter().flat_map(|a| upper.iter().map(move |b| (*a, *b)));
    let fitting = pairs.filter(|(a, b)| a.class == b.class);
    // Of equals the first counts, so that both come to the same.
    fitting.fold(None, |best: Option<(Offered, Offered)>, (a, b)| {
        let worth = |(a, b): (Offered, Offered)| (rank(a.class, family), in_common(a.gid, b.gid));
        match best {
            Some(best) if worth((a, b)) <= worth(best) => Some(best),
            _ => Some((a, b)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(index: u8, gid: &str, kind: GidKind) -> GidRow {
        let gid = Gid(gid.parse::<std::net::Ipv6Addr>().unwrap().octets());
        GidRow { index, gid, kind, interface: Some("eth0".into()) }
    }

    fn port(layer: LinkLayer, gids: Vec<GidRow>) -> PortFacts {
        let (state, physical_state) = ("ACTIVE".into(), "LinkUp".into());
        let (device, node) = ("d".into(), None);
        PortFacts { device, port: 1, layer, state, physical_state, rate_gbps: 1.0, node, is_software: false, gids }
    }

    fn usual() -> PortFacts {
        port(
            LinkLayer::Ethernet,
            vec![
                row(0, "fe80::1", GidKind::RoceV1),
                row(1, "fe80::1", GidKind::RoceV2),
                row(2, "::ffff:10.0.0.1", GidKind::RoceV1),
                row(3, "::ffff:10.0.0.1", GidKind::RoceV2),
                row(4, "2001:db8::1", GidKind::RoceV2),
            ],
        )
    }

    fn order(port: &PortFacts, family: Family) -> Vec<u8> {
        offered(port, family, None).unwrap().iter().map(|row| row.index).collect()
    }

    #[test]
    fn version_two_and_the_right_family_come_first() {
        assert_eq!(order(&usual(), Family::Any), [3, 4, 1, 0, 2]);
        assert_eq!(order(&usual(), Family::V4), [3, 4, 1, 0, 2]);
        assert_eq!(order(&usual(), Family::V6), [4, 1, 3, 0, 2]);
        assert_eq!(offered(&usual(), Family::Any, Some(2)).unwrap()[0].class, Class::RoceV1);
        let error = offered(&usual(), Family::Any, Some(9)).unwrap_err();
        assert!(error.contains("row 9") && error.contains("0, 1, 2, 3, 4"), "{error}");
        assert!(offered(&port(LinkLayer::Ethernet, vec![]), Family::Any, None).is_err());
    }

    #[test]
    fn both_ends_choose_the_same_and_nearest_addresses() {
        let offer = |rows| offered(&port(LinkLayer::Ethernet, rows), Family::Any, None).unwrap();
        let lower =
            offer(vec![row(1, "::ffff:192.168.1.1", GidKind::RoceV2), row(3, "::ffff:10.0.0.1", GidKind::RoceV2)]);
        let upper = offer(vec![row(0, "fe80::2", GidKind::RoceV2), row(7, "::ffff:10.0.0.2", GidKind::RoceV2)]);
        let (a, b) = agree(&lower, &upper, Family::Any).unwrap();
        assert_eq!((a.index, b.index), (3, 7));
        // Only what both have.
        let old = offer(vec![row(0, "fe80::2", GidKind::RoceV1)]);
        assert_eq!(agree(&lower, &old, Family::Any), None);
        let (a, b) = agree(&offered(&usual(), Family::Any, None).unwrap(), &old, Family::Any).unwrap();
        assert_eq!((a.index, b.index), (0, 0));
    }
}
