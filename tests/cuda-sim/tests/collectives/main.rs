//! Collectives over memory of devices: every collective, type and operator, both ways that a call may take, between threads
//! and between processes, in graphs, and with faults.
//!
//! On the software driver, unless the feature `gpu-tests` or `PACELINE_TEST_CUDA=1` says that the real one is there.

mod conformance;
mod copy_engines;
mod faults;
mod graphs;
mod messages;
mod order;
mod processes;
mod registered;
mod streamed;
mod world;
