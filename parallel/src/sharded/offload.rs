//! Master values and moments in files: a thread writes a unit back and reads the next one while the caller works on one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use candle_core::DType;

use crate::error::{Doing, Error, Result};
use crate::state::Numbers;

/// What is kept of a unit's shard.
#[derive(Debug, PartialEq)]
pub(super) struct Kept {
    pub(super) values: Numbers,
    pub(super) moments: BTreeMap<String, Numbers>,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.values.bytes() + self.moments.values().map(Numbers::bytes).sum::<usize>()
    }
}

enum Job {
    Read(usize),
    Write(usize, Kept),
    /// Answers when all before it are done.
    Flush,
}

enum Answer {
    Read(Result<Kept>),
    Flushed(Result<()>),
}

/// The files of all units.
pub(super) struct Store {
    /// `None` only while it is dropped.
    jobs: Option<Sender<Job>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
    /// In each file.
    bytes: Vec<usize>,
    /// The unit that is being read.
    ahead: Option<usize>,
}

impl Store {
    /// Unnamed files in a directory, one for each unit: nothing is left of them in the end, whatever that is.
    pub(super) fn new(directory: &Path, units: usize) -> Result<Store> {
        let made = || {
            let file = tempfile::tempfile_in(directory);
            let file = file.doing(|| format!("making a file in {} for what is offloaded", directory.display()))?;
            Ok(Slot { file, values: (DType::F32, 0), moments: Vec::new() })
        };
        let slots = (0..units).map(|_| made()).collect::<Result<Vec<_>>>()?;
        let (jobs, taken) = channel();
        let (given, answers) = channel();
        let worker = Worker { slots, directory: directory.to_owned(), failed: None };
        let thread =
            std::thread::Builder::new().name("paceline-offload".to_owned()).spawn(move || worker.run(&taken, &given));
        let thread = thread.doing(|| "starting the thread that reads and writes what is offloaded".to_owned())?;
        Ok(Store { jobs: Some(jobs), answers, thread: Some(thread), bytes: vec![0; units], ahead: None })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.iter().sum()
    }

    pub(super) fn bytes_read_ahead(&self) -> usize {
        self.ahead.map_or(0, |unit| self.bytes[unit])
    }

    /// Begins to read a unit.
    pub(super) fn read_ahead(&mut self, unit: usize) -> Result<()> {
        if self.ahead.is_some() {
            // A visit that ended early has left it.
            self.take()?;
        }
        self.ahead = Some(unit);
        self.send(Job::Read(unit))
    }

    /// What was read ahead.
    pub(super) fn take(&mut self) -> Result<Kept> {
        assert!(self.ahead.take().is_some(), "nothing is being read");
        match self.answers.recv() {
            Ok(Answer::Read(kept)) => kept,
            _ => Err(gone()),
        }
    }

    /// Writes a unit back, some time before it can be read again.
    pub(super) fn write(&mut self, unit: usize, kept: Kept) -> Result<()> {
        self.bytes[unit] = kept.bytes();
        self.send(Job::Write(unit, kept))
    }

    /// Waits until all is written.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.ahead.is_some() {
            self.take()?;
        }
        self.send(Job::Flush)?;
        match self.answers.recv() {
            Ok(Answer::Flushed(done)) => done,
            _ => Err(gone()),
        }
    }

    fn send(&self, job: Job) -> Result<()> {
        self.jobs.as_ref().expect("there until it is dropped").send(job).map_err(|_| gone())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by whoever waited for an answer.
            let _ = thread.join();
        }
    }
}

fn gone() -> Error {
    Error::invalid("the thread that reads and writes what is offloaded has ended")
}

struct Slot {
    file: File,
    values: (DType, usize),
    moments: Vec<(String, DType, usize)>,
}

struct Worker {
    slots: Vec<Slot>,
    directory: PathBuf,
    /// The first write that failed: told at the next flush.
    failed: Option<Error>,
}

impl Worker {
    fn run(mut self, jobs: &Receiver<Job>, answers: &Sender<Answer>) {
        for job in jobs {
            let answer = match job {
                Job::Read(unit) => {
                    let read = self.slots[unit].read();
                    Answer::Read(read.doing(|| self.says("reading", unit)))
                }
                Job::Write(unit, kept) => {
                    let written = self.slots[unit].write(kept).doing(|| self.says("writing", unit));
                    self.failed = self.failed.take().or(written.err());
                    continue;
                }
                Job::Flush => Answer::Flushed(self.failed.take().map_or(Ok(()), Err)),
            };
            if answers.send(answer).is_err() {
                return;
            }
        }
    }

    fn says(&self, what: &str, unit: usize) -> String {
        format!("{what} the offloaded values of unit {unit} in {}", self.directory.display())
    }
}

impl Slot {
    fn write(&mut self, kept: Kept) -> std::io::Result<()> {
        self.file.rewind()?;
        self.values = (kept.values.dtype(), kept.values.len());
        self.moments.clear();
        self.file.write_all(&bytes_of(&kept.values))?;
        for (name, moment) in kept.moments {
            self.file.write_all(&bytes_of(&moment))?;
            self.moments.push((name, moment.dtype(), moment.len()));
        }
        Ok(())
    }

    fn read(&mut self) -> std::io::Result<Kept> {
        self.file.rewind()?;
        let mut numbers = |dtype: DType, len: usize| {
            let mut bytes = vec![0; len * dtype.size_in_bytes()];
            self.file.read_exact(&mut bytes)?;
            Ok::<_, std::io::Error>(numbers_of(&bytes, dtype))
        };
        let values = numbers(self.values.0, self.values.1)?;
        let moments = self.moments.iter().map(|(name, dtype, len)| Ok((name.clone(), numbers(*dtype, *len)?)));
        Ok(Kept { values, moments: moments.collect::<std::io::Result<_>>()? })
    }
}

fn bytes_of(numbers: &Numbers) -> Vec<u8> {
    match numbers {
        Numbers::F32(numbers) => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        Numbers::F64(numbers) => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
    }
}

fn numbers_of(bytes: &[u8], dtype: DType) -> Numbers {
    match dtype {
        DType::F64 => Numbers::F64(
            bytes.chunks(8).map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight bytes"))).collect(),
        ),
        _ => Numbers::F32(
            bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes"))).collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(unit: usize, moments: &[&str]) -> Kept {
        let numbers = |seed: f32| Numbers::F32((0..unit + 3).map(|at| at as f32 + seed).collect());
        let moments = moments.iter().map(|name| ((*name).to_owned(), numbers(name.len() as f32)));
        Kept { values: numbers(0.5), moments: moments.collect() }
    }

    #[test]
    fn what_was_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::new(directory.path(), 3).unwrap();
        (0..3).for_each(|unit| store.write(unit, kept(unit, &[])).unwrap());
        store.read_ahead(1).unwrap();
        assert_eq!(store.bytes_read_ahead(), 16);
        // A second wish replaces the first.
        store.read_ahead(2).unwrap();
        assert_eq!(store.take().unwrap(), kept(2, &[]));
        store.write(2, kept(2, &["m", "variance"])).unwrap();
        store.read_ahead(2).unwrap();
        assert_eq!(store.take().unwrap(), kept(2, &["m", "variance"]));
        store.flush().unwrap();
        assert_eq!(store.bytes(), 4 * (3 + 4 + 3 * 5));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is named");
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let error = Store::new(Path::new("/nowhere/at/all"), 1).err().unwrap().to_string();
        assert!(error.contains("/nowhere/at/all"), "{error}");
    }
}
