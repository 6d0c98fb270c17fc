//! Results as Markdown: a table for each wire, number of ranks, collective and type, and a summary.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crate::matrix::Group;
use crate::process::Outcome;
use crate::results::{Entry, Results, geometric_mean};

/// One table, with what a reader must know below it.
pub struct Table<'a> {
    /// What was measured.
    pub results: &'a Results,
    /// Which table.
    pub group: Group,
}

/// How paceline stands, by wire and number of ranks.
pub struct Summary<'a> {
    /// What was measured.
    pub results: &'a Results,
}

impl Table<'_> {
    fn entry(&self, bytes: usize, library: usize) -> Option<&Entry> {
        self.results.entry(self.group, bytes, library)
    }

    /// The reasons for cells without a time, each once.
    fn reasons(&self) -> Vec<String> {
        let mut sizes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (library, name) in self.results.libraries.iter().enumerate() {
            for bytes in self.results.sizes(self.group) {
                let reason = match self.entry(bytes, library).and_then(Entry::end) {
                    Some(Outcome::NotOffered(why)) => format!("{name}, not offered: {why}"),
                    Some(Outcome::TooSlow(seconds)) => {
                        format!("{name}, too slow: a round of a cell took more than {seconds} s")
                    }
                    Some(Outcome::Failed(why)) => format!("{name}, failed: {why}"),
                    Some(Outcome::Time(_)) | None => continue,
                };
                sizes.entry(reason).or_default().push(bytes.to_string());
            }
        }
        sizes.into_iter().map(|(reason, sizes)| format!("{} bytes: {reason}", sizes.join(", "))).collect()
    }
}

fn cell(entry: Option<&Entry>) -> String {
    match entry.map(|entry| (entry.end(), entry.median_us())) {
        Some((Some(Outcome::NotOffered(_)), _)) => "not offered".into(),
        Some((Some(Outcome::TooSlow(_)), _)) => "too slow".into(),
        Some((Some(Outcome::Failed(_)), _)) => "failed".into(),
        Some((_, Some(us))) => format!("{us:.2}"),
        Some((_, None)) | None => "-".into(),
    }
}

impl Display for Table<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let libraries = &self.results.libraries;
        write!(f, "| bytes |")?;
        libraries.iter().try_for_each(|name| write!(f, " {name} us |"))?;
        writeln!(f, " best peer / paceline |")?;
        writeln!(f, "|---:|{}---:|", "---:|".repeat(libraries.len()))?;
        for bytes in self.results.sizes(self.group) {
            write!(f, "| {bytes} |")?;
            (0..libraries.len()).try_for_each(|library| write!(f, " {} |", cell(self.entry(bytes, library))))?;
            match self.results.ratio(self.group, bytes) {
                Some(ratio) => writeln!(f, " {:.2} |", ratio.ratio)?,
                None => writeln!(f, " - |")?,
            }
        }
        let reasons = self.reasons();
        if !reasons.is_empty() {
            writeln!(f)?;
        }
        reasons.iter().try_for_each(|reason| writeln!(f, "- {}", reason.replace('\n', "\n  ")))
    }
}

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut places: Vec<_> = self.results.groups().iter().map(|group| (group.wire, group.ranks)).collect();
        places.sort_unstable();
        places.dedup();
        writeln!(f, "| wire | ranks | cells | geometric mean | below 1 | worst | where |")?;
        writeln!(f, "|---|---:|---:|---:|---:|---:|---|")?;
        for (wire, ranks) in places {
            let ratios = self.results.ratios(|group| (group.wire, group.ranks) == (wire, ranks));
            let Some(worst) = ratios.iter().min_by(|one, other| one.ratio.total_cmp(&other.ratio)) else {
                writeln!(f, "| {} | {ranks} | 0 | - | - | - | - |", wire.name())?;
                continue;
            };
            let below = ratios.iter().filter(|ratio| ratio.ratio < 1.0).count();
            let (mean, group) = (geometric_mean(&ratios), worst.group);
            write!(f, "| {} | {ranks} | {} | {mean:.2} | {below} | {:.2} |", wire.name(), ratios.len(), worst.ratio)?;
            let (call, element) = (group.call.name(), group.element.name());
            writeln!(f, " {call} {element}, {} B, against {} |", worst.bytes, worst.peer)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{GROUP, sample};

    #[test]
    fn a_table_has_medians_ratios_and_reasons() {
        let text = Table { results: &sample(), group: GROUP }.to_string();
        let want = "\
| bytes | paceline us | open mpi us | mpich us | best peer / paceline |
|---:|---:|---:|---:|---:|
| 8 | 2.00 | 5.00 | 4.00 | 2.00 |
| 64 | 6.00 | 3.00 | failed | 0.50 |
| 512 | 7.00 | too slow | not offered | - |

- 64 bytes: mpich, failed: rank 1: oh dear
- 512 bytes: mpich, not offered: no such type
- 512 bytes: open mpi, too slow: a round of a cell took more than 20 s
";
        assert_eq!(text, want);
    }

    #[test]
    fn the_summary_names_the_worst() {
        let text = Summary { results: &sample() }.to_string();
        let row = "| shm | 2 | 2 | 1.00 | 1 | 0.50 | all_reduce f32, 64 B, against open mpi |\n";
        assert!(text.ends_with(row), "{text}");
    }
}
