//! What the links charge: the prices that explain best what all rows took.

use paceline_comm::{Collective, Communicator, LinkKind, Prices};

use super::predict::holds;
use super::survey::Survey;

/// Longer messages pass through memory rather than a processor's caches, which no price knows.
const LONGEST: usize = 4 << 20;
/// How much of what was timed prices must explain, to within a quarter.
const EXPLAINED: f64 = 0.5;
/// Relative errors beyond that count by their size, not by its square: they are the host's, or the model's.
const FAR: f64 = 0.15;
/// What holds a price where nothing that was timed depends on it alone: so much of a time's weight, for each time.
const HELD: f64 = 1e-3;
/// How often the model is asked anew, and how often all prices are moved in between.
const ROUNDS: (usize, usize) = (6, 60);

/// What every row that fits would take at some prices.
type Model<'a> = dyn Fn(Collective, usize, &Prices) -> Vec<(&'static str, f64)> + 'a;

/// What all rows took, of one collective at one size.
struct Measured {
    collective: Collective,
    bytes: usize,
    rows: Vec<(&'static str, f64)>,
}

/// Prices of the slowest kind of link by what was timed, the same on all ranks; or why there are none.
pub fn of(survey: &Survey, comm: &Communicator) -> Result<Prices, String> {
    let among = comm.circumstances();
    if among.crowding > 1 {
        return Err(format!("{} ranks share a core; run with fewer to measure prices", among.crowding));
    }
    let kinds = [LinkKind::Inproc, LinkKind::Shm, LinkKind::Rdma];
    let kind = kinds.into_iter().find(|kind| kind.name() == among.link).unwrap_or(LinkKind::Tcp);
    let measured = survey.collectives.iter().flat_map(|(collective, cells)| {
        cells.iter().filter(|cell| cell.bytes <= LONGEST).map(move |cell| Measured {
            collective: *collective,
            bytes: cell.bytes,
            rows: cell.times.iter().map(|timed| (timed.row, timed.seconds)).collect(),
        })
    });
    let measured: Vec<Measured> = measured.collect();
    let model = |collective, bytes, prices: &Prices| comm.priced_at(collective, bytes, prices);
    let prices = fitted(&measured, Prices::standard(kind), &model);
    let ratios: Vec<f64> = measured.iter().flat_map(|cell| cell.ratios(&prices, &model)).collect();
    let held = ratios.iter().filter(|ratio| holds(**ratio)).count();
    if held as f64 >= EXPLAINED * ratios.len() as f64 {
        return Ok(prices);
    }
    Err(format!("no prices explain more than {held} of the {} times, so the host was busy; try again", ratios.len()))
}

impl Measured {
    /// What its rows would take at these prices.
    fn at(&self, prices: &Prices, model: &Model) -> Vec<f64> {
        let all = model(self.collective, self.bytes, prices);
        let of = |row: &str| all.iter().find(|(name, _)| *name == row).expect("what was timed fits").1;
        self.rows.iter().map(|(row, _)| of(row)).collect()
    }

    /// Measured over predicted, of each row.
    fn ratios(&self, prices: &Prices, model: &Model) -> Vec<f64> {
        self.rows.iter().zip(self.at(prices, model)).map(|((_, seconds), predicted)| seconds / predicted).collect()
    }

