//! One rank's buffers and data for one operation: fill them, run on them, check them.

use std::ops::Range;

use paceline_comm::Buffers;

use super::benchmark::Action;
use super::buffers::{Guarded, Memory, pattern};
use super::comm::{Comm, CommError};
use super::findings::{Findings, Run};
use super::layout::Holds;
use super::operation::Operation;
use super::verify::Data;

const BEFORE_SEED: u64 = 0x6265_666f_7265;

/// Out of place or in place.
///
/// A ring in place has its message copied out of the way first, as `MPI_Sendrecv_replace` does; the copy counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Input and output are two buffers.
    OutOfPlace,
    /// They are one.
    InPlace,
}

/// A rank's two buffers. In place only the second is used.
#[derive(Debug)]
pub struct Workbench {
    input: Guarded,
    output: Guarded,
}

impl Workbench {
    /// Buffers for operations of up to `capacity` bytes, up to `unalign` bytes off their alignment.
    #[must_use]
    pub fn new(capacity: usize, unalign: usize) -> Workbench {
        Workbench { input: Guarded::new(capacity, unalign), output: Guarded::new(capacity, unalign) }
    }

    /// The same in memory that `alloc` gives.
    ///
    /// # Errors
    ///
    /// Those of `alloc`.
    pub fn over<E>(
        capacity: usize,
        unalign: usize,
        alloc: impl Fn(usize) -> Result<Memory, E>,
    ) -> Result<Workbench, E> {
        let guarded = || alloc(Guarded::footprint(capacity, unalign)).map(|memory| Guarded::over(memory, capacity));
        Ok(Workbench { input: guarded()?, output: guarded()? })
    }

