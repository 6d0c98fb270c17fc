//! What the user wants instead of the cheapest row, as a text.

use std::str::FromStr;

use crate::algorithm::{ROWS, Row};
use crate::collective::Collective;
use crate::engine::Fingerprint;
use crate::error::{Error, Result};

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

impl Overrides {
    /// The row that is wanted for a collective.
    pub(crate) fn of(&self, collective: Collective) -> Option<&'static str> {
        self.rows.iter().find(|(of, _)| *of == collective).map(|(_, name)| *name)
    }

    /// A number that is the same for the same wishes.
    pub(crate) fn digest(&self) -> u64 {
        let row = |(collective, name): &(Collective, &'static str)| {
            ROWS.iter()
                .position(|row| row.collective == *collective && row.name == *name)
                .expect("taken from the table")
        };
        Fingerprint::digest(&self.rows.iter().map(row).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_or_refused() {
        let one: Overrides = "all_reduce=ring, broadcast = binomial".parse().unwrap();
        assert_eq!(one.of(Collective::AllReduce), Some("ring"));
        assert_eq!(one.of(Collective::Broadcast), Some("binomial"));
        assert_eq!(one.of(Collective::Reduce), None);
        let all: Overrides = "ring".parse().unwrap();
        assert_eq!(all.of(Collective::AllGather), Some("ring"));
        assert_eq!("".parse::<Overrides>().unwrap(), Overrides::default());
        for (text, word) in
            [("all_reduce=rink", "algorithm"), ("al_reduce=ring", "collective"), ("barrier=ring", "algorithm")]
        {
            let error = text.parse::<Overrides>().unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
