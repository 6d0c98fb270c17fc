//! Checkpoints: written by all ranks while training goes on, committed by one rename, loaded into any layout.
//!
//! What a rank has is stored as stretches of boxes of logical tensors. So a checkpoint doesn't say how the state was
//! spread, only which logical elements lie where, and whoever loads it reads what it needs. `docs/checkpoints.md` describes
//! the files and what happens when something fails.

mod blocks;
mod directory;
mod files;
mod hash;
mod image;
mod load;
mod manifest;
mod plain;
mod progress;
mod reading;
mod saver;
mod write;

pub use files::{Disk, Files};
pub use hash::{LogicalHash, logical_hash};
pub use load::{Extra, LoadOptions, Missing};
pub use manifest::{Checkpoint, TensorInfo};
pub use plain::import;
pub use progress::Progress;
pub use saver::{Saved, Saver, SaverOptions};

/// What the parameters themselves are called among the numbers of an element.
const VALUE: &str = "value";
