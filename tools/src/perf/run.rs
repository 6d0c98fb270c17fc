//! The ranks of one process: a thread for each, and one outcome for all.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use super::comm::{Comm, CommError};
use super::failure::{Failure, RIGHT, WRONG};
use super::plan::{Ends, Plan};
use super::rank::{self, Verdict};
use super::report::Reporter;
use super::watchdog::Watchdog;

/// Runs a plan on this process's ranks. Returns the exit code.
///
/// The table goes to `out`, written by rank 0 alone; complaints go to standard error. A rank that fails aborts its
/// communicator, so that every other rank, of every process, ends too.
pub fn run<C: Comm>(plan: &Plan, comms: Vec<C>, arguments: Vec<String>, out: Box<dyn Write + Send>) -> u8 {
    let name = plan.benchmark.name;
    let main = comms.iter().any(|comm| comm.rank() == 0);
    let reporter = match main.then(|| Reporter::new(name, arguments, &plan.options, out)).transpose() {
        Ok(reporter) => reporter,
        Err(failure) => {
            comms.iter().for_each(|comm| comm.abort(&failure.to_string()));
            eprintln!("{name}: {failure}");
            return failure.exit_code();
        }
    };
    let comms: Vec<Arc<C>> = comms.into_iter().map(Arc::new).collect();
    let mut reporter = reporter;
    let outcome = outcome(plan, &comms, reporter.as_mut());
    let failure = outcome.as_ref().err();
    let ended = reporter.map_or(Ok(()), |reporter| reporter.end(failure));
    match outcome.and_then(|verdict| ended.map(|()| verdict)) {
        Ok(verdict) if verdict.is_good() => RIGHT,
        Ok(_) => WRONG,
        Err(failure) => {
            if main || !is_everybodys(&failure) {
                eprintln!("{name}: {failure}");
            }
            failure.exit_code()
        }
    }
}

/// Whether all ranks come to this failure by themselves, so that one process says it for all.
fn is_everybodys(failure: &Failure) -> bool {
    matches!(failure, Failure::Usage(_) | Failure::Sizes(_) | Failure::NotInThisBuild(_))
}

fn outcome<C: Comm>(plan: &Plan, comms: &[Arc<C>], mut reporter: Option<&mut Reporter>) -> Result<Verdict, Failure> {
    let watchdog = Watchdog::default();
    let first = Mutex::new(None);
    let (first, watchdog) = (&first, &watchdog);
    let verdicts: Vec<Option<Verdict>> = std::thread::scope(|scope| {
        if let Some(limit) = plan.options.timeout {
            scope.spawn(move || {
                watchdog.watch(|| {
                    let failure = timeout(plan, &*comms[0], limit.as_secs());
                    comms.iter().for_each(|comm| comm.abort(&failure.to_string()));
                    note(first, failure);
                });
            });
        }
        let ranks: Vec<_> = comms
            .iter()
            .enumerate()
            .map(|(place, comm)| {
                let reporter = if comm.rank() == 0 { reporter.take() } else { None };
                let limit = plan.options.timeout.filter(|_| place == 0);
                let body = move || one_rank(plan, Ends { comm: &**comm, watchdog, limit, reporter }, first);
                std::thread::Builder::new().name(format!("rank {}", comm.rank())).spawn_scoped(scope, body)
            })
            .collect();
        if ranks.iter().any(Result::is_err) {
            let why = "no thread could be started for a rank";
            note(first, Failure::Internal(why.to_string()));
            comms.iter().for_each(|comm| comm.abort(why));
        }
        let join = |rank: std::thread::ScopedJoinHandle<'_, Option<Verdict>>| rank.join().unwrap_or(None);
        let verdicts = ranks.into_iter().flatten().map(join).collect();
        watchdog.dismiss();
        verdicts
    });
    match first.lock().unwrap_or_else(|error| error.into_inner()).take() {
        Some(failure) => Err(failure),
        None => Ok(verdicts.into_iter().flatten().next().expect("a rank that does not fail has a verdict")),
    }
}

fn one_rank<C: Comm>(plan: &Plan, ends: Ends<'_, C>, first: &Mutex<Option<Failure>>) -> Option<Verdict> {
    let comm = ends.comm;
    let failure = match catch_unwind(AssertUnwindSafe(|| rank::run(plan, ends))) {
        Ok(Ok(verdict)) => return Some(verdict),
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Failure::Internal(format!("rank {} on {} panicked: {text}", comm.rank(), comm.host(comm.rank())))
        }
    };
    if !is_everybodys(&failure) {
        comm.abort(&failure.to_string());
    }
    note(first, failure);
    None
}

/// Keeps the first failure, but rather a cause than the aborts that follow from it.
fn note(first: &Mutex<Option<Failure>>, failure: Failure) {
    let follows = |failure: &Failure| matches!(failure, Failure::Communication { error: CommError::Follows(_), .. });
    let mut first = first.lock().unwrap_or_else(|error| error.into_inner());
    if first.as_ref().is_none_or(|known| follows(known) && !follows(&failure)) {
        *first = Some(failure);
    }
}

fn timeout<C: Comm>(plan: &Plan, comm: &C, seconds: u64) -> Failure {
    Failure::Timeout { host: comm.host(comm.rank()), seconds, test: plan.benchmark.name.to_string() }
}

#[cfg(test)]
mod tests;
