//! A case's numbers and verdicts, as a table and as CSV.

use std::fmt::{self, Display, Formatter};
use std::io::Write;

use super::samples::Samples;
use super::verdict::{bubbles, hidden, lost, verdicts};
use super::{Case, Sizes};
use crate::machine::Machine;
use crate::process::Outcome;

/// Numbers that are no times.
const COUNTS: [&str; 2] = ["exposed share", "buckets"];

/// What a case came to.
pub struct Report {
    /// Which.
    pub case: Case,
    /// Of what size.
    pub sizes: Sizes,
    /// The rate of its link in Mbit/s, where it is limited.
    pub rate_mbit: Option<f64>,
    /// Paceline's rounds, or why there are none.
    pub samples: Result<Samples, Outcome>,
    /// PyTorch's, if they were asked for.
    pub peer: Option<Result<Samples, Outcome>>,
}

impl Report {
    /// Each library's rounds, with its name.
    fn libraries(&self) -> impl Iterator<Item = (&'static str, &Result<Samples, Outcome>)> {
        std::iter::once(("paceline", &self.samples)).chain(self.peer.as_ref().map(|peer| ("gloo", peer)))
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Report { case, sizes, rate_mbit, samples, peer } = self;
        let Sizes { layers, width, tokens, bucket_kib, micro_batches, schedule, .. } = sizes;
        write!(f, "## {}: {layers} layers of {width}, {tokens} tokens", case.name())?;
        match case {
            Case::Pipeline => write!(f, ", {schedule}, {micro_batches} micro-batches")?,
            _ => write!(f, ", {} bytes of gradients in buckets of {bucket_kib} KiB", sizes.gradient_bytes())?,
        }
        rate_mbit.iter().try_for_each(|rate| write!(f, ", {rate:.0} Mbit/s"))?;
        writeln!(f, "\n\n| | | median ms | least | most |\n|---|---|---:|---:|---:|")?;
        for (name, samples) in self.libraries() {
            let Ok(samples) = samples else { continue };
            for column in &samples.columns {
                let scale = if COUNTS.contains(column) { 1.0 } else { 1e3 };
                let [least, median, most] = samples.spread(column).map(|number| number / scale);
                writeln!(f, "| {name} | {column} | {median:.2} | {least:.2} | {most:.2} |")?;
            }
        }
        writeln!(f)?;
        for (name, samples) in self.libraries() {
            match samples {
                Err(outcome) => writeln!(f, "- {name}: {outcome:?}")?,
                Ok(samples) if *case == Case::Pipeline => {
                    let [measured, priced, replayed] = bubbles(samples).map(|share| 100.0 * share);
                    write!(f, "- {name}: bubble {measured:.2} %, priced {priced:.2} %; ")?;
                    writeln!(f, "{replayed:.2} % with each computation as long as it was")?;
                }
                Ok(samples) => {
                    let share = 100.0 * samples.median("communication") / samples.median("backward");
                    let [hidden, lost] = [hidden(samples), lost(samples)].map(|share| 100.0 * share);
                    write!(f, "- {name}: communication alone takes {share:.0} % of the backward pass; ")?;
                    writeln!(f, "hidden {hidden:.1} %, lost {lost:.1} % of the step")?;
                }
            }
        }
        let peer = peer.as_ref().and_then(|peer| peer.as_ref().ok());
        let verdicts = samples.iter().flat_map(|samples| verdicts(*case, samples, peer));
        verdicts.into_iter().try_for_each(|verdict| writeln!(f, "- {verdict}"))
    }
}

/// Writes a line for each number of each case and library.
///
/// # Errors
///
/// If `to` can't be written.
pub fn write_csv(to: impl Write, reports: &[Report], machine: &Machine) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(to);
    csv.write_record([
        "date",
        "cpu",
        "cores",
        "kernel",
        "commit",
        "case",
        "layers",
        "width",
        "tokens",
        "bucket_kib",
        "schedule",
        "mbit",
        "library",
        "what",
        "median",
        "least",
        "most",
        "rounds",
    ])?;
    for report in reports {
        let sizes = &report.sizes;
        let schedule = if report.case == Case::Pipeline { sizes.schedule.as_str() } else { "" };
        for (library, samples) in report.libraries() {
            let Ok(samples) = samples else { continue };
            for what in &samples.columns {
                let [least, median, most] = samples.spread(what).map(|number| format!("{number:.4}"));
                csv.write_record([
                    machine.date.as_str(),
                    &machine.processor,
                    &machine.cores.to_string(),
                    &machine.kernel,
                    machine.commit.as_deref().unwrap_or_default(),
                    report.case.name(),
                    &sizes.layers.to_string(),
                    &sizes.width.to_string(),
                    &sizes.tokens.to_string(),
                    &sizes.bucket_kib.to_string(),
                    schedule,
                    &report.rate_mbit.map(|rate| format!("{rate:.0}")).unwrap_or_default(),
                    library,
                    what,
                    &median,
                    &least,
                    &most,
                    &samples.rounds().to_string(),
                ])?;
            }
        }
    }
    csv.flush()?;
    Ok(())
}
