//! What came of the tests in a guest, from the lines that it writes, as results of this machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::suite::Suite;

/// How one test ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It passed.
    Ok,
    /// It failed.
    Failed,
    /// It did not run, for this reason.
    Skipped(String),
}

/// What one suite wrote, and how it ended.
#[derive(Default)]
pub struct Heard {
    lines: Vec<String>,
}

impl Heard {
    /// One more line.
    pub fn line(&mut self, line: &str) {
        self.lines.push(line.to_owned());
    }

    /// The tests that it ran, and how they ended, in their order.
    fn tests(&self) -> Vec<(String, Outcome)> {
        let reasons = self.reasons();
        let mut tests = Vec::new();
        for line in &self.lines {
            let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) else {
                continue;
            };
            let outcome = match end.split_once(',').map_or(end, |(end, _)| end) {
                "ok" => reasons.get(name).map_or(Outcome::Ok, |why| Outcome::Skipped(why.clone())),
                "ignored" => Outcome::Skipped("ignored".into()),
                _ => Outcome::Failed,
            };
            tests.push((name.to_owned(), outcome));
        }
        tests
    }

    /// Why tests that ended well did not run: those whose output begins with `skipped:`.
    fn reasons(&self) -> BTreeMap<String, String> {
        let mut reasons = BTreeMap::new();
        for pair in self.lines.windows(2) {
            let name = pair[0].strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
            if let (Some(name), Some(why)) = (name, pair[1].strip_prefix("skipped: ")) {
                reasons.insert(name.to_owned(), why.to_owned());
            }
        }
        reasons
    }

    /// The results of `suite`, which ended with `status`; none if the guest broke down before.
    #[must_use]
    pub fn results(&self, suite: &Suite, status: Option<i32>) -> Vec<(String, Outcome)> {
        let mut results = self.tests();
        let has_failed = results.iter().any(|(_, outcome)| *outcome == Outcome::Failed);
        let ended = match status {
            None => Some("the guest broke down".to_owned()),
            Some(137) => Some(format!("killed after {} s", suite.limit_s)),
            Some(0) if results.is_empty() => Some("ran no test".to_owned()),
            Some(0) => None,
            Some(_) if has_failed => None,
            Some(status) => Some(format!("ended with status {status}")),
        };
        if let Some(why) = ended {
            results.push((why, Outcome::Failed));
        }
        if suite.is_planted {
            let came_back = results == [("a_planted_failure".to_owned(), Outcome::Failed)];
            let name = "a planted failure comes back as one".to_owned();
            return vec![(name, if came_back { Outcome::Ok } else { Outcome::Failed })];
        }
        results
    }

    /// All that it wrote.
    #[must_use]
    pub fn whole(&self) -> String {
        self.lines.iter().fold(String::new(), |mut all, line| {
            let _ = writeln!(all, "    {line}");
            all
        })
    }
}

/// How many tests ended in each way.
#[derive(Default)]
pub struct Totals {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Totals {
    /// Prints a suite's results, one line for each test, and all that it wrote if one failed.
    pub fn tell(&mut self, suite: &Suite, heard: &Heard, status: Option<i32>) {
        let results = heard.results(suite, status);
        for (name, outcome) in &results {
            let (count, words) = match outcome {
                Outcome::Ok => (&mut self.passed, "ok".to_owned()),
                Outcome::Failed => (&mut self.failed, "FAILED".to_owned()),
                Outcome::Skipped(why) => (&mut self.skipped, format!("skipped: {why}")),
            };
            *count += 1;
            println!("test {}: {name} ... {words}", suite.name);
        }
        if results.iter().any(|(_, outcome)| *outcome == Outcome::Failed) {
            println!("{} wrote:\n{}", suite.name, heard.whole());
        }
    }

    /// The last line, and whether all is well.
    #[must_use]
    pub fn conclude(&self) -> (String, bool) {
        let Totals { passed, failed, skipped } = self;
        let word = if *failed == 0 { "ok" } else { "FAILED" };
        (format!("test result: {word}. {passed} passed; {failed} failed; {skipped} skipped"), *failed == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITE: Suite = Suite { name: "suite", words: "", limit_s: 9, threads: 1, is_planted: false };
    const PLANTED: Suite = Suite { is_planted: true, ..SUITE };

    fn heard(text: &str) -> Heard {
        Heard { lines: text.lines().map(str::to_owned).collect() }
    }

    fn check(suite: &Suite, text: &str, status: Option<i32>, want: &[(&str, Outcome)]) {
        let want: Vec<_> = want.iter().map(|(name, outcome)| ((*name).to_owned(), outcome.clone())).collect();
        assert_eq!(heard(text).results(suite, status), want, "{text}");
    }

    #[test]
    fn results_are_those_of_the_guest() {
        let text = "running 3 tests\ntest a::b ... ok\ntest c ... FAILED\ntest d ... ignored, too long\n\nfailures:\n\
                    ---- c stdout ----\nskipped: not this one\n";
        let skipped = Outcome::Skipped("ignored".into());
        check(&SUITE, text, Some(101), &[("a::b", Outcome::Ok), ("c", Outcome::Failed), ("d", skipped)]);
    }

    #[test]
    fn what_did_not_run_is_skipped() {
        let text = "test a ... ok\ntest b ... ok\n\nsuccesses:\n\n---- b stdout ----\nskipped: no verbs\n";
        check(&SUITE, text, Some(0), &[("a", Outcome::Ok), ("b", Outcome::Skipped("no verbs".into()))]);
    }

    #[test]
    fn a_suite_that_does_not_end_well_has_failed() {
        let passed = ("a", Outcome::Ok);
        check(&SUITE, "test a ... ok", Some(0), std::slice::from_ref(&passed));
        check(&SUITE, "test a ... ok", Some(139), &[passed.clone(), ("ended with status 139", Outcome::Failed)]);
        check(&SUITE, "test a ... ok", Some(137), &[passed.clone(), ("killed after 9 s", Outcome::Failed)]);
        check(&SUITE, "test a ... ok", None, &[passed, ("the guest broke down", Outcome::Failed)]);
        check(&SUITE, "running 0 tests", Some(0), &[("ran no test", Outcome::Failed)]);
    }

    #[test]
    fn only_the_planted_failure_counts_as_one() {
        let name = "a planted failure comes back as one";
        let text = "test a_planted_failure ... FAILED";
        check(&PLANTED, text, Some(101), &[(name, Outcome::Ok)]);
        check(&PLANTED, "test a_planted_failure ... ok", Some(0), &[(name, Outcome::Failed)]);
        check(&PLANTED, text, Some(137), &[(name, Outcome::Failed)]);
        check(&PLANTED, "", None, &[(name, Outcome::Failed)]);
    }
}
