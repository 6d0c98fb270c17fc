//! Why the ranks couldn't meet, as reports that name who and where.

use std::fmt;
use std::time::Duration;

use crate::environment::EnvironmentError;

/// Who a rank is, as others can look for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankIdentity {
    /// Its rank.
    pub rank: usize,
    /// Its host's name.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Where it was heard from: an IP address and port, or words.
    pub address: String,
}

impl fmt::Display for RankIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RankIdentity { rank, host, pid, address } = self;
        write!(f, "{rank} (host {host}, pid {pid}, {address})")
    }
}

/// Why an exchange failed or could not begin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RendezvousError {
    /// An environment variable can't be used.
    #[error("reading the environment: {0}")]
    Environment(#[from] EnvironmentError),
    /// Two sources in the environment say different things.
    #[error(
        "the environment contradicts itself: {first}, but {second}; unset one of them, or set PACELINE_LAUNCHER to say \
         which counts"
    )]
    Contradiction {
        /// What one source says.
        first: String,
        /// What the other says.
        second: String,
    },
    /// A setting is missing or senseless.
    #[error("setting up the rendezvous: {0}")]
    Setup(String),
    /// A rank isn't below the size.
    #[error("rank {rank} of {size} doesn't exist: ranks are 0 to {}", .size - 1)]
    RankOutOfRange {
        /// The rank.
        rank: usize,
        /// The size.
        size: usize,
    },
    /// There are several ranks and no place to meet was given.
    #[error(
        "no place for the {size} ranks to meet: set PACELINE_RENDEZVOUS on all of them, for instance to \
         tcp://<host of rank 0>:29500"
    )]
    NowhereToMeet {
        /// How many ranks there are.
        size: usize,
    },
    /// A place to meet isn't understood.
    #[error(
        "rendezvous {given:?}: {problem}; allowed: tcp://host:port, tcp://[IPv6]:port, file:///path, a path, \
         local://name"
    )]
    Place {
        /// What was given.
        given: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The bytes to bring are too many.
    #[error("rendezvous: {bytes} bytes are too many to bring; at most {most}")]
    EntryTooLong {
        /// How many there are.
        bytes: usize,
        /// How many there may be.
        most: usize,
    },
    /// The root's host has no address.
    #[error("rendezvous: host {host:?} of rank 0 can't be resolved: {problem}; is the name right on this host?")]
    Unresolved {
        /// The name.
        host: String,
        /// What the resolver said.
        problem: String,
    },
    /// The root's port is taken.
    #[error(
        "rank 0 can't listen on {address}: the port is in use by another program, perhaps an earlier run; choose \
         another port in PACELINE_RENDEZVOUS or end that program (ss -ltnp shows it)"
    )]
    PortInUse {
        /// The address, or addresses.
        address: String,
    },
    /// The root can't listen for another reason.
    #[error("rank 0 can't listen on {address}: {problem}")]
    Listen {
        /// The address.
        address: String,
        /// What the operating system said.
        problem: String,
    },
    /// The root never answered.
    #[error("no answer from rank 0 at {place} within {}: {last}; is rank 0 started?", seconds(*.waited))]
    NoAnswer {
        /// Where it was sought.
        place: String,
        /// For how long.
        waited: Duration,
        /// What became of the last attempts.
        last: String,
    },
    /// This rank and the root don't know the same token.
    #[error(
        "rendezvous with {peer}: authentication failed; PACELINE_TOKEN must be the same on all ranks, or set on none"
    )]
    AuthenticationFailed {
        /// Whom the rank tried to meet.
        peer: String,
    },
    /// The root runs another version.
    #[error(
        "rendezvous with {peer}: it speaks version {theirs} of the protocol and this rank version {ours}; run the same \
         build of paceline on all ranks"
    )]
    Version {
        /// Whom the rank tried to meet.
        peer: String,
        /// This rank's version.
        ours: u16,
        /// The peer's.
        theirs: u16,
    },
    /// Not every rank came.
    #[error("{}", incomplete(*.size, *.limit, *.limited_by, .arrived, .missing))]
    Incomplete {
        /// How many ranks there are.
        size: usize,
        /// How long the ranks waited: the shortest limit of those that arrived.
        limit: Duration,
        /// Whose limit that is.
        limited_by: usize,
        /// Who came, by rank.
        arrived: Vec<RankIdentity>,
        /// Who did not, by rank.
        missing: Vec<usize>,
    },
    /// Two processes say that they are the same rank.
    #[error(
        "rendezvous: rank {} came twice: as {first} and as {second}; give every process a rank of its own",
        first.rank
    )]
    Duplicate {
        /// The one that came first.
        first: Box<RankIdentity>,
        /// The one that came second.
        second: Box<RankIdentity>,
    },
    /// The root and another rank don't agree on how many there are.
    #[error(
        "rendezvous: rank {root} says that there are {root_size} ranks, rank {other} says {other_size}; start all with \
         the same size"
    )]
    SizeMismatch {
        /// The root.
        root: Box<RankIdentity>,
        /// The size it was given.
        root_size: usize,
        /// The rank that disagrees.
        other: Box<RankIdentity>,
        /// The size that one was given.
        other_size: usize,
    },
    /// A rank arrived and went before all were there.
    #[error("rendezvous: lost rank {lost} after it had arrived, with {arrived} of {size} ranks there: {problem}")]
    LostRank {
        /// The rank.
        lost: Box<RankIdentity>,
        /// How many had arrived, it included.
        arrived: usize,
        /// How many there are.
        size: usize,
        /// What was seen of its end.
        problem: String,
    },
    /// The root went while this rank waited for the others.
    #[error("rendezvous: lost rank 0 at {place} while waiting for the other ranks: {problem}")]
    LostRoot {
        /// Where it was.
        place: String,
        /// What was seen of its end.
        problem: String,
    },
    /// The root gave up for a reason of its own.
    #[error("rendezvous: rank {root} gave up: {problem}")]
    RootFailed {
        /// The root.
        root: Box<RankIdentity>,
        /// Its reason.
        problem: String,
    },
    /// A peer that passed the handshake sent what no sound peer sends.
    #[error("rendezvous with {peer}: it broke the protocol: {problem}")]
    Protocol {
        /// The peer.
        peer: String,
        /// What it did.
        problem: String,
    },
    /// The process manager of MPICH or Intel MPI can't be used.
    #[error("rendezvous through the process manager (PMI): {0}")]
    Pmi(String),
    /// The operating system failed.
    #[error("rendezvous: {doing}: {problem}")]
    System {
        /// What was tried.
        doing: String,
        /// What the operating system said.
        problem: String,
    },
}

