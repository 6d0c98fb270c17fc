//! How rows are timed: taking turns, so that a machine that changes changes for all of them.

use std::time::Instant;

use paceline_comm::{Buffers, CallOptions, Collective, Communicator, DataType, ReduceOp, Request, Result};

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Effort {
    /// The largest message, in bytes.
    pub largest: usize,
    /// From one size to the next.
    pub factor: usize,
    /// How long calls are timed together, in seconds, where one is shorter.
    pub sample_s: f64,
    /// How long all rows of one size may take together, in seconds, beyond the fewest repetitions.
    pub cell_s: f64,
    /// The fewest and the most repetitions.
    pub repetitions: (usize, usize),
}

impl Effort {
    /// What takes some tens of seconds.
    pub const FULL: Effort =
        Effort { largest: 16 << 20, factor: 4, sample_s: 300e-6, cell_s: 0.4, repetitions: (7, 41) };
    /// What takes some seconds where each size is timed on its own.
    pub const CHECK: Effort = Effort { cell_s: 0.1, sample_s: 150e-6, repetitions: (9, 31), ..Effort::FULL };
    /// What takes a few seconds.
    pub const QUICK: Effort =
        Effort { largest: 1 << 20, factor: 16, sample_s: 50e-6, cell_s: 0.03, repetitions: (5, 11) };

    /// The sizes to be measured between so many ranks: each holds whole elements for every rank's block.
    #[must_use]
    pub fn sizes(&self, collective: Collective, ranks: usize) -> Vec<usize> {
        if collective == Collective::Barrier {
            return vec![0];
        }
        let sizes = std::iter::successors(Some(8), |size: &usize| size.checked_mul(self.factor));
        let sizes = sizes.take_while(|size| *size < self.largest).chain([self.largest]);
        let mut sizes: Vec<usize> = sizes.map(|bytes| whole(collective, ranks, bytes)).collect();
        sizes.dedup();
        sizes
    }
}

/// The nearest size that is not below one element for each block.
pub fn whole(collective: Collective, ranks: usize, bytes: usize) -> usize {
    let unit = if collective.has_blocks() { ELEMENT_BYTES * ranks } else { ELEMENT_BYTES };
    (bytes / unit).max(1) * unit
}

const ELEMENT_BYTES: usize = 4;
/// The most roots that take turns.
const ROOTS_MAX: usize = 4;
/// The most calls that are timed together.
const CALLS_MAX: usize = 400;

