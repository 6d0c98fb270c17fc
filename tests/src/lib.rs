//! What the tests of paceline as a whole share.

pub mod process;
