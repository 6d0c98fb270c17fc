//! What was measured on a host, as a text: prices of links, and which row was the quickest from which bytes on.

use std::collections::BTreeMap;

use paceline_transport::LinkKind;
use serde::{Deserialize, Serialize};

use super::Prices;
use crate::algorithm::{ROWS, Row};
use crate::collective::Collective;
use crate::engine::Fingerprint;

/// What `paceline tune` measured on a host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The version of this form: [`Profile::FORMAT`].
    pub format: u32,
    /// The version of paceline that measured.
    pub paceline: String,
    /// Where.
    pub host: ProfileHost,
    /// Prices by kind of link: `inproc`, `shm`, `tcp`.
    #[serde(default)]
    pub prices: BTreeMap<String, Prices>,
    /// Which rows were the quickest.
    #[serde(default)]
    pub choices: Vec<MeasuredChoices>,
}

/// A host that was measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileHost {
    /// Its name.
    pub name: String,
    /// Its processor's model.
    pub processor: String,
    /// How many cores the ranks could use.
    pub cores: usize,
}

/// What a measured choice holds for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circumstances {
    /// The slowest kind of link between any two ranks.
    pub link: String,
    /// How many ranks.
    pub ranks: usize,
    /// The most ranks per core on any host, rounded up.
    pub crowding: u32,
    /// How many ranks each host has, in the order of their first ranks; empty where one host has all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<u32>,
}

/// The quickest rows of one collective.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredChoices {
    /// Among which ranks.
    pub among: Circumstances,
    /// The collective's name.
    pub collective: String,
    /// From which bytes on which row, ascending.
    pub from: Vec<Crossover>,
}

/// Where a row begins to be the quickest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crossover {
    /// Bytes of the whole message: the vector, or all ranks' blocks together.
    pub bytes: usize,
    /// The row's name.
    pub row: String,
}

/// Why a text is no profile that can be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProfileError {
    /// The text is not of this form.
    #[error("not a profile: {0}")]
    Form(String),
    /// Another version of paceline wrote it.
    #[error(
        "a profile of format {found}, while this paceline reads format {}; run `paceline tune` again",
        Profile::FORMAT
    )]
    Format {
        /// Its version of the form.
        found: u64,
    },
    /// It says something that can't be.
    #[error("{0}")]
    Content(String),
}

/// A measured choice for a call: the row, and the bytes from which on (and, if so, up to which) it was the quickest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) row: &'static Row,
    pub(super) from_bytes: usize,
    pub(super) below_bytes: Option<usize>,
}

impl Profile {
    /// The version of the form that this paceline writes and reads.
    pub const FORMAT: u32 = 2;

    /// An empty profile of a host.
    #[must_use]
    pub fn new(host: ProfileHost) -> Profile {
        let paceline = env!("CARGO_PKG_VERSION").to_owned();
        Profile { format: Profile::FORMAT, paceline, host, prices: BTreeMap::new(), choices: Vec::new() }
    }

    /// Reads a profile and checks all that it says.
    ///
    /// # Errors
    ///
    /// It is no profile, of another version, or names kinds of links, collectives or rows that don't exist.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let form = |error: serde_json::Error| ProfileError::Form(error.to_string());
        let value: serde_json::Value = serde_json::from_str(text).map_err(form)?;
        let found = value.get("format").and_then(serde_json::Value::as_u64);
        let found = found.ok_or_else(|| ProfileError::Form("it says no format".to_owned()))?;
        if found != u64::from(Profile::FORMAT) {
            return Err(ProfileError::Format { found });
        }
        let profile: Profile = serde_json::from_value(value).map_err(form)?;
        profile.check().map_err(ProfileError::Content)?;
        Ok(profile)
    }

    /// The text that [`Profile::parse`] reads.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("names and numbers only") + "\n"
    }

    fn check(&self) -> Result<(), String> {
        for (link, prices) in &self.prices {
            kind_named(link).ok_or_else(|| format!("prices of {link:?}, which is no kind of link"))?;
            if let Some(name) = prices.senseless() {
                return Err(format!("the {name} of {link} can't be a price"));
            }
        }
        for (place, choices) in self.choices.iter().enumerate() {
            choices.check()?;
            let same =
                |other: &&MeasuredChoices| other.among == choices.among && other.collective == choices.collective;
            if self.choices[..place].iter().any(|other| same(&other)) {
                return Err(format!("{} has two sets of choices", choices.title()));
            }
        }
        Ok(())
    }

    /// The same profile with what `newer` measured in place of what it had of the same; the rest stays.
    #[must_use]
    pub fn merged(mut self, newer: Profile) -> Profile {
        let replaced = |old: &MeasuredChoices| {
            newer.choices.iter().any(|new| new.among == old.among && new.collective == old.collective)
        };
        self.choices.retain(|old| !replaced(old));
        self.choices.extend(newer.choices);
        self.choices.sort_by(|a, b| (&a.among, a.order()).cmp(&(&b.among, b.order())));
        self.prices.extend(newer.prices);
        Profile { format: newer.format, paceline: newer.paceline, host: newer.host, ..self }
    }

    pub(super) fn prices_of(&self, kind: LinkKind) -> Option<Prices> {
        self.prices.get(kind.name()).map(Prices::rounded)
    }

    /// A number that is the same for the same choices among so many ranks, however crowded; 0 where there are none.
    pub(super) fn digest(&self, kind: LinkKind, ranks: usize) -> u64 {
        let mut lists: Vec<Vec<usize>> =
            self.choices.iter().filter(|c| c.among.link == kind.name() && c.among.ranks == ranks).map(words).collect();
        lists.sort_unstable();
        if lists.is_empty() { 0 } else { Fingerprint::digest(&lists.concat()).max(1) }
    }

    /// What was the quickest.
    pub(super) fn find(&self, among: &Circumstances, collective: Collective, bytes: usize) -> Option<Found> {
        let choices = self.choices.iter().find(|c| c.among == *among && c.collective == collective.name())?;
        let next = choices.from.partition_point(|crossover| crossover.bytes <= bytes);
        let crossover = &choices.from[next.checked_sub(1)?];
        let row = row_named(collective, &crossover.row)?.1;
        let below_bytes = choices.from.get(next).map(|crossover| crossover.bytes);
        Some(Found { row, from_bytes: crossover.bytes, below_bytes })
    }
}

