//! Jobs of real processes: started, heard, struck by signals, and cleaned away.

mod blocks;
mod calls;
mod crossed;
mod inputs;
mod job;
mod namespaces;
mod plan;
mod room;
mod running;
mod said;
mod seeds;
mod sys;
mod tools;
mod usage;

pub use calls::{CALLS, Call, LENGTHS, ends_beside};
pub use crossed::{crossed, timed};
pub use inputs::Digest;
pub use job::Job;
pub use namespaces::{Namespaces, Net, Socket, sockets};
pub use plan::{Plan, unique};
pub use room::Room;
pub use running::{Process, Strike};
pub use said::{Said, agree, kind_of, now, say};
pub use seeds::{random, seeds};
pub use sys::{Side, fork};
pub use tools::{found, is_root, paceline, tool, worker};
pub use usage::{cpu_time, shared_memory_bytes};