    fn parts(&self, prices: &Prices, model: &Model) -> Vec<Part> {
        let doubled = prices.named().map(|(moved, _)| {
            self.at(&prices.map(|name, price| if name == moved { 2.0 * price } else { price }), model)
        });
        let part = |(row, whole): (usize, f64)| {
            let shares: Vec<f64> = doubled.iter().map(|seconds| seconds[row] - whole).collect();
            Part { rest: whole - shares.iter().sum::<f64>(), shares, measured: self.rows[row].1 }
        };
        self.at(prices, model).into_iter().enumerate().map(part).collect()
    }
}

/// One time beside what makes it up.
struct Part {
    /// What each price contributes, at the prices at which the model was asked.
    shares: Vec<f64>,
    /// What no price contributes.
    rest: f64,
    measured: f64,
}

/// The prices at which the logarithms of what is predicted differ least from those of what was measured: each price in
/// turn is moved by a step of Newton's, since what rows take is a sum of prices.
fn fitted(measured: &[Measured], standard: Prices, model: &Model) -> Prices {
    let mut prices = standard;
    for _ in 0..ROUNDS.0 {
        let parts: Vec<Part> = measured.iter().flat_map(|cell| cell.parts(&prices, model)).collect();
        let mut scales = vec![1.0; prices.named().len()];
        for _ in 0..ROUNDS.1 {
            for price in 0..scales.len() {
                let far = (scales[price] * prices.named()[price].1 / standard.named()[price].1).ln();
                scales[price] *= step(&parts, &scales, price, far).exp();
            }
        }
        let mut scales = scales.into_iter();
        prices = prices.map(|_, price| price * scales.next().expect("one for each"));
    }
    prices.rounded()
}

/// How much the logarithm of a price should move, which is `far` from the standard's.
fn step(parts: &[Part], scales: &[f64], price: usize, far: f64) -> f64 {
    let held = HELD * parts.len() as f64;
    let (mut slope, mut bend) = (held * far, held);
    for part in parts {
        let predicted = part.rest + part.shares.iter().zip(scales).map(|(share, scale)| share * scale).sum::<f64>();
        let off = (predicted / part.measured).ln();
        let weight = (FAR / off.abs()).min(1.0);
        let part_of_all = part.shares[price] * scales[price] / predicted;
        slope += weight * off * part_of_all;
        bend += weight * part_of_all * part_of_all;
    }
    (-slope / bend).clamp(-1.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What two ranks of a host would have taken at these prices, with the rows that are asked for.
    fn measured_at(comm: &Communicator, prices: &Prices, rows: impl Fn(&str) -> bool) -> Vec<Measured> {
        let collectives = Collective::ALL.into_iter().filter(|collective| !collective.is_message());
        let cells = collectives.flat_map(|collective| [8, 4 << 10, 64 << 10, 1 << 20].map(|bytes| (collective, bytes)));
        let measured = cells.map(|(collective, bytes)| {
            let all = comm.priced_at(collective, bytes, prices);
            Measured { collective, bytes, rows: all.into_iter().filter(|(row, _)| rows(row)).collect() }
        });
        measured.collect()
    }

    #[test]
    fn prices_predict_the_times_they_were_fitted_to() {
        let standard = Prices::standard(LinkKind::Shm);
        let known = Prices {
            latency_s: 2e-7,
            message_s: 9e-8,
            byte_s: 2e-11,
            fold_byte_s: 1e-10,
            board_latency_s: 3e-7,
            ..standard
        };
        let comm = &Communicator::in_process(2).unwrap()[0];
        let model = |collective, bytes, prices: &Prices| comm.priced_at(collective, bytes, prices);
        let sound = measured_at(comm, &known, |_| true);
        let mut disturbed = measured_at(comm, &known, |_| true);
        // Somebody else had the core now and then.
        let seconds = disturbed.iter_mut().flat_map(|cell| &mut cell.rows).map(|(_, seconds)| seconds);
        seconds.step_by(17).for_each(|seconds| *seconds *= 4.0);
        let prices = fitted(&disturbed, standard, &model);
        for cell in sound {
            for ((row, _), ratio) in cell.rows.iter().zip(cell.ratios(&prices, &model)) {
                assert!((0.9..1.1).contains(&ratio), "{} of {}, {row}: {ratio}", cell.collective, cell.bytes);
            }
        }
        let byte = prices.byte_s / known.byte_s;
        assert!((0.9..1.1).contains(&byte), "{prices:?}");
    }

    #[test]
    fn what_nothing_depends_on_stays_as_it_was() {
        let standard = Prices::standard(LinkKind::Shm);
        let comm = &Communicator::in_process(2).unwrap()[0];
        let model = |collective, bytes, prices: &Prices| comm.priced_at(collective, bytes, prices);
        let measured = measured_at(comm, &Prices { byte_s: 1e-10, ..standard }, |row| row != "direct");
        let prices = fitted(&measured, standard, &model);
        assert_eq!(prices.board_byte_s, standard.rounded().board_byte_s);
        assert!((0.9..1.1).contains(&(prices.byte_s / 1e-10)), "{prices:?}");
    }
}
