//! The tests that run in a guest, one row for each program, and the script that runs them.

use std::fmt::Write as _;

/// Tests of one program, or some of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Suite {
    /// What results are reported under.
    pub name: &'static str,
    /// The program and which of its tests.
    pub words: &'static str,
    /// After how long it is killed, in seconds.
    pub limit_s: u32,
    /// How many of its tests run at a time: several where they mostly wait.
    pub threads: u8,
    /// Whether it is there to fail.
    pub is_planted: bool,
}

const fn suite(name: &'static str, words: &'static str, limit_s: u32) -> Suite {
    Suite { name, words, limit_s, threads: 1, is_planted: false }
}

/// All of them, in their order.
pub const SUITES: [Suite; 10] = [
    Suite { is_planted: true, ..suite("planted", "verbs a_planted_failure", 10) },
    suite("links", "links", 150),
    suite("collectives", "processes every_collective", 100),
    suite(
        "conformance",
        "conformance rows:: windows::registered windows::one messages:: uneven::one mixed::a_process",
        150,
    ),
    suite("fork", "processes a_fork", 60),
    suite("faults", "faults a_rank_that_ends a_rank_that_is_late killed_in_calls", 150),
    suite("machine", "verbs interface::an_interface locked::", 60),
    suite("memory", "verbs placed::", 30),
    suite("tools", "verbs the_tools", 100),
    Suite { threads: 3, ..suite("ports", "verbs ports:: switches:: removal:: interface::a_late", 100) },
];

/// The tests of `paceline-tests` that the suites are of.
pub const PROGRAMS: [&str; 5] = ["links", "processes", "conformance", "faults", "verbs"];

/// What takes minutes: all that the links are tested by on other machines.
pub const FULL: [Suite; 1] = [suite("conformance", "conformance", 3000)];

/// What two guests report, each for itself.
pub const PAIR: [Suite; 2] = [suite("host a", "", 0), suite("host b", "", 0)];

/// The script that each of two guests runs.
#[must_use]
pub fn pair_script(links: &str) -> String {
    format!("PACELINE_TEST_LINKS={links}\n{}", include_str!("../guest/pair.sh"))
}

/// A script that runs suites on these links. Before and after each it says so: see [`parse`].
#[must_use]
pub fn script(suites: &[Suite], links: &str) -> String {
    let few = if suites == FULL { "" } else { "PACELINE_TEST_FEW=1 " };
    let mut script = format!("export {few}PACELINE_TEST_GUEST=1 PACELINE_TEST_LINKS={links}\n");
    for (number, Suite { words, limit_s, threads, is_planted, .. }) in suites.iter().enumerate() {
        let planted = if *is_planted { "PACELINE_TEST_PLANTED=1 " } else { "" };
        let command = format!("{planted}timeout -s KILL {limit_s} {words} --test-threads {threads} --show-output");
        let _ = writeln!(script, "echo '@suite {number}'\n{command}\nprintf '\\n@ended %s\\n' $?");
    }
    script
}

/// What the script says about a suite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Says {
    /// The suite with this number begins.
    Begins(usize),
    /// It ended with this status.
    Ended(i32),
}

/// What a line of the script's says, if it is not a test's.
#[must_use]
pub fn parse(line: &str) -> Option<Says> {
    match line.split_once(' ')? {
        ("@suite", number) => number.parse().ok().map(Says::Begins),
        ("@ended", status) => status.parse().ok().map(Says::Ended),
        _ => None,
    }
}
