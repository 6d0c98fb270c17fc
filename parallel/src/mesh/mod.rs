//! Named axes over ranks: which ranks belong together along which axis.
//!
//! [`Layout`] is arithmetic on rank numbers; [`Mesh`] makes communicators of its groups.

mod groups;
mod layout;

pub use groups::{Mesh, MeshOptions};
pub use layout::{Axis, Layout};
