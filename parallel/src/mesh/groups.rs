//! A communicator cut along the axes of a layout.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use paceline_comm::Communicator;

use super::{Axis, Layout};
use crate::error::{Doing, Error, Result};

/// What a mesh allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeshOptions {
    /// Tensor-parallel groups may have ranks on several hosts, though each of their layers waits for the network four times.
    pub tensor_across_hosts: bool,
    /// Ranks are numbered anew where launchers dealt them out to hosts by turns, so that ranks close by number are close by wire.
    pub renumber: bool,
}

/// The ranks of a communicator, placed along axes; one rank's view.
///
/// Ranks that are close by number should be close by wire, as launchers number them: so the last axis of the layout, whose
/// neighbours differ by one, has the fastest links.
pub struct Mesh {
    world: Communicator,
    layout: Layout,
    /// By the axes along which a group runs, in the layout's order.
    groups: Mutex<BTreeMap<Vec<Axis>, Arc<Communicator>>>,
}

impl Mesh {
    /// Places the ranks of a communicator.
    ///
    /// # Errors
    /// The layout has another number of ranks, a tensor-parallel group spans hosts and that isn't allowed, or ranks that are
    /// numbered anew don't come together.
    pub fn new(world: Communicator, layout: Layout, options: MeshOptions) -> Result<Mesh> {
        if layout.ranks() != world.size() {
            let (ranks, size) = (layout.ranks(), world.size());
            return Err(Error::invalid(format!("the layout {layout} is for {ranks} ranks, and there are {size}")));
        }
        let world = if options.renumber { renumbered(world)? } else { world };
        if !options.tensor_across_hosts {
            stays_on_a_host(&world, &layout)?;
        }
        Ok(Mesh { world, layout, groups: Mutex::default() })
    }

    /// All ranks; numbered anew, if that was asked for and there was a reason.
    #[must_use]
    pub fn world(&self) -> &Communicator {
        &self.world
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// This rank's number in the world.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.world.rank()
    }

    /// Where this rank is along an axis.
    #[must_use]
    pub fn coordinate(&self, axis: Axis) -> usize {
        self.layout.coordinate(self.rank(), axis)
    }

    /// How many ranks there are along an axis.
    #[must_use]
    pub fn size(&self, axis: Axis) -> usize {
        self.layout.size(axis)
    }

    /// The communicator of the ranks that differ from this one along these axes only. It is made at the first call, which
    /// all ranks of the world must make in the same order.
    ///
    /// # Errors
    /// The ranks don't come together.
    pub fn group(&self, axes: &[Axis]) -> Result<Arc<Communicator>> {
        let named = self.layout.axes().iter().filter(|(axis, size)| *size > 1 && axes.contains(axis));
        let axes: Vec<Axis> = named.map(|(axis, _)| *axis).collect();
        let mut groups = self.groups.lock().expect("no panic while held");
        if let Some(group) = groups.get(&axes) {
            return Ok(group.clone());
        }
        let (color, key) = (self.layout.color(self.rank(), &axes), self.layout.place(self.rank(), &axes));
        let names = || axes.iter().map(|axis| axis.name()).collect::<Vec<_>>().join("+");
        let made = self.world.split(Some(color as u64), key as i64);
        let made = made.doing(|| format!("making the group along {}", names()))?;
        let made = Arc::new(made.ok_or_else(|| Error::invalid("a split gave this rank no communicator"))?);
        groups.insert(axes, made.clone());
        Ok(made)
    }
}

/// The same ranks in the order of their hosts.
fn renumbered(world: Communicator) -> Result<Communicator> {
    if world.layout().is_in_order() {
        return Ok(world);
    }
    let place = world.layout().place(world.rank() as u32);
    let made = world.split(Some(0), i64::from(place)).doing(|| "numbering the ranks by host".to_owned())?;
    made.ok_or_else(|| Error::invalid("a split gave this rank no communicator"))
}

fn stays_on_a_host(world: &Communicator, layout: &Layout) -> Result<()> {
    let host_of = world.layout().host_of();
    for rank in 0..world.size() {
        let group = layout.group(rank, &[Axis::Tp]);
        let first = group[0];
        let Some(far) = group.iter().find(|other| host_of[**other] != host_of[first]) else { continue };
        let (here, there) = (&world.peer(first).host, &world.peer(*far).host);
        return Err(Error::invalid(format!(
            "the layout {layout} puts ranks {first} ({here}) and {far} ({there}) into one tensor-parallel group: write tp \
             last and no larger than a host, number ranks by host (MeshOptions::renumber), or allow it with \
             MeshOptions::tensor_across_hosts"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_comm::{LinkKind, ReduceOp, Rendezvous, Setup};

    #[test]
    fn groups_are_made_once_and_sum_what_they_should() {
        let comms = Communicator::in_process(8).unwrap();
        let layout: Layout = "pp=2,dp=2,tp=2".parse().unwrap();
        std::thread::scope(|scope| {
            for comm in comms {
                let layout = layout.clone();
                scope.spawn(move || {
                    let mesh = Mesh::new(comm, layout, MeshOptions::default()).unwrap();
                    for axes in [&[Axis::Tp][..], &[Axis::Tp, Axis::Pp], &[Axis::Dp], &[Axis::Cp], &Axis::ALL] {
                        let group = mesh.group(axes).unwrap();
                        assert!(Arc::ptr_eq(&group, &mesh.group(axes).unwrap()));
                        let want: u64 = mesh.layout().group(mesh.rank(), axes).iter().map(|rank| 1 << rank).sum();
                        let mut got = [1u64 << mesh.rank()];
                        group.all_reduce_in_place(&mut got, ReduceOp::Sum).unwrap();
                        assert_eq!(got[0], want, "{axes:?}");
                    }
                });
            }
        });
    }

    /// Ranks 0 and 2 share memory; 1 and 3 are alone.
    #[test]
    fn ranks_of_a_host_get_numbers_that_follow_one_another() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for rank in 0..4 {
                let mut setup = Setup::new(rank, 4, Rendezvous::File(folder.path().join("here")));
                if rank % 2 == 1 {
                    setup.links = vec![LinkKind::Tcp];
                }
                scope.spawn(move || {
                    let world = Communicator::connect(&setup).unwrap();
                    assert_eq!(world.layout().hosts(), [vec![0, 2], vec![1], vec![3]]);
                    let options = MeshOptions { tensor_across_hosts: true, renumber: true };
                    let mesh = Mesh::new(world, "dp=2,tp=2".parse().unwrap(), options).unwrap();
                    assert_eq!(mesh.rank(), [0, 2, 1, 3][rank]);
                    let group = mesh.group(&[Axis::Tp]).unwrap();
                    assert_eq!(group.layout().n_hosts(), if rank % 2 == 0 { 1 } else { 2 });
                });
            }
        });
    }

    #[test]
    fn a_layout_must_fit() {
        let comm = Communicator::in_process(1).unwrap().remove(0);
        let error = Mesh::new(comm, "tp=2".parse().unwrap(), MeshOptions::default()).err().unwrap().to_string();
        assert!(error.contains("tp=2") && error.contains("2 ranks"), "{error}");
    }
}
