//! The CUDA driver: devices, their memory, streams, events, code, and the memory of other processes' devices.
//!
//! A thin, safe layer: owners that give back what they own when they are dropped, and errors that say what to check. It knows
//! bytes, addresses and kernels, and nothing of what they are for. The driver's library is looked for at run time: where
//! there is none, every entrance ([`Device::count`], [`Device::open`], [`pointer()`]) says so.
//!
//! No call waits for ever. What waits for the device takes a deadline or has one (30 seconds for clearing, reading and writing
//! memory); what is dropped waits five seconds at most, and a thread of its own for the rest.
//!
//! See "The layer over the driver" in `docs/cuda.md` for what NVIDIA documents of the behaviour that this relies upon.

mod bounded;
mod compiler;
mod device;
mod error;
mod event;
mod graph;
mod host;
mod host_call;
mod ipc;
mod memory;
mod module;
mod peer;
mod pointer;
mod stream;
mod sys;

pub use compiler::{Compiled, Compiler, CompilerError};
pub use device::{Current, Device};
pub use error::{CudaError, FailedCall};
pub use event::Event;
pub use graph::Graph;
pub use host::HostMemory;
pub use host_call::HostFunction;
pub use ipc::{ImportedMemory, IpcHandle};
pub use memory::DeviceMemory;
pub use module::{Function, Module};
pub use peer::{PeerFacts, PeerMemory, Unreachable};
pub use pointer::{Place, pointer};
pub use stream::{Comparison, Priority, Shape, Stream};
