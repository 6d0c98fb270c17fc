//! Runs tables: in every round each library runs all sizes once, one library after the other.

use std::io::IsTerminal;
use std::time::Duration;

use crate::matrix::{Call, Cell, ElementType, Group, Wire, iterations};
use crate::network::Network;
use crate::peers::{Library, Place};
use crate::process::{Interrupted, Limits, Outcome, Supervisor};
use crate::results::Results;

/// How long libraries may take to start: Python with PyTorch is the slowest.
const START: Duration = Duration::from_secs(60);
/// The size of the copies that say what the memory allows.
pub const COPY_BYTES: usize = 64 << 20;
/// How many processes copy at once.
pub const COPIES: usize = 2;

/// What runs, and how.
pub struct Run<'a> {
    /// The libraries, paceline first.
    pub libraries: &'a [Box<dyn Library>],
    /// The two hosts, if they could be made.
    pub network: Option<&'a Network>,
    /// Ends what is started.
    pub supervisor: &'a Supervisor,
    /// How many rounds.
    pub rounds: usize,
    /// How long a library may take for one cell in one round.
    pub limit: Duration,
    /// Processors of this machine.
    pub cores: usize,
}

impl Run<'_> {
    fn place(&self, group: &Group) -> Place<'_> {
        let network = self.network.filter(|_| group.wire == Wire::Tcp);
        Place { wire: group.wire, ranks: group.ranks, network }
    }

    /// All rounds of one table.
    ///
    /// # Errors
    ///
    /// If the user wants to stop; what was measured until then is in `results`.
    pub fn table(&self, group: Group, cells: &[Cell], results: &mut Results) -> Result<(), Interrupted> {
        let shows = std::io::stderr().is_terminal();
        for round in 1..=self.rounds {
            for (library, of) in self.libraries.iter().enumerate() {
                if shows {
                    eprint!("\r\x1b[K{group}: round {round} of {}, {}", self.rounds, of.name());
                }
                self.library(group, cells, library, results)?;
            }
        }
        if shows {
            eprint!("\r\x1b[K");
        }
        Ok(())
    }

    /// One round of one library. Cells that ended badly are not tried again, and those behind them are.
    fn library(&self, group: Group, cells: &[Cell], library: usize, results: &mut Results) -> Result<(), Interrupted> {
        let of = &self.libraries[library];
        let mut left: Vec<Cell> = Vec::new();
        for cell in cells {
            if !results.is_open(group, cell.bytes, library) {
                continue;
            }
            match of.refuses(cell) {
                Some(why) => results.add(group, cell.bytes, library, Outcome::NotOffered(why.into())),
                None => left.push(*cell),
            }
        }
        while !left.is_empty() {
            let limits = Limits { start: START, cell: self.limit };
            let place = self.place(&group);
            let before = place.network.map(Network::crossed_bytes);
            let mut outcomes = self.supervisor.run(of.job(&place, &left), left.len(), limits)?;
            if let (Some(before), Some(after)) = (before, place.network.map(Network::crossed_bytes)) {
                check_crossing(before.and_then(|before| Ok(after? - before)), &left, group.ranks, &mut outcomes);
            }
            let done: Vec<Cell> = left.drain(..outcomes.len().min(left.len())).collect();
            let fails_at_once = matches!(outcomes[..], [Outcome::Failed(_)]);
            for (cell, outcome) in done.iter().zip(&outcomes) {
                results.add(group, cell.bytes, library, outcome.clone());
            }
            if fails_at_once {
                // Not even the first cell: what it said goes for all.
                left.drain(..).for_each(|cell| results.add(group, cell.bytes, library, outcomes[0].clone()));
            }
        }
        Ok(())
    }

    /// Microseconds that each of two processes takes to copy [`COPY_BYTES`], both at once, without any library: the median
    /// over the rounds.
    ///
    /// # Errors
    ///
    /// If the user wants to stop. The inner error is what a process said that failed.
    pub fn copies(&self) -> Result<Result<f64, String>, Interrupted> {
        let iterations = iterations(Wire::Shm, COPIES, COPY_BYTES, self.cores);
        let cell = Cell { call: Call::Copy, element: ElementType::F32, bytes: COPY_BYTES, iterations };
        let place = Place { wire: Wire::Shm, ranks: COPIES, network: None };
        let mut times = Vec::new();
        for _ in 0..self.rounds {
            let job = self.libraries[0].job(&place, &[cell]);
            match self.supervisor.run(job, 1, Limits { start: START, cell: self.limit })?.remove(0) {
                Outcome::Time(us) => times.push(us),
                other => return Ok(Err(format!("{other:?}"))),
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(Ok(times[times.len() / 2]))
    }
}

/// Times of what didn't go over the cable between the hosts don't count.
fn check_crossing(crossed: Result<u64, String>, cells: &[Cell], ranks: usize, outcomes: &mut [Outcome]) {
    let timed = |outcome: &Outcome| matches!(outcome, Outcome::Time(_));
    let timed_cells = cells.iter().zip(&*outcomes).filter(|(_, outcome)| timed(outcome));
    let least: u64 = timed_cells.map(|(cell, _)| cell.crossing_bytes(ranks)).sum();
    let why = match crossed {
        Ok(crossed) if least <= crossed => return,
        Ok(crossed) => format!("{crossed} bytes went over the cable, less than the {least} there were to move"),
        Err(why) => why,
    };
    outcomes.iter_mut().filter(|outcome| timed(outcome)).for_each(|outcome| *outcome = Outcome::Failed(why.clone()));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::process::Job;
    use crate::results::tests::GROUP;

    /// Answers cells by a shell script for each size.
    struct Scripted;

    impl Library for Scripted {
        fn name(&self) -> &'static str {
            "scripted"
        }

        fn version(&self) -> Option<&str> {
            None
        }

        fn job(&self, _: &Place, cells: &[Cell]) -> Job {
            let step = |cell: &Cell| match cell.bytes {
                64 => "sleep 60".to_owned(),
                512 => "exit 4".to_owned(),
                bytes => format!("echo time {bytes}"),
            };
            let mut command = Command::new("sh");
            command.args(["-c", &cells.iter().map(step).collect::<Vec<_>>().join("; ")]);
            Job { commands: vec![("rank 0".into(), command)] }
        }
    }

    #[test]
    fn what_stays_off_the_cable_fails() {
        let (cells, _) = GROUP.cells(&[4096, 8192], 2);
        let least = cells[0].crossing_bytes(2);
        let check = |crossed| {
            let mut outcomes = [Outcome::Time(1.0), Outcome::TooSlow(1)];
            check_crossing(crossed, &cells, 2, &mut outcomes);
            outcomes
        };
        assert_eq!(check(Ok(least)), [Outcome::Time(1.0), Outcome::TooSlow(1)]);
        let [Outcome::Failed(why), Outcome::TooSlow(1)] = check(Ok(least - 1)) else { panic!("it counts") };
        assert!(why.contains("went over the cable"), "{why}");
        assert_eq!(check(Err("no counter".into()))[0], Outcome::Failed("no counter".into()));
    }

    #[test]
    fn a_bad_cell_costs_only_itself() {
        let libraries: Vec<Box<dyn Library>> = vec![Box::new(Scripted)];
        let supervisor = Supervisor::default();
        let limit = Duration::from_secs(1);
        let run = Run { libraries: &libraries, network: None, supervisor: &supervisor, rounds: 2, limit, cores: 2 };
        let mut results = Results::new(vec!["scripted"]);
        let (cells, _) = GROUP.cells(&[8, 64, 4096, 512, 32768], 2);
        run.table(GROUP, &cells, &mut results).expect("nobody interrupts");
        let entry = |bytes| results.entry(GROUP, bytes, 0).expect("an entry");
        assert_eq!((entry(8).rounds(), entry(4096).rounds(), entry(32768).rounds()), (2, 2, 2));
        assert_eq!(entry(64).end(), Some(&Outcome::TooSlow(1)));
        assert!(matches!(entry(512).end(), Some(Outcome::Failed(_))));
    }
}
