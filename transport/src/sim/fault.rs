//! What can go wrong, when, and to whom: a script of values, so that it can be printed, repeated and drawn from a seed.

use std::collections::HashMap;
use std::time::Duration;

use super::{Port, Random};
use crate::clock::Time;

/// One thing that goes wrong. Moments are on the network's clock; those already past mean now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The rank's process dies. What it sent before still arrives; what is sent to it vanishes; its peers are told once
    /// `SimOptions::detection` has passed.
    Kill {
        /// Who dies.
        rank: usize,
        /// When.
        at: Time,
    },
    /// The rank doesn't run, as under SIGSTOP, and is otherwise whole: frames reach it and wait.
    Stop {
        /// Who stands still.
        rank: usize,
        /// The first moment at which it doesn't run.
        from: Time,
        /// The first at which it does again; [`Time::NEVER`] for good.
        until: Time,
    },
    /// Nothing arrives between two ranks, either way; what would have arrived does so a latency after the end. Nobody is
    /// told.
    Partition {
        /// One rank.
        a: usize,
        /// The other.
        b: usize,
        /// The first moment at which nothing arrives.
        from: Time,
        /// When it heals; [`Time::NEVER`] for never.
        until: Time,
    },
    /// Every connection between two ranks breaks: what is under way is lost, and both ends are told at once.
    Cut {
        /// One rank.
        a: usize,
        /// The other.
        b: usize,
        /// When.
        at: Time,
    },
    /// Whatever the rank sends for a while arrives later than it would.
    Straggle {
        /// Whose frames and notices are late.
        rank: usize,
        /// The first moment of sending that counts.
        from: Time,
        /// The first that doesn't any more.
        until: Time,
        /// How late.
        by: Duration,
    },
    /// Notices from one rank to another are lost on the way. Goodbyes and deaths are not notices.
    DropNotices {
        /// The sender.
        source: usize,
        /// The receiver.
        target: usize,
        /// The first moment of sending that counts.
        from: Time,
        /// The first that doesn't any more.
        until: Time,
    },
}

impl Fault {
    /// A fault drawn from `random` that begins within `within` of the clock's origin, among at least two ranks: half the
    /// time one that ranks survive (stops and partitions of up to `within`, stragglers), else a death, a cut, or a stop or
    /// partition for good.
    ///
    /// # Panics
    ///
    /// With fewer than two ranks.
    pub fn random(random: &mut Random, ranks: usize, within: Duration) -> Fault {
        assert!(ranks >= 2, "faults are drawn among two ranks or more, not {ranks}");
        let nanos = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX).max(1);
        let rank = random.below(ranks as u64) as usize;
        let other = (rank + 1 + random.below(ranks as u64 - 1) as usize) % ranks;
        let at = Time(random.below(nanos));
        let lasting = Duration::from_nanos(random.below(nanos));
        match random.below(8) {
            0 => Fault::Stop { rank, from: at, until: at.after(lasting) },
            1 | 2 => Fault::Partition { a: rank, b: other, from: at, until: at.after(lasting) },
            3 => Fault::Straggle { rank, from: at, until: at.after(lasting), by: lasting / 2 },
            4 => Fault::Kill { rank, at },
            5 => Fault::Cut { a: rank, b: other, at },
            6 => Fault::Stop { rank, from: at, until: Time::NEVER },
            _ => Fault::Partition { a: rank, b: other, from: at, until: Time::NEVER },
        }
    }

    pub(super) fn validate(&self, ranks: usize) {
        let named = match *self {
            Fault::Kill { rank, .. } | Fault::Stop { rank, .. } | Fault::Straggle { rank, .. } => [rank, rank],
            Fault::Partition { a, b, .. } | Fault::Cut { a, b, .. } => {
                assert!(a != b, "{self:?}: a rank has no link to itself");
                [a, b]
            }
            Fault::DropNotices { source, target, .. } => [source, target],
        };
        assert!(named.iter().all(|&rank| rank < ranks), "{self:?} names a rank that isn't among the {ranks}");
    }
}

