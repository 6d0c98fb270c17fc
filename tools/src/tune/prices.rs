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

/// A row that was timed.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Timed {
    collective: Collective,
    bytes: usize,
    row: &'static str,
    seconds: f64,
}

/// Prices of the slowest kind of link by what was timed, the same on all ranks; or why there are none.
pub fn of(survey: &Survey, comm: &Communicator) -> Result<Prices, String> {
    let among = comm.circumstances();
    if among.crowding > 1 {
        return Err(format!("{} ranks share a core; run with fewer to measure prices", among.crowding));
    }
    let kinds = [LinkKind::Inproc, LinkKind::Shm, LinkKind::Rdma];
    let kind = kinds.into_iter().find(|kind| kind.name() == among.link).unwrap_or(LinkKind::Tcp);
    let cells =
        survey.collectives.iter().flat_map(|(collective, cells)| cells.iter().map(move |cell| (collective, cell)));
    let timed = cells.filter(|(_, cell)| cell.bytes <= LONGEST).flat_map(|(collective, cell)| {
        let (collective, bytes) = (*collective, cell.bytes);
        cell.times.iter().map(move |timed| Timed { collective, bytes, row: timed.row, seconds: timed.seconds })
    });
    let timed: Vec<Timed> = timed.collect();
    let model = |collective, bytes, prices: &Prices| comm.priced_at(collective, bytes, prices);
    let prices = fitted(&timed, Prices::standard(kind), &model);
    let held = timed.iter().filter(|timed| holds(timed.seconds / timed.at(&prices, &model))).count();
    if held as f64 >= EXPLAINED * timed.len() as f64 {
        return Ok(prices);
    }
    Err(format!("no prices explain more than {held} of the {} times, so the host was busy; try again", timed.len()))
}

impl Timed {
    /// What it would take at these prices.
    fn at(&self, prices: &Prices, model: &Model) -> f64 {
        let rows = model(self.collective, self.bytes, prices);
        rows.into_iter().find(|(row, _)| *row == self.row).expect("what was timed fits").1
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
fn fitted(timed: &[Timed], standard: Prices, model: &Model) -> Prices {
    let mut prices = standard;
    for _ in 0..ROUNDS.0 {
        let parts: Vec<Part> = timed.iter().map(|timed| timed.part(&prices, model)).collect();
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

impl Timed {
    fn part(&self, prices: &Prices, model: &Model) -> Part {
        let whole = self.at(prices, model);
        let shares = prices.named().map(|(moved, _)| {
            let doubled = prices.map(|name, price| if name == moved { 2.0 * price } else { price });
            self.at(&doubled, model) - whole
        });
        Part { rest: whole - shares.iter().sum::<f64>(), shares: shares.to_vec(), measured: self.seconds }
    }
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

    /// What two ranks of a host would have taken at these prices.
    fn timed_at(comm: &Communicator, prices: &Prices) -> Vec<Timed> {
        let collectives = Collective::ALL.into_iter().filter(|collective| !collective.is_message());
        let cells = collectives.flat_map(|collective| [8, 4 << 10, 64 << 10, 1 << 20].map(|bytes| (collective, bytes)));
        let timed = cells.flat_map(|(collective, bytes)| {
            let rows = comm.priced_at(collective, bytes, prices);
            rows.into_iter().map(move |(row, seconds)| Timed { collective, bytes, row, seconds })
        });
        timed.collect()
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
        let mut timed = timed_at(comm, &known);
        // Somebody else had the core now and then.
        for disturbed in timed.iter_mut().step_by(17) {
            disturbed.seconds *= 4.0;
        }
        let prices = fitted(&timed, standard, &model);
        for (index, timed) in timed.iter().enumerate().filter(|(index, _)| index % 17 != 0) {
            let ratio = timed.seconds / timed.at(&prices, &model);
            assert!((0.9..1.1).contains(&ratio), "{index} {timed:?}: {ratio}");
        }
        let byte = prices.byte_s / known.byte_s;
        assert!((0.9..1.1).contains(&byte), "{prices:?}");
    }

    #[test]
    fn what_nothing_depends_on_stays_as_it_was() {
        let standard = Prices::standard(LinkKind::Shm);
        let comm = &Communicator::in_process(2).unwrap()[0];
        let model = |collective, bytes, prices: &Prices| comm.priced_at(collective, bytes, prices);
        let mut timed = timed_at(comm, &Prices { byte_s: 1e-10, ..standard });
        timed.retain(|timed| timed.row != "direct");
        let prices = fitted(&timed, standard, &model);
        assert_eq!(prices.board_byte_s, standard.rounded().board_byte_s);
        assert!((0.9..1.1).contains(&(prices.byte_s / 1e-10)), "{prices:?}");
    }
}
