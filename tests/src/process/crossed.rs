//! How much of a call leaves this host, as its network interfaces count it; and how long the call takes.

use std::time::{Duration, Instant};

use paceline_comm::{CallOptions, Collective, Communicator, Error, ReduceOp};

/// How often what a call sends is counted.
const COUNTED: usize = 3;
/// How often a call is timed.
const TIMED: usize = 7;

/// A call that is asked for as `collective/algorithm`; without an algorithm the one that is chosen.
struct Asked {
    comm: Communicator,
    collective: Collective,
    bytes: usize,
}

impl Asked {
    fn new(comm: &Communicator, what: &str, bytes: usize) -> Asked {
        let (collective, algorithm) = what.split_once('/').unwrap_or((what, ""));
        let wish = (!algorithm.is_empty()).then(|| algorithm.to_owned());
        let comm = comm.with(CallOptions { algorithm: wish, ..CallOptions::default() });
        Asked { comm, collective: Collective::named(collective).expect("a collective"), bytes }
    }

    /// Makes the call once all are ready, checks its result, and says how long it took.
    fn call(&self, are_ready: impl Fn() -> Result<(), Error>) -> Result<Duration, Error> {
        let comm = &self.comm;
        let n = comm.size();
        let (whole, block) = (self.bytes / size_of::<u32>(), self.bytes / size_of::<u32>() / n);
        let mine = comm.rank() as u32 + 1;
        let sum = (n * (n + 1) / 2) as u32;
        let of_all = |all: &[u32]| (0..block * n).all(|i| all[i] == (i / block) as u32 + 1);
        let timed = |call: &mut dyn FnMut() -> Result<(), Error>| {
            are_ready()?;
            let began = Instant::now();
            call()?;
            Ok::<_, Error>(began.elapsed())
        };
        let (took, is_right) = match self.collective {
            Collective::AllReduce => {
                let mut vector = vec![mine; whole];
                let took = timed(&mut || comm.all_reduce_in_place(&mut vector, ReduceOp::Sum))?;
                (took, vector.iter().all(|found| *found == sum))
            }
            Collective::AllGather => {
                let (own, mut all) = (vec![mine; block], vec![0; block * n]);
                let took = timed(&mut || comm.all_gather(&own, &mut all))?;
                (took, of_all(&all))
            }
            Collective::ReduceScatter => {
                let (all, mut own) = (vec![mine; block * n], vec![0; block]);
                let took = timed(&mut || comm.reduce_scatter(&all, &mut own, ReduceOp::Sum))?;
                (took, own.iter().all(|found| *found == sum))
            }
            Collective::AllToAll => {
                let (own, mut all) = (vec![mine; block * n], vec![0; block * n]);
                let took = timed(&mut || comm.all_to_all(&own, &mut all))?;
                (took, of_all(&all))
            }
            Collective::Broadcast => {
                let mut vector = vec![mine; whole];
                let took = timed(&mut || comm.broadcast(&mut vector, 1))?;
                (took, vector.iter().all(|found| *found == 2))
            }
            other => panic!("{other} is no collective that can be asked for here"),
        };
        assert!(is_right, "{} of {} bytes", self.collective, self.bytes);
        Ok(took)
    }

    fn chosen(&self) -> Result<String, Error> {
        Ok(self.comm.explain(self.collective, self.bytes)?.chosen.to_owned())
    }
}

/// Makes a call of `bytes` bytes of the whole message, and says which algorithm ran and how many bytes left the host meanwhile.
///
/// # Errors
///
/// As the call.
///
/// # Panics
///
/// If there is no such call, or a result is wrong.
pub fn crossed(comm: &Communicator, what: &str, bytes: usize) -> Result<(String, u64), Error> {
    let asked = Asked::new(comm, what, bytes);
    // The first call makes plans, and finds out what else there is to find out.
    asked.call(|| Ok(()))?;
    let mut least = u64::MAX;
    // What TCP sends again, where a host has no time to answer, is none of the call's.
    for _ in 0..COUNTED {
        comm.barrier()?;
        let before = settled();
        comm.barrier()?;
        asked.call(|| Ok(()))?;
        comm.barrier()?;
        least = least.min(settled() - before);
    }
    comm.barrier()?;
    Ok((asked.chosen()?, least))
}

/// Makes a call some times, and says which algorithm ran, how many microseconds it took, in the median, and how many it should
/// have taken by its price.
///
/// # Errors
///
/// As [`crossed`].
///
/// # Panics
///
/// As [`crossed`].
pub fn timed(comm: &Communicator, what: &str, bytes: usize) -> Result<(String, f64, f64), Error> {
    let asked = Asked::new(comm, what, bytes);
    asked.call(|| Ok(()))?;
    let mut times = Vec::new();
    for _ in 0..TIMED {
        times.push(asked.call(|| comm.barrier())?.as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    let explained = asked.comm.explain(asked.collective, bytes)?;
    Ok((explained.chosen.to_owned(), times[times.len() / 2], 1e6 * explained.seconds))
}

/// What has left the host so far, once nothing more does.
fn settled() -> u64 {
    let mut last = sent();
    loop {
        std::thread::sleep(Duration::from_millis(30));
        let now = sent();
        if now == last {
            return now;
        }
        last = now;
    }
}

fn sent() -> u64 {
    let table = std::fs::read_to_string("/proc/net/dev").expect("Linux counts what interfaces send");
    let lines = table.lines().skip(2).filter_map(|line| line.split_once(':'));
    let of_hosts = lines.filter(|(name, _)| name.trim() != "lo");
    of_hosts
        .map(|(_, numbers)| numbers.split_whitespace().nth(8).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0))
        .sum()
}
