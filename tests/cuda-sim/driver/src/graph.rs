//! Graphs: operations and their order. They are done again in the order in which they were captured, which keeps it.

use std::sync::Arc;

use crate::handle::lock;
use crate::operation::Operation;
use crate::race::{Access, found};

/// One operation of a graph.
#[derive(Clone)]
pub struct Node {
    pub operation: Operation,
    /// The numbers of the nodes that it comes after; all are smaller than its own.
    pub after: Vec<usize>,
}

/// A graph as it was captured.
pub struct Graph {
    pub handle: usize,
    pub nodes: Arc<Vec<Node>>,
}

/// A graph that can be launched.
pub struct Executable {
    pub handle: usize,
    pub nodes: std::sync::Mutex<Arc<Vec<Node>>>,
}

impl Executable {
    pub fn nodes(&self) -> Arc<Vec<Node>> {
        lock(&self.nodes).clone()
    }
}

impl Graph {
    pub fn new(handle: usize, nodes: Vec<Node>) -> Graph {
        report_races(&nodes);
        Graph { handle, nodes: Arc::new(nodes) }
    }
}

/// Reports copies and fills of the same bytes that no path of the graph orders: on a GPU they may run at once.
fn report_races(nodes: &[Node]) {
    // For each node, all that come before it.
    let mut before: Vec<Vec<bool>> = Vec::with_capacity(nodes.len());
    let mut accesses: Vec<(usize, Access)> = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        let mut mine = vec![false; number];
        for earlier in &node.after {
            mine[*earlier] = true;
            for (place, is_before) in before[*earlier].iter().enumerate() {
                mine[place] |= is_before;
            }
        }
        node.operation.accesses(|end, bytes, writes| {
            let addresses = end.address..end.address + bytes as u64;
            let access = Access { addresses, stream: 0, nth: number as u64, writes };
            for (other, earlier) in &accesses {
                if *other != number && !mine[*other] && access.meets(earlier) {
                    found(earlier, &access);
                }
            }
            accesses.push((number, access));
        });
        before.push(mine);
    }
}
