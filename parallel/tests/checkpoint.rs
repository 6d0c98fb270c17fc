//! Checkpoints: any layout to any other, through failures of every call, kill -9, and under training.

#[path = "checkpoint/crash.rs"]
mod crash;
#[path = "cut/mod.rs"]
mod cut;
#[path = "checkpoint/files.rs"]
mod files;
#[path = "checkpoint/refused.rs"]
mod refused;
#[path = "checkpoint/resume.rs"]
mod resume;
#[path = "checkpoint/states.rs"]
mod states;
