//! Which port of this end goes with which of the peer's, and by which addresses: decided alike at both ends, from what both
//! have said of their ports.
//!
//! Ports go together by their addresses, since those of one subnet reach each other and others may not. Where several fit
//! as well, a name that both ends have stands for the same place in hosts built alike; then comes the order in which each
//! end prefers its ports.

#![forbid(unsafe_code)]

use super::errors::RdmaError;
use super::facts::LinkLayer;
use super::gid::{self, Offered};
use crate::rendezvous::Family;

/// A port, as far as finding the way to it goes.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) layer: LinkLayer,
    pub(super) lid: u16,
    /// Best first.
    pub(super) gids: Vec<Offered>,
}

/// How to go to a port of the peer's.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Route {
    /// This end's place in its port's table, and the other's address, if packets carry addresses.
    pub(super) gid: Option<(u8, [u8; 16])>,
    /// Where packets go within this end's InfiniBand subnet.
    pub(super) lid: u16,
    /// From where to where, for messages.
    pub(super) path: String,
}

/// More bits in common than those of the shortest usual subnets say nothing about where two ports are.
fn near(a: Offered, b: Offered) -> u32 {
    let most = if a.gid.ipv4().is_some() { 96 + 24 } else { 64 };
    gid::in_common(a.gid, b.gid).min(most)
}

/// Pairs of ports that go together, by their places at the lower rank and at the upper; in the lower rank's order.
pub(super) fn pairs(lower: &[&Place], upper: &[&Place], family: Family) -> Vec<(usize, usize)> {
    let all = (0..lower.len()).flat_map(|a| (0..upper.len()).map(move |b| (a, b)));
    let mut fitting: Vec<_> = all
        .filter_map(|(a, b)| {
            let (one, other) = agree(lower[a], upper[b], family)?;
            let is_of_one_name = lower[a].name == upper[b].name;
            let worth = (gid::rank(one.class, family), near(one, other), is_of_one_name);
            let (apart, bits) = (a.abs_diff(b), gid::in_common(one.gid, other.gid));
            Some((std::cmp::Reverse((worth, std::cmp::Reverse(apart), bits)), a, b))
        })
        .collect();
    fitting.sort_unstable();
    let (mut taken, mut chosen) = (vec![false; upper.len()], vec![None; lower.len()]);
    for (_, a, b) in fitting {
        if chosen[a].is_none() && !taken[b] {
            (chosen[a], taken[b]) = (Some(b), true);
        }
    }
    chosen.into_iter().enumerate().filter_map(|(a, b)| Some((a, b?))).collect()
}

fn agree(lower: &Place, upper: &Place, family: Family) -> Option<(Offered, Offered)> {
    gid::agree(&lower.gids, &upper.gids, family).filter(|_| lower.layer == upper.layer)
}

/// The way from this end's port to the peer's.
pub(super) fn route(mine: &Place, theirs: &Place, family: Family, is_lower: bool) -> Result<Route, RdmaError> {
    let (lower, upper) = if is_lower { (mine, theirs) } else { (theirs, mine) };
    let (a, b) = agree(lower, upper, family).ok_or_else(|| unfit(mine, theirs))?;
    let (own, other) = if is_lower { (a, b) } else { (b, a) };
    let in_subnet = own.gid.prefix() == other.gid.prefix() && mine.lid != 0 && theirs.lid != 0;
    // Within an InfiniBand subnet the LID says the way.
    if mine.layer == LinkLayer::InfiniBand && in_subnet {
        let path = format!("LID {} to {}", mine.lid, theirs.lid);
        return Ok(Route { gid: None, lid: theirs.lid, path });
    }
    let path = format!("{} to {}", own.gid, other.gid);
    // A LID means nothing in another subnet. Where routers forward by LID, their own one for a subnet stands in its prefix.
    let lid = match other.gid.router_lid() {
        router @ 1.. if mine.layer == LinkLayer::InfiniBand && own.gid.prefix() != other.gid.prefix() => router,
        _ => theirs.lid,
    };
    Ok(Route { gid: Some((own.index, other.gid.0)), lid, path })
}