impl RendezvousError {
    /// The ranks to look at, where the error is about some.
    #[must_use]
    pub fn peers(&self) -> Vec<usize> {
        match self {
            RendezvousError::NoAnswer { .. } | RendezvousError::LostRoot { .. } => vec![0],
            RendezvousError::Incomplete { missing, .. } => missing.clone(),
            RendezvousError::Duplicate { first, .. } => vec![first.rank],
            RendezvousError::SizeMismatch { root, other, .. } => vec![root.rank, other.rank],
            RendezvousError::LostRank { lost, .. } => vec![lost.rank],
            RendezvousError::RootFailed { root, .. } => vec![root.rank],
            _ => Vec::new(),
        }
    }
}

fn incomplete(size: usize, limit: Duration, by: usize, arrived: &[RankIdentity], missing: &[usize]) -> String {
    let plural = if missing.len() == 1 { "" } else { "s" };
    let mut names: Vec<String> = arrived.iter().take(8).map(RankIdentity::to_string).collect();
    if names.len() < arrived.len() {
        names.push(format!("and {} more", arrived.len() - names.len()));
    }
    format!(
        "rendezvous: {} of {size} ranks arrived within {}, missing rank{plural} {} (arrived: {}); the limit is rank {by}'s, \
         PACELINE_INIT_TIMEOUT raises it",
        arrived.len(),
        seconds(limit),
        ranges(missing),
        names.join(", "),
    )
}

/// `30.0 s`.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// `2, 5-7` for 2, 5, 6, 7; cut after twelve parts.
fn ranges(ranks: &[usize]) -> String {
    let runs: Vec<&[usize]> = ranks.chunk_by(|a, b| a + 1 == *b).collect();
    let mut parts: Vec<String> = runs
        .iter()
        .take(12)
        .map(|run| match run {
            [only] => only.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => unreachable!("runs aren't empty"),
        })
        .collect();
    if parts.len() < runs.len() {
        parts.push("...".to_owned());
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_shown_as_ranges() {
        for (ranks, want) in
            [(vec![2], "2"), (vec![1, 2], "1-2"), (vec![2, 5, 6, 7, 9], "2, 5-7, 9"), (vec![0, 1, 3], "0-1, 3")]
        {
            assert_eq!(ranges(&ranks), want);
        }
        let even: Vec<usize> = (0..100).step_by(2).collect();
        assert!(ranges(&even).ends_with("22, ..."), "{}", ranges(&even));
    }

    #[test]
    fn an_incomplete_rendezvous_reads_like_a_report() {
        let who = |rank| RankIdentity { rank, host: "b".to_owned(), pid: 812, address: "10.0.0.2:4021".to_owned() };
        let error = RendezvousError::Incomplete {
            size: 4,
            limit: Duration::from_secs(30),
            limited_by: 0,
            arrived: vec![who(0), who(1), who(3)],
            missing: vec![2],
        };
        let text = error.to_string();
        let want = "rendezvous: 3 of 4 ranks arrived within 30.0 s, missing rank 2 (arrived: 0 (host b, pid 812, ";
        assert!(text.starts_with(want), "{text}");
    }
}
