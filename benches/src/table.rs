//! Times by library and size, as medians and ratios.

use std::collections::BTreeMap;

/// What was measured so far.
pub struct Table {
    sizes: Vec<usize>,
    /// Per library, per size, the times of all rounds.
    times: Vec<(&'static str, BTreeMap<usize, Vec<f64>>)>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(sizes: &[usize]) -> Table {
        Table { sizes: sizes.to_vec(), times: Vec::new() }
    }

    /// Adds one round of a library: lines of bytes and microseconds.
    pub fn add(&mut self, name: &'static str, lines: String) {
        if !self.times.iter().any(|(known, _)| *known == name) {
            self.times.push((name, BTreeMap::new()));
        }
        let (_, times) = self.times.iter_mut().find(|(known, _)| *known == name).expect("added above");
        for line in lines.lines() {
            let mut words = line.split_whitespace().map(str::parse::<f64>);
            if let (Some(Ok(bytes)), Some(Ok(us))) = (words.next(), words.next()) {
                times.entry(bytes as usize).or_default().push(us);
            }
        }
    }

    fn median(&self, name: &str, bytes: usize) -> Option<f64> {
        let (_, times) = self.times.iter().find(|(known, _)| *known == name)?;
        let mut times = times.get(&bytes)?.clone();
        times.sort_by(f64::total_cmp);
        Some(times[times.len() / 2])
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "| bytes |")?;
        for (name, _) in &self.times {
            write!(f, " {name} us |")?;
        }
        writeln!(f, " best peer / paceline |")?;
        writeln!(f, "|---:|{}---:|", "---:|".repeat(self.times.len()))?;
        for bytes in &self.sizes {
            write!(f, "| {bytes} |")?;
            let medians: Vec<_> = self.times.iter().map(|(name, _)| self.median(name, *bytes)).collect();
            for median in &medians {
                match median {
                    Some(us) => write!(f, " {us:.2} |")?,
                    None => write!(f, " - |")?,
                }
            }
            let best = medians.iter().skip(1).flatten().copied().min_by(f64::total_cmp);
            match (best, medians.first().copied().flatten()) {
                (Some(best), Some(ours)) => writeln!(f, " {:.2} |", best / ours)?,
                _ => writeln!(f, " - |")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_medians() {
        let mut table = Table::new(&[8]);
        for us in ["8 1.0", "8 9.0", "8 2.0"] {
            table.add("paceline", us.into());
        }
        table.add("open mpi", "8 5.0\n".into());
        table.add("mpich", "8 4.0\nnoise\n".into());
        let text = table.to_string();
        assert!(text.contains("| 8 | 2.00 | 5.00 | 4.00 | 2.00 |"), "{text}");
    }
}
