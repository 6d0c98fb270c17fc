//! What the benchmarks share: the loop, the peers, and the table.

mod measure;
mod peers;
mod table;

pub use measure::{SIZES, Work, run_paceline, work_list, worker};
pub use peers::{Mpi, Peer, find_peers};
pub use table::Table;
