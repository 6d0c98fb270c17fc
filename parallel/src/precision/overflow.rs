//! Whether any rank's gradients have overflowed.

use paceline_comm::ReduceOp;

use crate::error::{Doing, Result};
use crate::mesh::Mesh;
use crate::state::{Numbers, State};

/// Gradients that are infinite or not a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow {
    /// The highest rank that has some.
    pub rank: usize,
}

/// Whether a gradient is not finite on any rank; all ranks are told the same. All ranks of the mesh call it together, when
/// the gradients are whole.
///
/// # Errors
/// The collective fails.
pub fn overflowed(mesh: &Mesh, state: &dyn State) -> Result<Option<Overflow>> {
    let mut finite = true;
    state.visit(&mut |shard| {
        finite &= match &shard.gradients {
            Numbers::F32(numbers) => numbers.iter().fold(true, |all, number| all & number.is_finite()),
            Numbers::F64(numbers) => numbers.iter().fold(true, |all, number| all & number.is_finite()),
        };
        Ok(())
    })?;
    let mut worst = [if finite { 0 } else { mesh.rank() as u64 + 1 }];
    let doing = || "asking all ranks for overflow".to_owned();
    mesh.world().all_reduce_in_place(&mut worst, ReduceOp::Max).doing(doing)?;
    Ok(worst[0].checked_sub(1).map(|rank| Overflow { rank: rank as usize }))
}
