//! The loop of `overlap`, as paceline's ranks run it.

use std::time::{Duration, Instant};

use paceline_comm::{Communicator, ReduceOp, Result};
use rustix::time::{ClockId, clock_gettime};

use super::Sample;
use super::computing::Computing;
use crate::matrix::Cell;
use crate::pattern::{expected, value};

/// Calls whose median time is computed for.
const CALLS_BEFORE: usize = 5;

/// Runs a cell's rounds; rank 0 prints each round's numbers, as `time` and microseconds.
///
/// # Errors
///
/// If a call fails or its result is wrong.
pub(crate) fn measure(comm: &Communicator, cell: &Cell) -> std::result::Result<(), String> {
    let mut rank = Rank { comm, cell, buffer: vec![0.0; cell.count(comm.size())] };
    rank.rounds().map_err(|error| format!("rank {}: {cell}: {error}", comm.rank()))
}

struct Rank<'a> {
    comm: &'a Communicator,
    cell: &'a Cell,
    buffer: Vec<f32>,
}

/// The processor times of this process and of this thread.
struct Clocks {
    process: Duration,
    thread: Duration,
}

impl Clocks {
    fn now() -> Clocks {
        let read = |clock| {
            let time = clock_gettime(clock);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        Clocks { process: read(ClockId::ProcessCPUTime), thread: read(ClockId::ThreadCPUTime) }
    }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl Rank<'_> {
    fn rounds(&mut self) -> std::result::Result<(), String> {
        let told = |error: paceline_comm::Error| error.to_string();
        let computing = Computing::calibrated();
        let mut times = Vec::new();
        for _ in 0..CALLS_BEFORE {
            let [blocking, _] = self.blocking().map_err(told)?;
            self.check()?;
            times.push(blocking);
        }
        self.slowest(&mut times).map_err(told)?;
        times.sort_by(f64::total_cmp);
        let as_long = Duration::from_secs_f64(times[times.len() / 2] / 1e6);
        for _ in 0..self.cell.iterations {
            let [blocking, blocking_cpu] = self.blocking().map_err(told)?;
            self.check()?;
            self.comm.barrier().map_err(told)?;
            let start = Instant::now();
            computing.run(as_long);
            let alone = us(start.elapsed());
            let [both, beside_cpu] = self.both(computing, as_long).map_err(told)?;
            self.check()?;
            let mut sample: [f64; Sample::NUMBERS] = [blocking, alone, both, blocking_cpu, beside_cpu];
            self.slowest(&mut sample).map_err(told)?;
            if self.comm.rank() == 0 {
                sample.iter().for_each(|number| println!("time {number:.1}"));
            }
        }
        Ok(())
    }

    fn blocking(&mut self) -> Result<[f64; 2]> {
        self.fill()?;
        let (start, before) = (Instant::now(), Clocks::now());
        self.comm.all_reduce_in_place(&mut self.buffer, ReduceOp::Sum)?;
        Ok([us(start.elapsed()), us(Clocks::now().process - before.process)])
    }

    fn both(&mut self, computing: Computing, as_long: Duration) -> Result<[f64; 2]> {
        self.fill()?;
        let buffer = std::mem::take(&mut self.buffer);
        let (start, before) = (Instant::now(), Clocks::now());
        let work = self.comm.start_all_reduce(buffer, ReduceOp::Sum)?;
        computing.run(as_long);
        self.buffer = work.wait()?;
        let (both, after) = (us(start.elapsed()), Clocks::now());
        let beside = (after.process - before.process).saturating_sub(after.thread - before.thread);
        Ok([both, us(beside)])
    }

    /// The input, and all ranks at once.
    fn fill(&mut self) -> Result<()> {
        let rank = self.comm.rank();
        self.buffer.iter_mut().enumerate().for_each(|(at, element)| *element = value(rank, at) as f32);
        self.comm.barrier()
    }

    fn check(&self) -> std::result::Result<(), String> {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        let wanted = |at| expected(self.cell, ranks, rank, at).map(|want| want as f32);
        let wrong = self.buffer.iter().enumerate().find(|(at, got)| Some(**got) != wanted(*at));
        wrong.map_or(Ok(()), |(at, got)| Err(format!("a wrong result: element {at} is {got}, not {:?}", wanted(at))))
    }

    fn slowest(&self, numbers: &mut [f64]) -> Result<()> {
        self.comm.all_reduce_in_place(numbers, ReduceOp::Max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Call, ElementType};

    #[test]
    fn ranks_that_are_threads_finish_their_rounds() {
        let comms = Communicator::in_process(2).expect("two ranks");
        let cell = Cell { call: Call::Overlap, element: ElementType::F32, bytes: 40_000, iterations: 2 };
        std::thread::scope(|scope| {
            let ranks: Vec<_> = comms.iter().map(|comm| scope.spawn(|| measure(comm, &cell))).collect();
            ranks.into_iter().for_each(|rank| rank.join().expect("no panic").expect("right results"));
        });
    }
}
