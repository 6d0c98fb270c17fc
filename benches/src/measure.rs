//! The loop: same buffers, out of place, the slowest rank's time per call.

use std::process::{Command, Stdio};
use std::time::Instant;

use paceline_comm::{Communicator, ReduceOp, Result};

/// The sizes where nothing else is asked for, in bytes.
pub const SIZES: [usize; 9] = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20];

/// One size, and how often it is run in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// Bytes of the vector.
    pub bytes: usize,
    /// Calls that are timed together.
    pub iterations: usize,
}

/// As many calls as take a few tenths of a second.
#[must_use]
pub fn work_list(sizes: &[usize]) -> Vec<Work> {
    let iterations = |bytes: usize| (600_000_000 / (bytes + 20_000)).clamp(8, 30_000);
    sizes.iter().map(|&bytes| Work { bytes, iterations: iterations(bytes) }).collect()
}

/// Runs the loop as one rank of the environment's communicator; rank 0 prints bytes and microseconds per call.
///
/// # Errors
///
/// If the ranks don't meet, or a call fails.
pub fn worker(list: &[Work]) -> Result<()> {
    let comm = Communicator::from_env()?;
    for Work { bytes, iterations } in list {
        let (mut input, mut output) = (vec![1f32; bytes / 4 + 1024], vec![0f32; bytes / 4 + 1024]);
        let i = input.as_ptr().align_offset(4096);
        let o = output.as_ptr().align_offset(4096);
        let input = &mut input[i..i + bytes / 4];
        let output = &mut output[o..o + bytes / 4];
        for _ in 0..iterations / 10 + 2 {
            comm.all_reduce(input, output, ReduceOp::Sum)?;
        }
        assert!(output.iter().all(|sum| *sum == comm.size() as f32), "a wrong result");
        comm.barrier()?;
        let start = Instant::now();
        for _ in 0..*iterations {
            comm.all_reduce(input, output, ReduceOp::Sum)?;
        }
        let mut slowest = [start.elapsed().as_secs_f64() / *iterations as f64 * 1e6];
        comm.all_reduce_in_place(&mut slowest, ReduceOp::Max)?;
        if comm.rank() == 0 {
            println!("{bytes} {:.4}", slowest[0]);
        }
    }
    Ok(())
}

/// Starts `ranks` processes of `worker` that meet on this host; what rank 0 printed.
///
/// # Panics
///
/// If a process can't be started or fails.
#[must_use]
pub fn run_paceline(mut worker: Command, ranks: usize) -> String {
    let place = format!("local://side-by-side-{}-{:?}", std::process::id(), Instant::now());
    let place: String = place.chars().filter(|c| c.is_ascii_alphanumeric() || ":/-".contains(*c)).collect();
    worker.env("PACELINE_RENDEZVOUS", place).env("PACELINE_SIZE", ranks.to_string());
    let start = |rank: usize| {
        worker
            .env("PACELINE_RANK", rank.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starting a rank of paceline")
    };
    let children: Vec<_> = (0..ranks).map(start).collect();
    let outputs: Vec<_> =
        children.into_iter().map(|child| child.wait_with_output().expect("waiting for a rank")).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "a rank of paceline failed");
    String::from_utf8_lossy(&outputs[0].stdout).into_owned()
}
