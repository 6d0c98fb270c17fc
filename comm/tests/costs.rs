//! What the rows say they cost, against a clock over their programs; and the page that lists it.

use std::fmt::Write;

use paceline_comm::algorithm::{ROWS, Row, rows_for};
use paceline_comm::collective::Collective;
use paceline_comm::schedule::Groups;
use paceline_comm::schedule::cost::{Costs, Load, clock};

const FREE: Costs = Costs { latency_s: 0.0, message_s: 0.0, byte_s: 0.0, fold_byte_s: 0.0, copy_byte_s: 0.0 };

/// A network such as one finds between hosts.
const HOSTS: Costs = Costs { latency_s: 5e-6, message_s: 5e-7, byte_s: 1e-10, fold_byte_s: 5e-11, copy_byte_s: 5e-11 };

/// How far the closed form may be from the clock: nowhere for rows in which all ranks are in step.
fn bounds(row: &Row, n: u32) -> (f64, f64) {
    let exact = (1.0 - 1e-9, 1.0 + 1e-9);
    match (row.name, row.collective) {
        ("double_tree" | "two_level_tree", _) => (0.74, 1.35),
        ("circulant", _) => (0.84, 1.08),
        ("bruck", Collective::AllGather) => (0.99, 1.05),
        ("two_level", Collective::ReduceScatter) => (0.99, 1.35),
        ("recursive_doubling" | "halving_doubling" | "binomial", _) if !n.is_power_of_two() => (0.99, 1.25),
        _ => exact,
    }
}

