//! Ranks that call different things, and calls that can't be meant: an error that says so, on every rank, and no hang.

mod arguments;
mod disagree;
mod zeros;
