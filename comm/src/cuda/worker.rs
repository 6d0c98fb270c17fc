//! The thread that does the host's part of calls, in the order in which streams get to them, and watches launches.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use paceline_transport::cuda::{HostFunction, Stream};

use super::job::{Due, Job};
use super::refused;
use super::staging::Lease;
use super::watch::Watch;
use crate::error::{Error, ErrorKind, Result};

/// What the thread is to do.
enum Task {
    Run(Due),
    /// Keep these until nothing uses them.
    Outlive(Vec<Lease>),
    /// Look at launches until they are over.
    Watch,
}

/// How often launches are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The thread, and what has gone wrong so far. The thread ends when this and all streams have nothing more for it.
pub(super) struct Worker {
    tasks: Arc<Sender<Task>>,
    failure: Arc<Failure>,
}

/// The first error.
#[derive(Default)]
pub(super) struct Failure(Mutex<Option<Error>>);

impl Failure {
    pub(super) fn get(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, error: &Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
    }
}

impl Worker {
    /// Starts the thread, to watch these launches if there are any.
    pub(super) fn start(watch: Option<Arc<Watch>>) -> Result<Worker> {
        let (tasks, due) = unbounded();
        let failure = Arc::new(Failure::default());
        let noted = failure.clone();
        let thread = std::thread::Builder::new().name("paceline-device".into()).spawn(move || {
            Hands { watch, failure: noted }.work(&due);
        });
        thread.map_err(|error| {
            Error::new(ErrorKind::System, format!("starting the thread for devices failed: {error}"))
                .hint("raise the limit on threads (ulimit -u)")
        })?;
        Ok(Worker { tasks: Arc::new(tasks), failure })
    }

    /// The first error, if there was one.
    pub(super) fn check(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |error| Err(error.repeated()))
    }

    /// Has a job done when the stream gets to this place.
    pub(super) fn call_when_reached(&self, stream: &Stream, due: Due) -> Result<()> {
        let tasks = self.tasks.clone();
        // The thread is there as long as a sender is.
        stream.host_call(Box::new(move || drop(tasks.send(Task::Run(due))))).map_err(refused)
    }

    /// Has a job done whenever a graph gets to this place that the stream is being captured into.
    pub(super) fn call_on_each_replay(&self, stream: &Stream, job: &Arc<Job>) -> Result<()> {
        let (tasks, job) = (Arc::downgrade(&self.tasks), job.clone());
        let function = HostFunction::new(move || match tasks.upgrade() {
            Some(tasks) => drop(tasks.send(Task::Run(Due { job: job.clone(), pending: None }))),
            None => {
                tracing::error!("a graph was launched with a call of a communicator that was dropped: it does nothing");
                job.release();
            }
        });
        // SAFETY: nobody can know when a graph is gone, so it is kept for ever.
        unsafe { stream.host_call_shared(&function) }.map_err(refused)?;
        std::mem::forget(function);
        Ok(())
    }

    /// Notes what went wrong beside the thread.
    pub(super) fn fails(&self, error: Error) -> Error {
        self.failure.note(&error);
        error
    }

    /// What has gone wrong so far.
    pub(super) fn failure(&self) -> Arc<Failure> {
        self.failure.clone()
    }

    /// Has launches looked at.
    pub(super) fn watch(&self) {
        drop(self.tasks.send(Task::Watch));
    }

    /// Keeps blocks until nothing uses them.
    pub(super) fn outlive(&self, leases: Vec<Lease>) {
        drop(self.tasks.send(Task::Outlive(leases)));
    }
}

/// What the thread holds.
struct Hands {
    watch: Option<Arc<Watch>>,
    failure: Arc<Failure>,
}

impl Hands {
    fn work(&self, due: &Receiver<Task>) {
        let mut is_watching = false;
        let mut kept: Vec<Lease> = Vec::new();
        loop {
            let next = match is_watching || !kept.is_empty() {
                true => due.recv_timeout(LOOK_EVERY),
                false => due.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(Task::Run(due)) => self.run(due),
                Ok(Task::Outlive(leases)) => kept.extend(leases),
                Ok(Task::Watch) => is_watching = true,
                Err(RecvTimeoutError::Timeout) => {
                    is_watching = is_watching && self.look();
                    kept.retain(|lease| !lease.is_over());
                }
                // No stream has anything more for this thread.
                Err(RecvTimeoutError::Disconnected) => return kept.into_iter().for_each(Lease::outlive),
            }
        }
    }

    fn run(&self, Due { job, pending }: Due) {
        let result = self.failure.get().map_or_else(|| job.run(), |error| Err(error.repeated()));
        if let Err(error) = &result {
            self.failure.note(error);
            if let Some(watch) = &self.watch {
                watch.direct.abort();
            }
        }
        // Calls made when the stream has gone on find this one over.
        drop(pending);
        job.end(result);
    }

    /// Looks at the launches once; whether to look again.
    fn look(&self) -> bool {
        let Some(watch) = &self.watch else { return false };
        watch.look().unwrap_or_else(|error| {
            self.failure.note(&error);
            watch.direct.abort();
            false
        })
    }
}