/// A stretch of time, its end not in it.
#[derive(Clone, Copy)]
struct Spell {
    from: Time,
    until: Time,
}

impl Spell {
    fn holds(self, now: Time) -> bool {
        self.from <= now && now < self.until
    }
}

/// The faults that last, by whom they concern.
#[derive(Default)]
pub(super) struct Faults {
    pub deaths: HashMap<usize, Time>,
    stops: HashMap<usize, Vec<Spell>>,
    partitions: HashMap<(usize, usize), Vec<Spell>>,
    straggles: HashMap<usize, Vec<(Spell, Duration)>>,
    lost_notices: HashMap<(usize, usize), Vec<Spell>>,
    slow_ports: HashMap<Port, Vec<(Spell, u32)>>,
    closed_ports: HashMap<Port, Vec<Spell>>,
}

impl Faults {
    /// Notes a fault that lasts; deaths and cuts happen at a moment and are left to the agenda.
    pub fn note(&mut self, fault: Fault) {
        match fault {
            Fault::Kill { .. } | Fault::Cut { .. } => {}
            Fault::Stop { rank, from, until } => self.stops.entry(rank).or_default().push(Spell { from, until }),
            Fault::Partition { a, b, from, until } => {
                self.partitions.entry((a.min(b), a.max(b))).or_default().push(Spell { from, until });
            }
            Fault::Straggle { rank, from, until, by } => {
                self.straggles.entry(rank).or_default().push((Spell { from, until }, by));
            }
            Fault::DropNotices { source, target, from, until } => {
                self.lost_notices.entry((source, target)).or_default().push(Spell { from, until });
            }
        }
    }

    /// The first moment from `now` on at which the rank runs; [`Time::NEVER`] if it doesn't any more.
    pub fn runs_from(&self, rank: usize, now: Time) -> Time {
        if self.deaths.contains_key(&rank) {
            return Time::NEVER;
        }
        end_of_spells(self.stops.get(&rank), now)
    }

    /// The first moment from `now` on at which something can arrive between two ranks.
    pub fn passes_from(&self, a: usize, b: usize, now: Time) -> Time {
        if self.partitions.is_empty() {
            return now;
        }
        end_of_spells(self.partitions.get(&(a.min(b), a.max(b))), now)
    }

    /// How much later than otherwise arrives what the rank sends now.
    pub fn lateness(&self, rank: usize, now: Time) -> Duration {
        let spells = self.straggles.get(&rank).into_iter().flatten();
        spells.filter(|(spell, _)| spell.holds(now)).map(|&(_, by)| by).sum()
    }

    /// Notes that a port is slow for a while.
    pub fn slow(&mut self, port: Port, (from, until): (Time, Time), times: u32) {
        self.slow_ports.entry(port).or_default().push((Spell { from, until }, times));
    }

    /// Notes that a port is closed for a while.
    pub fn close(&mut self, port: Port, (from, until): (Time, Time)) {
        self.closed_ports.entry(port).or_default().push(Spell { from, until });
    }

    /// How many times longer than it was made to a port takes now.
    pub fn slowed(&self, port: Port, now: Time) -> u32 {
        let spells = self.slow_ports.get(&port).into_iter().flatten();
        spells.filter(|(spell, _)| spell.holds(now)).fold(1, |times, &(_, more)| times.saturating_mul(more))
    }

    /// The first moment from `now` on at which a port carries something.
    pub fn open_from(&self, port: Port, now: Time) -> Time {
        end_of_spells(self.closed_ports.get(&port), now)
    }

    /// Whether a notice that is sent now is lost.
    pub fn loses_notice(&self, source: usize, target: usize, now: Time) -> bool {
        self.lost_notices.get(&(source, target)).is_some_and(|spells| spells.iter().any(|spell| spell.holds(now)))
    }
}

/// The first moment from `now` on that lies in none of the spells.
fn end_of_spells(spells: Option<&Vec<Spell>>, now: Time) -> Time {
    let mut free = now;
    while let Some(spell) = spells.into_iter().flatten().find(|spell| spell.holds(free)) {
        free = spell.until;
    }
    free
}
