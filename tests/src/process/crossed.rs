//! How much of a call leaves this host, as its network interfaces count it.

use std::time::Duration;

use paceline_comm::{CallOptions, Communicator, Error, ReduceOp};

/// Makes a call of `bytes` bytes of the whole message, and says how many left the host meanwhile, and which algorithm ran.
///
/// `what` is `collective/algorithm`; without an algorithm it is the one that is chosen.
///
/// # Errors
///
/// As the call.
///
/// # Panics
///
/// If the collective isn't one of those whose traffic levels keep low, or a result is wrong.
pub fn crossed(comm: &Communicator, what: &str, bytes: usize) -> Result<(String, u64), Error> {
    let (collective, algorithm) = what.split_once('/').unwrap_or((what, ""));
    let wish = (!algorithm.is_empty()).then(|| algorithm.to_owned());
    let all = comm;
    let comm = comm.with(CallOptions { algorithm: wish, ..CallOptions::default() });
    let n = comm.size();
    let (whole, block) = (bytes / size_of::<u32>(), bytes / size_of::<u32>() / n);
    let mine = comm.rank() as u32 + 1;
    let sum = (n * (n + 1) / 2) as u32;
    let call = || -> Result<bool, Error> {
        match collective {
            "all_reduce" => {
                let mut vector = vec![mine; whole];
                comm.all_reduce_in_place(&mut vector, ReduceOp::Sum)?;
                Ok(vector.iter().all(|found| *found == sum))
            }
            "all_gather" => {
                let mut all = vec![0; block * n];
                comm.all_gather(&vec![mine; block], &mut all)?;
                Ok((0..block * n).all(|i| all[i] == (i / block) as u32 + 1))
            }
            "reduce_scatter" => {
                let mut own = vec![0; block];
                comm.reduce_scatter(&vec![mine; block * n], &mut own, ReduceOp::Sum)?;
                Ok(own.iter().all(|found| *found == sum))
            }
            "all_to_all" => {
                let mut all = vec![0; block * n];
                comm.all_to_all(&vec![mine; block * n], &mut all)?;
                Ok((0..block * n).all(|i| all[i] == (i / block) as u32 + 1))
            }
            "broadcast" => {
                let mut vector = vec![mine; whole];
                comm.broadcast(&mut vector, 1)?;
                Ok(vector.iter().all(|found| *found == 2))
            }
            _ => panic!("{collective} is no collective whose traffic is counted"),
        }
    };
    // The first call makes plans, and finds out what else there is to find out.
    assert!(call()?, "{what}");
    all.barrier()?;
    let before = settled();
    all.barrier()?;
    assert!(call()?, "{what}");
    all.barrier()?;
    let name = paceline_comm::Collective::named(collective).expect("a collective");
    let explained = comm.explain(name, bytes)?;
    let left = settled() - before;
    all.barrier()?;
    Ok((explained.chosen.to_owned(), left))
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
