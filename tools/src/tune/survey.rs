//! All rows of all collectives over all sizes.

use paceline_comm::{Collective, Communicator, MeasuredChoices, Prices, Profile, ProfileHost, Result};

use super::bench::{Bench, Effort};
use super::choose::{Cell, SLOW, Timed, crossovers};
use crate::perf::machine;

/// What was measured.
pub struct Survey {
    pub collectives: Vec<(Collective, Vec<Cell>)>,
}

/// Times every row that fits at every size; rows that were far behind at one size are left out at the next.
pub fn survey(comm: &Communicator, effort: Effort) -> Result<Survey> {
    let mut bench = Bench::new(comm, effort);
    let mut collectives = Vec::new();
    for collective in Collective::ALL.into_iter().filter(|collective| !collective.is_message()) {
        let mut cells: Vec<Cell> = Vec::new();
        for bytes in effort.sizes(collective, comm.size()) {
            let explained = comm.explain(collective, bytes)?;
            let by_price: Vec<&'static str> = explained.offers.iter().map(|offer| offer.name).collect();
            let hopeless = agreed(comm, cells.last(), &by_price)?;
            let rows: Vec<&'static str> =
                by_price.iter().zip(&hopeless).filter(|(_, hopeless)| !**hopeless).map(|(row, _)| *row).collect();
            let samples = bench.samples(collective, &rows, bytes)?;
            let times = rows.into_iter().zip(samples).map(|(row, samples)| Timed::new(row, samples)).collect();
            cells.push(Cell { bytes, chosen: explained.chosen, priced: by_price[0], times });
        }
        collectives.push((collective, cells));
    }
    Ok(Survey { collectives })
}

/// Which rows are not worth timing, as rank 0 sees it.
fn agreed(comm: &Communicator, before: Option<&Cell>, rows: &[&'static str]) -> Result<Vec<bool>> {
    let is_hopeless = |row: &&'static str| {
        let seconds = before.and_then(|cell| cell.seconds(row));
        before.zip(seconds).is_some_and(|(cell, seconds)| seconds > SLOW * cell.best().seconds)
    };
    let mut said: Vec<u8> = rows.iter().map(|row| u8::from(is_hopeless(row))).collect();
    comm.broadcast(&mut said, 0)?;
    Ok(said.into_iter().map(|said| said == 1).collect())
}

impl Survey {
    /// The profile that follows.
    pub fn profile(&self, comm: &Communicator, prices: Option<Prices>) -> Profile {
        let among = comm.circumstances();
        let choices = |(collective, cells): &(Collective, Vec<Cell>)| MeasuredChoices {
            among: among.clone(),
            collective: collective.name().to_owned(),
            from: crossovers(cells),
        };
        let name = comm.peer(comm.rank()).host.clone();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut profile = Profile::new(ProfileHost { name, processor: machine::processor(), cores });
        profile.choices = self.collectives.iter().map(choices).collect();
        profile.prices.extend(prices.map(|prices| (among.link, prices.rounded())));
        profile
    }
}
