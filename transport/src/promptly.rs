//! Threads that run soon after they are woken, though others compute.
//!
//! A thread that computes keeps its core for a slice, some milliseconds, though another one is woken for a few microseconds of
//! work. Who asks for a shorter slice goes first. It gets no more of the processor for that.

use std::time::Duration;

use crate::sys;

/// The shortest slice that Linux gives.
const SLICE: Duration = Duration::from_micros(100);

/// Has the calling thread run soon when it is woken, where the kernel can do that (Linux 6.12).
pub fn run_promptly() {
    match sys::ask_for_slices(SLICE) {
        Ok(true) => {}
        Ok(false) => tracing::debug!("this thread isn't scheduled in the usual way, and keeps its slices"),
        Err(error) => tracing::debug!("this thread keeps its slices: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn anybody_may_ask() {
        std::thread::spawn(|| {
            run_promptly();
            match sys::ask_for_slices(SLICE) {
                Ok(true) => {}
                Ok(false) => println!("skipped: these tests aren't scheduled in the usual way"),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::NOSYS | Errno::PERM) => println!("skipped: slices can't be asked for here: {error}"),
                    _ => panic!("a request that the kernel doesn't understand: {error}"),
                },
            }
        })
        .join()
        .expect("no panic");
    }
}
