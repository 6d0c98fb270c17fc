//! One rank's buffers during a check: what every chunk and slot holds.

use super::fault::Fault;
use super::shape::Shape;
use super::values::{GARBAGE, Value};
use crate::schedule::{Buffer, Span};

/// Where a packed run of scratch begins: its first slot, and the chunk that it begins with.
///
/// The bytes of a run's later chunks lie where the lengths of the earlier ones say, so what was written as part of one
/// run can be read as part of that run only.
pub type Home = (u32, u32);

/// What the cells and slots hold.
pub struct Memory {
    /// What the input and output hold, then what the slots hold.
    cells: Vec<Value>,
    /// Per slot, the run that it was written as part of.
    homes: Vec<Home>,
    /// The most slots that any run has taken: how far back the run of a slot may begin.
    longest: u32,
    n_cells: usize,
}

impl Memory {
    /// Memory in which the input holds what `contribution` says, and the rest garbage.
    pub fn new(shape: &Shape, contribution: impl Fn(u32) -> Value) -> Memory {
        let n_cells = shape.n_cells as usize;
        let mut cells = vec![GARBAGE; n_cells + shape.n_scratch as usize];
        for chunk in 0..shape.n_input {
            cells[shape.cell(Buffer::Input, chunk)] = contribution(chunk);
        }
        Memory { cells, homes: vec![(0, 0); shape.n_scratch as usize], longest: 1, n_cells }
    }

    /// What chunk `offset` of the span holds.
    pub fn read(&self, shape: &Shape, span: Span, offset: u32) -> Result<Value, Fault> {
        let number = span.first + span.skip + offset;
        let value = self.cells[shape.cell(span.buffer, number)];
        let at_home = span.buffer != Buffer::Scratch || self.homes[number as usize] == (span.first, shape.base(span));
        if value != GARBAGE && at_home { Ok(value) } else { Err(Fault::Unwritten(offset)) }
    }

    /// Makes room for the span: what may lie under its bytes is garbage from now on.
    pub fn clear(&mut self, shape: &Shape, span: Span) {
        if span.buffer == Buffer::Scratch {
            let home = (span.first, shape.base(span));
            self.settle(home, span.end());
            self.homes[(span.first + span.skip) as usize..span.end() as usize].fill(home);
        }
    }

    /// Writes chunk `offset` of a span that has been cleared.
    pub fn write(&mut self, shape: &Shape, span: Span, offset: u32, value: Value) {
        self.cells[shape.cell(span.buffer, span.first + span.skip + offset)] = value;
    }

    /// Makes garbage of what may lie under a run that begins at `home` and reaches to before slot `end`.
    fn settle(&mut self, home: Home, end: u32) {
        self.longest = self.longest.max(end - home.0);
        let last = (end + self.longest - 1).min(self.homes.len() as u32);
        for slot in home.0..last {
            let other = self.homes[slot as usize];
            if other != home && (slot < end || other.0 < end) {
                self.cells[self.n_cells + slot as usize] = GARBAGE;
            }
        }
    }
}
