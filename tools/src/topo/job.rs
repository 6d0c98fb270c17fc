//! Where a job's ranks are, and what is made of it: hosts, the order of ranks, rings and trees.

use std::fmt::Write;

use paceline_comm::Communicator;
use paceline_comm::topology::Layout;

/// The most ranks, or rings, that a line lists.
const LISTED: usize = 32;

/// What rank 0 says for all; nothing on other ranks.
pub(super) fn text(comm: &Communicator) -> Option<String> {
    (comm.rank() == 0).then(|| {
        let name = |rank: u32| comm.peer(rank as usize).host.clone();
        draw(comm.layout(), name)
    })
}

fn draw(layout: &Layout, host_name: impl Fn(u32) -> String) -> String {
    let mut text = String::new();
    let hosts = layout.hosts();
    let levels = layout.groups().levels().len();
    line(&mut text, format!("{} ranks on {} hosts, {levels} levels of groups", layout.size(), hosts.len()));
    for ranks in hosts.iter().take(LISTED) {
        line(&mut text, format!("  {:<24} ranks {}", host_name(ranks[0]), listed(ranks)));
    }
    if hosts.len() > LISTED {
        line(&mut text, format!("  ... and {} more", hosts.len() - LISTED));
    }
    let how = if layout.is_in_order() { "as numbered" } else { "not as numbered, so that neighbours share hosts" };
    line(&mut text, format!("order: {} ({how})", listed(layout.order())));
    if hosts.len() < 2 {
        line(&mut text, "between hosts: nothing".to_owned());
        return text;
    }
    let fast = layout.fast_groups();
    let groups: Vec<String> = fast.iter().take(LISTED).map(|ranks| format!("[{}]", listed(ranks))).collect();
    line(&mut text, format!("fast groups: {}{}", groups.join(" "), if fast.len() > LISTED { " ..." } else { "" }));
    let rings = layout.rings();
    line(
        &mut text,
        format!("rings between hosts, one for each of {} lanes, over {} adapters:", rings.len(), layout.adapters()),
    );
    for (lane, ring) in rings.iter().enumerate().take(LISTED) {
        line(&mut text, format!("  lane {lane:<3} {}", listed(ring)));
    }
    line(&mut text, "trees between hosts, of lane 0 (parent: children):".to_owned());
    for (number, tree) in layout.trees().iter().enumerate() {
        let parents = tree.iter().take(LISTED).map(|(parent, children)| format!("{parent}: {}", listed(children)));
        let more = if tree.len() > LISTED { "; ..." } else { "" };
        line(&mut text, format!("  tree {number}   {}{more}", parents.collect::<Vec<_>>().join("; ")));
    }
    text
}

fn listed(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|a, b| a + 1 == *b);
    let mut words: Vec<String> = runs
        .flat_map(|run| match run {
            [first, .., last] if run.len() > 2 => vec![format!("{first}-{last}")],
            _ => run.iter().map(u32::to_string).collect(),
        })
        .collect();
    if words.len() > LISTED {
        words.truncate(LISTED);
        words.push("...".to_owned());
    }
    words.join(" ")
}

fn line(text: &mut String, what: String) {
    writeln!(text, "{what}").expect("strings take everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_comm::topology::Spot;

    #[test]
    fn a_job_dealt_out_by_turns_is_shown_in_order() {
        let spots: Vec<Spot> = (0..7).map(|rank| Spot { host: rank % 2, ..Spot::default() }).collect();
        let text = draw(&Layout::of(&spots), |rank| format!("host-of-{rank}"));
        for part in [
            "7 ranks on 2 hosts",
            "host-of-0                ranks 0 2 4 6",
            "host-of-1                ranks 1 3 5",
            "order: 0 2 4 6 1 3 5 (not as numbered",
            "lane 3   6 5",
            "tree 0   ",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let alone = draw(&Layout::unknown(4), |_| "here".to_owned());
        assert!(alone.contains("ranks 0-3") && alone.contains("between hosts: nothing"), "{alone}");
    }
}
