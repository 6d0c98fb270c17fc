//! Answers as a table.

use std::fmt::Write;

use paceline_comm::topology::{Estimate, Fabric, Trouble};

use super::{Answers, Played};

/// How many rows are listed, of one size; of several, only the quickest is.
const LISTED: usize = 6;

pub(super) fn text(answers: &Answers) -> String {
    let mut text = heading(answers);
    let is_one = answers.answers.len() == 1;
    let head = ["bytes", "row", "time us", "latency us", "algbw GB/s", "busbw GB/s", "leaves host", "leaves switch"];
    let [bytes, row, time, latency, algorithm, bus, host, switch] = head;
    line(
        &mut text,
        format_args!(
            "{bytes:>14}  {row:<20} {time:>14} {latency:>12} {algorithm:>11} {bus:>11} {host:>12} {switch:>14}"
        ),
    );
    for answer in &answers.answers {
        for Estimate { row, seconds, latency_s, leaves_host, leaves_switch, algorithm_bytes_per_s, bus_bytes_per_s } in
            answer.rows.iter().take(if is_one { LISTED } else { 1 })
        {
            let (us, latency_us) = (seconds * 1e6, latency_s * 1e6);
            let [algorithm, bus] = [algorithm_bytes_per_s, bus_bytes_per_s].map(|rate| rate / 1e9);
            line(
                &mut text,
                format_args!(
                    "{:>14}  {row:<20} {us:>14.2} {latency_us:>12.2} {algorithm:>11.3} {bus:>11.3} {leaves_host:>12.3} \
                     {leaves_switch:>14.3}",
                    answer.bytes
                ),
            );
        }
    }
    for Played { bytes, row, seconds, errors, leaves_host, took_s } in &answers.played {
        let (us, leaves) = (seconds * 1e6, *leaves_host as f64 / (*bytes).max(1) as f64);
        line(
            &mut text,
            format_args!(
                "{bytes:>14}  {row:<20} {us:>14.2}   by the engine, {leaves:.3} messages left the busiest host; took {took_s:.1} s"
            ),
        );
        for (error, ranks) in errors.iter().take(LISTED) {
            line(&mut text, format_args!("                {ranks} ranks: {error}"));
        }
    }
    text
}

fn heading(answers: &Answers) -> String {
    let Answers { collective, cluster, trouble, groups, .. } = answers;
    let mut text = String::new();
    let (hosts, ranks, adapters) = (cluster.hosts, cluster.ranks_per_host, cluster.adapters_per_host);
    let fabric = match cluster.fabric {
        Fabric::Full => "nothing scarce beyond them".to_owned(),
        Fabric::FatTree { hosts_per_leaf, oversubscription } => {
            format!("{hosts_per_leaf} hosts to a leaf, oversubscribed {oversubscription} times")
        }
        Fabric::Rails { oversubscription } => format!("rails, oversubscribed {oversubscription} times beyond them"),
    };
    line(
        &mut text,
        format_args!(
            "# {collective} of {} ranks: {hosts} hosts x {ranks} ranks, {adapters} adapters of {:.1} GB/s, {fabric}",
            cluster.size(),
            cluster.far.bytes_per_s / 1e9
        ),
    );
    if *groups > 1 {
        line(
            &mut text,
            format_args!("# one of {groups} groups that call at the same time, with its share of the adapters"),
        );
    }
    let Trouble { slow_adapter, dead_adapters, slow_near, straggler_s } = *trouble;
    if *trouble != Trouble::default() {
        line(
            &mut text,
            format_args!(
                "# an adapter {slow_adapter} times slower, {dead_adapters} dead; a link within a host {slow_near} times slower; a \
                 rank {:.1} us late",
                straggler_s * 1e6
            ),
        );
    }
    line(
        &mut text,
        format_args!(
            "# predicted, not measured; what leaves is in messages, for each host, and adapter or host of a switch"
        ),
    );
    text
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("strings take everything");
}
