//! Named axes over ranks: which ranks belong together along which axis.
//!
//! [`Layout`] is arithmetic on rank numbers; [`Mesh`] makes communicators of its groups.

mod layout;
mod mesh;

pub use layout::{Axis, Layout};
pub use mesh::{Mesh, MeshOptions};