/// What to say of two ports that don't fit together.
pub(super) fn unfit(mine: &Place, theirs: &Place) -> RdmaError {
    let listed = |place: &Place| {
        let gids = place.gids.iter().map(|offered| format!("{:?} {}", offered.class, offered.gid));
        gids.collect::<Vec<_>>().join(", ")
    };
    RdmaError::NoCommonGid {
        mine: mine.name.clone(),
        theirs: theirs.name.clone(),
        here: listed(mine),
        there: listed(theirs),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::{ports, tests::Tree};
    use super::super::options::RdmaOptions;
    use super::super::{choice, facts};
    use super::*;

    /// The port of a host that has one, as the kernel's tree describes it.
    fn place(device: &str, layer: &str, lid: u16, rows: &[(&str, &str, &str)]) -> Place {
        let tree = Tree::new();
        tree.port(device, "0", layer, "4: ACTIVE", rows);
        let port: facts::PortFacts = ports(tree.0.path()).remove(0);
        let found = choice::usable_port(port, &RdmaOptions::default(), Family::Any).unwrap();
        Place { name: found.facts.name(), layer: found.facts.layer, lid, gids: found.gids }
    }

    fn v2(device: &str, address: &str) -> Place {
        place(device, "Ethernet", 0, &[(&format!("::ffff:{address}"), "RoCE v2", "eth0")])
    }

    /// Both ends' ways.
    fn routes(lower: &Place, upper: &Place) -> [Route; 2] {
        [route(lower, upper, Family::Any, true).unwrap(), route(upper, lower, Family::Any, false).unwrap()]
    }

    fn check_pairs(lower: &[Place], upper: &[Place], want: &[(usize, usize)]) {
        let (lower, upper): (Vec<_>, Vec<_>) = (lower.iter().collect(), upper.iter().collect());
        assert_eq!(pairs(&lower, &upper, Family::Any), want, "{lower:?} with {upper:?}");
    }

    #[test]
    fn ports_of_one_subnet_go_together() {
        let (a0, a1) = (v2("mlx5_0", "10.0.0.1"), v2("mlx5_1", "10.0.1.1"));
        let (b0, b1) = (v2("mlx5_0", "10.0.0.2"), v2("mlx5_1", "10.0.1.2"));
        check_pairs(&[a0.clone(), a1.clone()], &[b0.clone(), b1.clone()], &[(0, 0), (1, 1)]);
        check_pairs(&[a0.clone(), a1.clone()], &[b1.clone(), b0.clone()], &[(0, 1), (1, 0)]);
        // The peer's first port is down: this end's first has no partner.
        check_pairs(&[a0, a1], &[b1], &[(1, 0)]);
    }

    #[test]
    fn ports_of_a_flat_network_go_together_by_name_and_then_by_order() {
        let (a0, a1) = (v2("mlx5_0", "10.0.0.1"), v2("mlx5_1", "10.0.0.2"));
        let (b0, b1) = (v2("mlx5_0", "10.0.0.3"), v2("mlx5_1", "10.0.0.4"));
        // By bits alone 10.0.0.2 and 10.0.0.3 would be the nearest.
        check_pairs(&[a0.clone(), a1.clone()], &[b0.clone(), b1.clone()], &[(0, 0), (1, 1)]);
        check_pairs(&[a0.clone(), a1.clone()], &[b1], &[(1, 0)]);
        let (c0, c1) = (v2("rocep1s0", "10.0.0.5"), v2("rocep2s0", "10.0.0.6"));
        check_pairs(&[a0, a1], &[c0, c1], &[(0, 0), (1, 1)]);
    }

    #[test]
    fn ports_that_do_not_fit_have_no_partner() {
        let roce = v2("mlx5_0", "10.0.0.1");
        let infiniband = place("mlx5_1", "InfiniBand", 3, &[("fe80::1", "", "")]);
        check_pairs(&[roce.clone(), infiniband.clone()], std::slice::from_ref(&infiniband), &[(1, 0)]);
        check_pairs(std::slice::from_ref(&roce), std::slice::from_ref(&infiniband), &[]);
        let error = route(&roce, &infiniband, Family::Any, true).unwrap_err().to_string();
        assert!(error.contains("mlx5_0 port 1") && error.contains("10.0.0.1") && error.contains("fe80::1"), "{error}");
    }

    #[test]
    fn within_an_infiniband_subnet_the_lid_is_the_way() {
        let lower = place("mlx5_0", "InfiniBand", 12, &[("fe80::2:c903:1:1", "", "")]);
        let upper = place("mlx5_0", "InfiniBand", 7, &[("fe80::2:c903:1:2", "", "")]);
        let [there, back] = routes(&lower, &upper);
        assert_eq!((there.gid, there.lid, there.path.as_str()), (None, 7, "LID 12 to 7"));
        assert_eq!((back.gid, back.lid, back.path.as_str()), (None, 12, "LID 7 to 12"));
    }

    #[test]
    fn between_infiniband_subnets_packets_carry_addresses() {
        let lower = place("mlx5_0", "InfiniBand", 12, &[("fe80::2:c903:1:1", "", "")]);
        let other = "fec0:0:0:7:2:c903:1:2";
        let upper = place("mlx5_0", "InfiniBand", 7, &[(other, "", "")]);
        let [there, back] = routes(&lower, &upper);
        let gid = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
        assert_eq!((there.gid, there.lid), (Some((0, gid(other))), 7));
        assert_eq!((back.gid, back.lid), (Some((0, gid("fe80::2:c903:1:1"))), 12));
        // A router's LID for the subnet stands in its prefix.
        let behind = place("mlx5_0", "InfiniBand", 7, &[("fec0:0:c001:7:2:c903:1:2", "", "")]);
        assert_eq!(routes(&lower, &behind)[0].lid, 0xc001);
        // Ports without LIDs have addresses only.
        let without = |last: &str| place("mlx5_0", "InfiniBand", 0, &[(&format!("fe80::2:c903:1:{last}"), "", "")]);
        assert_eq!(routes(&without("1"), &without("2"))[0].gid, Some((0, gid("fe80::2:c903:1:2"))));
    }

    #[test]
    fn version_one_is_taken_where_there_is_no_other() {
        let rows = |last: &str| {
            let (local, v4) = (format!("fe80::5054:ff:fe{last}0:{last}"), format!("::ffff:10.0.0.{last}"));
            [(local, "IB/RoCE v1"), (v4, "IB/RoCE v1")]
        };
        let of = |rows: &[(String, &str)]| {
            let rows: Vec<_> = rows.iter().map(|(gid, kind)| (gid.as_str(), *kind, "eth0")).collect();
            place("mlx4_0", "Ethernet", 0, &rows)
        };
        let (lower, old) = (of(&rows("1")), of(&rows("2")));
        let gid = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
        let [there, back] = routes(&lower, &old);
        assert_eq!((there.gid, back.gid), (Some((1, gid("::ffff:10.0.0.2"))), Some((1, gid("::ffff:10.0.0.1")))));
        // One end has both versions, the other the first only.
        let mut both = rows("3").to_vec();
        both.push(("::ffff:10.0.0.3".into(), "RoCE v2"));
        let [there, back] = routes(&of(&both), &old);
        assert_eq!((there.gid, back.gid), (Some((1, gid("::ffff:10.0.0.2"))), Some((1, gid("::ffff:10.0.0.3")))));
    }
}
