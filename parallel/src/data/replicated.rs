//! The state of a model that every rank has whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use paceline_comm::Collective;

use super::agree::same_parameters;
use super::axes::{Groups, summed_along};
use super::buckets::{Item, Sizes, cut};
use super::options::ReplicatedOptions;
use super::overlap::Overlap;
use super::reducer::{Bucket, Inside, Reducer, Seen};
use crate::error::{Doing, Result};
use crate::group::Group;
use crate::mesh::{Axis, Mesh};
use crate::parameter::Parameter;
use crate::state::{Numbers, Shard, State};

/// The state of a model that every rank has whole (DDP, ZeRO-0): gradients are added along the data axes, and along any other
/// axis along which a parameter is replicated.
///
/// Each bucket of gradients is a [`Shard`]. In the first step buckets are filled in reverse order of the parameters; then
/// once more, in the order in which rank 0 saw gradients become complete.
pub struct Replicated {
    parameters: Vec<Parameter>,
    reducer: Arc<Reducer>,
    /// All ranks whose gradients meet anywhere, if there is more than one.
    everyone: Option<Group>,
    axes: Vec<Vec<Axis>>,
    is_ordered: Mutex<bool>,
}

impl Replicated {
    /// Keeps these parameters from now on. All ranks must have the same, in the same order; they begin with the values of
    /// rank 0.
    ///
    /// # Errors
    /// The parameters differ ([`Differs`](crate::Error::Differs) says where), or a collective fails.
    pub fn new(parameters: Vec<Parameter>, mesh: &Mesh, options: ReplicatedOptions) -> Result<Replicated> {
        let axes: Vec<Vec<Axis>> =
            parameters.iter().map(|parameter| summed_along(mesh, parameter, &options.axes)).collect();
        let wanted: BTreeSet<Vec<Axis>> = axes.iter().filter(|axes| !axes.is_empty()).cloned().collect();
        let groups = Groups::agree(mesh, &wanted)?;
        let all_axes = groups.all_axes();
        let everyone = if all_axes.is_empty() { None } else { Some(Group::along(mesh, &all_axes)?) };
        if let Some(everyone) = &everyone {
            same_parameters(everyone, &mesh.layout().group(mesh.rank(), &all_axes), &parameters)?;
        }
        let places =
            parameters.iter().enumerate().map(|(place, parameter)| (parameter.name().to_owned(), place)).collect();
        let order: Vec<usize> = (0..parameters.len()).rev().collect();
        let plan = plan(&parameters, &axes, &order, &options);
        let shard = |members: &Vec<usize>| {
            Shard::of(&members.iter().map(|member| parameters[*member].clone()).collect::<Vec<_>>())
        };
        let buckets =
            plan.iter().map(|members| Ok(Bucket::new(shard(members)?, &axes[members[0]], members, options.adding)));
        let mut buckets = buckets.collect::<Result<Vec<_>>>()?;
        for bucket in &mut buckets {
            if let Some(group) = groups.along(&bucket.axes) {
                broadcast(&mut bucket.shard.values, group)?;
            }
            bucket.shard.give_values()?;
        }
        let seen = seen(&plan, parameters.len());
        let inside = Mutex::new(Inside::new(buckets, seen));
        let reducer = Arc::new(Reducer { groups, options, places, inside });
        parameters.iter().for_each(|parameter| parameter.keep_by(&reducer));
        Ok(Replicated { parameters, reducer, everyone, axes, is_ordered: Mutex::new(false) })
    }

    /// Which parameters share a bucket, in the order in which buckets leave.
    #[must_use]
    pub fn buckets(&self) -> Vec<Vec<String>> {
        let inside = self.reducer.inside.lock().expect("no panic while held");
        let name = |member: &usize| self.parameters[*member].name().to_owned();
        inside.buckets.iter().map(|bucket| bucket.members.iter().map(name).collect()).collect()
    }

    /// How much of the sending was hidden so far.
    #[must_use]
    pub fn overlap(&self) -> Overlap {
        self.reducer.inside.lock().expect("no panic while held").overlap
    }

