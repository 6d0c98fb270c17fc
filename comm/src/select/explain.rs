//! What would be chosen for a call, and why.

use super::Facts;
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
    /// Why it: its price, or somebody's wish.
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

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Explanation { collective, bytes, size, chosen, on_boards, reason, offers } = self;
        let how = if *on_boards { " over the boards" } else { "" };
        writeln!(f, "{collective} of {bytes} B over {size} ranks: {chosen}{how}, {reason}")?;
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
        let (chosen, on_boards) = (row.name, self.on_boards(row, bytes));
        let offer = |row: &'static crate::algorithm::Row| Offer {
            name: row.name,
            seconds: self.price(row, bytes, false),
            summary: row.summary,
        };
        let mut offers: Vec<Offer> = self.fitting(collective, false).map(|choice| offer(choice.row)).collect();
        offers.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let reason = match (&options.algorithm, self.overrides.of(collective), offers.get(1)) {
            (Some(_), ..) => "because the call asks for it".to_owned(),
            (None, Some(_), _) => "because PACELINE_ALGORITHM asks for it".to_owned(),
            (None, None, Some(second)) => {
                let ahead = (second.seconds / offers[0].seconds - 1.0) * 100.0;
                format!("the cheapest on {} links by {ahead:.0} % before {}", self.slowest, second.name)
            }
            (None, None, None) => "the only row".to_owned(),
        };
        Ok(Explanation { collective, bytes, size: self.size, chosen, on_boards, reason, offers })
    }
}
