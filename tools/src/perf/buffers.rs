//! Buffers with guard zones: what lies before and after the bytes a call may touch must not change.

use std::ops::Range;

use super::verify::hash;

const ALIGNMENT: usize = 4096;
const GUARD: usize = 4096;
const GUARD_SEED: u64 = 0x6775_6172_6421;

/// Where buffers lie: ordinary memory, or the library's own.
pub type Memory = Box<dyn std::ops::DerefMut<Target = [u8]> + Send>;

/// Page-aligned memory between two guard zones.
pub struct Guarded {
    memory: Memory,
    zone: usize,
    data: usize,
    capacity: usize,
}

/// Bytes of a guard zone that changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// How many.
    pub bytes: usize,
    /// Where the first lies, counted from the start of the bytes that the call may touch.
    pub first: isize,
}

impl std::fmt::Debug for Guarded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guarded").field("data", &self.data).field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Guarded {
    /// Room for `capacity` bytes, aligned, or up to `unalign` bytes off the alignment. Every page is touched, so that none
    /// is first touched while the clock runs.
    #[must_use]
    pub fn new(capacity: usize, unalign: usize) -> Guarded {
        Guarded::over(Box::new(vec![0u8; Guarded::footprint(capacity, unalign)]), capacity)
    }

    /// The same over memory of [`Guarded::footprint`] bytes.
    #[must_use]
    pub fn over(mut memory: Memory, capacity: usize) -> Guarded {
        memory.iter_mut().step_by(ALIGNMENT).for_each(|byte| *byte = 1);
        let zone = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Guarded { memory, zone, data: zone + GUARD, capacity }
    }

    /// The memory that such a buffer takes.
    #[must_use]
    pub const fn footprint(capacity: usize, unalign: usize) -> usize {
        ALIGNMENT + GUARD + unalign + capacity + GUARD
    }

    /// Moves the bytes `unalign` bytes off the alignment.
    ///
    /// # Panics
    ///
    /// There is no room for that.
    pub fn unalign(&mut self, unalign: usize) {
        self.data = self.zone + GUARD + unalign;
        assert!(self.data + self.capacity + GUARD <= self.memory.len(), "no room to move {unalign} bytes");
    }

    /// How many bytes there are between the guard zones.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes `first` to `first + len`.
    #[must_use]
    pub fn bytes(&self, first: usize, len: usize) -> &[u8] {
        assert!(first + len <= self.capacity, "bytes {first} to {} of {}", first + len, self.capacity);
        &self.memory[self.data + first..self.data + first + len]
    }

    /// The same, to be written.
    pub fn bytes_mut(&mut self, first: usize, len: usize) -> &mut [u8] {
        assert!(first + len <= self.capacity, "bytes {first} to {} of {}", first + len, self.capacity);
        &mut self.memory[self.data + first..self.data + first + len]
    }

    /// All of it, guard zones included.
    #[must_use]
    pub fn whole(&self) -> &[u8] {
        &self.memory
    }

    /// The same, to be written.
    pub fn whole_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Lays guard zones around the first `len` bytes.
    pub fn arm(&mut self, len: usize) {
        for zone in self.zones(len) {
            let first = zone.start;
            pattern(GUARD_SEED, first, &mut self.memory[zone]);
        }
    }

    /// What became of the guard zones that were laid around the first `len` bytes.
    #[must_use]
    pub fn damage(&self, len: usize) -> Option<Damage> {
        let mut damage: Option<Damage> = None;
        for zone in self.zones(len) {
            let mut want = vec![0; zone.len()];
            pattern(GUARD_SEED, zone.start, &mut want);
            let changed = zone.clone().filter(|at| self.memory[*at] != want[at - zone.start]);
            for at in changed {
                damage.get_or_insert(Damage { bytes: 0, first: at as isize - self.data as isize }).bytes += 1;
            }
        }
        damage
    }

    fn zones(&self, len: usize) -> [Range<usize>; 2] {
        let end = self.data + len;
        [self.zone..self.data, end..end + GUARD]
    }
}

/// Fills with bytes that depend on the seed and the place.
pub fn pattern(seed: u64, first: usize, out: &mut [u8]) {
    for (at, byte) in (first..).zip(out) {
        *byte = (hash::of(seed, at as u64 / 8, 0) >> (8 * (at % 8))) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_out_of_bounds_is_noticed() {
        for unalign in [0, 1, 12] {
            for (at, hit) in [(-1isize, true), (-4096, true), (0, false), (99, false), (100, true), (4195, true)] {
                let mut buffer = Guarded::new(5000, 12);
                buffer.unalign(unalign);
                assert_eq!(buffer.bytes(0, 100).as_ptr() as usize % 4096, unalign);
                buffer.arm(100);
                assert_eq!(buffer.damage(100), None);
                let place = (buffer.data as isize + at) as usize;
                buffer.memory[place] ^= 1;
                let want = hit.then_some(Damage { bytes: 1, first: at });
                assert_eq!(buffer.damage(100), want, "byte {at}, {unalign} off");
            }
        }
    }
}
