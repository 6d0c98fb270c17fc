//! What calls were predicted to take, against what they take.

use std::fmt::Write;

use paceline_comm::{Collective, Communicator, Result};

use super::bench::{Bench, Effort, median};
use super::check::{largest, sizes_of};

/// How far a prediction may be off.
const TOLERANCE: f64 = 0.25;

/// Whether neither is over a quarter more than the other, by the ratio of what was measured to what was predicted.
pub fn holds(ratio: f64) -> bool {
    (1.0 / (1.0 + TOLERANCE)..=1.0 + TOLERANCE).contains(&ratio)
}

/// A row at one size.
pub struct Predicted {
    pub collective: Collective,
    pub row: &'static str,
    pub bytes: usize,
    /// Whether it is the row that calls run.
    pub is_chosen: bool,
    pub predicted_s: f64,
    pub measured_s: f64,
}

impl Predicted {
    /// Measured over predicted.
    pub fn ratio(&self) -> f64 {
        self.measured_s / self.predicted_s
    }
}

/// Times every row that fits, of all collectives at `sizes` (none: at the usual ones).
pub fn predict(comm: &Communicator, effort: Effort, sizes: &[usize]) -> Result<Vec<Predicted>> {
    let mut bench = Bench::new(comm, Effort { largest: largest(comm.size(), sizes), ..effort });
    let mut all = Vec::new();
    for collective in Collective::ALL.into_iter().filter(|collective| !collective.is_message()) {
        for bytes in sizes_of(collective, comm.size(), sizes) {
            let explained = comm.explain(collective, bytes)?;
            let rows: Vec<&'static str> = explained.offers.iter().map(|offer| offer.name).collect();
            let samples = bench.samples(collective, &rows, bytes)?;
            for (offer, samples) in explained.offers.iter().zip(samples) {
                let (row, predicted_s) = (offer.name, offer.seconds);
                let (is_chosen, measured_s) = (row == explained.chosen, median(&samples));
                all.push(Predicted { collective, row, bytes, is_chosen, predicted_s, measured_s });
            }
        }
    }
    Ok(all)
}

/// A line for each row, and how many predictions hold.
pub fn text(comm: &Communicator, all: &[Predicted]) -> String {
    let among = comm.circumstances();
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect("strings take everything");
    let (a, b, c, d, e, f) = ("collective", "bytes", "row", "predicted", "measured", "ratio");
    line(format!("{a:<15} {b:>9}  {c:<19} {d:>10} {e:>10} {f:>6}"));
    for one in all {
        let Predicted { collective, row, bytes, is_chosen, predicted_s, measured_s } = one;
        let mark = if *is_chosen { '>' } else { ' ' };
        let (predicted, measured, ratio) = (predicted_s * 1e6, measured_s * 1e6, one.ratio());
        let verdict = if holds(one.ratio()) { "ok" } else { "off" };
        line(format!(
            "{collective:<15} {bytes:>9} {mark}{row:<19} {predicted:>10.2} {measured:>10.2} {ratio:>6.2} {verdict}"
        ));
    }
    let how = format!("{} ranks over {}, {} to a core", among.ranks, among.link, among.crowding);
    let count = |of: &dyn Fn(&&Predicted) -> bool| {
        (all.iter().filter(of).filter(|one| holds(one.ratio())).count(), all.iter().filter(of).count())
    };
    let ((held, calls), (chosen_held, chosen)) = (count(&|_| true), count(&|one| one.is_chosen));
    let percent = TOLERANCE * 100.0;
    line(format!(
        "{how}: {held} of {calls} calls take what is predicted within {percent:.0} %, {chosen_held} of the {chosen} that \
         are chosen"
    ));
    text
}
