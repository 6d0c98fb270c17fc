//! The trees between hosts in which rows reduce, as their programs have them.

use std::collections::BTreeMap;

use super::Layout;
use crate::algorithm::row;
use crate::collective::Collective;
use crate::schedule::{Rank, Step};

/// One tree: for each rank that has some, its children.
pub type Tree = BTreeMap<Rank, Vec<Rank>>;

impl Layout {
    /// The two trees of the first lane of `all_reduce two_level_tree`, by which the ranks that stand for it are joined.
    #[must_use]
    pub fn trees(&self) -> [Tree; 2] {
        let mut trees = [Tree::new(), Tree::new()];
        let Some(row) = row(Collective::AllReduce, "two_level_tree").filter(|_| self.n_hosts() > 1) else {
            return trees;
        };
        let host_of = self.host_of();
        for me in &self.rings()[0] {
            for step in self.program(row, *me, 0).rounds().flatten() {
                if let Step::RecvReduce { from, target, .. } = step
                    && host_of[*from as usize] != host_of[*me as usize]
                    && target.first < 2
                {
                    trees[target.first as usize].entry(*me).or_default().push(*from);
                }
            }
        }
        trees
    }
}

#[cfg(test)]
mod tests {
    use super::super::Spot;
    use super::*;

    #[test]
    fn trees_span_the_hosts() {
        for hosts in 2..20u32 {
            let spots: Vec<Spot> = (0..3 * hosts).map(|rank| Spot { host: rank % hosts, ..Spot::default() }).collect();
            let layout = Layout::of(&spots);
            let ring = &layout.rings()[0];
            for tree in layout.trees() {
                let mut children: Vec<Rank> = tree.values().flatten().copied().collect();
                children.sort_unstable();
                let root: Vec<Rank> =
                    ring.iter().copied().filter(|rank| children.binary_search(rank).is_err()).collect();
                assert_eq!((children.len() as u32, root.len()), (hosts - 1, 1), "{hosts} hosts: {tree:?}");
                children.dedup();
                assert_eq!(children.len() as u32, hosts - 1, "{hosts} hosts: {tree:?}");
                assert!(tree.values().all(|children| children.len() <= 2), "{hosts} hosts: {tree:?}");
            }
        }
    }
}
