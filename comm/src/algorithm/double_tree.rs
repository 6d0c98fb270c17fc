//! Double binary tree: two trees, each for half of the message; a rank is inside one of them at most and a leaf in the
//! other, so both directions of every link are used.
//!
//! Sanders, Speck, Träff: "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009. Chunk 0 takes
//! the first tree, chunk 1 the second, which is the first one mirrored (n even) or shifted (n odd). Steps carry times
//! that grow towards the top on the way up and towards the leaves on the way down, so the two trees cannot block each
//! other. With a root the trees span the other ranks, and the root is above both tops.
//!
//! The broadcast for n = 6:
//!
//! ```text
//! broadcast double_tree
//! ranks 6 root 0 chunks 2
//!      | 0                   | 1           | 2           | 3       | 4           | 5   |
//!    0 | i0>4 0=i0 i1>3 1=i1 | 1<3         | 0<4         | 1<0     | 0<0         | 0<4 |
//!    1 |                     | 0<2 1>5 1>2 | 0>1 0>3 1<1 | 1>1 1>4 | 0>2 0>5 1<3 | 1<1 |
//!    2 |                     |             |             | 0<2     |             |     |
//! ```

use super::tree;
use crate::schedule::Step::{Copy, Recv, RecvReduce, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, Rank, Span, Step, input, output, scratch};

/// One of the two trees as one rank sees it. Members are numbered 0 .. m.
struct Tree {
    m: u32,
    second: bool,
    position: u32,
}

impl Tree {
    fn new(member: u32, m: u32, second: bool) -> Tree {
        let position = match second {
            false => member + 1,
            true if m.is_multiple_of(2) => m - member,
            true => (member + 1) % m + 1,
        };
        Tree { m, second, position }
    }

    /// The member at a position.
    fn member(&self, position: u32) -> u32 {
        match self.second {
            false => position - 1,
            true if self.m.is_multiple_of(2) => self.m - position,
            true => (position + self.m - 2) % self.m,
        }
    }

    fn parent(&self) -> Option<u32> {
        tree::parent(self.position, self.m)
    }

    /// The members below, on the left and on the right.
    fn children(&self) -> [Option<u32>; 2] {
        tree::children(self.position, self.m).map(|child| child.map(|position| self.member(position)))
    }

    /// When what comes from the left child of `parent` arrives on the way up; from the right child it is one later.
    fn time_up(&self, parent: u32) -> u32 {
        2 * (tree::level(parent) - 1)
    }

    /// When `parent` passes on what it has, on the way down.
    fn time_down(&self, parent: u32) -> u32 {
        1 + tree::top_level(self.m) - tree::level(parent)
    }

    /// A time after everything on the way up.
    fn time_of_top(&self) -> u32 {
        2 * tree::top_level(self.m)
    }

    /// The steps on the way up, of a member that keeps the sum in `sum`; returns where its sum is.
    fn up(&self, steps: &mut Vec<(u32, Step)>, own: Span, sum: Span, rank: impl Fn(u32) -> Rank) -> Span {
        let mut held = own;
        for (child, later) in self.children().into_iter().zip([0, 1]) {
            let Some(child) = child else { continue };
            let time = self.time_up(self.position) + later;
            steps.push((time, RecvReduce { from: rank(child), source: held, target: sum }));
            held = sum;
        }
        if let Some(parent) = self.parent() {
            let time = self.time_up(parent) + u32::from(self.position > parent);
            steps.push((time, Send { to: rank(self.member(parent)), source: held }));
        }
        held
    }

    /// The steps on the way down, of a member that passes on what `target` holds.
    fn down(&self, steps: &mut Vec<(u32, Step)>, after: u32, target: Span, rank: impl Fn(u32) -> Rank) {
        if let Some(parent) = self.parent() {
            let from = rank(self.member(parent));
            steps.push((after + self.time_down(parent), Recv { from, target }));
        }
        for child in self.children().into_iter().flatten() {
            steps.push((after + self.time_down(self.position), Send { to: rank(child), source: target }));
        }
    }
}

