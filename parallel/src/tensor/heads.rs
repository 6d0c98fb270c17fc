//! Which heads of attention a rank has.
//!
//! Query heads are cut evenly. Key and value heads are, too, if there are as many as ranks; if there are fewer, several ranks
//! need the same one. Then each rank keeps the key and value matrices *whole* and uses the rows of its head: they are
//! replicated parameters, whose gradients (zero outside of those rows) are added over all ranks once in a step, where all
//! replicated gradients are. That costs memory for heads that the rank doesn't use. In return a norm, an optimizer and a
//! checkpoint need no kind of parameter that some ranks of a group share and others don't, and no collective is added to a
//! layer's backward pass, as a sum within the ranks of one head would.

use std::ops::Range;

use super::TensorParallel;
use crate::error::{Error, Result};

/// The heads of an attention layer, and which of them are this rank's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heads {
    /// The query heads on this rank.
    pub query: Range<usize>,
    /// The key and value heads on this rank: as many query heads, in order, belong to each.
    pub key_value: Range<usize>,
    /// Whether other ranks use the same key and value heads.
    pub shares_key_value: bool,
}

impl Heads {
    /// This rank's of `query` heads and `key_value` heads.
    ///
    /// # Errors
    /// The query heads can't be shared out among the key and value heads or the ranks, or neither can key and value heads
    /// among ranks nor ranks among heads.
    pub fn of(query: usize, key_value: usize, tp: &TensorParallel) -> Result<Heads> {
        let (rank, ranks) = (tp.rank(), tp.size());
        if key_value == 0 || query == 0 || !query.is_multiple_of(key_value) {
            return Err(Error::invalid(format!(
                "{query} query heads can't be shared out among {key_value} key and value heads"
            )));
        }
        if !query.is_multiple_of(ranks) {
            return Err(Error::invalid(format!("{query} query heads can't be cut into {ranks} equal parts along tp")));
        }
        let even = |heads: usize| rank * heads / ranks..(rank + 1) * heads / ranks;
        if key_value.is_multiple_of(ranks) {
            return Ok(Heads { query: even(query), key_value: even(key_value), shares_key_value: false });
        }
        if !ranks.is_multiple_of(key_value) {
            return Err(Error::invalid(format!(
                "{key_value} key and value heads can't be cut into {ranks} parts along tp, nor shared by as many ranks each"
            )));
        }
        let head = rank / (ranks / key_value);
        Ok(Heads { query: even(query), key_value: head..head + 1, shares_key_value: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Group;
    use crate::mesh::Axis;
    use paceline_comm::Communicator;

    #[test]
    fn each_query_head_lies_with_its_key() {
        for (query, key_value, ranks, shares) in
            [(24, 4, 8, true), (24, 4, 4, false), (8, 8, 2, false), (8, 1, 4, true), (4, 2, 4, true)]
        {
            for comm in Communicator::in_process(ranks).unwrap() {
                let tp = TensorParallel { group: Group::of(comm, Axis::Tp), sequence: false };
                let heads = Heads::of(query, key_value, &tp).unwrap();
                assert_eq!(heads.shares_key_value, shares);
                let group = heads.query.len() / heads.key_value.len();
                for (place, head) in heads.query.clone().enumerate() {
                    let key = heads.key_value.start + place / group;
                    assert_eq!(key, head / (query / key_value), "{query} {key_value} {ranks} {heads:?}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (query, key_value, said) in [(6, 4, "6 query heads"), (5, 5, "5 query heads"), (12, 6, "6 key and value")] {
            let comm = Communicator::in_process(4).unwrap().remove(0);
            let tp = TensorParallel { group: Group::of(comm, Axis::Tp), sequence: false };
            let error = Heads::of(query, key_value, &tp).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
