//! Brings values where they are needed, a unit at a time and the next one ahead, and lets them go.

use std::time::Instant;

use paceline_comm::Collective;

use super::follow::Event;
use super::keeper::{Inside, Keep};
use super::options::{Gather, Reshard, Stage};
use super::predict::Turn;
use super::quantised::{pack, unpack};
use super::unit::{Place, Unit};
use crate::error::{Doing, Error, Result};
use crate::group::{Elements, Started};

impl Keep {
    /// Makes a unit's values be here. Units that are neither this one nor expected next go before others come, so that there
    /// are never more than that.
    pub(super) fn bring(&self, inside: &mut Inside, wanted: usize) -> Result<()> {
        let is_here = matches!(inside.units[wanted].place, Place::Here);
        if inside.predictor.now() == Some(wanted) && is_here {
            return Ok(());
        }
        // A follower's last micro-batch isn't the step's.
        let turn = Turn { unit: wanted, is_last: inside.is_last && !inside.role.follows() };
        self.note(inside, Event::Turn(turn))?;
        inside.predictor.observe(turn);
        let ahead = inside.predictor.ahead(self.options.prefetch);
        for (place, unit) in inside.units.iter_mut().enumerate() {
            let stays = place == wanted || ahead.contains(&place);
            let may_go = unit.is_done || self.options.reshard == Reshard::AfterForward;
            if !stays && may_go && !matches!(unit.place, Place::Away) {
                inside.abandoned.extend(unit.release());
            }
        }
        inside.abandoned.retain(|started| !started.is_ready());
        for place in std::iter::once(wanted).chain(ahead) {
            if matches!(inside.units[place].place, Place::Away) {
                self.note(inside, Event::Gather(place))?;
                inside.units[place].place =
                    Place::Coming(self.start_gather(&inside.units[place], place)?, Instant::now());
                inside.gathers.started += 1;
                inside.gathers.started_early += u64::from(place != wanted);
            }
        }
        inside.note_memory();
        let unit = &mut inside.units[wanted];
        if let Place::Coming(started, begun) = std::mem::replace(&mut unit.place, Place::Away) {
            let is_ready = started.is_ready();
            let flat = inside.gathers.wait(begun, is_ready, || self.arrived(unit, started, wanted))?;
            return unit.give(&flat);
        }
        unit.place = Place::Here;
        Ok(())
    }

    /// Starts to gather a unit's blocks.
    pub(super) fn start_gather(&self, unit: &Unit, place: usize) -> Result<Started> {
        let block =
            unit.block.as_ref().ok_or_else(|| Error::invalid(format!("unit {place} has no values to gather")))?;
        let sent = match self.options.gather {
            Gather::Exact => block.clone(),
            Gather::Int8 { block: len } => Elements::U8(pack(block, len)?),
        };
        if self.shard.size() > 1 {
            self.shard.count(Collective::AllGather, sent.bytes() * self.shard.size());
        }
        let started = sent.start_all_gather(self.shard.comm());
        started.doing(|| format!("starting to gather the values of unit {place}"))
    }

    /// The flat vector of a unit whose blocks have been gathered.
    pub(super) fn arrived(&self, unit: &Unit, started: Started, place: usize) -> Result<Elements> {
        let gathered = started.wait(|| format!("gathering the values of unit {place}"))?;
        match (self.options.gather, gathered) {
            (Gather::Int8 { block }, Elements::U8(packed)) => {
                let ranks = self.shard.size();
                unpack(&packed, ranks, unit.len / ranks, block, unit.dtype)
            }
            (_, exact) => Ok(exact),
        }
    }

    /// Lets all values go that are sharded.
    pub(super) fn release_all(&self, inside: &mut Inside) {
        if self.options.stage == Stage::Parameters {
            let Inside { units, abandoned, .. } = inside;
            let here = units.iter_mut().filter(|unit| !matches!(unit.place, Place::Away));
            abandoned.extend(here.filter_map(Unit::release));
        }
    }

    /// Gives every parameter its new value, where values are whole: the next unit's blocks travel while one arrives.
    pub(super) fn gather_all(&self, inside: &mut Inside) -> Result<()> {
        let fresh: Vec<usize> = (0..inside.units.len()).filter(|unit| inside.units[*unit].block.is_some()).collect();
        let mut coming = None;
        for place in fresh.into_iter().map(Some).chain([None]) {
            let next = place.map(|place| Ok::<_, Error>((place, self.start_gather(&inside.units[place], place)?)));
            if let Some((place, started)) = std::mem::replace(&mut coming, next.transpose()?) {
                let unit = &mut inside.units[place];
                let flat = self.arrived(unit, started, place)?;
                unit.give(&flat)?;
                unit.block = None;
            }
        }
        Ok(())
    }
}
