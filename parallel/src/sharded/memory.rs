//! How much memory the state takes: counted, to hold against 4P + 12P/n, 2P + 14P/n and 16P/n.

use super::keeper::Inside;
use super::sum::Sum;
use super::unit::{Place, Unit};
use crate::group::Elements;
use crate::state::Numbers;

/// Bytes of a rank's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Values in the parameters' type: whole ones, and this rank's blocks.
    pub values: usize,
    /// Gradients: whole ones, on their way, and this rank's blocks.
    pub gradients: usize,
    /// Master values; and what has been read ahead of a file.
    pub master: usize,
    /// What the optimizer remembers.
    pub moments: usize,
    /// Master values and moments that are in files and not in memory.
    pub in_files: usize,
}

impl Memory {
    /// All that is in memory.
    #[must_use]
    pub fn total(&self) -> usize {
        self.values + self.gradients + self.master + self.moments
    }
}

fn of_unit(unit: &Unit) -> Memory {
    let whole = unit.len * unit.dtype.size_in_bytes();
    let values = match unit.place {
        Place::Away => 0,
        Place::Here | Place::Coming(..) => whole,
    };
    let gradients = |sum: &Option<Sum>| sum.as_ref().map_or(0, Sum::bytes);
    Memory {
        values: values + unit.block.as_ref().map_or(0, Elements::bytes),
        gradients: gradients(&unit.full) + gradients(&unit.kept) + unit.shard.gradients.bytes(),
        master: unit.shard.values.bytes(),
        moments: unit.shard.moments.values().map(Numbers::bytes).sum(),
        in_files: 0,
    }
}

impl Inside {
    pub(super) fn memory(&self) -> Memory {
        let mut all = self.units.iter().map(of_unit).fold(Memory::default(), |sum, unit| Memory {
            values: sum.values + unit.values,
            gradients: sum.gradients + unit.gradients,
            master: sum.master + unit.master,
            moments: sum.moments + unit.moments,
            in_files: 0,
        });
        all.gradients += self.flights.iter().map(|flight| flight.bytes).sum::<usize>();
        if let Some(store) = &self.store {
            all.in_files = store.bytes();
            all.master += store.bytes_read_ahead();
        }
        all
    }

    /// Remembers the most that was there.
    pub(super) fn note_memory(&mut self) {
        let now = self.memory();
        if now.total() > self.peak.total() {
            self.peak = now;
        }
        let here = self.units.iter().filter(|unit| !matches!(unit.place, Place::Away)).count();
        self.most_here = self.most_here.max(here);
    }
}
