//! From times to choices: pure.

use paceline_comm::Crossover;

use super::bench::median;

/// A row so many times slower than the quickest is not timed at the next size.
pub const SLOW: f64 = 5.0;
/// Rows that are slower than the quickest by no more than this share may be chosen for other reasons.
const MARGIN: f64 = 0.05;
/// In what share of the repetitions a row must have been quicker to take another's place.
const MOSTLY: f64 = 0.75;

/// One row's times.
#[derive(Clone, PartialEq, Debug)]
pub struct Timed {
    pub row: &'static str,
    /// The median.
    pub seconds: f64,
    /// By repetition, in which all rows took turns.
    pub samples: Vec<f64>,
}

impl Timed {
    pub fn new(row: &'static str, samples: Vec<f64>) -> Timed {
        Timed { row, seconds: median(&samples), samples }
    }

    /// Whether this row was the quicker in most repetitions; on a busy machine medians differ by chance.
    pub fn mostly_beats(&self, other: &Timed) -> bool {
        let wins = self.samples.iter().zip(&other.samples).filter(|(mine, its)| mine < its).count();
        wins as f64 >= MOSTLY * self.samples.len() as f64
    }
}

/// One collective at one size.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// Bytes of the whole message.
    pub bytes: usize,
    /// The row that calls run now.
    pub chosen: &'static str,
    /// The cheapest row.
    pub priced: &'static str,
    /// The rows that were timed; never empty.
    pub times: Vec<Timed>,
}

impl Cell {
    pub fn timed(&self, row: &str) -> Option<&Timed> {
        self.times.iter().find(|timed| timed.row == row)
    }

    pub fn seconds(&self, row: &str) -> Option<f64> {
        self.timed(row).map(|timed| timed.seconds)
    }

    pub fn best(&self) -> &Timed {
        self.times.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).expect("some row was timed")
    }

    /// The row to choose, after `before` was chosen at the size before: the cheapest, or else the same as before, if
    /// hardly slower than the quickest or not reliably so.
    fn choice(&self, before: Option<&'static str>) -> &'static str {
        let quickest = self.best();
        let near = |row: &&'static str| {
            self.timed(row).is_some_and(|timed| {
                timed.seconds <= quickest.seconds * (1.0 + MARGIN) || !quickest.mostly_beats(timed)
            })
        };
        [Some(self.priced), before].into_iter().flatten().find(near).unwrap_or(quickest.row)
    }
}

/// From which bytes on which row is to be chosen. Between two sizes the change is half-way, by factors.
pub fn crossovers(cells: &[Cell]) -> Vec<Crossover> {
    let mut from: Vec<Crossover> = Vec::new();
    let mut before: Option<(&'static str, usize)> = None;
    for cell in cells {
        let row = cell.choice(before.map(|(row, _)| row));
        match before {
            Some((same, _)) if same == row => {}
            Some((_, bytes)) => {
                let half_way = (bytes as f64 * cell.bytes as f64).sqrt() as usize;
                from.push(Crossover { bytes: half_way.max(bytes + 1), row: row.to_owned() });
            }
            None => from.push(Crossover { bytes: 0, row: row.to_owned() }),
        }
        before = Some((row, cell.bytes));
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(bytes: usize, priced: &'static str, times: &[(&'static str, f64)]) -> Cell {
        let times = times.iter().map(|(row, seconds)| Timed::new(row, vec![*seconds; 4])).collect();
        Cell { bytes, chosen: priced, priced, times }
    }

    fn rows(cells: &[Cell]) -> Vec<(usize, String)> {
        crossovers(cells).into_iter().map(|crossover| (crossover.bytes, crossover.row)).collect()
    }

    #[test]
    fn the_cheapest_is_kept_where_it_is_hardly_slower() {
        assert_eq!(rows(&[cell(8, "a", &[("a", 1.04), ("b", 1.0)])]), [(0, "a".to_owned())]);
        assert_eq!(rows(&[cell(8, "a", &[("a", 1.06), ("b", 1.0)])]), [(0, "b".to_owned())]);
        assert_eq!(rows(&[cell(8, "c", &[("a", 1.06), ("b", 1.0)])]), [(0, "b".to_owned())], "c was not timed");
    }

    #[test]
    fn the_cheapest_is_kept_where_it_is_not_reliably_slower() {
        let of = |samples: [f64; 4]| {
            let times = vec![Timed::new("a", samples.to_vec()), Timed::new("b", vec![1.0; 4])];
            rows(&[Cell { times, ..cell(8, "a", &[]) }])[0].1.clone()
        };
        assert_eq!(of([2.0, 2.0, 0.9, 2.0]), "b");
        assert_eq!(of([2.0, 0.9, 0.9, 2.0]), "a");
    }

    #[test]
    fn noise_makes_no_ragged_table() {
        let cells = [
            cell(8, "a", &[("a", 2.0), ("b", 1.0), ("c", 1.01)]),
            cell(32, "a", &[("a", 2.0), ("b", 1.01), ("c", 1.0)]),
            cell(128, "a", &[("a", 2.0), ("b", 1.0), ("c", 1.01)]),
        ];
        assert_eq!(rows(&cells), [(0, "b".to_owned())]);
    }

    #[test]
    fn ranges_are_merged_and_change_half_way() {
        let (a, b) = ([("a", 1.0), ("b", 2.0)], [("a", 2.0), ("b", 1.0)]);
        let cells = [cell(1024, "a", &a), cell(4096, "a", &a), cell(16384, "a", &b), cell(65536, "b", &b)];
        assert_eq!(rows(&cells), [(0, "a".to_owned()), (8192, "b".to_owned())]);
    }
}
