//! The link contract (`paceline_transport::link`), promise by promise, on every kind of link.

mod channels;
mod ends;
#[cfg(feature = "rdma")]
mod lent;
mod moving;
mod pressure;
#[cfg(feature = "rdma")]
mod registered;
mod sleeping;
mod traffic;
