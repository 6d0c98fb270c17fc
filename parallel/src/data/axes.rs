//! Along which axes a parameter's gradients are added, and the groups for that.

use std::collections::{BTreeMap, BTreeSet};

use paceline_comm::ReduceOp;

use crate::error::{Doing, Result};
use crate::group::Group;
use crate::mesh::{Axis, Mesh};
use crate::parameter::Parameter;
use crate::value::Kind;

/// The axes along which other ranks have gradients that belong to the same numbers: those of the data, unless each rank has a
/// part of its own there, and those along which the parameter is replicated.
pub(crate) fn summed_along(mesh: &Mesh, parameter: &Parameter, data: &[Axis]) -> Vec<Axis> {
    let belongs = |axis: &Axis| match parameter.spread().along(*axis) {
        Kind::Varying => false,
        Kind::Replicated => true,
        Kind::Invariant | Kind::Partial => data.contains(axis),
    };
    Axis::ALL.into_iter().filter(|axis| mesh.size(*axis) > 1).filter(belongs).collect()
}

/// Groups by the axes along which they run.
pub(crate) struct Groups(BTreeMap<Vec<Axis>, Group>);

impl Groups {
    /// Makes the groups that any rank of the world wants: stages of a pipeline, say, may want different ones, and all ranks
    /// must make them in one order.
    pub(crate) fn agree(mesh: &Mesh, wanted: &BTreeSet<Vec<Axis>>) -> Result<Groups> {
        let mut flags = [0u8; 1 << Axis::ALL.len()];
        wanted.iter().for_each(|axes| flags[code(axes)] = 1);
        let agreed = mesh.world().all_reduce_in_place(&mut flags, ReduceOp::Max);
        agreed.doing(|| "agreeing on the groups along which gradients are added".to_owned())?;
        let codes = (1..flags.len()).filter(|code| flags[*code] == 1);
        let made = codes.map(|code| {
            let axes: Vec<Axis> = Axis::ALL.into_iter().filter(|axis| code & bit(*axis) != 0).collect();
            Ok((axes.clone(), Group::along(mesh, &axes)?))
        });
        Ok(Groups(made.collect::<Result<_>>()?))
    }

    /// The group along these axes; `None` along none, where there is nobody else.
    pub(crate) fn along(&self, axes: &[Axis]) -> Option<&Group> {
        self.0.get(axes)
    }

    /// All of them, in the order in which every rank has them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.0.values()
    }

    /// The axes along which any of them runs, anywhere in the world.
    pub(crate) fn all_axes(&self) -> Vec<Axis> {
        Axis::ALL.into_iter().filter(|axis| self.0.keys().any(|axes| axes.contains(axis))).collect()
    }
}

fn bit(axis: Axis) -> usize {
    1 << Axis::ALL.iter().position(|other| *other == axis).expect("all axes are there")
}

fn code(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| bit(*axis)).sum()
}
