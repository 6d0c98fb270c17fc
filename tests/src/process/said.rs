//! What a worker says: one line for each thing that happened, with the rank and the time.
//!
//! ```text
//! @ error 2 104201882123 peer-died 1 all_reduce #3 (ring, n = 4): lost rank 1 ...
//! ```
//!
//! The time is the machine's monotonic clock in nanoseconds, which all its processes share.

use std::io::Write;
use std::time::Duration;

use paceline_comm::ErrorKind;
use rustix::time::{ClockId, clock_gettime};

/// A line of a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// What happened: `begun`, `joined`, `result`, `error`, ...
    pub word: String,
    /// To which rank.
    pub rank: usize,
    /// When, on the machine's monotonic clock.
    pub at: Duration,
    /// The rest of the line.
    pub rest: String,
}

impl Said {
    /// Reads a line, which may have a launcher's prefix; `None` if no worker wrote it.
    #[must_use]
    pub fn parse(line: &str) -> Option<Said> {
        let (_, line) = line.split_once("@ ")?;
        let mut parts = line.splitn(4, ' ');
        let word = parts.next()?.to_owned();
        let rank = parts.next()?.parse().ok()?;
        let at = Duration::from_nanos(parts.next()?.parse().ok()?);
        Some(Said { word, rank, at, rest: parts.next().unwrap_or_default().to_owned() })
    }

    /// The kind of an `error`, as [`kind_of`] writes it.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.rest.split(' ').next().unwrap_or_default()
    }

    /// The ranks that an `error` blames.
    #[must_use]
    pub fn peers(&self) -> Vec<usize> {
        let list = self.rest.split(' ').nth(1).unwrap_or_default();
        list.split(',').filter_map(|rank| rank.parse().ok()).collect()
    }

    /// The text of an `error`.
    #[must_use]
    pub fn text(&self) -> &str {
        self.rest.splitn(3, ' ').nth(2).unwrap_or_default()
    }
}

/// Checks that all ranks of a job said a `result`, and the same.
///
/// # Panics
///
/// If not.
pub fn agree(size: usize, said: &[Said]) {
    let results: Vec<&Said> = said.iter().filter(|said| said.word == "result").collect();
    assert_eq!(results.len(), size, "{said:#?}");
    assert!(results.iter().all(|result| result.rest == results[0].rest), "{results:#?}");
}

/// An error's kind as one word.
#[must_use]
pub fn kind_of(kind: ErrorKind) -> String {
    kind.name().replace(' ', "-")
}

/// The machine's monotonic clock.
#[must_use]
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Writes a line. A reader that has gone is no failure of the rank.
pub fn say(word: &str, rank: usize, rest: impl std::fmt::Display) {
    let line = format!("@ {word} {rank} {} {}\n", now().as_nanos(), rest.to_string().replace('\n', " "));
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(line.as_bytes()).and_then(|()| output.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let said = Said::parse("[2] @ error 2 1500 peer-died 1,3 all_reduce #3: lost rank 1").unwrap();
        assert_eq!((said.word.as_str(), said.rank, said.at), ("error", 2, Duration::from_nanos(1500)));
        assert_eq!((said.kind(), said.peers()), ("peer-died", vec![1, 3]));
        assert_eq!(said.text(), "all_reduce #3: lost rank 1");
        assert_eq!(Said::parse("@ error 2 1500 timeout - late").unwrap().peers(), Vec::<usize>::new());
        assert_eq!(Said::parse("running 1 test"), None);
    }
}
