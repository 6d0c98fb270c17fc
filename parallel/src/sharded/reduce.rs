//! Sends gradients: unit by unit, in the order that all ranks have, in rounds.
//!
//! A round is a reduce_scatter of each unit: one in a step, or one for each micro-batch. A unit leaves when it and all before
//! it are complete. One that isn't used leaves without gradients when a later one is complete: it would come before it.

use std::time::Instant;

use paceline_comm::{Collective, ReduceOp};

use super::follow::{Event, Role};
use super::keeper::{Flight, Inside, Keep};
use super::options::{Precision, Reduce};
use super::sum::Sum;
use crate::data::Unused;
use crate::error::{Doing, Error, Result};
use crate::group::Elements;
use crate::state::Numbers;

/// How many units' gradients may be on their way. A rank waits for older ones only when it is two units further, where no
/// other rank needs anything of it to send them.
const MOST_FLIGHTS: usize = 2;

impl Keep {
    /// Sends what is complete.
    pub(super) fn send_complete(&self, inside: &mut Inside) -> Result<()> {
        while let Some(place) = inside.order.get(inside.next).copied() {
            let unit = &inside.units[place];
            let a_later_is = || {
                let mut later = inside.order[inside.next + 1..].iter().map(|later| &inside.units[*later]);
                later.any(|later| later.was_used() && later.is_complete())
            };
            let may_leave = unit.is_complete() || (unit.is_idle() && a_later_is());
            if !may_leave {
                return Ok(());
            }
            inside.overlap.started_early += 1;
            self.send_next(inside)?;
        }
        if self.options.sends_each_micro_batch() {
            begin_round(inside);
        }
        Ok(())
    }

    /// Sends what is left of a round, if nothing more can come to it; whether it ended.
    pub(super) fn end_round(&self, inside: &mut Inside) -> Result<bool> {
        if inside.order[inside.next..].iter().any(|unit| !inside.units[*unit].is_idle()) {
            return Ok(false);
        }
        self.send_rest(inside)?;
        begin_round(inside);
        Ok(true)
    }

    fn send_rest(&self, inside: &mut Inside) -> Result<()> {
        while inside.next < inside.order.len() {
            self.send_next(inside)?;
        }
        Ok(())
    }

    fn send_next(&self, inside: &mut Inside) -> Result<()> {
        let place = inside.order[inside.next];
        inside.next += 1;
        let unit = &mut inside.units[place];
        unit.has_left = true;
        if self.options.sends_each_micro_batch() {
            unit.seen.iter_mut().for_each(|seen| seen.completions = 0);
        }
        self.note(inside, Event::Reduce(place))?;
        self.send(inside, place)
    }

    /// Starts to reduce a unit's gradients; zeros if it has none.
    pub(super) fn send(&self, inside: &mut Inside, place: usize) -> Result<()> {
        let unit = &mut inside.units[place];
        let dtype = self.gradient_type(unit);
        let full = unit.full.take().unwrap_or_else(|| Sum::zeros(dtype, unit.len));
        if self.shard.size() == 1 {
            return self.keep(inside, place, full);
        }
        while inside.may_wait && inside.flights.len() >= MOST_FLIGHTS {
            self.land(inside)?;
        }
        let (sent, ranks) = (full.bytes(), self.shard.size());
        let full = full.into_elements();
        let (kind, came, started) = match self.options.reduce {
            Reduce::Plain => {
                (Collective::ReduceScatter, sent / ranks, full.start_reduce_scatter(&self.reduce, ReduceOp::Sum))
            }
            Reduce::Ordered => (Collective::AllToAll, sent, full.start_all_to_all(&self.reduce)),
        };
        self.shard.count(kind, sent);
        let started = started.doing(|| format!("starting to reduce the gradients of unit {place}"))?;
        inside.overlap.started += 1;
        inside.flights.push_back(Flight { unit: place, started, begun: Instant::now(), bytes: sent + came });
        inside.note_memory();
        Ok(())
    }

    /// Waits for the gradients that left first.
    fn land(&self, inside: &mut Inside) -> Result<()> {
        let Some(Flight { unit, started, begun, .. }) = inside.flights.pop_front() else { return Ok(()) };
        let is_ready = started.is_ready();
        let doing = || format!("reducing the gradients of unit {unit}");
        let mut block = inside.overlap.wait(begun, is_ready, || started.wait(doing))?;
        if self.options.reduce == Reduce::Ordered {
            block = block.added_in_order(self.shard.size());
        }
        self.keep(inside, unit, Sum::from_elements(block)?)
    }

    fn keep(&self, inside: &mut Inside, place: usize, block: Sum) -> Result<()> {
        match &mut inside.units[place].kept {
            Some(kept) => kept.add_all(block)?,
            none => *none = Some(block),
        }
        inside.note_memory();
        Ok(())
    }

