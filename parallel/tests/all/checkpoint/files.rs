//! Files that fail, wait, or tell what happens to them.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

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

/// Fails at the call with a number, counted from 0 since it was armed.
pub fn failing_at(call: Arc<AtomicUsize>) -> impl Fn(&str) -> io::Result<()> + Send + Sync {
    move |what| match call.fetch_sub(1, Ordering::SeqCst) {
        0 => Err(io::Error::other(format!("no {what} today"))),
        _ => Ok(()),
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
