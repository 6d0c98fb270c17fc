//! InfiniBand and RoCE: a link by RDMA writes, with the operating system out of the way (feature `rdma`).
//!
//! `README.md` says why it is so: sequence, credits, what is written when. Parts that decide know no device and are tested
//! without one: which ports (`choice`) and addresses (`gid`) to use, from what the kernel says (`facts`); order
//! (`order`); credits (`window`). Those that do: opened ports (`adapter`), a port's part in a link (`rail`), the link
//! itself (`link`), and how one comes about (`connect`). `verbs` is the interface to the device.

mod options;

pub use options::RdmaOptions;

#[cfg(feature = "rdma")]
mod adapter;
#[cfg(feature = "rdma")]
mod choice;
#[cfg(feature = "rdma")]
mod connect;
#[cfg(feature = "rdma")]
pub mod doctor;
#[cfg(feature = "rdma")]
mod errors;
#[cfg(feature = "rdma")]
mod facts;
#[cfg(feature = "rdma")]
mod frame;
#[cfg(feature = "rdma")]
mod gid;
#[cfg(feature = "rdma")]
mod immediate;
#[cfg(feature = "rdma")]
mod link;
#[cfg(feature = "rdma")]
mod order;
#[cfg(feature = "rdma")]
mod place;
#[cfg(feature = "rdma")]
mod placing;
#[cfg(feature = "rdma")]
mod rail;
#[cfg(feature = "rdma")]
mod registration;
#[cfg(feature = "rdma")]
mod send;
#[cfg(feature = "rdma")]
mod slab;
#[cfg(feature = "rdma")]
mod traffic;
#[cfg(feature = "rdma")]
mod verbs;
#[cfg(feature = "rdma")]
mod window;

#[cfg(feature = "rdma")]
pub use errors::RdmaError;
#[cfg(feature = "rdma")]
pub use traffic::Traffic;
#[cfg(feature = "rdma")]
pub(crate) use {
    adapter::Adapters,
    connect::{Offer, Opening, Trial},
    link::RdmaLink,
};
