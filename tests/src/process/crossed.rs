//! How much of a call leaves this host, as its network interfaces count it; and how long the call takes.

use std::time::{Duration, Instant};

use paceline_comm::{CallOptions, Collective, Communicator, Error, ReduceOp};

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

    /// Makes the call, and checks its result.
    fn call(&self) -> Result<(), Error> {
        let comm = &self.comm;
        let n = comm.size();
        let (whole, block) = (self.bytes / size_of::<u32>(), self.bytes / size_of::<u32>() / n);
        let mine = comm.rank() as u32 + 1;
        let sum = (n * (n + 1) / 2) as u32;
        let of_all = |all: &[u32]| (0..block * n).all(|i| all[i] == (i / block) as u32 + 1);
        let is_right = match self.collective {
            Collective::AllReduce => {
                let mut vector = vec![mine; whole];
                comm.all_reduce_in_place(&mut vector, ReduceOp::Sum)?;
                vector.iter().all(|found| *found == sum)
            }
            Collective::AllGather => {
                let mut all = vec![0; block * n];
                comm.all_gather(&vec![mine; block], &mut all)?;
                of_all(&all)
            }
            Collective::ReduceScatter => {
                let mut own = vec![0; block];
                comm.reduce_scatter(&vec![mine; block * n], &mut own, ReduceOp::Sum)?;
                own.iter().all(|found| *found == sum)
            }
            Collective::AllToAll => {
                let mut all = vec![0; block * n];
                comm.all_to_all(&vec![mine; block * n], &mut all)?;
                of_all(&all)
            }
            Collective::Broadcast => {
                let mut vector = vec![mine; whole];
                comm.broadcast(&mut vector, 1)?;
                vector.iter().all(|found| *found == 2)
            }
            other => panic!("{other} is no collective that can be asked for here"),
        };
        assert!(is_right, "{} of {} bytes", self.collective, self.bytes);
        Ok(())
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
    asked.call()?;
    comm.barrier()?;
    let before = settled();
    comm.barrier()?;
    asked.call()?;
    comm.barrier()?;
    let left = settled() - before;
    comm.barrier()?;
    Ok((asked.chosen()?, left))
}

/// Makes a call some times, and says which algorithm ran and how many microseconds it took, in the median.
///
/// # Errors
///
/// As [`crossed`].
///
/// # Panics
///
/// As [`crossed`].
pub fn timed(comm: &Communicator, what: &str, bytes: usize) -> Result<(String, f64), Error> {
    let asked = Asked::new(comm, what, bytes);
    asked.call()?;
    let mut times = Vec::new();
    for _ in 0..7 {
        comm.barrier()?;
        let began = Instant::now();
        asked.call()?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok((asked.chosen()?, times[times.len() / 2]))
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
