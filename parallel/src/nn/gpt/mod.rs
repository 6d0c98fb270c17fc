//! A decoder-only transformer, whole or in stages.

mod config;
mod model;

pub use config::{GptConfig, HeadKind, MlpKind, NormKind, PositionKind};
pub use model::{Gpt, Stage};
