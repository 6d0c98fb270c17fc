//! What ranks tell each other before the first call, and what follows from it: the same on every rank.

use std::sync::Arc;

use paceline_transport::LinkKind;

use super::prices::PRICES_BYTES;
use super::profile::KINDS;
use super::{Facts, Overrides, Prices, Profile, crowding};
use crate::error::{Error, ErrorKind, Result};
use crate::topology::{Layout, Spot};

/// What a rank brings to every communicator that it becomes a member of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brought {
    pub(crate) overrides: Overrides,
    /// What was measured on this host, and the name of the file that says so.
    pub(crate) profile: Option<(Profile, String)>,
}

impl Brought {
    fn prices(&self, kind: LinkKind) -> Prices {
        let measured = self.profile.as_ref().and_then(|(profile, _)| profile.prices_of(kind));
        measured.unwrap_or_else(|| Prices::standard(kind))
    }

    fn digest(&self, kind: LinkKind, ranks: usize) -> u64 {
        self.profile.as_ref().map_or(0, |(profile, _)| profile.digest(kind, ranks))
    }
}

/// For one kind of link: the prices, and a digest of the choices.
const KIND_BYTES: usize = PRICES_BYTES + 8;
/// Slowest link, crowding, digest of wishes, where it is.
const HEAD_BYTES: usize = 13 + SPOT_BYTES;
const SPOT_BYTES: usize = 8;
/// What one rank says of itself when the ranks agree.
const FACT_BYTES: usize = HEAD_BYTES + KINDS.len() * KIND_BYTES;

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

impl Facts {
    /// What this rank, whose slowest link is `slowest` and whose host has `neighbours` ranks on `cores`, tells the others.
    ///
    /// Which kind of link will count isn't known yet, so it speaks of each.
    pub(crate) fn encode(
        &self,
        slowest: LinkKind,
        (neighbours, cores): (usize, usize),
        spot: Spot,
    ) -> [u8; FACT_BYTES] {
        let mut bytes = [0; FACT_BYTES];
        bytes[0] = slowest as u8;
        bytes[1..5].copy_from_slice(&crowding(neighbours, cores).to_le_bytes());
        bytes[5..13].copy_from_slice(&self.brought.overrides.digest().to_le_bytes());
        bytes[13..17].copy_from_slice(&spot.host.to_le_bytes());
        bytes[17..19].copy_from_slice(&spot.domain.to_le_bytes());
        bytes[19..HEAD_BYTES].copy_from_slice(&spot.adapter.to_le_bytes());
        for (said, kind) in bytes[HEAD_BYTES..].chunks_exact_mut(KIND_BYTES).zip(KINDS) {
            said[..PRICES_BYTES].copy_from_slice(&self.brought.prices(kind).encode());
            said[PRICES_BYTES..].copy_from_slice(&self.brought.digest(kind, self.size).to_le_bytes());
        }
        bytes
    }

    /// The facts that follow from what all ranks said.
    pub(crate) fn decode(&self, me: usize, all: &[u8]) -> Result<Facts> {
        let mine = self.brought.overrides.digest();
        let ranks = || all.chunks_exact(FACT_BYTES);
        let differing: Vec<usize> =
            ranks().enumerate().filter(|(_, said)| number(&said[5..13]) != mine).map(|(rank, _)| rank).collect();
        if !differing.is_empty() {
            let cause = format!("PACELINE_ALGORITHM is not the same on this rank and on ranks {differing:?}");
            let error = Error::new(ErrorKind::Mismatch, cause).blaming(differing);
            return Err(error.hint("set it alike for all ranks, or pass the algorithm with the call"));
        }
        let slowest = ranks().map(|said| said[0]).max().unwrap_or(0);
        let kinds = [LinkKind::Inproc, LinkKind::Shm, LinkKind::Rdma, LinkKind::Tcp, LinkKind::Sim];
        let slowest = kinds.into_iter().find(|kind| *kind as u8 == slowest).unwrap_or(LinkKind::Tcp);
        let crowding = ranks().map(|said| u32::from_le_bytes([said[1], said[2], said[3], said[4]])).max().unwrap_or(1);
        let spot = |said: &[u8]| Spot {
            host: u32::from_le_bytes([said[13], said[14], said[15], said[16]]),
            domain: u16::from_le_bytes([said[17], said[18]]),
            adapter: u16::from_le_bytes([said[19], said[20]]),
        };
        let layout = Layout::of(&ranks().map(spot).collect::<Vec<_>>());
        let near = KINDS.iter().position(|kind| *kind == LinkKind::Shm).and_then(|place| {
            let said = ranks().map(|said| &said[HEAD_BYTES + place * KIND_BYTES..][..PRICES_BYTES]);
            said.map(Prices::decode).reduce(Prices::or_higher)
        });
        let near = near.unwrap_or_else(|| Prices::standard(LinkKind::Shm));
        let boards = matches!(slowest, LinkKind::Inproc | LinkKind::Shm) && self.size > 1;
        let mut facts = Facts {
            slowest,
            crowding,
            boards,
            prices: Prices::standard(slowest),
            near,
            layout,
            measured: false,
            ..self.clone()
        };
        let Some(place) = KINDS.iter().position(|kind| *kind == slowest) else { return Ok(facts) };
        let of_kind = || ranks().map(|said| &said[HEAD_BYTES + place * KIND_BYTES..][..KIND_BYTES]);
        let prices = of_kind().map(|said| Prices::decode(&said[..PRICES_BYTES])).reduce(Prices::or_higher);
        facts.prices = prices.unwrap_or(facts.prices);
        let digests: Vec<u64> = of_kind().map(|said| number(&said[PRICES_BYTES..])).collect();
        facts.measured = digests.iter().all(|digest| *digest == digests[0] && *digest != 0);
        if !facts.measured && digests.iter().any(|digest| *digest != 0) && me == 0 {
            let other = digests.iter().position(|digest| *digest != digests[0]).unwrap_or(0);
            let how = if digests[0] == 0 || digests[other] == 0 { "not both have" } else { "have different" };
            tracing::warn!(
                "measured choices for {} ranks over {slowest} are not used: ranks 0 and {other} {how} them; prices decide",
                self.size
            );
        }
        Ok(facts)
    }