#[test]
fn prices_are_what_the_clock_says() {
    let one = [
        ("latency", 1, Costs { latency_s: 1.0, ..FREE }),
        ("messages", 1, Costs { message_s: 1.0, ..FREE }),
        ("bytes", 1, Costs { byte_s: 1.0, ..FREE }),
        ("folds", 1, Costs { fold_byte_s: 1.0, ..FREE }),
        ("hosts, 1 KiB", 1 << 10, HOSTS),
        ("hosts, 64 KiB", 1 << 16, HOSTS),
        ("hosts, 16 MiB", 1 << 24, HOSTS),
    ];
    let mut failures = Vec::new();
    for row in ROWS {
        for n in (2..=64).filter(|n| (row.fits)(*n)) {
            let programs = row.programs(n, 0);
            for (what, bytes, costs) in one {
                let bytes = if row.collective == Collective::Barrier { 0 } else { bytes };
                let clocked = clock(&programs, bytes, &costs).expect("the programs have been proved").seconds;
                let priced = row.price(n, bytes, &costs);
                let (least, most) = bounds(row, n);
                if !(least * clocked <= priced && priced <= most * clocked) {
                    let (collective, name) = (row.collective, row.name);
                    failures.push(format!("{collective} {name}, n = {n}, {what}: priced {priced}, clocked {clocked}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_busiest_rank_is_as_busy_as_the_row_says() {
    let mut failures = Vec::new();
    for row in ROWS {
        for n in (2..=64).filter(|n| (row.fits)(*n)) {
            let bytes = u64::from(row.collective != Collective::Barrier);
            let loads = clock(&row.programs(n, 0), bytes, &FREE).expect("the programs have been proved").loads;
            let most = |of: fn(&Load) -> f64| loads.iter().map(of).fold(0.0, f64::max);
            let said = row.work(n).busiest;
            let mut pairs = vec![("messages", said.messages, most(|load| load.messages))];
            if bytes > 0 {
                pairs.push(("sent", said.sent, most(|load| load.sent)));
                pairs.push(("folded", said.folded, most(|load| load.folded)));
            }
            for (what, said, counted) in pairs {
                if !(0.8 * counted <= said && said <= 1.35 * counted) {
                    let (collective, name) = (row.collective, row.name);
                    failures.push(format!("{collective} {name}, n = {n}, {what}: says {said}, counted {counted}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn slices_shorten_a_chain_towards_one_message() {
    let chain = paceline_comm::algorithm::row(Collective::Broadcast, "ring").expect("there is a chain");
    let work = chain.work(8);
    let whole = work.seconds(1 << 26, &HOSTS);
    let sliced = work.seconds_in_slices(1 << 26, 64, &HOSTS);
    let message = f64::from(1 << 26) * HOSTS.byte_s;
    assert!(sliced < whole && message < sliced && sliced < 1.6 * message, "{message} {sliced} {whole}");
    assert_eq!(work.seconds_in_slices(1 << 26, 1, &HOSTS), whole);
}

fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

/// The page, as it should be.
fn page() -> String {
    let mut page = String::from(
        "# What each algorithm costs

Written by `PACELINE_UPDATE=1 cargo test -p paceline-comm --test costs` from the table in
`comm/src/algorithm/mod.rs`; a test fails when it is not current.

For each number of ranks *n*: latencies one after another, messages on the longest path, what passes the busiest port
on it, and what is folded on it; the last two in units of the whole message (the vector, or all ranks' blocks together).
The time is `latencies * latency_s + messages * message_s + bytes * (sent * byte_s + folded * fold_byte_s)`, as
`comm/src/schedule/cost` explains; it is compared with a clock over the programs for n = 2 to 64. *Uneven* says whether blocks
may differ in length, where there are blocks; *scratch* how many chunks a rank needs at most for n = 8. What is cheapest
is at the end.
",
    );
    for collective in Collective::ALL {
        if rows_for(collective).next().is_none() {
            continue;
        }
        let heads = ["Algorithm", "What it does", "n = 2", "n = 8", "n = 12", "n = 64"];
        let heads = [&heads[..], &["Chunks", "Scratch", "Uneven", "In place", "Source"][..]].concat();
        write!(page, "\n## {collective}\n\n| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()))
            .expect("a string takes everything");
        for row in rows_for(collective) {
            let cost = |n: u32| {
                let work = row.work(n);
                let path = work.path;
                [work.latencies, path.messages, path.sent, path.folded].map(number).join(" / ")
            };
            let chunks = [8, 12].map(|n| (row.chunks)(&Groups::assumed(n)));
            let chunks = if chunks[0] == chunks[1] { chunks[0].to_string() } else { "n".to_owned() };
            let scratch = row.programs(8, 0).iter().map(|program| program.scratch).max().unwrap_or(0);
            let [two, eight, twelve, many] = [2, 8, 12, 64].map(cost);
            let Row { name, summary, source, .. } = row;
            let uneven = if collective.has_blocks() { yes(row.uneven) } else { "-" };
            let in_place = yes(row.in_place);
            let what = format!("`{name}` | {summary} | {two} | {eight} | {twelve} | {many}");
            writeln!(page, "| {what} | {chunks} | {scratch} | {uneven} | {in_place} | {source} |")
                .expect("a string takes everything");
        }
    }
    cheapest(&mut page);
    page
}

/// What is cheapest at each size, for one network.
fn cheapest(page: &mut String) {
    page.push_str(
        "
## The cheapest

In one piece, between hosts with a latency of 5 us, 0.5 us for each message, 10 GB/s, and 20 GB/s for folds and copies;
out of place. Longer messages go in slices, which favours trees and chains: `Work::seconds_in_slices`.
",
    );
    let sizes = [
        (8, "8 B"),
        (1 << 10, "1 KiB"),
        (1 << 14, "16 KiB"),
        (1 << 18, "256 KiB"),
        (1 << 22, "4 MiB"),
        (1 << 26, "64 MiB"),
    ];
    let heads: Vec<&str> = sizes.iter().map(|(_, head)| *head).collect();
    write!(page, "\n| Collective | n | {} |\n|---|---|{}\n", heads.join(" | "), "---|".repeat(sizes.len()))
        .expect("a string takes everything");
    for collective in Collective::ALL.into_iter().filter(|c| *c != Collective::Barrier) {
        for n in [4, 8, 12, 64] {
            let best = sizes.map(|(bytes, _)| {
                let price = |row: &&Row| row.price(n, bytes, &HOSTS);
                rows_for(collective).min_by(|a, b| price(a).total_cmp(&price(b))).map(|row| format!("`{}`", row.name))
            });
            if let Some(best) = best.into_iter().collect::<Option<Vec<_>>>() {
                writeln!(page, "| {collective} | {n} | {} |", best.join(" | ")).expect("a string takes everything");
            }
        }
    }
}

#[test]
fn the_page_of_costs_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/costs.md");
    let page = page();
    if std::env::var_os("PACELINE_UPDATE").is_some() {
        std::fs::write(path, &page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == page, "docs/costs.md is not what the table says: run this test with PACELINE_UPDATE=1");
}
