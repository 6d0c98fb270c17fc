//! The last events of a run, one line each, so that a person can read what a failing seed did.

use std::collections::VecDeque;
use std::fmt;

use super::Fault;
use crate::clock::Time;
use crate::link::{Channel, Stamp};

/// What happened, between whom is said beside it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Happening {
    FrameSent(Channel, Stamp, usize),
    FrameArrives(Channel, Stamp, usize),
    FrameVanishes(Channel, Stamp, usize),
    PieceArrives(usize),
    Held(Time),
    NoticeSent(usize),
    NoticeLost(usize),
    NoticeArrives(usize),
    LeftArrives,
    DeathArrives,
    LinkDropped,
    RunsAgain,
    Struck(Fault),
}

#[derive(Clone, Copy)]
struct Entry {
    at: Time,
    from: usize,
    to: usize,
    happening: Happening,
}

/// A ring of the last events.
pub(super) struct Trace {
    entries: VecDeque<Entry>,
    most: usize,
    forgotten: u64,
}

impl Trace {
    pub fn new(most: usize) -> Trace {
        Trace { entries: VecDeque::new(), most, forgotten: 0 }
    }

    pub fn note(&mut self, at: Time, (from, to): (usize, usize), happening: Happening) {
        if self.most == 0 {
            return;
        }
        if self.entries.len() == self.most {
            self.entries.pop_front();
            self.forgotten += 1;
        }
        self.entries.push_back(Entry { at, from, to, happening });
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.forgotten > 0 {
            writeln!(f, "({} earlier events forgotten)", self.forgotten)?;
        }
        self.entries.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { at, from, to, happening } = self;
        write!(f, "{:>14}  ", At(*at).to_string())?;
        if !matches!(happening, Happening::RunsAgain | Happening::Struck(_)) {
            write!(f, "{from}->{to} ")?;
        }
        let frame = |f: &mut fmt::Formatter<'_>, (channel, stamp, bytes): (Channel, Stamp, usize), verb: &str| {
            let [high, low] = stamp.0;
            write!(f, "channel {} stamp {high:x}:{low:x} {bytes} B frame {verb}", channel.0)
        };
        match *happening {
            Happening::FrameSent(channel, stamp, bytes) => frame(f, (channel, stamp, bytes), "is sent"),
            Happening::FrameArrives(channel, stamp, bytes) => frame(f, (channel, stamp, bytes), "arrives"),
            Happening::FrameVanishes(channel, stamp, bytes) => frame(f, (channel, stamp, bytes), "finds nobody"),
            Happening::PieceArrives(bytes) => write!(f, "{bytes} B more of the frame arrive"),
            Happening::Held(Time::NEVER) => write!(f, "held for ever by a partition"),
            Happening::Held(until) => write!(f, "held by a partition until {}", At(until)),
            Happening::NoticeSent(bytes) => write!(f, "{bytes} B notice is sent"),
            Happening::NoticeLost(bytes) => write!(f, "{bytes} B notice is lost"),
            Happening::NoticeArrives(bytes) => write!(f, "{bytes} B notice arrives"),
            Happening::LeftArrives => write!(f, "goodbye arrives"),
            Happening::DeathArrives => write!(f, "death is noticed"),
            Happening::LinkDropped => write!(f, "the link is dropped"),
            Happening::RunsAgain => write!(f, "rank {from} runs again"),
            Happening::Struck(fault) => match fault {
                Fault::Kill { rank, .. } => write!(f, "rank {rank} is killed"),
                Fault::Stop { rank, .. } => write!(f, "rank {rank} is stopped"),
                Fault::Cut { a, b, .. } => write!(f, "the connection between {a} and {b} is cut"),
                lasting => write!(f, "{lasting:?}"),
            },
        }
    }
}

/// A moment as people read it: microseconds with nanoseconds behind the point.
pub(super) struct At(pub Time);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Time::NEVER => f.pad("never"),
            Time(nanos) => write!(f, "{}.{:03} us", nanos / 1000, nanos % 1000),
        }
    }
}
