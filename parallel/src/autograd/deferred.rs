//! Gradients of weights that are computed later than those of inputs: what zero-bubble schedules need.

use std::cell::RefCell;

use crate::error::Result;

type Job = Box<dyn FnOnce() -> Result<()> + Send>;

thread_local! {
    static WAITING: RefCell<Option<Vec<Job>>> = const { RefCell::new(None) };
}

/// Gradients of weights that have not been computed yet.
#[must_use = "gradients that are never computed are missing"]
pub struct WeightWork(Vec<Job>);

impl WeightWork {
    /// Computes them, in the order in which the backward pass came by.
    ///
    /// # Errors
    /// The first that can't be computed.
    pub fn run(self) -> Result<()> {
        self.0.into_iter().try_for_each(|job| job())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Runs a backward pass, and keeps back what only weights need.
///
/// # Panics
/// If this thread is in such a pass already.
pub fn defer_weight_gradients<T>(pass: impl FnOnce() -> T) -> (T, WeightWork) {
    struct Clear;
    impl Drop for Clear {
        fn drop(&mut self) {
            WAITING.set(None);
        }
    }
    assert!(WAITING.replace(Some(Vec::new())).is_none(), "gradients of weights are being kept back already");
    let clear = Clear;
    let result = pass();
    let jobs = WAITING.take().expect("only this takes them");
    drop(clear);
    (result, WeightWork(jobs))
}

/// Whether gradients of weights are being kept back on this thread.
pub(crate) fn is_deferring() -> bool {
    WAITING.with_borrow(Option::is_some)
}

/// Computes a weight's gradient and hands it over: now, or when the schedule comes to it.
///
/// # Errors
/// Those of the job, if it runs now.
pub fn weight_gradient(job: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let job = WAITING.with_borrow_mut(|waiting| match waiting {
        Some(waiting) => {
            waiting.push(Box::new(job));
            None
        }
        None => Some(job),
    });
    job.map_or(Ok(()), |job| job())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn what_is_kept_back_runs_when_it_is_asked_for() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let job = |number| {
            let done = done.clone();
            move || {
                done.lock().unwrap().push(number);
                Ok(())
            }
        };
        weight_gradient(job(0)).unwrap();
        let (result, work) = defer_weight_gradients(|| {
            weight_gradient(job(1)).unwrap();
            weight_gradient(job(2)).unwrap();
            done.lock().unwrap().len()
        });
        assert_eq!((result, work.len(), work.is_empty()), (1, 2, false));
        weight_gradient(job(3)).unwrap();
        work.run().unwrap();
        assert_eq!(*done.lock().unwrap(), [0, 3, 1, 2]);
    }
}
