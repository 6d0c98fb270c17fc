//! Takes gradients as they come, and sends each bucket when it and all before it are complete.
//!
//! "All before it" is what makes every rank start the same collectives in the same order, though gradients may come in
//! another order on each. A parameter that is used again after its bucket has left (two recomputed segments share it, say)
//! gives *late* gradients, which are added in a second round that the ranks agree on at the end; from the next step on as many
//! completions are awaited as were seen.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use candle_core::Tensor;
use paceline_comm::{Collective, ReduceOp};

use super::adding::{Adding, Tree};
use super::axes::Groups;
use super::hook::{CommHook, Plain, Reduction};
use super::options::{ReplicatedOptions, Unused};
use super::overlap::Overlap;
use crate::error::{Doing, Error, Result};
use crate::mesh::Axis;
use crate::parameter::{Keeper, Parameter};
use crate::state::{Numbers, Shard};

/// Parameters whose gradients leave together.
pub(super) struct Bucket {
    pub(super) shard: Shard,
    pub(super) axes: Vec<Axis>,
    /// The parameter of each segment.
    pub(super) members: Vec<usize>,
    /// Earlier micro-batches, where they are added as a tree.
    tree: Option<Tree>,
    /// What came after the gradients had left.
    late: Option<Numbers>,
    flight: Option<(Box<dyn Reduction>, Instant)>,
    has_left: bool,
}

impl Bucket {
    pub(super) fn new(shard: Shard, axes: &[Axis], members: &[usize], adding: Adding) -> Bucket {
        let tree = (adding == Adding::AsTree).then(|| Tree::new(members.len()));
        let (axes, members) = (axes.to_vec(), members.to_vec());
        Bucket { shard, axes, members, tree, late: None, flight: None, has_left: false }
    }
}

/// What is known of a parameter's gradients.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// Its bucket, and its segment there.
    pub(super) place: (usize, usize),
    /// Whether it has had a gradient in this step.
    used: bool,
    /// How often all its uses had given theirs, since the last micro-batch began.
    completions: u32,
    /// How often that is awaited before its bucket leaves.
    awaited: u32,
    /// When that was the last time, as a number that grows.
    pub(super) last: u64,
}

impl Seen {
    pub(super) fn at(place: (usize, usize)) -> Seen {
        Seen { place, used: false, completions: 0, awaited: 1, last: 0 }
    }
}

pub(super) struct Reducer {
    pub(super) groups: Groups,
    pub(super) options: ReplicatedOptions,
    pub(super) places: BTreeMap<String, usize>,
    pub(super) inside: Mutex<Inside>,
}

pub(super) struct Inside {
    pub(super) buckets: Vec<Bucket>,
    pub(super) seen: Vec<Seen>,
    /// The first bucket that hasn't left.
    next: usize,
    is_last: bool,
    is_finished: bool,
    completions: u64,
    /// Whether parameters have not been used in any step yet.
    is_first_step: bool,
    pub(super) overlap: Overlap,
}

impl Inside {
    pub(super) fn new(buckets: Vec<Bucket>, seen: Vec<Seen>) -> Inside {
        Inside {
            buckets,
            seen,
            next: 0,
            is_last: false,
            is_finished: false,
            completions: 0,
            is_first_step: true,
            overlap: Overlap::default(),
        }
    }
}

impl Keeper for Reducer {
    fn gradient(&self, parameter: &Parameter, gradient: Tensor) -> Result<()> {
        let which = self.place(parameter)?;
        let mut inside = self.inside.lock().expect("no panic while held");
        let Inside { buckets, seen, .. } = &mut *inside;
        seen[which].used = true;
        let (bucket, segment) = seen[which].place;
        let Bucket { shard, late, has_left, .. } = &mut buckets[bucket];
        let first = shard.segments[segment].range.start;
        if *has_left {
            return late.get_or_insert_with(|| shard.values.zeros_alike()).add(first, &gradient);
        }
        shard.gradients.add(first, &gradient)
    }

    fn complete(&self, parameter: &Parameter) -> Result<()> {
        let which = self.place(parameter)?;
        let mut inside = self.inside.lock().expect("no panic while held");
        let (bucket, segment) = inside.seen[which].place;
        let Bucket { shard, tree, has_left, .. } = &mut inside.buckets[bucket];
        if let Some(tree) = tree.as_mut().filter(|_| !*has_left) {
            tree.take(segment, &shard.segments[segment].range, &mut shard.gradients);
        }
        if !inside.is_last {
            return Ok(());
        }
        inside.completions += 1;
        let now = inside.completions;
        let seen = &mut inside.seen[which];
        (seen.completions, seen.last) = (seen.completions + 1, now);
        while inside.next < inside.buckets.len() && inside.is_complete(inside.next) {
            let next = inside.next;
            inside.overlap.started_early += 1;
            self.send(&mut inside, next)?;
            inside.next += 1;
        }
        Ok(())
    }
}

impl Inside {
    fn is_complete(&self, bucket: usize) -> bool {
        let members = &self.buckets[bucket].members;
        members.iter().all(|member| self.seen[*member].completions >= self.seen[*member].awaited)
    }
}

impl Reducer {
    fn place(&self, parameter: &Parameter) -> Result<usize> {
        let place = self.places.get(parameter.name()).copied();
        place.ok_or_else(|| Error::invalid(format!("{} is kept elsewhere", parameter.name())))
    }

    pub(super) fn last_micro_batch(&self) {
        self.inside.lock().expect("no panic while held").is_last = true;
    }

