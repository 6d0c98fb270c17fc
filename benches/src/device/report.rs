//! The numbers as tables and as JSON.

use std::fmt::{self, Display, Formatter};

use serde_json::{Value, json};

use super::{LocalCell, Rates, Rounds, Sizes, Way, bound_us, bytes_per_rank, median};
use crate::process::Outcome;

/// The share of the copy's rate that reductions should reach.
const TARGET: f64 = 0.85;

/// All_reduces of one length.
#[derive(Clone, Debug)]
pub struct Line {
    /// How many ranks.
    pub ranks: usize,
    /// As what they run: `threads`, `processes`, `nccl`.
    pub kind: &'static str,
    /// How paceline's calls go.
    pub way: Option<Way>,
    /// The vector's bytes.
    pub bytes: usize,
    /// Microseconds of a call on the device.
    pub device_us: Rounds,
    /// Microseconds from a call until the host knows of its end.
    pub wall_us: Rounds,
}

/// Everything that was measured.
pub struct Report {
    /// What it was measured on.
    pub machine: String,
    /// The devices.
    pub devices: Vec<String>,
    /// Of what size.
    pub sizes: Sizes,
    /// What one device does by itself.
    pub local: Vec<(LocalCell, Rounds)>,
    /// Blocks for each multiprocessor, of the sums.
    pub blocks: Vec<Rounds>,
    /// Collectives.
    pub lines: Vec<Line>,
    /// What was left out, and why.
    pub skipped: Vec<String>,
}

impl Report {
    fn rate(&self, cell: LocalCell) -> Option<f64> {
        let (_, rounds) = self.local.iter().find(|(known, _)| *known == cell)?;
        let us = median(rounds.as_ref().ok()?);
        Some(cell.moved(self.sizes.array()) as f64 / us * 1e6)
    }

    fn rates(&self) -> Option<Rates> {
        let [memory, to_host, from_host] =
            [LocalCell::Copy, LocalCell::ToHost, LocalCell::FromHost].map(|cell| self.rate(cell));
        Some(Rates { memory: memory?, to_host: to_host?, from_host: from_host? })
    }

    /// The bound of a line, where there is one.
    fn bound(&self, line: &Line) -> Option<f64> {
        let sharing = line.ranks.div_ceil(self.devices.len().max(1));
        Some(bound_us(line.way?, line.ranks, sharing, line.bytes as u64, &self.rates()?))
    }

    /// Whether nothing failed: what isn't offered is no failure.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let lines = self.lines.iter().flat_map(|line| [&line.device_us, &line.wall_us]);
        let all = self.local.iter().map(|(_, rounds)| rounds).chain(lines);
        all.into_iter().all(|rounds| matches!(rounds, Ok(_) | Err(Outcome::NotOffered(_))))
    }

    /// The same as data: medians and all rounds.
    #[must_use]
    pub fn json(&self) -> Value {
        let rounds = |rounds: &Rounds| match rounds {
            Ok(us) => json!({ "median": median(us), "rounds": us }),
            Err(outcome) => json!({ "none": reason(outcome) }),
        };
        let blocks =
            |at: usize| at.checked_sub(3).and_then(|at| self.blocks.get(at)?.as_ref().ok()).map(|it| median(it));
        let local = self.local.iter().enumerate().map(|(at, (cell, us))| {
            let rate = self.rate(*cell);
            json!({ "what": cell.to_string(), "bytes": cell.moved(self.sizes.array()), "us": rounds(us),
                "bytes_per_second": rate, "blocks_per_multiprocessor": blocks(at) })
        });
        let lines = self.lines.iter().map(|line| {
            json!({ "collective": "all_reduce", "type": "f32", "ranks": line.ranks, "kind": line.kind,
                "way": line.way.map(Way::name), "bytes": line.bytes, "device_us": rounds(&line.device_us),
                "wall_us": rounds(&line.wall_us), "bound_us": self.bound(line) })
        });
        json!({ "machine": self.machine, "devices": self.devices, "rounds": self.sizes.rounds(), "small": self.sizes.small,
            "local": local.collect::<Vec<_>>(), "all_reduce": lines.collect::<Vec<_>>(), "skipped": self.skipped })
    }

    fn write_local(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.local.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n## One device, arrays of {} bytes, medians of {} rounds\n",
            self.sizes.array(),
            self.sizes.rounds()
        )?;
        writeln!(f, "A copy within the device and a sum read and write (sources + 1) arrays; the others pass one.")?;
        writeln!(f, "Target of the sums: at least {:.0} % of the copy's rate.\n", 100.0 * TARGET)?;
        writeln!(
            f,
            "| | us | GB/s | of the copy | target | blocks per multiprocessor |\n|---|---:|---:|---:|---|---:|"
        )?;
        let copy = self.rate(LocalCell::Copy);
        for (at, (cell, us)) in self.local.iter().enumerate() {
            let us = match us {
                Ok(us) => median(us),
                Err(outcome) => {
                    writeln!(f, "| {cell} | {} | | | | |", reason(outcome))?;
                    continue;
                }
            };
            let rate = cell.moved(self.sizes.array()) as f64 / us * 1e6;
            write!(f, "| {cell} | {us:.1} | {:.1} |", rate / 1e9)?;
            match (cell, copy) {
                (LocalCell::Sum(..), Some(copy)) => {
                    let (share, blocks) = (rate / copy, self.blocks.get(at - 3).and_then(|it| it.as_ref().ok()));
                    let met = if share >= TARGET { "reached" } else { "missed" };
                    let blocks = blocks.map_or(String::new(), |it| format!("{:.0}", median(it)));
                    writeln!(f, " {:.0} % | {met} | {blocks} |", 100.0 * share)?;
                }
                _ => writeln!(f, " | | |")?,
            }
        }
        Ok(())
    }

    fn write_lines(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n## all_reduce, f32 sums, medians of {} rounds\n", self.sizes.rounds())?;
        let devices = self.devices.len();
        writeln!(
            f,
            "Of n ranks on {devices} device(s), S bytes each; the slowest rank's time. *device*: a call among others in a"
        )?;
        writeln!(
            f,
            "stream, by events. *host*: from a call until the host knows of its end. *moves*: bytes that a rank reads and"
        )?;
        writeln!(
            f,
            "writes on the devices: (n + 3) S in one shot, 5 S in two; by the host S there and S back. *bound*: the time of"
        )?;
        writeln!(
            f,
            "that for all ranks of a device at the rates above. Short vectors stay in caches, so they may be quicker.\n"
        )?;
        writeln!(f, "| ranks | as | way | bytes | device us | host us | moves | bound us | bound / device |")?;
        writeln!(f, "|---:|---|---|---:|---:|---:|---:|---:|---:|")?;
        for line in &self.lines {
            let way = line.way.map_or("", Way::name);
            write!(f, "| {} | {} | {way} | {} |", line.ranks, line.kind, line.bytes)?;
            let (device, wall) = match (&line.device_us, &line.wall_us) {
                (Ok(device), Ok(wall)) => (median(device), median(wall)),
                (Err(outcome), _) | (_, Err(outcome)) => {
                    writeln!(f, " {} | | | | |", reason(outcome))?;
                    continue;
                }
            };
            let moves = line.way.map(|way| match way {
                Way::Direct => bytes_per_rank(line.ranks, line.bytes as u64),
                Way::Host => 2 * line.bytes as u64,
            });
            let moves = moves.map_or(String::new(), |bytes| bytes.to_string());
            let bound = self.bound(line);
            let share = bound.map_or(String::new(), |bound| format!("{:.0} %", 100.0 * bound / device));
            let bound = bound.map_or(String::new(), |bound| format!("{bound:.2}"));
            writeln!(f, " {device:.2} | {wall:.2} | {moves} | {bound} | {share} |")?;
        }
        Ok(())
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        self.devices.iter().try_for_each(|device| writeln!(f, "- {device}"))?;
        self.write_local(f)?;
        self.write_lines(f)?;
        if !self.skipped.is_empty() {
            writeln!(f)?;
        }
        self.skipped.iter().try_for_each(|reason| writeln!(f, "- skipped: {reason}"))
    }
}

