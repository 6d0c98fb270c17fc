//! How ranks ended, in words and as exit codes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// With an exit code.
    Exited(i32),
    /// By a signal.
    Killed(i32),
}

impl Outcome {
    /// Whether all is well.
    #[must_use]
    pub fn is_good(self) -> bool {
        self == Outcome::Exited(0)
    }

    /// The exit code that says the same: the process's own, or 128 and the signal's number.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Exited(code) => code as u8,
            Outcome::Killed(signal) => signal_code(signal),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Exited(code) => write!(f, "exit code {code}"),
            Outcome::Killed(signal) => f.write_str(&signal_name(*signal)),
        }
    }
}

/// The exit code of a job that a signal ended.
#[must_use]
pub fn signal_code(signal: i32) -> u8 {
    128u8.saturating_add(u8::try_from(signal).unwrap_or(127))
}

/// A signal's name.
#[must_use]
pub fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_string)
}

/// Why a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// All ranks ended well.
    Good,
    /// A rank failed.
    Failed {
        /// The first that did.
        rank: usize,
        /// How.
        outcome: Outcome,
    },
    /// The time was up.
    TimedOut(Duration),
    /// The launcher got a signal.
    Interrupted(i32),
    /// What the ranks print goes nowhere any more.
    OutputGone,
}

/// Ranks that end within that time are noticed in any order.
const AT_ONCE: Duration = Duration::from_millis(50);

impl Ending {
    /// Whether another rank, whose end is noticed so much later, rather was the first to fail: both ended at about the same
    /// time, and nobody is killed because another rank exits, while ranks do exit because another is killed.
    #[must_use]
    pub fn gives_way(self, other: Outcome, later: Duration) -> bool {
        let was_an_exit = matches!(self, Ending::Failed { outcome: Outcome::Exited(_), .. });
        was_an_exit && matches!(other, Outcome::Killed(_)) && later < AT_ONCE
    }

    /// The launcher's exit code.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Ending::Good => 0,
            Ending::Failed { outcome, .. } => outcome.exit_code(),
            Ending::TimedOut(_) => 124,
            Ending::Interrupted(signal) => signal_code(signal),
            Ending::OutputGone => signal_code(13),
        }
    }

    /// The report: what ended the job, after how long, and what became of the other ranks.
    #[must_use]
    pub fn report(self, pids: &[u32], outcomes: &[Option<Outcome>], after: Duration) -> String {
        let seconds = after.as_secs_f64();
        let (headline, blamed) = match self {
            Ending::Good | Ending::OutputGone => return String::new(),
            Ending::Failed { rank, outcome } => {
                let how = match outcome {
                    Outcome::Exited(code) => format!("ended with exit code {code}"),
                    Outcome::Killed(signal) => format!("was killed by {}", signal_name(signal)),
                };
                let headline = format!("rank {rank} (pid {}) failed first: it {how} after {seconds:.1} s", pids[rank]);
                (headline, Some(rank))
            }
            Ending::TimedOut(limit) => {
                (format!("the job was ended after {:.1} s (--timeout)", limit.as_secs_f64()), None)
            }
            Ending::Interrupted(signal) => {
                (format!("interrupted by {} after {seconds:.1} s", signal_name(signal)), None)
            }
        };
        let mut text = format!("paceline launch: {headline}\n");
        let mut others: BTreeMap<Outcome, Vec<usize>> = BTreeMap::new();
        for (rank, outcome) in outcomes.iter().enumerate().filter(|(rank, _)| Some(*rank) != blamed) {
            others.entry(outcome.unwrap_or(Outcome::Killed(9))).or_default().push(rank);
        }
        for (outcome, ranks) in others {
            let which = if ranks.len() == 1 { "rank" } else { "ranks" };
            text.push_str(&format!("paceline launch: {which} {}: {outcome}\n", runs(&ranks)));
        }
        text
    }
}

/// Sorted numbers, runs of them as first to last: `0-2, 5`.
fn runs(numbers: &[usize]) -> String {
    let mut text = String::new();
    let mut rest = numbers;
    while let Some(&first) = rest.first() {
        let len = rest.iter().enumerate().take_while(|(place, number)| **number == first + place).count();
        if !text.is_empty() {
            text.push_str(", ");
        }
        match len {
            1 => text.push_str(&first.to_string()),
            _ => text.push_str(&format!("{first}-{}", first + len - 1)),
        }
        rest = &rest[len..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes() {
        assert_eq!(Outcome::Exited(3).exit_code(), 3);
        assert_eq!(Outcome::Killed(9).exit_code(), 137);
        assert_eq!(Ending::Interrupted(2).exit_code(), 130);
        assert_eq!(Ending::TimedOut(Duration::ZERO).exit_code(), 124);
    }

    #[test]
    fn who_is_killed_was_first_among_those_that_end_at_once() {
        let (soon, late) = (Duration::from_millis(2), Duration::from_secs(1));
        let exited = Ending::Failed { rank: 2, outcome: Outcome::Exited(3) };
        assert!(exited.gives_way(Outcome::Killed(9), soon));
        assert!(!exited.gives_way(Outcome::Killed(9), late));
        assert!(!exited.gives_way(Outcome::Exited(4), soon));
        let killed = Ending::Failed { rank: 1, outcome: Outcome::Killed(11) };
        assert!(!killed.gives_way(Outcome::Killed(9), soon));
        assert!(!Ending::TimedOut(late).gives_way(Outcome::Killed(9), soon));
    }

    #[test]
    fn reports_name_the_first_and_sum_up_the_rest() {
        let outcomes = [1, 1, 0, 1].map(|code| Some(Outcome::Exited(code)));
        let mut outcomes = outcomes.to_vec();
        outcomes[2] = Some(Outcome::Killed(11));
        outcomes.push(Some(Outcome::Killed(15)));
        let ending = Ending::Failed { rank: 2, outcome: Outcome::Killed(11) };
        let text = ending.report(&[10, 11, 12, 13, 14], &outcomes, Duration::from_millis(1250));
        let want = "paceline launch: rank 2 (pid 12) failed first: it was killed by SIGSEGV after 1.2 s\n\
                    paceline launch: ranks 0-1, 3: exit code 1\n\
                    paceline launch: rank 4: SIGTERM\n";
        assert_eq!(text, want);
        assert_eq!(Ending::Good.report(&[], &[], Duration::ZERO), "");
    }

    #[test]
    fn numbers_in_runs() {
        for (numbers, want) in [(&[0usize][..], "0"), (&[0, 1, 2, 5, 7, 8], "0-2, 5, 7-8"), (&[], "")] {
            assert_eq!(runs(numbers), want);
        }
    }
}
