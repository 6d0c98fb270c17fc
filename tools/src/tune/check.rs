//! What is chosen now, against the quickest row.

use std::fmt::Write;

use paceline_comm::{Collective, Communicator, Result};

use super::bench::{Bench, Effort};
use super::choose::{Cell, Timed};
use super::survey::survey;

/// How much slower than the quickest a chosen row may be.
const TOLERANCE: f64 = 0.15;

/// What was found.
pub struct Found {
    /// How many sizes of collectives were looked at.
    pub cells: usize,
    /// Those at which the chosen row is too slow.
    pub slow: Vec<(Collective, Cell)>,
}

/// Times all rows at all sizes; where the chosen one is too slow, it and the quickest are timed once more, so that one
/// disturbance doesn't count.
pub fn check(comm: &Communicator, effort: Effort) -> Result<Found> {
    let survey = survey(comm, effort)?;
    let (cells, mut slow) = (survey.collectives.iter().map(|(_, cells)| cells.len()).sum(), Vec::new());
    let mut bench = Bench::new(comm, effort);
    for (collective, cell) in
        survey.collectives.into_iter().flat_map(|(c, cells)| cells.into_iter().map(move |l| (c, l)))
    {
        // A row that was left out had been far behind at the size before.
        if cell.seconds(cell.chosen).is_some_and(|seconds| !is_slow(seconds, cell.best().seconds)) {
            continue;
        }
        let rows = [cell.chosen, cell.best().row];
        let again = bench.samples(collective, &rows, cell.bytes)?;
        let times: Vec<Timed> = rows.into_iter().zip(again).map(|(row, samples)| Timed::new(row, samples)).collect();
        if is_slow(times[0].seconds, times[1].seconds) && times[1].mostly_beats(&times[0]) {
            slow.push((collective, Cell { times, ..cell }));
        }
    }
    Ok(Found { cells, slow })
}

fn is_slow(chosen: f64, best: f64) -> bool {
    chosen > best * (1.0 + TOLERANCE)
}

/// The slow cells in lines, and how many there are.
pub fn text(comm: &Communicator, found: &Found) -> String {
    let among = comm.circumstances();
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect("strings take everything");
    if !found.slow.is_empty() {
        let heads = ("collective", "bytes", "chosen", "us", "quickest", "us", "slower");
        let (a, b, c, d, e, f, g) = heads;
        line(format!("{a:<15} {b:>9}  {c:<19} {d:>10}  {e:<19} {f:>10} {g:>7}"));
    }
    for (collective, cell) in &found.slow {
        let (best, least, seconds) = (cell.times[1].row, cell.times[1].seconds, cell.times[0].seconds);
        let (chosen, bytes, slower) = (cell.chosen, cell.bytes, (seconds / least - 1.0) * 100.0);
        let (us, least) = (seconds * 1e6, least * 1e6);
        line(format!("{collective:<15} {bytes:>9}  {chosen:<19} {us:>10.2}  {best:<19} {least:>10.2} {slower:>5.0} %"));
    }
    let (slow, cells) = (found.slow.len(), found.cells);
    let how = format!("{} ranks over {}, {} to a core", among.ranks, among.link, among.crowding);
    line(format!("{how}: {slow} of {cells} choices are over {:.0} % slower than the quickest row", TOLERANCE * 100.0));
    text
}