/// Up and down both trees.
pub fn all_reduce(p: &mut Program) {
    let mut steps = Vec::new();
    for chunk in 0..2 {
        let tree = Tree::new(p.me, p.size, chunk == 1);
        tree.up(&mut steps, input(chunk), output(chunk), |member| member);
        tree.down(&mut steps, tree.time_of_top(), output(chunk), |member| member);
    }
    p.timeline(steps);
}

/// From the root to both tops, and down.
pub fn broadcast(p: &mut Program) {
    let (n, place) = (p.size, p.place());
    let rank = |member: u32| p.rank_at(1 + member);
    let mut steps = Vec::new();
    for chunk in 0..2 {
        let tree = Tree::new(place.saturating_sub(1), n - 1, chunk == 1);
        let top = tree.member(1 << tree::top_level(n - 1));
        if place == 0 {
            steps.push((0, Send { to: rank(top), source: input(chunk) }));
            steps.push((0, Copy { source: input(chunk), target: output(chunk) }));
        } else {
            if tree.parent().is_none() {
                steps.push((0, Recv { from: p.root, target: output(chunk) }));
            }
            tree.down(&mut steps, 0, output(chunk), rank);
        }
    }
    p.timeline(steps);
}

/// Up both trees, and from both tops to the root.
pub fn reduce(p: &mut Program) {
    let (n, place) = (p.size, p.place());
    let rank = |member: u32| p.rank_at(1 + member);
    let mut steps = Vec::new();
    for chunk in 0..2 {
        let tree = Tree::new(place.saturating_sub(1), n - 1, chunk == 1);
        let time = tree.time_of_top();
        if place == 0 {
            let from = rank(tree.member(1 << tree::top_level(n - 1)));
            steps.push((time, RecvReduce { from, source: input(chunk), target: output(chunk) }));
        } else {
            let held = tree.up(&mut steps, input(chunk), scratch(chunk, chunk), rank);
            if tree.parent().is_none() {
                steps.push((time, Send { to: p.root, source: held }));
            }
        }
    }
    p.timeline(steps);
}

/// Up and down, two messages of half the length for each level; a rank is inside one tree, where it has three
/// neighbours, and a leaf in the other.
pub fn all_reduce_work(n: u32) -> Work {
    let n_levels = f64::from(tree::top_level(n));
    let (fewer, later) = (if n.is_power_of_two() { 2.0 } else { 1.0 }, if n == 2 { 0.0 } else { 1.0 });
    let n_halves = 4.0 * n_levels - fewer;
    let path = Load::messages(n_halves, n_halves / 2.0).folding(n_levels - (fewer - 1.0) / 2.0);
    let n_own = f64::from(n.min(4));
    let busiest = Load::messages(n_own, n_own / 2.0).folding((n_own - 1.0).min(2.0) / 2.0);
    Work { latencies: 2.0 * n_levels + later, path, busiest }
}

/// Down, after two messages from the root.
pub fn broadcast_work(n: u32) -> Work {
    let n_levels = f64::from(tree::top_level(n - 1));
    let n_halves = 2.0 * n_levels + if (n - 1).is_power_of_two() { 2.0 } else { 1.0 };
    let busiest = Load::messages(2.0, 1.0).copying(1.0);
    Work { latencies: 1.0 + n_levels, path: Load::messages(n_halves, n_halves / 2.0), busiest }
}

/// Up, and two messages to the root.
pub fn reduce_work(n: u32) -> Work {
    let n_levels = f64::from(tree::top_level(n - 1));
    let n_halves = 2.0 * n_levels + if n == 2 { 2.0 } else { 1.0 };
    let path = Load::messages(n_halves, n_halves / 2.0).folding(n_levels + 1.0);
    let later = if n > 3 { 1.0 } else { 0.0 };
    Work { latencies: 1.0 + n_levels + later, path, busiest: Load::messages(2.0, 1.0).folding(1.0) }
}
