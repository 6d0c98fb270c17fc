//! Where ranks are, and what follows from it: in which order rows take them, and what passes between hosts.
//!
//! Pure: all ranks compute the same from what all have told each other.

mod cluster;
mod crossing;
mod estimate;
mod layout;
mod path;
mod price;
mod trees;

pub use cluster::{Cluster, Fabric, Trouble, Wire};
pub use crossing::Crossing;
pub use estimate::Estimate;
pub use layout::{Layout, Spot};
pub use price::Links;
pub use trees::Tree;
