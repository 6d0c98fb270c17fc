//! Slurm's short forms: lists of hosts such as `n[001-003,7]-ib,login`, and counts per node such as `4(x2),3`.

use crate::environment::{Environment, EnvironmentError};

/// The first host of a list; `None` if the list isn't well formed.
pub(super) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim();
    loop {
        let stop = rest.find(['[', ',', ']']).unwrap_or(rest.len());
        host += &rest[..stop];
        rest = &rest[stop..];
        match rest.chars().next() {
            Some('[') => {
                let (ranges, after) = rest[1..].split_once(']')?;
                let first = ranges.split([',', '-']).next().unwrap_or_default();
                if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                host += first;
                rest = after;
            }
            Some(']') => return None,
            _ => return (!host.is_empty()).then_some(host),
        }
    }
}

/// How many tasks the step has on the node with the given number.
pub(super) fn tasks_of_node(list: &str, node: usize) -> Option<usize> {
    let mut first = 0;
    for part in list.trim().split(',') {
        let (tasks, nodes) = match part.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        let tasks: usize = tasks.parse().ok()?;
        first += nodes;
        if node < first {
            return Some(tasks);
        }
    }
    None
}

/// The same for this node; `None` where Slurm doesn't say.
pub(super) fn tasks_of_this_node(environment: &Environment) -> Result<Option<usize>, EnvironmentError> {
    let Some(node) = environment.count("SLURM_NODEID", 0..=1 << 20)? else { return Ok(None) };
    let form = "counts as Slurm writes them, such as 4(x2),3, this node among them";
    environment.parsed("SLURM_STEP_TASKS_PER_NODE", form, |list| tasks_of_node(list, node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_hosts() {
        for (list, want) in [
            ("node1", Some("node1")),
            ("node1,node2", Some("node1")),
            ("node[1-4]", Some("node1")),
            ("node[001-128,200]", Some("node001")),
            ("node[7,9]", Some("node7")),
            ("rack[2-3]-node[04-05]-ib,login", Some("rack2-node04-ib")),
            ("n[1-2].cluster", Some("n1.cluster")),
            ("", None),
            (",a", None),
            ("node[", None),
            ("node[]", None),
            ("node]", None),
            ("node[a-b]", None),
        ] {
            assert_eq!(first_host(list).as_deref(), want, "{list}");
        }
    }

    #[test]
    fn tasks() {
        for (list, node, want) in [
            ("4", 0, Some(4)),
            ("4(x2),3", 0, Some(4)),
            ("4(x2),3", 1, Some(4)),
            ("4(x2),3", 2, Some(3)),
            ("4(x2),3", 3, None),
            ("4(x", 0, None),
            ("", 0, None),
        ] {
            assert_eq!(tasks_of_node(list, node), want, "{list} {node}");
        }
    }
}