    /// What this rank brings to other communicators.
    pub(crate) fn brought(&self) -> &Arc<Brought> {
        &self.brought
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::tests::{among, choices, profile};
    use super::*;
    use crate::collective::Collective;
    use crate::request::CallOptions;

    fn bring(profile: Option<Profile>) -> Facts {
        let profile = profile.map(|profile| (profile, "a file".to_owned()));
        Facts::unknown(2, Arc::new(Brought { overrides: Overrides::default(), profile }))
    }

    /// What each of two ranks makes of what both said.
    fn agreed(ranks: [&Facts; 2], kinds: [LinkKind; 2]) -> [Facts; 2] {
        let all: Vec<u8> =
            ranks.iter().zip(kinds).flat_map(|(facts, kind)| facts.encode(kind, (1, 1), Spot::default())).collect();
        [0, 1].map(|me| ranks[me].decode(me, &all).unwrap())
    }

    fn chosen(facts: &Facts) -> &'static str {
        facts.choose(Collective::AllReduce, 8, false, &CallOptions::default()).unwrap().row.name
    }

    fn odd(row: &str) -> Profile {
        profile([choices(among("shm", 2), "all_reduce", &[(0, row)])])
    }

    #[test]
    fn choices_that_all_ranks_have_are_used() {
        let facts = agreed([&bring(Some(odd("two_level"))), &bring(Some(odd("two_level")))], [LinkKind::Shm; 2]);
        assert_eq!(facts.each_ref().map(chosen), ["two_level"; 2]);
        let tcp =
            agreed([&bring(Some(odd("two_level"))), &bring(Some(odd("two_level")))], [LinkKind::Shm, LinkKind::Tcp]);
        assert_eq!(
            tcp.each_ref().map(chosen),
            [chosen(&agreed([&bring(None), &bring(None)], [LinkKind::Tcp; 2])[0]); 2]
        );
    }

    #[test]
    fn choices_that_differ_are_not() {
        let usual = chosen(&agreed([&bring(None), &bring(None)], [LinkKind::Shm; 2])[0]);
        assert_eq!(usual, "direct");
        for other in [None, Some(odd("ring"))] {
            let facts = agreed([&bring(Some(odd("two_level"))), &bring(other)], [LinkKind::Shm; 2]);
            assert_eq!(facts.each_ref().map(chosen), [usual; 2]);
        }
    }

    #[test]
    fn the_highest_prices_count_and_everyone_has_them_alike() {
        let mut dear = profile([]);
        let standard = Prices::standard(LinkKind::Shm);
        dear.prices.insert("shm".to_owned(), Prices { fold_byte_s: 1.2345e-3, latency_s: 1e-12, ..standard });
        let facts = agreed([&bring(None), &bring(Some(dear))], [LinkKind::Shm; 2]);
        assert_eq!(facts[0].prices, Prices { fold_byte_s: 1.23e-3, ..standard });
        assert_eq!(facts[1].prices, facts[0].prices);
    }
}