impl MeasuredChoices {
    fn title(&self) -> String {
        let Circumstances { link, ranks, crowding, hosts } = &self.among;
        let hosts = if hosts.is_empty() { String::new() } else { format!(" on hosts of {hosts:?}") };
        format!("{} of {ranks} ranks{hosts} over {link}, {crowding} to a core,", self.collective)
    }

    fn order(&self) -> Option<Collective> {
        Collective::named(&self.collective)
    }

    fn check(&self) -> Result<(), String> {
        let (title, Circumstances { link, ranks, crowding, hosts }) = (self.title(), &self.among);
        kind_named(link).ok_or_else(|| format!("{title}: {link:?} is no kind of link"))?;
        if *ranks < 2 || *crowding == 0 || u32::try_from(*ranks).is_err() {
            return Err(format!("{title}: there must be at least two ranks, and at least one to a core"));
        }
        if !hosts.is_empty() && (hosts.contains(&0) || hosts.iter().map(|n| *n as usize).sum::<usize>() != *ranks) {
            return Err(format!("{title}: the hosts must have all ranks"));
        }
        let collective = Collective::named(&self.collective).filter(|collective| !collective.is_message());
        let collective = collective.ok_or_else(|| format!("{title}: there is no such collective"))?;
        if self.from.is_empty() || !self.from.is_sorted_by(|a, b| a.bytes < b.bytes) {
            return Err(format!("{title}: the bytes must ascend"));
        }
        for Crossover { row, .. } in &self.from {
            let known = row_named(collective, row).ok_or_else(|| format!("{title}: there is no row {row:?}"))?.1;
            if !(known.fits)(*ranks as u32) {
                return Err(format!("{title}: {row} doesn't fit so many ranks"));
            }
        }
        Ok(())
    }
}

fn words(choices: &MeasuredChoices) -> Vec<usize> {
    let collective = Collective::named(&choices.collective).expect("checked when read");
    let number = |row: &str| row_named(collective, row).expect("checked when read").0;
    let Circumstances { crowding, hosts, .. } = &choices.among;
    let heading = [*crowding as usize, collective as usize, choices.from.len(), hosts.len()];
    let hosts = hosts.iter().map(|ranks| *ranks as usize);
    heading.into_iter().chain(hosts).chain(choices.from.iter().flat_map(|c| [c.bytes, number(&c.row)])).collect()
}

fn row_named(collective: Collective, name: &str) -> Option<(usize, &'static Row)> {
    ROWS.iter().enumerate().find(|(_, row)| row.collective == collective && row.name == name)
}

/// The kinds of links that are measured.
pub(super) const KINDS: [LinkKind; 4] = [LinkKind::Inproc, LinkKind::Shm, LinkKind::Rdma, LinkKind::Tcp];

