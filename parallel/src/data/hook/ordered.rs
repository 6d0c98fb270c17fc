//! The sum in a fixed order: the same bits whatever the buckets, the algorithm and the links.
//!
//! Each rank gets all ranks' contributions to its block and adds them itself, as a binary tree over the ranks in their order;
//! then the blocks are gathered. That sends as much as a ring does: (n-1)/n of the bucket twice.

use std::ops::AddAssign;

use paceline_comm::{Collective, Element, Work};

use super::{CommHook, Reduction};
use crate::error::{Doing, Result};
use crate::group::Group;
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
        let sum = added(received, self.group.size());
        let mut all = vec![T::default(); block * self.group.size()];
        self.group.count(Collective::AllGather, all.len() * size_of::<T>());
        let gathered = self.group.comm().all_gather(&sum[..block], &mut all);
        gathered.doing(|| "gathering a bucket of gradients".to_owned())?;
        all.truncate(self.len);
        Ok((self.wrap)(all))
    }
}

/// The sum of `parts` equal parts, neighbours first; it stands at the beginning.
fn added<T: Copy + AddAssign>(mut all: Vec<T>, parts: usize) -> Vec<T> {
    let len = all.len() / parts;
    let mut stride = 1;
    while stride < parts {
        for part in (0..parts - stride).step_by(2 * stride) {
            let (left, right) = all.split_at_mut((part + stride) * len);
            let left = &mut left[part * len..][..len];
            left.iter_mut().zip(&right[..len]).for_each(|(to, from)| *to += *from);
        }
        stride *= 2;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_added_first() {
        // 1 + 2^53 is lost, -2^53 + 1 isn't: the order shows in the result.
        let big = (1u64 << 53) as f64;
        assert_eq!(added(vec![big, 1.0, -big, 1.0, 0.5], 5)[0], (big + 1.0) + (-big + 1.0) + 0.5);
        assert_ne!(added(vec![big, 1.0, -big, 1.0, 0.5], 5)[0], (big - big) + (1.0 + 1.0) + 0.5);
        assert_eq!(added(vec![1, 10, 2, 20, 3, 30], 3)[..2], [6, 60]);
    }
}
