//! Saves while training goes on: the state is copied, and a thread writes the copy.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use paceline_comm::CallOptions;

use super::files::{Disk, Files};
use super::hash::LogicalHash;
use super::image::Image;
use super::progress::Progress;
use super::write::{Target, save};
use crate::agreement::agree;
use crate::error::{Doing, Error, Result};
use crate::mesh::Mesh;
use crate::optimizer::Ownership;
use crate::state::State;

/// How checkpoints are written.
#[derive(Clone)]
pub struct SaverOptions {
    /// How many of the latest checkpoints are kept, one at least.
    pub keep: usize,
    /// How long a rank waits for the slowest one to have written its file.
    pub timeout: Duration,
    /// What changes files.
    pub files: Arc<dyn Files>,
}

impl Default for SaverOptions {
    fn default() -> SaverOptions {
        SaverOptions { keep: 2, timeout: Duration::from_secs(1800), files: Arc::new(Disk) }
    }
}

/// A checkpoint that was committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Its directory.
    pub path: PathBuf,
    /// The hash of what is in it.
    pub hash: LogicalHash,
}

/// Writes checkpoints of one mesh to one directory, which all ranks must see. It has a thread only while it writes.
pub struct Saver {
    target: Arc<Target>,
    under_way: Option<JoinHandle<Result<Saved>>>,
}

impl Saver {
    /// A saver with a communicator of its own, so that ranks can agree while others of their collectives are under way. All
    /// ranks of the mesh call it together.
    ///
    /// # Errors
    /// The ranks don't come together, or no checkpoint is to be kept.
    pub fn new(mesh: &Mesh, directory: impl AsRef<Path>, options: SaverOptions) -> Result<Saver> {
        if options.keep == 0 {
            return Err(Error::invalid("a saver that keeps no checkpoint"));
        }
        let comm = mesh.world().split(Some(0), mesh.rank() as i64).doing(|| "making a saver's group".to_owned())?;
        let comm = comm.ok_or_else(|| Error::invalid("a split gave this rank no communicator"))?;
        let comm = comm.with(CallOptions { timeout: Some(options.timeout), ..CallOptions::default() });
        let target = Target {
            comm: Arc::new(comm),
            layout: mesh.layout().clone(),
            files: options.files,
            directory: directory.as_ref().to_owned(),
            keep: options.keep,
        };
        Ok(Saver { target: Arc::new(target), under_way: None })
    }

    /// Begins a checkpoint of a state between two steps. When it returns, the state has been copied and may change. It waits
    /// for the one before, if that isn't finished. All ranks call it together.
    ///
    /// # Errors
    /// The checkpoint before this one failed (then this one hasn't begun, and another call may try again), or the state's
    /// shards have changed since `ownership` was agreed on.
    pub fn save(&mut self, ownership: &Ownership, state: &dyn State, progress: &Progress) -> Result<()> {
        self.wait()?;
        // A rank that can't copy must not leave the others waiting for it.
        let image = agree(&self.target.comm, Image::of(ownership, state), "copying the state")?;
        let (target, progress) = (self.target.clone(), progress.clone());
        let thread = std::thread::Builder::new().name("checkpoint".to_owned());
        let started = thread.spawn(move || save(&target, &image, progress));
        self.under_way = Some(started.doing(|| "starting a thread that writes a checkpoint".to_owned())?);
        Ok(())
    }

    /// Waits for the checkpoint that is under way: what was committed, if one is.
    ///
    /// # Errors
    /// It failed, on any rank: then on all, and the one before is still the latest.
    pub fn wait(&mut self) -> Result<Option<Saved>> {
        let Some(thread) = self.under_way.take() else { return Ok(None) };
        thread.join().unwrap_or_else(|_| Err(Error::invalid("the thread that writes a checkpoint panicked"))).map(Some)
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            tracing::error!(%error, "a checkpoint was not saved");
        }
    }
}
