//! How work changes hands between a driver, submitters and the progress thread. `README.md` has the reasoning.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};

/// Work that other threads have submitted, and whether there is any.
pub(crate) struct Submissions<W> {
    raised: AtomicBool,
    queue: Mutex<Vec<W>>,
}

impl<W> Submissions<W> {
    pub(crate) fn new() -> Submissions<W> {
        Submissions { raised: AtomicBool::new(false), queue: Mutex::new(Vec::new()) }
    }

    /// Whether there is something to take. Cheap: the driver asks in every pass.
    #[inline(always)]
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// Leaves work for the driver. The caller then wakes the driver and signals the progress thread.
    pub(crate) fn push(&self, work: W) {
        self.queue.lock().expect("no panic while held").push(work);
        self.raised.store(true, Ordering::Release);
    }

    /// Raises the flag without work.
    pub(crate) fn raise(&self) {
        self.raised.store(true, Ordering::Release);
    }

    /// Takes all the work there is.
    pub(crate) fn take(&self) -> Vec<W> {
        let mut queue = self.queue.lock().expect("no panic while held");
        self.raised.store(false, Ordering::Relaxed);
        std::mem::take(&mut *queue)
    }
}

/// What the progress thread waits for.
pub(crate) struct Signal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Default)]
struct SignalState {
    pending: bool,
    closing: bool,
}

impl Signal {
    pub(crate) fn new() -> Signal {
        Signal { state: Mutex::new(SignalState::default()), changed: Condvar::new() }
    }

    /// Makes the next, or the present, `wait` return.
    pub(crate) fn notify(&self) {
        self.state.lock().expect("no panic while held").pending = true;
        self.changed.notify_one();
    }

    /// Makes every `wait` from now on say that the end has come.
    pub(crate) fn close(&self) {
        self.state.lock().expect("no panic while held").closing = true;
        self.changed.notify_one();
    }

    /// Waits for a notification; `false` once closed.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.state.lock().expect("no panic while held");
        loop {
            if state.closing {
                return false;
            }
            if std::mem::take(&mut state.pending) {
                return true;
            }
            state = self.changed.wait(state).expect("no panic while held");
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::atomic::fence;
    use loom::sync::Arc;

    struct Engine {
        core: Mutex<Vec<u32>>,
        submissions: Submissions<u32>,
        signal: Signal,
    }

    /// A driver's whole turn: takes work in, does it, leaves.
    fn drive(engine: &Engine, core: &mut Vec<u32>) {
        if engine.submissions.is_raised() {
            core.extend(engine.submissions.take());
        }
    }

    /// README, "submitted is never lost": the driver's announcement and its look at the flag against the submitter's flag
    /// and its look at the announcement.
    #[test]
    fn a_sleeping_driver_sees_a_submission_or_is_woken() {
        loom::model(|| {
            let submissions = Arc::new(Submissions::new());
            let sleeping = Arc::new(AtomicBool::new(false));
            let (theirs, announced) = (submissions.clone(), sleeping.clone());
            let submitter = loom::thread::spawn(move || {
                theirs.push(7);
                fence(Ordering::SeqCst);
                announced.load(Ordering::Relaxed)
            });
            sleeping.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let seen = submissions.is_raised();
            let woken = submitter.join().unwrap();
            assert!(seen || woken, "the submission was missed and nobody woke the driver");
            assert_eq!(submissions.take(), [7]);
        });
    }

    #[test]
    fn submitted_work_is_done_whoever_drives() {
        loom::model(|| {
            let engine = Arc::new(Engine {
                core: Mutex::new(Vec::new()),
                submissions: Submissions::new(),
                signal: Signal::new(),
            });
            let progress = {
                let engine = engine.clone();
                loom::thread::spawn(move || {
                    while engine.signal.wait() {
                        let mut core = engine.core.lock().unwrap();
                        drive(&engine, &mut core);
                    }
                })
            };
            let submitter = {
                let engine = engine.clone();
                loom::thread::spawn(move || {
                    engine.submissions.push(7);
                    engine.signal.notify();
                })
            };
            if let Ok(mut core) = engine.core.try_lock() {
                drive(&engine, &mut core);
            }
            submitter.join().unwrap();
            while engine.core.lock().unwrap().is_empty() {
                loom::thread::yield_now();
            }
            engine.signal.close();
            progress.join().unwrap();
            assert_eq!(*engine.core.lock().unwrap(), [7]);
        });
    }
}