fn kind_named(name: &str) -> Option<LinkKind> {
    KINDS.into_iter().find(|kind| kind.name() == name)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn host() -> ProfileHost {
        ProfileHost { name: "here".to_owned(), processor: "a processor".to_owned(), cores: 2 }
    }

    pub(crate) fn among(link: &str, ranks: usize) -> Circumstances {
        Circumstances { link: link.to_owned(), ranks, crowding: 1, hosts: Vec::new() }
    }

    pub(crate) fn choices(among: Circumstances, collective: &str, from: &[(usize, &str)]) -> MeasuredChoices {
        let crossover = |(bytes, row): &(usize, &str)| Crossover { bytes: *bytes, row: (*row).to_owned() };
        let from = from.iter().map(crossover).collect();
        MeasuredChoices { among, collective: collective.to_owned(), from }
    }

    pub(crate) fn profile(choices: impl IntoIterator<Item = MeasuredChoices>) -> Profile {
        Profile { choices: choices.into_iter().collect(), ..Profile::new(host()) }
    }

    #[test]
    fn a_profile_comes_back_as_it_was_written() {
        let mut one = profile([choices(among("shm", 2), "all_reduce", &[(0, "direct"), (4096, "ring")])]);
        one.prices.insert("tcp".to_owned(), Prices::standard(LinkKind::Tcp));
        assert_eq!(Profile::parse(&one.text()), Ok(one));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let sound = choices(among("shm", 3), "all_reduce", &[(0, "direct"), (64, "ring")]);
        assert!(Profile::parse(&profile([sound.clone()]).text()).is_ok());
        let with = |change: fn(&mut MeasuredChoices)| {
            let mut changed = sound.clone();
            change(&mut changed);
            Profile::parse(&profile([changed]).text()).unwrap_err().to_string()
        };
        assert!(with(|c| c.from[1].row = "rink".into()).contains("no row \"rink\""));
        assert!(with(|c| c.from[1].bytes = 0).contains("ascend"));
        assert!(with(|c| c.from.clear()).contains("ascend"));
        assert!(with(|c| c.collective = "send".into()).contains("no such collective"));
        assert!(with(|c| c.among.link = "sim".into()).contains("no kind of link"));
        assert!(with(|c| c.among.ranks = 1).contains("at least two ranks"));
        let twice = Profile::parse(&profile([sound.clone(), sound.clone()]).text()).unwrap_err();
        assert!(twice.to_string().contains("two sets"), "{twice}");
        let text = profile([sound]).text();
        let later = text.replace("\"format\": 2", "\"format\": 3");
        assert_eq!(Profile::parse(&later), Err(ProfileError::Format { found: 3 }));
        for broken in ["", "{}", "[1]", &text[..text.len() / 2], &text.replace("\"cores\"", "\"kernels\"")] {
            assert!(matches!(Profile::parse(broken), Err(ProfileError::Form(_))), "{broken}");
        }
        let mut free = profile([]);
        free.prices.insert("shm".to_owned(), Prices { byte_s: 0.0, ..Prices::standard(LinkKind::Shm) });
        assert!(Profile::parse(&free.text()).unwrap_err().to_string().contains("byte_s of shm"));
    }

    #[test]
    fn look_ups_stay_inside_their_ranges() {
        let one = profile([choices(among("shm", 2), "all_reduce", &[(8, "direct"), (4096, "ring")])]);
        let find = |bytes| one.find(&among("shm", 2), Collective::AllReduce, bytes);
        assert!(find(7).is_none());
        let (first, last) = (find(4095).unwrap(), find(1 << 40).unwrap());
        assert_eq!((first.row.name, first.from_bytes, first.below_bytes), ("direct", 8, Some(4096)));
        assert_eq!((last.row.name, last.from_bytes, last.below_bytes), ("ring", 4096, None));
        assert!(one.find(&among("shm", 3), Collective::AllReduce, 64).is_none());
        assert!(one.find(&among("tcp", 2), Collective::AllReduce, 64).is_none());
        assert!(one.find(&Circumstances { crowding: 2, ..among("shm", 2) }, Collective::AllReduce, 64).is_none());
        assert!(one.find(&among("shm", 2), Collective::Reduce, 64).is_none());
    }

    #[test]
    fn merging_replaces_what_was_measured_again_and_nothing_else() {
        let old = profile([
            choices(among("tcp", 4), "all_reduce", &[(0, "ring")]),
            choices(among("shm", 2), "all_reduce", &[(0, "ring")]),
            choices(among("shm", 2), "broadcast", &[(0, "binomial")]),
        ]);
        let mut newer = profile([choices(among("shm", 2), "all_reduce", &[(0, "direct")])]);
        newer.prices.insert("shm".to_owned(), Prices::standard(LinkKind::Shm));
        let both = old.merged(newer);
        assert_eq!(both.choices.len(), 3);
        assert_eq!(both.prices.len(), 1);
        let row = |among, of| both.find(&among, of, 1).unwrap().row.name;
        assert_eq!(row(among("shm", 2), Collective::AllReduce), "direct");
        assert_eq!(row(among("shm", 2), Collective::Broadcast), "binomial");
        assert_eq!(row(among("tcp", 4), Collective::AllReduce), "ring");
    }

    #[test]
    fn digests_tell_choices_apart_and_not_their_order() {
        let (one, two) = (
            choices(among("shm", 2), "all_reduce", &[(0, "direct")]),
            choices(among("shm", 2), "reduce", &[(0, "ring")]),
        );
        let digest = |list: Vec<MeasuredChoices>| profile(list).digest(LinkKind::Shm, 2);
        assert_eq!(digest(vec![one.clone(), two.clone()]), digest(vec![two.clone(), one.clone()]));
        assert_ne!(digest(vec![one.clone(), two.clone()]), digest(vec![one.clone()]));
        assert_ne!(digest(vec![one.clone()]), digest(vec![choices(among("shm", 2), "all_reduce", &[(8, "direct")])]));
        assert_eq!(digest(vec![choices(among("tcp", 2), "all_reduce", &[(0, "direct")])]), 0);
        assert_ne!(digest(vec![two]), 0);
    }
}
