//! What a trainer gives to a checkpoint beside its state, and takes back.

use super::trainer::Trainer;
use crate::checkpoint::{Checkpoint, LoadOptions, Progress};
use crate::error::Result;

impl Trainer {
    /// What a checkpoint must know of the training beside its state. Where the data stand, and random numbers of the caller's
    /// own, are the caller's to add.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            optimizer: self.optimizer.count().clone(),
            schedule_step: self.steps(),
            scaler: self.scaler.clone(),
            seed: self.options.parameters.seed,
            ..Progress::default()
        }
    }

    /// Goes on from a checkpoint, whatever layout wrote it: values, moments, the number of updates, and the scale of the loss if
    /// it is scaled here and was there. All ranks call it, between two steps. What else was saved is returned.
    ///
    /// # Errors
    /// Those of [`Checkpoint::load`]; it must have this optimizer's moments.
    pub fn load(&mut self, checkpoint: &Checkpoint) -> Result<Progress> {
        let moments = self.optimizer.moments().iter().map(|name| (*name).to_owned()).collect();
        let options = LoadOptions { moments, ..LoadOptions::default() };
        let progress = checkpoint.load(&self.mesh, &self.ownership, self.state.as_ref(), &options)?;
        self.optimizer.restore(progress.optimizer.clone());
        if let (Some(scaler), Some(saved)) = (&mut self.scaler, &progress.scaler) {
            *scaler = saved.clone();
        }
        self.loaded()?;
        Ok(progress)
    }
}