    /// How many bytes an operation may span.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.output.capacity()
    }

    /// The memory that a workbench takes.
    #[must_use]
    pub const fn footprint(capacity: usize, unalign: usize) -> usize {
        2 * Guarded::footprint(capacity, unalign)
    }

    /// Moves the buffers `unalign` bytes off their alignment and fills them with proper data, so that no operation meets
    /// numbers that slow arithmetic down.
    pub fn begin(&mut self, unalign: usize, data: &Data, rank: usize) {
        self.input.unalign(unalign);
        self.output.unalign(unalign);
        let len = self.input.capacity() / data.element() * data.element();
        data.input(rank, 0, self.input.bytes_mut(0, len));
        let len = self.output.capacity() / data.element() * data.element();
        data.input(rank, 0, self.output.bytes_mut(0, len));
    }

    /// Lays out one operation's input at the start of the buffers, with guard zones around what it may touch.
    pub fn prepare(&mut self, operation: &Operation, data: &Data, rank: usize, mode: Mode) {
        let (layout, element) = (&operation.layout, operation.element);
        match mode {
            Mode::OutOfPlace => {
                data.input(rank, 0, self.input.bytes_mut(0, layout.input * element));
                self.input.arm(layout.input * element);
                pattern(BEFORE_SEED, 0, self.output.bytes_mut(0, layout.output * element));
                self.output.arm(layout.output * element);
            }
            Mode::InPlace => {
                let buffer = self.output.bytes_mut(0, layout.in_place() * element);
                in_place_before(operation, data, rank, 0, buffer);
                self.output.arm(layout.in_place() * element);
            }
        }
    }

    /// Gives a rank's device what the buffers hold.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    pub fn upload<C: Comm>(&self, comm: &C) -> Result<(), CommError> {
        comm.upload(self.input.whole())?;
        comm.upload(self.output.whole())
    }

    /// Gives the buffers what a rank's device holds.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    pub fn download<C: Comm>(&mut self, comm: &C) -> Result<(), CommError> {
        comm.download(self.input.whole_mut())?;
        comm.download(self.output.whole_mut())
    }

    /// Lays guard zones around everything that operations at any shift may touch.
    pub fn arm_all(&mut self) {
        self.input.arm(self.input.capacity());
        self.output.arm(self.output.capacity());
    }

    /// What became of the guard zones around everything.
    #[must_use]
    pub fn check_all(&self) -> Findings {
        let mut findings = Findings::default();
        findings.add_damage(self.input.damage(self.input.capacity()), "input");
        findings.add_damage(self.output.damage(self.output.capacity()), "output");
        findings
    }

    /// Runs an operation as often as there are numbers, all at the same time as far as each can have bytes of its own.
    ///
    /// Each number has its place in the buffers, one after the other through all of them, so that no message comes from a
    /// cache just because the one before was the same. Number 0 is where [`prepare`](Workbench::prepare) put the input.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    pub fn run<C: Comm>(
        &mut self,
        comm: &C,
        operation: &Operation,
        mode: Mode,
        numbers: Range<usize>,
    ) -> Result<(), CommError> {
        let stride = operation.layout.size * operation.element;
        let places = (self.capacity() / stride.max(1)).max(1);
        let mut number = numbers.start;
        while number < numbers.end {
            let place = number % places;
            let together = (numbers.end - number).min(places - place);
            self.run_at(comm, operation, mode, place * stride, together)?;
            number += together;
        }
        Ok(())
    }

    fn run_at<C: Comm>(
        &mut self,
        comm: &C,
        operation: &Operation,
        mode: Mode,
        first: usize,
        together: usize,
    ) -> Result<(), CommError> {
        let (layout, element) = (&operation.layout, operation.element);
        let (stride, input, output) = (layout.size * element, layout.input * element, layout.output * element);
        let mode = if mode == Mode::InPlace && operation.action == Action::Ring {
            let len = stride * together;
            comm.copy(self.output.bytes(first, len), self.input.bytes_mut(first, len))?;
            Mode::OutOfPlace
        } else {
            mode
        };
        if together == 1 {
            return match mode {
                Mode::OutOfPlace => {
                    let (input, output) = (self.input.bytes(first, input), self.output.bytes_mut(first, output));
                    operation.run(comm, Buffers::Separate { input, output })
                }
                Mode::InPlace => {
                    let buffer = self.output.bytes_mut(first, layout.in_place() * element);
                    operation.run(comm, Buffers::InPlace(buffer))
                }
            };
        }
        let outputs = self.output.bytes_mut(first, stride * together).chunks_mut(stride);
        match mode {
            Mode::OutOfPlace => {
                let inputs = self.input.bytes(first, stride * together).chunks(stride);
                let buffers = inputs.zip(outputs).map(|(from, to)| {
                    let (input, output) = (&from[..input], &mut to[..output]);
                    Buffers::Separate { input, output }
                });
                operation.run_group(comm, buffers)
            }
            Mode::InPlace => {
                let len = layout.in_place() * element;
                operation.run_group(comm, outputs.map(|buffer| Buffers::InPlace(&mut buffer[..len])))
            }
        }
    }

    /// Checks what a prepared operation left: every element of the output, the input, the guard zones.
    #[must_use]
    pub fn check(&self, operation: &Operation, data: &Data, rank: usize, mode: Mode) -> Findings {
        let (layout, element) = (&operation.layout, operation.element);
        let mut findings = Findings::default();
        let output_at = if mode == Mode::InPlace { layout.output_at } else { 0 };
        let mut first = output_at;
        for segment in &layout.holds {
            let tolerance = if let Holds::Reduced { .. } = segment.holds { data.tolerance() } else { 0 };
            let run = Run { buffer: &self.output, first, count: segment.count, element, tolerance };
            run.check(&mut findings, |skip, want| match segment.holds {
                Holds::Reduced { first } => data.result(first + skip, want),
                Holds::Moved { rank, first } => data.input(rank, first + skip, want),
                Holds::Before if mode == Mode::InPlace => {
                    in_place_before(operation, data, rank, output_at + skip, want);
                }
                Holds::Before => pattern(BEFORE_SEED, skip * element, want),
            });
            first += segment.count;
        }
        match mode {
            Mode::OutOfPlace => {
                let mut inputs = Findings::default();
                let run = Run { buffer: &self.input, first: 0, count: layout.input, element, tolerance: 0 };
                run.check(&mut inputs, |skip, want| data.input(rank, skip, want));
                findings.add(inputs.wrong, || format!("the input was written: {}", inputs.first.unwrap_or_default()));
                findings.add_damage(self.input.damage(layout.input * element), "input");
                findings.add_damage(self.output.damage(layout.output * element), "output");
            }
            Mode::InPlace => findings.add_damage(self.output.damage(layout.in_place() * element), "buffer"),
        }
        findings
    }
}

/// The buffer of a call in place before the call, from element `first` on: a pattern, and in it the rank's input.
fn in_place_before(operation: &Operation, data: &Data, rank: usize, first: usize, out: &mut [u8]) {
    let (layout, element) = (&operation.layout, operation.element);
    pattern(BEFORE_SEED, first * element, out);
    let end = first + out.len() / element;
    let (from, to) = (layout.input_at.max(first), (layout.input_at + layout.input).min(end));
    if from < to {
        data.input(rank, from - layout.input_at, &mut out[(from - first) * element..(to - first) * element]);
    }
}
