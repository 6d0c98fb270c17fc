//! The table of `overlap`: a line for each library.

use std::fmt::{self, Display, Formatter};

use super::Sample;
use crate::process::Outcome;

/// What each library reached, as a Markdown table.
pub struct Table<'a> {
    /// Names, and all rounds or why there are none.
    pub lines: &'a [(&'static str, Result<Vec<Sample>, Outcome>)],
}

impl Display for Table<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | call ms | computing ms | both ms | hidden | call's CPU ms | CPU beside computing ms |")?;
        writeln!(f, "|---|---:|---:|---:|---:|---:|---:|")?;
        for (name, samples) in self.lines {
            match samples {
                Ok(samples) => {
                    let Sample { blocking, computing, both, blocking_cpu, beside_cpu } = Sample::median(samples);
                    let hidden = 100.0 * Sample::median(samples).hidden().clamp(0.0, 1.0);
                    let [blocking, computing, both] = [blocking, computing, both].map(|us| us / 1e3);
                    let [blocking_cpu, beside_cpu] = [blocking_cpu, beside_cpu].map(|us| us / 1e3);
                    write!(f, "| {name} | {blocking:.1} | {computing:.1} | {both:.1} | {hidden:.1} % ")?;
                    writeln!(f, "| {blocking_cpu:.1} | {beside_cpu:.1} |")?;
                }
                Err(Outcome::NotOffered(why)) => writeln!(f, "| {name} | not offered: {why} | | | | | |")?,
                Err(Outcome::TooSlow(seconds)) => writeln!(f, "| {name} | too slow: over {seconds} s | | | | | |")?,
                Err(Outcome::Failed(_)) | Err(Outcome::Time(_)) => writeln!(f, "| {name} | failed | | | | | |")?,
            }
        }
        for (name, samples) in self.lines {
            if let Err(Outcome::Failed(why)) = samples {
                writeln!(f, "\n- {name}, failed: {}", why.replace('\n', "\n  "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_medians_and_the_share() {
        let sample = Sample { blocking: 500e3, computing: 510e3, both: 535e3, blocking_cpu: 30e3, beside_cpu: 25e3 };
        let lines = [("paceline", Ok(vec![sample])), ("gloo", Err(Outcome::Failed("oh\ndear".into())))];
        let text = Table { lines: &lines }.to_string();
        let want = "| paceline | 500.0 | 510.0 | 535.0 | 95.0 % | 30.0 | 25.0 |\n| gloo | failed | | | | | |\n";
        assert!(text.ends_with(&format!("{want}\n- gloo, failed: oh\n  dear\n")), "{text}");
    }
}