    /// See [`crate::state::State::finish_gradients`].
    pub(super) fn finish(&self, inside: &mut Inside) -> Result<()> {
        if std::mem::replace(&mut inside.is_finished, true) {
            return Ok(());
        }
        if inside.next > 0 || (inside.rounds == 0 && !inside.role.follows()) {
            self.send_rest(inside)?;
        }
        self.end_of_step(inside)?;
        let asked = Instant::now();
        let unused = self.agree(inside)?;
        inside.overlap.waited += asked.elapsed();
        while !inside.flights.is_empty() {
            self.land(inside)?;
        }
        self.add_further(inside)?;
        if self.options.gradients == Precision::OfTraining {
            for unit in &mut inside.units {
                let zeros = || Ok(Numbers::zeros(unit.dtype, unit.len / self.shard.size()));
                unit.shard.gradients = unit.kept.take().map_or_else(zeros, Sum::into_numbers)?;
            }
        }
        self.release_all(inside);
        match unused {
            Some(text) if self.options.unused == Unused::Refused => Err(Error::Invalid(text)),
            _ => Ok(()),
        }
    }

    /// Learns which parameters nobody has used, and sends what came after its unit had left.
    fn agree(&self, inside: &mut Inside) -> Result<Option<String>> {
        self.compare_logs(inside)?;
        let seen = || inside.units.iter().flat_map(|unit| &unit.seen);
        let mut counts = vec![u32::from(seen().any(|seen| seen.used))];
        counts.extend(seen().map(|seen| u32::from(seen.used)));
        let first_late = counts.len();
        counts.extend(inside.units.iter().map(|unit| u32::from(unit.full.is_some())));
        self.control.count(Collective::AllReduce, 4 * counts.len());
        let agreed = self.control.comm().all_reduce_in_place(&mut counts, ReduceOp::Sum);
        agreed.doing(|| "agreeing on which parameters were used".to_owned())?;
        let (mut unused, mut place) = (None, 0);
        for unit in &mut inside.units {
            for parameter in &unit.parameters {
                place += 1;
                let (count, ranks, name) = (counts[place], counts[0], parameter.name());
                let of_it = unit.shard.segments.iter_mut().filter(|segment| segment.parameter.is(parameter));
                of_it.for_each(|segment| segment.has_gradient = count > 0);
                if count < ranks {
                    unused.get_or_insert_with(|| {
                        format!(
                            "{name} was used by {count} of the {ranks} ranks that had data: use it on all of them, or \
                             allow unused parameters (Unused::Allowed)"
                        )
                    });
                }
            }
        }
        for late in (0..inside.units.len()).filter(|unit| counts[first_late + unit] > 0) {
            self.send(inside, late)?;
        }
        Ok(unused)
    }

    /// Adds blocks along the axes on which other ranks have the same.
    fn add_further(&self, inside: &mut Inside) -> Result<()> {
        let doing = || "adding the shards of gradients".to_owned();
        let mut started = Vec::new();
        for (place, unit) in inside.units.iter_mut().enumerate() {
            let Some(kept) = &unit.kept else { continue };
            for (axes, ranges) in &unit.further {
                let group = self.groups.along(axes).expect("made with the state");
                for range in ranges {
                    let elements = kept.copied(range.clone());
                    let ranks = group.size();
                    let (kind, bytes, work) = match self.options.reduce {
                        Reduce::Plain => {
                            let bytes = elements.bytes();
                            (Collective::AllReduce, bytes, elements.start_all_reduce(group.comm(), ReduceOp::Sum))
                        }
                        Reduce::Ordered => {
                            let bytes = elements.bytes() * ranks;
                            (Collective::AllGather, bytes, elements.start_all_gather(group.comm()))
                        }
                    };
                    group.count(kind, bytes);
                    started.push((place, range.start, ranks, work.doing(doing)?));
                }
            }
        }
        for (place, first, ranks, work) in started {
            let mut sum: Elements = work.wait(doing)?;
            if self.options.reduce == Reduce::Ordered {
                sum = sum.added_in_order(ranks);
            }
            inside.units[place].kept.as_mut().expect("left there above").write(first, &sum)?;
        }
        Ok(())
    }

    /// Forgets the step's gradients.
    pub(super) fn begin(&self, inside: &mut Inside) {
        let (has_data, first, sends_each) =
            (inside.completions > 0, inside.is_first_step, self.options.sends_each_micro_batch());
        for unit in &mut inside.units {
            (unit.full, unit.kept) = (None, None);
            unit.shard.gradients = Numbers::zeros(unit.dtype, 0);
            unit.shard.segments.iter_mut().for_each(|segment| segment.has_gradient = false);
            for seen in &mut unit.seen {
                let had = if sends_each { u32::from(seen.used) } else { seen.completions };
                if has_data {
                    seen.awaited = had.max(if first { 0 } else { seen.awaited });
                }
                (seen.used, seen.completions) = (false, 0);
            }
        }
        inside.is_first_step &= !has_data;
        begin_round(inside);
        (inside.rounds, inside.completions) = (0, 0);
        (inside.is_last, inside.is_finished) = (false, false);
        inside.log.clear();
        inside.predictor.begin();
        inside.role = Role::Alike;
    }
}

fn begin_round(inside: &mut Inside) {
    inside.rounds += 1;
    inside.next = 0;
    inside.units.iter_mut().for_each(|unit| unit.has_left = false);
}