/// A rank's buffers, the same for all that is timed.
pub struct Bench<'a> {
    comm: &'a Communicator,
    effort: Effort,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Bench<'_> {
    pub fn new(comm: &Communicator, effort: Effort) -> Bench<'_> {
        Bench { comm, effort, input: vec![0; effort.largest], output: vec![0; effort.largest] }
    }

    /// For each of the rows the slowest rank's time of a call, in seconds, in each repetition: the first of one row was
    /// taken with the first of the others. The same numbers on all ranks.
    pub fn samples(&mut self, collective: Collective, rows: &[&str], bytes: usize) -> Result<Vec<Vec<f64>>> {
        let wish = |name: &&str| CallOptions { algorithm: Some((*name).to_owned()), ..CallOptions::default() };
        let handles: Vec<Communicator> = rows.iter().map(|name| self.comm.with(wish(name))).collect();
        let roots = if collective.has_root() { self.comm.size().min(ROOTS_MAX) } else { 1 };
        let mut first = Vec::new();
        for handle in &handles {
            self.time(handle, collective, bytes, roots)?;
            first.push(self.time(handle, collective, bytes, roots)?);
        }
        let first = self.slowest(first)?;
        let calls =
            |seconds: f64| ((self.effort.sample_s / seconds) as usize).clamp(1, CALLS_MAX).next_multiple_of(roots);
        let calls: Vec<usize> = first.into_iter().map(calls).collect();
        let mut times = Vec::new();
        let begin = Instant::now();
        let mut repetitions = 0;
        loop {
            for turn in 0..rows.len() {
                // Nobody follows the same row each time.
                let row = (turn + repetitions) % rows.len();
                times.push((row, self.time(&handles[row], collective, bytes, calls[row])?));
            }
            repetitions += 1;
            let (least, most) = self.effort.repetitions;
            let mut over = [u8::from(repetitions >= most || begin.elapsed().as_secs_f64() > self.effort.cell_s)];
            self.comm.broadcast(&mut over, 0)?;
            if repetitions >= least && over == [1] {
                break;
            }
        }
        times.sort_by_key(|(row, _)| *row);
        let times = self.slowest(times.into_iter().map(|(_, seconds)| seconds).collect())?;
        Ok(times.chunks(repetitions).map(<[f64]>::to_vec).collect())
    }

    /// The time of each of a few calls, one behind the other, on this rank.
    ///
    /// Roots take turns, so that a call waits for the one before as it would among others.
    fn time(&mut self, comm: &Communicator, collective: Collective, bytes: usize, calls: usize) -> Result<f64> {
        let size = comm.size();
        let roots = if collective.has_root() { size.min(ROOTS_MAX) } else { 1 };
        self.comm.barrier()?;
        let begin = Instant::now();
        for call in 0..calls {
            let root = call % roots * size / roots;
            comm.run(request(collective, size, bytes, (&self.input, &mut self.output)).root(root))?;
        }
        Ok(begin.elapsed().as_secs_f64() / calls as f64)
    }

    fn slowest(&self, mut seconds: Vec<f64>) -> Result<Vec<f64>> {
        self.comm.all_reduce_in_place(&mut seconds, ReduceOp::Max)?;
        Ok(seconds)
    }
}

/// A call whose whole message has `bytes`, a sum of f32 where it reduces.
fn request<'a>(
    collective: Collective,
    size: usize,
    bytes: usize,
    (input, output): (&'a [u8], &'a mut [u8]),
) -> Request<'a> {
    let share = if collective.has_blocks() { bytes / size } else { bytes };
    let (brings, gets) = match collective {
        Collective::AllGather | Collective::Gather => (share, bytes),
        Collective::ReduceScatter | Collective::Scatter => (bytes, share),
        _ => (bytes, bytes),
    };
    let buffers = match collective {
        Collective::Broadcast | Collective::Barrier => Buffers::InPlace(&mut output[..bytes]),
        _ => Buffers::Separate { input: &input[..brings], output: &mut output[..gets] },
    };
    Request::new(collective, DataType::F32, share / ELEMENT_BYTES, buffers)
}

pub fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_hold_whole_blocks_and_ascend() {
        let sizes = Effort::FULL.sizes(Collective::AllGather, 5);
        assert_eq!(sizes[..3], [20, 120, 500]);
        assert!(sizes.is_sorted_by(|a, b| a < b) && sizes.iter().all(|size| size % 20 == 0));
        assert_eq!(Effort::FULL.sizes(Collective::AllReduce, 5).last(), Some(&(16 << 20)));
        assert_eq!(Effort::QUICK.sizes(Collective::Barrier, 5), [0]);
    }

    #[test]
    fn every_collective_can_be_timed() {
        let effort = Effort { largest: 4096, ..Effort::QUICK };
        let ranks = Communicator::in_process(3).unwrap();
        std::thread::scope(|scope| {
            for comm in &ranks {
                scope.spawn(move || {
                    let mut bench = Bench::new(comm, effort);
                    for collective in Collective::ALL.into_iter().filter(|collective| !collective.is_message()) {
                        for bytes in effort.sizes(collective, 3) {
                            let seconds = bench.samples(collective, &["direct", "direct"], bytes).unwrap();
                            let sound = |times: &Vec<f64>| times.len() >= 5 && times.iter().all(|time| *time > 0.0);
                            assert!(
                                seconds.len() == 2 && seconds.iter().all(sound),
                                "{collective} {bytes} {seconds:?}"
                            );
                        }
                    }
                });
            }
        });
    }
}
