//! What is chosen now, against the quickest row.

use std::fmt::Write;

use paceline_comm::{Collective, Communicator, Result};

use super::bench::{Bench, Effort, whole};
use super::choose::{Cell, Timed};

/// How much slower than the quickest a chosen row may be.
const TOLERANCE: f64 = 0.15;
/// How often a choice that looks too slow is timed again, against the row that looks quickest.
const AGAIN: usize = 2;
/// The sizes that are looked at where none are named, in bytes.
const SIZES: [usize; 6] = [8, 1 << 10, 32 << 10, 128 << 10, 512 << 10, 4 << 20];

/// One collective at one size.
pub struct Checked {
    pub collective: Collective,
    pub bytes: usize,
    pub chosen: Timed,
    pub best: Timed,
    /// Whether the chosen row is too slow, each time that it was timed.
    pub slow: bool,
}

impl Checked {
    fn ratio(&self) -> f64 {
        self.chosen.seconds / self.best.seconds
    }
}

/// Times every row that fits, of all collectives at `sizes` (none: at the usual ones).
///
/// A choice that looks too slow is timed again beside the row that looks quickest, so that one disturbance doesn't count.
pub fn check(comm: &Communicator, effort: Effort, sizes: &[usize]) -> Result<Vec<Checked>> {
    let sizes_of = |collective| sizes_of(collective, comm.size(), sizes);
    let mut bench = Bench::new(comm, Effort { largest: largest(comm.size(), sizes), ..effort });
    let mut checked = Vec::new();
    for collective in Collective::ALL.into_iter().filter(|collective| !collective.is_message()) {
        for bytes in sizes_of(collective) {
            checked.push(check_one(comm, &mut bench, collective, bytes)?);
        }
    }
    Ok(checked)
}

fn check_one(comm: &Communicator, bench: &mut Bench, collective: Collective, bytes: usize) -> Result<Checked> {
    let explained = comm.explain(collective, bytes)?;
    let rows: Vec<&'static str> = explained.offers.iter().map(|offer| offer.name).collect();
    let mut timed = |rows: &[&'static str]| -> Result<Vec<Timed>> {
        let samples = bench.samples(collective, rows, bytes)?;
        Ok(rows.iter().zip(samples).map(|(row, samples)| Timed::new(row, samples)).collect())
    };
    let cell = Cell { bytes, chosen: explained.chosen, priced: rows[0], times: timed(&rows)? };
    let chosen = cell.timed(cell.chosen).expect("it is among the rows that fit").clone();
    let best = cell.best().clone();
    let mut found = Checked { collective, bytes, slow: is_slow(&chosen, &best), chosen, best };
    for _ in 0..AGAIN {
        if !found.slow {
            break;
        }
        let again = timed(&[found.chosen.row, found.best.row])?;
        let [chosen, best] = <[Timed; 2]>::try_from(again).expect("two rows");
        found = Checked { slow: is_slow(&chosen, &best) && best.mostly_beats(&chosen), chosen, best, ..found };
    }
    if found.chosen.seconds <= found.best.seconds {
        found.best = found.chosen.clone();
    }
    Ok(found)
}

/// The largest message at these sizes.
pub fn largest(ranks: usize, sizes: &[usize]) -> usize {
    Collective::ALL.into_iter().flat_map(|collective| sizes_of(collective, ranks, sizes)).max().unwrap_or(0)
}

/// The sizes for a collective, ascending: each holds whole elements for every rank's block. None means the usual ones.
pub fn sizes_of(collective: Collective, ranks: usize, sizes: &[usize]) -> Vec<usize> {
    let sizes = if sizes.is_empty() { &SIZES[..] } else { sizes };
    if collective == Collective::Barrier {
        return vec![0];
    }
    let mut sizes: Vec<usize> = sizes.iter().map(|bytes| whole(collective, ranks, *bytes)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn is_slow(chosen: &Timed, best: &Timed) -> bool {
    chosen.seconds > best.seconds * (1.0 + TOLERANCE)
}

/// A line for each choice, and how many are too slow.
pub fn text(comm: &Communicator, checked: &[Checked]) -> String {
    let among = comm.circumstances();
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect("strings take everything");
    let (a, b, c, d, e, f, g) = ("collective", "bytes", "chosen", "us", "quickest", "us", "ratio");
    line(format!("{a:<15} {b:>9}  {c:<19} {d:>10}  {e:<19} {f:>10} {g:>6}"));
    for one in checked {
        let Checked { collective, bytes, chosen, best, slow } = one;
        let (us, least, ratio) = (chosen.seconds * 1e6, best.seconds * 1e6, one.ratio());
        let (chosen, best, verdict) = (chosen.row, best.row, if *slow { "slow" } else { "ok" });
        line(format!(
            "{collective:<15} {bytes:>9}  {chosen:<19} {us:>10.2}  {best:<19} {least:>10.2} {ratio:>6.2} {verdict}"
        ));
    }
    let (slow, choices) = (checked.iter().filter(|one| one.slow).count(), checked.len());
    let how = format!("{} ranks over {}, {} to a core", among.ranks, among.link, among.crowding);
    let percent = TOLERANCE * 100.0;
    line(format!("{how}: {slow} of {choices} choices are over {percent:.0} % slower than the quickest row"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_and_each_is_there_once() {
        assert_eq!(sizes_of(Collective::AllGather, 4, &[8, 1024, 12, 8]), [16, 1024]);
        assert_eq!(sizes_of(Collective::AllReduce, 4, &[1024, 8]), [8, 1024]);
        assert_eq!(sizes_of(Collective::Barrier, 4, &[8, 1024]), [0]);
    }

    #[test]
    fn a_choice_is_slow_from_fifteen_percent_on() {
        let timed = |seconds| Timed::new("a", vec![seconds; 4]);
        assert!(!is_slow(&timed(1.14), &timed(1.0)));
        assert!(is_slow(&timed(1.16), &timed(1.0)));
    }
}
