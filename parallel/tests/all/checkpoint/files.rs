//! Files that fail, wait, or tell what happens to them.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use paceline_parallel::checkpoint::{Disk, Files, SaverOptions};

/// The file system, with something that is asked before each call and may refuse it. A write that is refused leaves half.
pub struct Asked<F>(pub F);

impl<F: Fn(&str) -> io::Result<()> + Send + Sync> Asked<F> {
    pub fn options(ask: F) -> SaverOptions
    where
        F: 'static,
    {
        SaverOptions { files: Arc::new(Asked(ask)), ..SaverOptions::default() }
    }
}

impl<F: Fn(&str) -> io::Result<()> + Send + Sync> Files for Asked<F> {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        (self.0)("create_directory")?;
        Disk.create_directory(path)
    }

    fn write(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        if let Err(error) = (self.0)("write") {
            Disk.write(path, &[&parts[0][..parts[0].len() / 2]])?;
            return Err(error);
        }
        // In two halves, so that a process may die between them.
        let all = parts.concat();
        Disk.write(path, &[&all[..all.len() / 2]])?;
        (self.0)("half")?;
        Disk.write(path, parts)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        (self.0)("sync_directory")?;
        Disk.sync_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.0)("rename")?;
        Disk.rename(from, to)?;
        (self.0)("renamed")
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        (self.0)("remove_directory")?;
        // Not all at once: what a process that dies here leaves is not whole.
        std::fs::read_dir(path)?.take(1).try_for_each(|entry| std::fs::remove_file(entry?.path()))?;
        (self.0)("half")?;
        Disk.remove_directory(path)
    }
}

/// Fails one call of one save, whichever saves follow it before it is disarmed: each has a thread of its own.
#[derive(Default)]
pub struct Fault(Mutex<Option<Armed>>);

struct Armed {
    calls_left: usize,
    thread: Option<ThreadId>,
    fired: bool,
}

impl Fault {
    /// The call with this number of the next save will fail, counted from 0.
    pub fn arm(&self, call: usize) {
        *self.0.lock().unwrap() = Some(Armed { calls_left: call, thread: None, fired: false });
    }

    /// No call fails any more. Returns whether one did.
    pub fn disarm(&self) -> bool {
        self.0.lock().unwrap().take().is_some_and(|armed| armed.fired)
    }

    pub fn ask(&self, what: &str) -> io::Result<()> {
        let mut armed = self.0.lock().unwrap();
        let Some(armed) = armed.as_mut().filter(|armed| !armed.fired) else { return Ok(()) };
        if *armed.thread.get_or_insert(std::thread::current().id()) != std::thread::current().id() {
            return Ok(());
        }
        armed.fired = armed.calls_left == 0;
        armed.calls_left = armed.calls_left.saturating_sub(1);
        if armed.fired { Err(io::Error::other(format!("no {what} today"))) } else { Ok(()) }
    }
}

/// Lets the first write wait until it is told to go on, and tells that it waits.
pub fn gate(waits: Sender<()>, goes_on: Receiver<()>) -> impl Fn(&str) -> io::Result<()> + Send + Sync {
    let gate = Mutex::new(Some((waits, goes_on)));
    move |what| {
        let first = if what == "write" { gate.lock().unwrap().take() } else { None };
        if let Some((waits, goes_on)) = first {
            waits.send(()).unwrap();
            goes_on.recv().map_err(io::Error::other)?;
        }
        Ok(())
    }
}
