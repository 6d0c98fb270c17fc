//! Checkpoints: any layout to any other, through failures of every call, kill -9, and under training.

mod crash;
mod files;
mod refused;
mod resume;
mod states;
mod trainer;
