//! Which row runs a call: the same on every rank, because it depends only on what all ranks know.

use std::str::FromStr;

use paceline_transport::LinkKind;

use crate::algorithm::{ROWS, Row};
use crate::collective::Collective;
use crate::engine::{Fingerprint, Slicing};
use crate::error::{Error, ErrorKind, Result};
use crate::request::CallOptions;

/// What all ranks of a communicator know alike, and the choice depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    size: usize,
    /// The slowest kind of link between any two ranks.
    slowest: LinkKind,
    overrides: Overrides,
}

/// Rows that the user wants instead of the cheapest, by collective.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Overrides {
    rows: Vec<(Collective, &'static str)>,
}

impl FromStr for Overrides {
    type Err = Error;

    /// From `ring` (wherever there is such a row) or `all_reduce=ring,broadcast=binomial`.
    fn from_str(text: &str) -> Result<Overrides> {
        let mut rows = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (collective, name) = match part.split_once('=') {
                Some((collective, name)) => (Some(collective.trim()), name.trim()),
                None => (None, part),
            };
            let known = collective.is_none_or(|name| Collective::named(name).is_some());
            let fits = |row: &&Row| row.name == name && collective.is_none_or(|c| row.collective.name() == c);
            let before = rows.len();
            rows.extend(ROWS.iter().filter(fits).map(|row| (row.collective, row.name)));
            if rows.len() == before {
                let what = if known { "algorithm" } else { "collective" };
                let hint = "write for example all_reduce=ring,broadcast=binomial; `paceline rows` lists all";
                return Err(Error::invalid(format!("PACELINE_ALGORITHM: there is no {what} as in {part:?}")).hint(hint));
            }
        }
        Ok(Overrides { rows })
    }
}

/// A row that has been chosen.
#[derive(Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) row: &'static Row,
    pub(crate) number: usize,
}

/// What one rank says of itself when the ranks agree.
const FACT_BYTES: usize = 9;

impl Facts {
    pub(crate) fn in_process(size: usize) -> Facts {
        Facts { size, slowest: LinkKind::Inproc, overrides: Overrides::default() }
    }

    /// What a rank may assume before it has heard of the others.
    pub(crate) fn unknown(size: usize, overrides: Overrides) -> Facts {
        Facts { size, slowest: LinkKind::Tcp, overrides }
    }

    pub(crate) fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// What this rank, whose slowest link is `slowest`, tells the others.
    pub(crate) fn encode(&self, slowest: LinkKind) -> [u8; FACT_BYTES] {
        let mut bytes = [0; FACT_BYTES];
        bytes[0] = slowest as u8;
        bytes[1..].copy_from_slice(&self.overrides.digest().to_le_bytes());
        bytes
    }

    /// The facts that follow from what all ranks said.
    pub(crate) fn decode(&self, all: &[u8]) -> Result<Facts> {
        let mine = self.overrides.digest().to_le_bytes();
        let others = all.chunks_exact(FACT_BYTES).enumerate().filter(|(_, said)| said[1..] != mine);
        let differing: Vec<usize> = others.map(|(rank, _)| rank).collect();
        if !differing.is_empty() {
            let cause = format!("PACELINE_ALGORITHM is not the same on this rank and on ranks {differing:?}");
            let error = Error::new(ErrorKind::Mismatch, cause).blaming(differing);
            return Err(error.hint("set it alike for all ranks, or pass the algorithm with the call"));
        }
        let slowest = all.chunks_exact(FACT_BYTES).map(|said| said[0]).max().unwrap_or(0);
        let kinds = [LinkKind::Inproc, LinkKind::Shm, LinkKind::Tcp, LinkKind::Sim];
        let slowest = kinds.into_iter().find(|kind| *kind as u8 == slowest).unwrap_or(LinkKind::Tcp);
        Ok(Facts { slowest, ..self.clone() })
    }

    pub(crate) fn slicing(&self) -> Slicing {
        match self.slowest {
            LinkKind::Tcp | LinkKind::Sim => Slicing { chunk_bytes: 1 << 20, lanes: 2 },
            LinkKind::Inproc | LinkKind::Shm => Slicing { chunk_bytes: 256 << 10, lanes: 2 },
        }
    }

    /// The row for a call, by the call's own wish, the environment's, or the price.
    pub(crate) fn choose(
        &self,
        collective: Collective,
        bytes: usize,
        uneven: bool,
        options: &CallOptions,
    ) -> Result<Choice> {
        let wish = options.algorithm.as_deref();
        let standing = self.overrides.rows.iter().find(|(of, _)| *of == collective).map(|(_, name)| *name);
        if let Some(name) = wish.or(standing) {
            return self.named(collective, name, uneven).ok_or_else(|| {
                let names: Vec<_> = self.fitting(collective, uneven).map(|choice| choice.row.name).collect();
                Error::invalid(format!("{collective} over {} ranks has no algorithm {name}", self.size))
                    .hint(format!("there are: {}", names.join(", ")))
            });
        }
        let name = default_name(collective, bytes, self.size, uneven);
        Ok(self.named(collective, name, uneven).expect("the defaults are in the table"))
    }

    fn fitting(&self, collective: Collective, uneven: bool) -> impl Iterator<Item = Choice> {
        let size = self.size as u32;
        let fits = move |row: &Row| row.collective == collective && (row.fits)(size) && (!uneven || row.uneven);
        let rows = ROWS.iter().enumerate().filter(move |(_, row)| fits(row));
        rows.map(|(number, row)| Choice { row, number })
    }

    fn named(&self, collective: Collective, name: &str, uneven: bool) -> Option<Choice> {
        self.fitting(collective, uneven).find(|choice| choice.row.name == name)
    }
}

impl Overrides {
    fn digest(&self) -> u64 {
        let row = |(collective, name): &(Collective, &'static str)| {
            ROWS.iter()
                .position(|row| row.collective == *collective && row.name == *name)
                .expect("taken from the table")
        };
        Fingerprint::digest(&self.rows.iter().map(row).collect::<Vec<_>>())
    }
}

fn default_name(collective: Collective, bytes: usize, size: usize, uneven: bool) -> &'static str {
    let small = bytes <= 4096;
    match collective {
        Collective::AllReduce if small && size <= 8 => "direct",
        Collective::AllReduce if small => "recursive_doubling",
        Collective::AllReduce | Collective::AllGather | Collective::ReduceScatter => "ring",
        Collective::Reduce | Collective::Broadcast if small => "binomial",
        Collective::Reduce | Collective::Broadcast => "ring",
        Collective::AllToAll => "pairwise",
        Collective::Gather | Collective::Scatter if small && !uneven => "binomial",
        Collective::Gather | Collective::Scatter => "direct",
        _ => "dissemination",
    }
}