    /// The groups along which gradients are added, with their accounts of traffic.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.reducer.groups.iter()
    }

    /// Fills the buckets anew in the order of rank 0, once it has seen one.
    fn order_buckets(&self, inside: &mut Inside) -> Result<()> {
        let mut is_ordered = self.is_ordered.lock().expect("no panic while held");
        if *is_ordered {
            return Ok(());
        }
        let mut order: Vec<u32> = (0..self.parameters.len() as u32).collect();
        // Those that weren't seen come last, as if after all others.
        order.sort_by_key(|member| match inside.seen[*member as usize].last {
            0 => (u64::MAX, std::cmp::Reverse(*member)),
            last => (last, std::cmp::Reverse(*member)),
        });
        let mut message = vec![u32::from(inside.seen.iter().any(|seen| seen.last > 0))];
        message.extend(order);
        if let Some(everyone) = &self.everyone {
            everyone.count(Collective::Broadcast, 4 * message.len());
            let told = everyone.comm().broadcast(&mut message, 0);
            told.doing(|| "learning the order of gradients from rank 0".to_owned())?;
        }
        if message[0] == 0 {
            return Ok(());
        }
        *is_ordered = true;
        let order: Vec<usize> = message[1..].iter().map(|member| *member as usize).collect();
        let plan = plan(&self.parameters, &self.axes, &order, &self.reducer.options);
        let buckets = plan.iter().map(|members| {
            let shard = gathered(members, inside, &self.parameters)?;
            Ok(Bucket::new(shard, &self.axes[members[0]], members, self.reducer.options.adding))
        });
        inside.buckets = buckets.collect::<Result<Vec<_>>>()?;
        for (bucket, members) in plan.iter().enumerate() {
            members.iter().enumerate().for_each(|(segment, member)| inside.seen[*member].place = (bucket, segment));
        }
        Ok(())
    }
}

impl State for Replicated {
    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn last_micro_batch(&self) {
        self.reducer.last_micro_batch();
    }

    fn finish_gradients(&self) -> Result<()> {
        self.reducer.finish()
    }

    fn visit(&self, each: &mut dyn FnMut(&mut Shard) -> Result<()>) -> Result<()> {
        let mut inside = self.reducer.inside.lock().expect("no panic while held");
        inside.buckets.iter_mut().try_for_each(|bucket| each(&mut bucket.shard))
    }

    fn sending(&self) -> Option<Overlap> {
        Some(self.overlap())
    }

    fn distinct_along(&self) -> Vec<Axis> {
        Vec::new()
    }

    fn publish(&self) -> Result<()> {
        let mut inside = self.reducer.inside.lock().expect("no panic while held");
        inside.buckets.iter().try_for_each(|bucket| bucket.shard.give_values())?;
        self.order_buckets(&mut inside)?;
        Reducer::begin(&mut inside);
        Ok(())
    }
}

fn plan(parameters: &[Parameter], axes: &[Vec<Axis>], order: &[usize], options: &ReplicatedOptions) -> Vec<Vec<usize>> {
    let items: Vec<Item> = parameters
        .iter()
        .zip(axes)
        .map(|(parameter, axes)| {
            let dtype = Numbers::type_for(parameter.dtype());
            Item { key: (axes.clone(), dtype), bytes: parameter.part().len() * dtype.size_in_bytes() }
        })
        .collect();
    cut(order, &items, Sizes { first_bytes: options.first_bucket_bytes, bytes: options.bucket_bytes })
}

fn seen(plan: &[Vec<usize>], parameters: usize) -> Vec<Seen> {
    let mut seen = vec![Seen::at((0, 0)); parameters];
    for (bucket, members) in plan.iter().enumerate() {
        members.iter().enumerate().for_each(|(segment, member)| seen[*member].place = (bucket, segment));
    }
    seen
}

fn broadcast(values: &mut Numbers, group: &Group) -> Result<()> {
    let empty = Numbers::zeros(values.dtype(), 0);
    let mut elements = std::mem::replace(values, empty).into_elements();
    group.count(Collective::Broadcast, elements.bytes());
    elements.broadcast(group.comm(), 0).doing(|| "taking over the values of rank 0".to_owned())?;
    *values = Numbers::from_elements(elements)?;
    Ok(())
}

/// A shard of these parameters with what is known of them in other shards.
fn gathered(members: &[usize], inside: &Inside, parameters: &[Parameter]) -> Result<Shard> {
    let list: Vec<Parameter> = members.iter().map(|member| parameters[*member].clone()).collect();
    let mut shard = Shard::of(&list)?;
    let mut moments: BTreeMap<String, Numbers> = BTreeMap::new();
    for (segment, member) in shard.segments.iter().zip(members) {
        let (bucket, place) = inside.seen[*member].place;
        let from = &inside.buckets[bucket].shard;
        let range = from.segments[place].range.clone();
        let copy = |numbers: &Numbers, to: &mut Numbers| {
            to.write(segment.range.start, &numbers.tensor(range.clone(), range.len(), numbers.dtype())?)
        };
        copy(&from.values, &mut shard.values)?;
        for (name, numbers) in &from.moments {
            let moment =
                moments.entry(name.clone()).or_insert_with(|| Numbers::zeros(numbers.dtype(), shard.values.len()));
            copy(numbers, moment)?;
        }
    }
    shard.moments = moments;
    Ok(shard)
}

impl std::fmt::Debug for Replicated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replicated {{ parameters: {}, axes: {:?} }}", self.parameters.len(), self.reducer.options.axes)
    }
}
