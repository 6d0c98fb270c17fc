//! Cells that two ranks hand to and fro over their two rings: whoever has read a payload owns the cell that it lies in, and
//! writes its own next payload there. `README.md`, "cells that change hands".

use super::RingMemory;
use crate::link::LinkError;

/// Cells in each of the two rings.
pub(super) const CELLS: usize = 4;

/// What one of the two ranks knows of the cells of both rings.
///
/// A cell has a number at either end: its own ring's come first.
pub(super) struct Cells {
    starts: [*mut u8; 2 * CELLS],
    /// The length of a cell. None are there if it is 0.
    bytes: usize,
    /// The cells that this rank may write, the one read last at the end.
    owned: [u8; 2 * CELLS],
    count: usize,
}

// SAFETY: the pointers are to memory kept mapped by the owner; who may touch it when is what the rings order.
unsafe impl Send for Cells {}

impl Cells {
    /// The cells of the ring that leaves this rank, which it owns at first, and of the one that arrives.
    pub(super) fn new(leaving: &RingMemory, arriving: &RingMemory) -> Cells {
        debug_assert_eq!(leaving.cell_bytes, arriving.cell_bytes);
        let at = |ring: &RingMemory, cell: usize| ring.cells.wrapping_add(cell * ring.cell_bytes);
        let starts =
            std::array::from_fn(|cell| if cell < CELLS { at(leaving, cell) } else { at(arriving, cell - CELLS) });
        let bytes = leaving.cell_bytes.min(arriving.cell_bytes);
        let count = if bytes == 0 { 0 } else { CELLS };
        Cells { starts, bytes, owned: std::array::from_fn(|cell| cell as u8), count }
    }

    /// Takes the cell that was read last, if it is long enough, to hand it over.
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) -> Option<usize> {
        if bytes > self.bytes || self.count == 0 {
            return None;
        }
        self.count -= 1;
        Some(self.owned[self.count] as usize)
    }

    /// The peer has handed this cell over, and it has been read.
    #[inline]
    pub(super) fn put(&mut self, cell: usize) {
        self.owned[self.count] = cell as u8;
        self.count += 1;
    }

    /// Where a cell lies.
    #[inline]
    pub(super) fn start(&self, cell: usize) -> *mut u8 {
        self.starts[cell]
    }

    /// The own number of the cell that the peer gives that number.
    #[inline]
    pub(super) fn of_peer(&self, theirs: usize, bytes: usize) -> Result<usize, LinkError> {
        let cell = (theirs + CELLS) % (2 * CELLS);
        if theirs >= 2 * CELLS || bytes > self.bytes || self.owned[..self.count].contains(&(cell as u8)) {
            return Err(LinkError::Protocol(format!(
                "a frame of {bytes} bytes in cell {theirs}, which isn't its sender's"
            )));
        }
        Ok(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends(cell_bytes: usize, memory: &mut [u8]) -> (Cells, Cells) {
        let start = memory.as_mut_ptr();
        let ring = |offset: usize| RingMemory {
            lines: std::ptr::null(),
            payload: std::ptr::null_mut(),
            credit: std::ptr::null(),
            cells: start.wrapping_add(offset),
            slots: 1,
            payload_bytes: 0,
            frame_bytes: 0,
            cell_bytes,
            crowded: false,
        };
        let (one, other) = (ring(0), ring(CELLS * cell_bytes));
        (Cells::new(&one, &other), Cells::new(&other, &one))
    }

    proptest! {
        /// However messages cross, no cell is ever free to both, both mean the same memory, and the last read is taken first.
        #[test]
        fn a_cell_has_one_owner(steps in prop::collection::vec((any::<bool>(), any::<bool>()), 1..100)) {
            let mut memory = [0u8; 2 * CELLS * 64];
            let (mut one, mut other) = ends(64, &mut memory);
            let mut under_way = [std::collections::VecDeque::new(), std::collections::VecDeque::new()];
            let mut read_last = [None, None];
            for (direction, sends) in steps {
                let (from, to) = if direction { (&mut one, &mut other) } else { (&mut other, &mut one) };
                let way = usize::from(direction);
                if sends {
                    if let Some(cell) = from.take(64) {
                        prop_assert!(read_last[1 - way].take().is_none_or(|read| read == cell));
                        under_way[way].push_back((cell, from.start(cell)));
                    }
                } else if let Some((cell, start)) = under_way[way].pop_front() {
                    let cell = to.of_peer(cell, 64).unwrap();
                    prop_assert_eq!(to.start(cell), start);
                    to.put(cell);
                    read_last[way] = Some(cell);
                }
                let mut all: Vec<_> = (0..one.count).map(|k| one.start(one.owned[k] as usize)).collect();
                all.extend((0..other.count).map(|k| other.start(other.owned[k] as usize)));
                all.extend(under_way.iter().flatten().map(|(_, start)| *start));
                all.sort();
                all.dedup();
                prop_assert_eq!(all.len(), 2 * CELLS);
            }
        }
    }

    #[test]
    fn a_cell_that_the_peer_does_not_own_is_refused() {
        let mut memory = [0u8; 2 * CELLS * 64];
        let (mut one, mut other) = ends(64, &mut memory);
        let cell = one.take(10).unwrap();
        assert!(other.of_peer(cell, 65).is_err(), "longer than a cell");
        assert!(other.of_peer(2 * CELLS, 1).is_err(), "no such cell");
        let got = other.of_peer(cell, 10).unwrap();
        other.put(got);
        assert!(other.of_peer(cell, 10).is_err(), "handed over twice");
        assert!(one.take(65).is_none());
        assert!(ends(0, &mut memory).0.take(1).is_none(), "no cells");
    }
}
