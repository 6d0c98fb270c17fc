//! The sum, in the precision of the gradients.

use paceline_comm::{Collective, ReduceOp};

use super::{CommHook, Reduction};
use crate::error::{Doing, Result};
use crate::group::{Group, Started};
use crate::state::{Numbers, Segment};

/// Adds buckets as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl CommHook for Plain {
    fn start(&self, _: &[Segment], gradients: Numbers, group: &Group) -> Result<Box<dyn Reduction>> {
        let elements = gradients.into_elements();
        group.count(Collective::AllReduce, elements.bytes());
        let started = elements.start_all_reduce(group.comm(), ReduceOp::Sum);
        Ok(Box::new(Sum(started.doing(|| "starting to add a bucket of gradients".to_owned())?)))
    }
}

struct Sum(Started);

impl Reduction for Sum {
    fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    fn finish(self: Box<Self>) -> Result<Numbers> {
        Numbers::from_elements(self.0.wait(|| "adding a bucket of gradients".to_owned())?)
    }
}
