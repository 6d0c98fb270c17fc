//! Jobs of real processes: started, heard, struck by signals, and cleaned away.

mod calls;
mod job;
mod namespaces;
mod room;
mod said;
mod seeds;
mod sys;
mod tools;
mod usage;

pub use calls::{CALLS, Call, Digest, LENGTHS};
pub use job::{Job, Plan, Process, Strike, unique};
pub use namespaces::{Namespaces, Net, Socket, sockets};
pub use room::Room;
pub use said::{Said, agree, kind_of, now, say};
pub use seeds::{random, seeds};
pub use sys::{Side, fork};
pub use tools::{found, is_root, paceline, tool, worker};
pub use usage::{cpu_time, shared_memory_bytes};
