//! What would be chosen for a call, and why.

use super::{Facts, Prices};
use crate::algorithm::Row;
use crate::collective::Collective;
use crate::error::Result;
use crate::request::CallOptions;

/// The rows that could run a call, cheapest first, and which one would.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// The collective.
    pub collective: Collective,
    /// Bytes of the whole message: the vector, or all ranks' blocks together.
    pub bytes: usize,
    /// How many ranks there are.
    pub size: usize,
    /// The row that would run.
    pub chosen: &'static str,
    /// Whether it would run without frames, over memory where each rank shows the others what it brings.
    pub on_boards: bool,
    /// How long it should take by its price, in seconds.
    pub seconds: f64,
    /// The cheapest of the other rows.
    pub runner_up: Option<Offer>,
    /// The measurement that decided, where one did.
    pub measured: Option<Measured>,
    /// Why it: its price, a measurement, or somebody's wish.
    pub reason: String,
    /// All rows that fit, cheapest first.
    pub offers: Vec<Offer>,
}

/// A row and its price.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Offer {
    /// The row's name.
    pub name: &'static str,
    /// How long it should take, in seconds.
    pub seconds: f64,
    /// What it is.
    pub summary: &'static str,
}

/// A measurement that decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measured {
    /// The file of the profile that this rank has it from.
    pub profile: String,
    /// The fewest bytes for which the row was the quickest.
    pub from_bytes: usize,
    /// From how many bytes on another one was.
    pub below_bytes: Option<usize>,
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Explanation { collective, bytes, size, chosen, on_boards, reason, offers, .. } = self;
        let how = if *on_boards { " over the boards" } else { "" };
        writeln!(f, "{collective} of {bytes} B over {size} ranks: {chosen}{how}, {reason}")?;
        write!(f, "predicted {:.2} us", self.seconds * 1e6)?;
        match self.runner_up {
            Some(Offer { name, seconds, .. }) => writeln!(f, "; next {name}, {:.2} us", seconds * 1e6)?,
            None => writeln!(f)?,
        }
        for Offer { name, seconds, summary } in offers {
            let mark = if name == chosen { '>' } else { ' ' };
            writeln!(f, "{mark} {name:<20} {:>12.2} us  {summary}", seconds * 1e6)?;
        }
        Ok(())
    }
}

impl Facts {
    /// What would be chosen for a call of blocks of one length, and why.
    pub(crate) fn explain(&self, collective: Collective, bytes: usize, options: &CallOptions) -> Result<Explanation> {
        let row = self.choose(collective, bytes, false, options)?.row;
        let (chosen, on_boards) = (row.name, self.on_boards(row, bytes, false));
        let offer =
            |row: &'static Row| Offer { name: row.name, seconds: self.price(row, bytes, false), summary: row.summary };
        let mut offers: Vec<Offer> = self.fitting(collective, false).map(|choice| offer(choice.row)).collect();
        offers.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let wished = options.algorithm.is_some() || self.brought().overrides.of(collective).is_some();
        let measured = if wished { None } else { self.measurement(collective, bytes) };
        let reason = match (&options.algorithm, &measured, offers.get(1)) {
            (Some(_), ..) => "because the call asks for it".to_owned(),
            (None, ..) if wished => "because PACELINE_ALGORITHM asks for it".to_owned(),
            (None, Some(measured), _) => measured.reason(),
            (None, None, Some(second)) => {
                let ahead = (second.seconds / offers[0].seconds - 1.0) * 100.0;
                let whose = if self.prices == Prices::standard(self.slowest) { "" } else { "measured prices of " };
                format!("the cheapest by {whose}{} links by {ahead:.0} % before {}", self.slowest, second.name)
            }
            (None, None, None) => "the only row".to_owned(),
        };
        let runner_up = offers.iter().find(|offer| offer.name != chosen).copied();
        let seconds = self.price(row, bytes, false);
        let size = self.size;
        Ok(Explanation { collective, bytes, size, chosen, on_boards, seconds, runner_up, measured, reason, offers })
    }

    /// What each row that fits would take at these prices of the slowest kind of link, in seconds, in the order of the table.
    pub(crate) fn priced_at(&self, collective: Collective, bytes: usize, prices: &Prices) -> Vec<(&'static str, f64)> {
        let facts = Facts { prices: *prices, ..self.clone() };
        let fitting = facts.fitting(collective, false);
        fitting.map(|choice| (choice.row.name, facts.price(choice.row, bytes, false))).collect()
    }

    fn measurement(&self, collective: Collective, bytes: usize) -> Option<Measured> {
        let found = self.measured_for(collective, bytes)?;
        let profile = self.brought().profile.as_ref()?.1.clone();
        Some(Measured { profile, from_bytes: found.from_bytes, below_bytes: found.below_bytes })
    }
}

impl Measured {
    fn reason(&self) -> String {
        let Measured { profile, from_bytes, below_bytes } = self;
        match below_bytes {
            Some(below) => format!("measured to be the quickest from {from_bytes} to {} B by {profile}", below - 1),
            None => format!("measured to be the quickest from {from_bytes} B on by {profile}"),
        }
    }
}
