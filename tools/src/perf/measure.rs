//! The clock: operations back to back, and nothing else inside the time.

use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::arguments::{Blocking, Options};
use super::comm::{Comm, CommError};

/// One rank's times, in seconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Timing {
    /// Per operation.
    pub wall: f64,
    /// Processor time of this rank's thread, per operation; zero unless asked for.
    pub cpu: f64,
    /// Per operation, for each iteration; empty unless asked for.
    pub iterations: Vec<f64>,
}

/// Times what `start` does, which gets the numbers of operations and runs them to their end.
///
/// One operation runs before the clock does, and a barrier lets all ranks begin together. Then the iterations follow one
/// another. A barrier after each operation counts; a barrier after each iteration doesn't, and then the time is the sum
/// of the iterations'.
///
/// # Errors
///
/// Whatever the library reports.
pub fn time<C: Comm>(
    comm: &C,
    options: &Options,
    mut start: impl FnMut(Range<usize>) -> Result<(), CommError>,
) -> Result<Timing, CommError> {
    if options.graph_launches > 0 {
        return replayed(comm, options, start);
    }
    let (n, each) = (options.iterations, options.aggregated);
    let outside = options.blocking == Blocking::BarrierOutside;
    let alone = outside || options.per_iteration.is_some();
    let mut iterations = Vec::with_capacity(if alone { n } else { 0 });
    start(0..1)?;
    comm.finish()?;
    comm.barrier()?;
    let cpu = if options.cpu_time { thread_time() } else { Duration::ZERO };
    let begun = Instant::now();
    let mut mark = begun;
    for iteration in 0..n {
        let operations = iteration * each..(iteration + 1) * each;
        if options.blocking == Blocking::BarrierEach {
            for operation in operations {
                start(operation..operation + 1)?;
                comm.finish()?;
                comm.barrier()?;
            }
        } else if options.blocking == Blocking::Wait {
            for operation in operations {
                start(operation..operation + 1)?;
                comm.finish()?;
            }
        } else {
            start(operations)?;
        }
        if alone {
            comm.finish()?;
            let now = Instant::now();
            iterations.push((now - mark).as_secs_f64() / each as f64);
            mark = now;
            if outside {
                comm.barrier()?;
                mark = Instant::now();
            }
        }
    }
    let started = begun.elapsed();
    comm.finish()?;
    let wall = begun.elapsed().as_secs_f64() / (n * each) as f64;
    let cpu = match (options.cpu_time, comm.has_device()) {
        (false, _) => Duration::ZERO,
        (true, false) => thread_time() - cpu,
        (true, true) => started,
    };
    let cpu = cpu.as_secs_f64() / (n * each) as f64;
    let wall = if outside { iterations.iter().sum::<f64>() / n as f64 } else { wall };
    if options.per_iteration.is_none() {
        iterations.clear();
    }
    Ok(Timing { wall, cpu, iterations })
}

/// As [`time`], with all iterations captured into a graph, and that launched as often as asked for.
fn replayed<C: Comm>(
    comm: &C,
    options: &Options,
    mut start: impl FnMut(Range<usize>) -> Result<(), CommError>,
) -> Result<Timing, CommError> {
    let (n, each, launches) = (options.iterations, options.aggregated, options.graph_launches);
    start(0..1)?;
    comm.finish()?;
    let mut calls = || (0..n).try_for_each(|iteration| start(iteration * each..(iteration + 1) * each));
    let mut replay = comm.record(&mut calls)?;
    comm.barrier()?;
    let begun = Instant::now();
    (0..launches).try_for_each(|_| replay())?;
    let started = begun.elapsed();
    comm.finish()?;
    let of = |time: Duration| time.as_secs_f64() / (n * each * launches) as f64;
    let cpu = if options.cpu_time { of(started) } else { 0.0 };
    Ok(Timing { wall: of(begun.elapsed()), cpu, iterations: Vec::new() })
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