fn reason(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Time(us) => format!("{us}"),
        Outcome::NotOffered(reason) => format!("not measured: {reason}"),
        Outcome::TooSlow(seconds) => format!("failed: nothing for {seconds} s"),
        Outcome::Failed(said) => format!("failed: {}", said.replace('\n', " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        sizes: Sizes,
    }

    fn sample() -> Report {
        let sizes = Only::parse_from(["device", "--small"]).sizes;
        // Arrays of 65536 bytes: a copy at 131 GB/s, and sums of which only that of two arrays of f32 is as quick.
        let time = |cell: &LocalCell| if matches!(cell, LocalCell::Sum(_, 3..)) { 10.0 } else { 1.0 };
        let local: Vec<_> = LocalCell::all().into_iter().map(|cell| (cell, Ok(vec![time(&cell)]))).collect();
        let blocks = vec![Ok(vec![4.0]); local.len() - 3];
        let line =
            |way, device_us| Line { ranks: 2, kind: "threads", way, bytes: 65_536, device_us, wall_us: Ok(vec![20.0]) };
        let lines = vec![
            line(Some(Way::Direct), Ok(vec![10.0])),
            line(Some(Way::Host), Err(Outcome::NotOffered("no way".into()))),
        ];
        Report {
            machine: "a machine".into(),
            devices: vec!["one".into()],
            sizes,
            local,
            blocks,
            lines,
            skipped: vec![],
        }
    }

    #[test]
    fn sums_are_held_against_the_copy() {
        let text = sample().to_string();
        assert!(text.contains("| sum of 2 arrays of float | 1.0 | 196.6 | 150 % | reached | 4 |"), "{text}");
        assert!(text.contains("| sum of 3 arrays of float | 10.0 | 26.2 | 20 % | missed | 4 |"), "{text}");
    }

    #[test]
    fn lines_are_held_against_their_bound() {
        let mut report = sample();
        // Two ranks that read and write 5 * 65536 bytes at 131072 bytes in a microsecond.
        let text = report.to_string();
        assert!(
            text.contains("| 2 | threads | on the devices | 65536 | 10.00 | 20.00 | 327680 | 5.00 | 50 % |"),
            "{text}"
        );
        assert!(text.contains("| 2 | threads | by the host | 65536 | not measured: no way | | | | |"), "{text}");
        assert!(report.is_whole(), "what isn't offered is no failure");
        assert_eq!(report.json()["all_reduce"][0]["bound_us"], 5.0);
        report.lines[0].wall_us = Err(Outcome::TooSlow(3));
        assert!(!report.is_whole());
    }
}
