//! Takes part in what other ranks send when this one has no data left.
//!
//! Where something is sent in each micro-batch, ranks with fewer of them must send as often. The rank that has most (the
//! leader) tells the ones with fewer (the followers) of each collective that it starts; when a follower has computed what it
//! has, it goes through what it was told: its own come first, and it does the others with zeros. Where all ranks have as
//! many, nobody is told anything. In any case the ranks compare in the end what they have sent.

use paceline_comm::Collective;

use super::keeper::{Inside, Keep};
use super::options::Stage;
use crate::data::Progress;
use crate::error::{Doing, Error, Result};

/// A collective that was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// Of a unit's values.
    Gather(usize),
    /// Of a unit's gradients.
    Reduce(usize),
}

const END: u64 = u64::MAX;
const REDUCE: u64 = 1 << 32;

impl Event {
    fn code(self) -> u64 {
        match self {
            Event::Gather(unit) => unit as u64,
            Event::Reduce(unit) => REDUCE | unit as u64,
        }
    }

    fn of(code: u64) -> Event {
        let unit = (code & (REDUCE - 1)) as usize;
        if code & REDUCE == 0 { Event::Gather(unit) } else { Event::Reduce(unit) }
    }
}

/// What a rank is in a step.
pub(super) enum Role {
    /// All ranks that matter have as many micro-batches.
    Alike,
    /// It tells these.
    Leader(Vec<usize>),
    /// It is told by this one.
    Follower(usize),
}

impl Role {
    pub(super) fn follows(&self) -> bool {
        matches!(self, Role::Follower(_))
    }
}

/// The units of the collectives of a step. Each kind has a communicator of its own: between kinds, the order may differ.
#[derive(Default)]
pub(super) struct Log {
    gathers: Vec<usize>,
    reduces: Vec<usize>,
}

impl Log {
    fn push(&mut self, event: Event) {
        match event {
            Event::Gather(unit) => self.gathers.push(unit),
            Event::Reduce(unit) => self.reduces.push(unit),
        }
    }

    pub(super) fn clear(&mut self) {
        self.gathers.clear();
        self.reduces.clear();
    }

    /// Two numbers that differ where the logs do.
    fn digest(&self) -> [u64; 2] {
        let mix = |digest: u64, unit: &usize| (digest ^ *unit as u64).wrapping_mul(0x0100_0000_01b3);
        [&self.gathers, &self.reduces].map(|units| units.iter().fold(0xcbf2_9ce4_8422_2325 ^ units.len() as u64, mix))
    }
}

impl Keep {
    /// See [`crate::state::State::begin_step`].
    pub(super) fn roles(&self, progress: &Progress) -> Result<Role> {
        let (has, ranks) = (progress.micro_batches(), self.control.size());
        if has.len() != ranks {
            let told = has.len();
            return Err(Error::invalid(format!(
                "the progress is that of {told} ranks, and the data of {ranks} differs"
            )));
        }
        let (most, me) = (progress.most_micro_batches(), self.control.rank());
        let sends_in_each = self.options.stage == Stage::Parameters || self.options.sends_each_micro_batch();
        if !sends_in_each || has.iter().all(|has| *has == most) {
            return Ok(Role::Alike);
        }
        let leader = progress.busiest();
        Ok(match has[me] {
            _ if me == leader => Role::Leader((0..ranks).filter(|rank| has[*rank] < most).collect()),
            mine if mine < most => Role::Follower(leader),
            _ => Role::Alike,
        })
    }

    /// Writes down what is started, and tells it.
    pub(super) fn note(&self, inside: &mut Inside, event: Event) -> Result<()> {
        inside.log.push(event);
        self.tell(inside, event.code())
    }

    fn tell(&self, inside: &Inside, code: u64) -> Result<()> {
        let Role::Leader(followers) = &inside.role else { return Ok(()) };
        for follower in followers {
            self.control.count(Collective::Send, 8);
            let sent = self.control.comm().start_send(vec![code], *follower);
            // It goes on by itself; if it fails, so does what follows.
            drop(sent.doing(|| format!("telling rank {follower}, which has no data left, what is sent"))?);
        }
        Ok(())
    }

    /// Ends the telling, or does what was told.
    pub(super) fn end_of_step(&self, inside: &mut Inside) -> Result<()> {
        self.tell(inside, END)?;
        let Role::Follower(leader) = inside.role else { return Ok(()) };
        let mut told = Log::default();
        loop {
            let mut code = [0u64];
            let heard = self.control.comm().recv(&mut code, leader);
            heard.doing(|| format!("learning from rank {leader} what is sent"))?;
            if code[0] == END {
                return Ok(());
            }
            let event = Event::of(code[0]);
            told.push(event);
            self.follow(inside, &told, event)?;
        }
    }

    fn follow(&self, inside: &mut Inside, told: &Log, event: Event) -> Result<()> {
        let (unit, told, own) = match event {
            Event::Gather(unit) => (unit, told.gathers.len(), &inside.log.gathers),
            Event::Reduce(unit) => (unit, told.reduces.len(), &inside.log.reduces),
        };
        match own.get(told - 1) {
            Some(mine) if *mine == unit => return Ok(()),
            Some(mine) => return Err(differs(&format!("this rank's {mine} where another's was {unit}"))),
            None => {}
        }
        inside.log.push(event);
        match event {
            Event::Gather(unit) => {
                let started = self.start_gather(&inside.units[unit], unit)?;
                started.wait(|| format!("gathering the values of unit {unit} for other ranks")).map(drop)
            }
            Event::Reduce(unit) => self.send(inside, unit),
        }
    }

    /// Checks that all ranks have sent the same units in the same order: units of one size would be taken for each other.
    pub(super) fn compare_logs(&self, inside: &Inside) -> Result<()> {
        let mut all = vec![0; 2 * self.control.size()];
        self.control.count(Collective::AllGather, 16 * self.control.size());
        let gathered = self.control.comm().all_gather(&inside.log.digest(), &mut all);
        gathered.doing(|| "comparing what the ranks have sent".to_owned())?;
        match all.chunks(2).position(|digest| digest != &all[..2]) {
            None => Ok(()),
            Some(rank) => Err(differs(&format!("rank {rank}'s differ from rank 0's (numbered along the data axes)"))),
        }
    }
}

fn differs(what: &str) -> Error {
    Error::Differs(format!(
        "the ranks have gathered or reduced different units: {what}; all ranks must go through the units in the same order, \
         and learn with begin_step if some have fewer micro-batches"
    ))
}
