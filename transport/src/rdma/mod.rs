//! InfiniBand and RoCE: a link by RDMA writes and reads, with the operating system out of the way (feature `rdma`).
//!
//! `README.md` says why it is so: sequence, credits, what is written when. Parts that decide know no device and are tested
//! without one: which ports (`choice`), addresses (`gid`) and pairs of them (`path`) to use, from what the kernel says (`facts`); order
//! (`order`); credits (`window`). Those that do: opened ports (`adapter`), a port's part in a link (`rail`), the link
//! itself (`link`, `send`, `fetch`), memory that devices may reach (`registration`), and how a link comes about (`connect`).
//! `verbs` is the interface to the device.

mod adapter;
mod choice;
mod connect;
pub mod doctor;
mod errors;
mod facts;
mod fetch;
mod frame;
mod gid;
mod immediate;
mod link;
mod offer;
mod options;
mod order;
mod path;
mod rail;
mod registration;
mod send;
mod slab;
mod traffic;
mod verbs;
mod window;

pub(crate) use adapter::Adapters;
pub(crate) use connect::{Offer, Opening, Trial};
pub use errors::RdmaError;
pub(crate) use link::RdmaLink;
pub use options::RdmaOptions;
pub(crate) use registration::{LOAN_BYTES_MIN, Loan, Registered};
pub use traffic::Traffic;
