//! The sum in a fixed order: the same bits whatever the buckets, the algorithm and the links.
//!
//! Each rank gets all ranks' contributions to its block and adds them itself, as a binary tree over the ranks in their order;
//! then the blocks are gathered. That sends as much as a ring does: (n-1)/n of the bucket twice.

use std::ops::AddAssign;

use paceline_comm::{Collective, Element, Work};

use super::{CommHook, Reduction};
use crate::error::{Doing, Result};
use crate::group::{Group, add_in_order};
use crate::state::{Numbers, Segment};

/// Adds buckets in the order of the ranks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ordered;

impl CommHook for Ordered {
    fn start(&self, _: &[Segment], gradients: Numbers, group: &Group) -> Result<Box<dyn Reduction>> {
        Ok(match gradients {
            Numbers::F32(numbers) => Box::new(Exchange::start(numbers, group, Numbers::F32)?),
            Numbers::F64(numbers) => Box::new(Exchange::start(numbers, group, Numbers::F64)?),
        })
    }
}

struct Exchange<T> {
    work: Work<T>,
    len: usize,
    group: Group,
    wrap: fn(Vec<T>) -> Numbers,
}

impl<T: Element + Default + AddAssign> Exchange<T> {
    fn start(mut numbers: Vec<T>, group: &Group, wrap: fn(Vec<T>) -> Numbers) -> Result<Exchange<T>> {
        let len = numbers.len();
        numbers.resize(len.next_multiple_of(group.size()), T::default());
        group.count(Collective::AllToAll, numbers.len() * size_of::<T>());
        let received = vec![T::default(); numbers.len()];
        let work = group.comm().start_all_to_all(numbers, received);
        let work = work.doing(|| "starting to exchange a bucket of gradients".to_owned())?;
        Ok(Exchange { work, len, group: group.clone(), wrap })
    }
}

impl<T: Element + Default + AddAssign> Reduction for Exchange<T> {
    fn is_ready(&self) -> bool {
        self.work.test()
    }

    fn finish(self: Box<Self>) -> Result<Numbers> {
        let received = self.work.wait().doing(|| "exchanging a bucket of gradients".to_owned())?;
        let block = received.len() / self.group.size();
        let sum = add_in_order(received, self.group.size());
        let mut all = vec![T::default(); block * self.group.size()];
        self.group.count(Collective::AllGather, all.len() * size_of::<T>());
        let gathered = self.group.comm().all_gather(&sum[..block], &mut all);
        gathered.doing(|| "gathering a bucket of gradients".to_owned())?;
        all.truncate(self.len);
        Ok((self.wrap)(all))
    }
}