    fn send(&self, inside: &mut Inside, bucket: usize) -> Result<()> {
        let Bucket { shard, axes, tree, flight, has_left, .. } = &mut inside.buckets[bucket];
        *has_left = true;
        if let Some(tree) = tree {
            tree.give(&shard.segments, &mut shard.gradients);
        }
        if let Some(group) = self.groups.along(axes) {
            let empty = Numbers::zeros(shard.gradients.dtype(), 0);
            let gradients = std::mem::replace(&mut shard.gradients, empty);
            inside.overlap.started += 1;
            *flight = Some((self.options.hook.start(&shard.segments, gradients, group)?, Instant::now()));
        }
        Ok(())
    }

    /// See [`crate::state::State::finish_gradients`].
    pub(super) fn finish(&self) -> Result<()> {
        let mut inside = self.inside.lock().expect("no panic while held");
        if std::mem::replace(&mut inside.is_finished, true) {
            return Ok(());
        }
        for bucket in inside.next..inside.buckets.len() {
            self.send(&mut inside, bucket)?;
        }
        inside.next = inside.buckets.len();
        let asked = Instant::now();
        let Inside { buckets, overlap, .. } = &mut *inside;
        for (reduction, begun) in buckets.iter().filter_map(|bucket| bucket.flight.as_ref()) {
            overlap.ask(*begun, asked, reduction.is_ready());
        }
        let (unused, late) = self.agree(&mut inside)?;
        let mut second = Vec::new();
        for bucket in late {
            let Bucket { shard, axes, late, .. } = &mut inside.buckets[bucket];
            let late = late.take().unwrap_or_else(|| shard.values.zeros_alike());
            let group = self.groups.along(axes).expect("only a group can have agreed on a second round");
            second.push((bucket, Plain.start(&shard.segments, late, group)?));
        }
        let Inside { buckets, overlap, .. } = &mut *inside;
        for bucket in buckets.iter_mut() {
            if let Some((reduction, _)) = bucket.flight.take() {
                bucket.shard.gradients = reduction.finish()?;
            }
            // Where there is nobody else, what is late is simply more.
            if let Some(late) = bucket.late.take() {
                let len = late.len();
                bucket.shard.gradients.add(0, &late.tensor(0..len, len, late.dtype())?)?;
            }
        }
        for (bucket, reduction) in second {
            let late = reduction.finish()?;
            buckets[bucket].shard.gradients.add(0, &late.tensor(0..late.len(), late.len(), late.dtype())?)?;
        }
        overlap.waited += asked.elapsed();
        match unused {
            Some(text) if self.options.unused == Unused::Refused => Err(Error::Invalid(text)),
            _ => Ok(()),
        }
    }

    /// Learns which parameters nobody has used, and which buckets are to be added once more. What is wrong with unused
    /// parameters is the same on all ranks of a group.
    fn agree(&self, inside: &mut Inside) -> Result<(Option<String>, Vec<usize>)> {
        let (mut unused, mut late) = (None, Vec::new());
        let has_data = inside.seen.iter().any(|seen| seen.used);
        let mut axes: Vec<Vec<Axis>> = inside.buckets.iter().map(|bucket| bucket.axes.clone()).collect();
        axes.sort();
        axes.dedup();
        for axes in axes {
            let buckets: Vec<usize> =
                (0..inside.buckets.len()).filter(|bucket| inside.buckets[*bucket].axes == axes).collect();
            let members: Vec<(usize, usize, usize)> = buckets
                .iter()
                .flat_map(|bucket| {
                    let members = inside.buckets[*bucket].members.iter().enumerate();
                    members.map(|(segment, member)| (*bucket, segment, *member))
                })
                .collect();
            let mut counts = vec![u32::from(has_data)];
            counts.extend(members.iter().map(|(.., member)| u32::from(inside.seen[*member].used)));
            if let Some(group) = self.groups.along(&axes) {
                counts.extend(buckets.iter().map(|bucket| u32::from(inside.buckets[*bucket].late.is_some())));
                group.count(Collective::AllReduce, 4 * counts.len());
                let agreed = group.comm().all_reduce_in_place(&mut counts, ReduceOp::Sum);
                agreed.doing(|| "agreeing on which parameters were used".to_owned())?;
                let flags = &counts[1 + members.len()..];
                late.extend(buckets.iter().zip(flags).filter(|(_, flag)| **flag > 0).map(|(bucket, _)| *bucket));
            }
            for ((bucket, segment, _), count) in members.iter().zip(&counts[1..]) {
                let segment = &mut inside.buckets[*bucket].shard.segments[*segment];
                segment.has_gradient = *count > 0;
                if *count < counts[0] {
                    let (name, ranks) = (segment.parameter.name(), counts[0]);
                    unused.get_or_insert_with(|| {
                        format!(
                            "{name} was used by {count} of the {ranks} ranks that had data: use it on all of them, or \
                             allow unused parameters (Unused::Allowed)"
                        )
                    });
                }
            }
        }
        late.sort_unstable();
        Ok((unused, late))
    }

    /// Forgets the step's gradients.
    pub(super) fn begin(inside: &mut Inside) {
        for bucket in &mut inside.buckets {
            bucket.shard.forget_gradients();
            bucket.tree.iter_mut().for_each(Tree::clear);
            bucket.has_left = false;
        }
        let has_data = inside.completions > 0;
        for seen in &mut inside.seen {
            let least = if inside.is_first_step { 0 } else { seen.awaited };
            if has_data {
                seen.awaited = seen.completions.max(least);
            }
            (seen.used, seen.completions) = (false, 0);
        }
        inside.is_first_step &= !has_data;
        (inside.next, inside.is_last, inside.is_finished, inside.completions) = (0, false, false, 0);
    }
}
