//! Which buffers a rank has in a collective, how long their chunks are, and which steps fit them.

use super::Mode;
use super::fault::Fault;
use crate::collective::Collective;
use crate::schedule::{Buffer, Program, Rank, Span, Step};

/// One rank's buffers.
#[derive(Clone, Debug)]
pub struct Shape {
    collective: Collective,
    mode: Mode,
    me: Rank,
    size: u32,
    chunks: u32,
    /// How many chunks the input has. 0 where the rank brings nothing.
    pub n_input: u32,
    /// How many chunks the output has. 0 where the rank ends up with nothing.
    pub n_output: u32,
    /// How many slots of scratch there are.
    pub n_scratch: u32,
    /// The cell that holds chunk 0 of the input. Cells are numbered through, so that what shares memory shares cells.
    input_first: u32,
    /// The cell that holds chunk 0 of the output.
    output_first: u32,
    /// How many cells input and output take.
    pub n_cells: u32,
}

impl Shape {
    pub fn new(collective: Collective, mode: Mode, program: &Program) -> Shape {
        use Collective as C;
        let (me, size, chunks) = (program.me, program.size, program.chunks);
        let at_root = |len: u32| if me == program.root { len } else { 0 };
        let (n_input, n_output) = match collective {
            C::AllReduce | C::AllToAll => (chunks, chunks),
            C::Reduce => (chunks, at_root(chunks)),
            C::Broadcast => (at_root(chunks), chunks),
            C::AllGather => (1, chunks),
            C::Gather => (1, at_root(chunks)),
            C::ReduceScatter => (chunks, 1),
            C::Scatter => (at_root(chunks), 1),
            C::Barrier => (1, 1),
            C::Send | C::Recv | C::SendRecv => (0, 0),
        };
        // In place a block lies where it belongs in the other buffer. A barrier's chunks have no bytes to share.
        let shared = mode.in_place && n_input > 0 && n_output > 0 && collective != C::Barrier;
        let (input_first, output_first) = match (shared, collective) {
            (false, _) => (0, n_input),
            (true, C::AllGather | C::Gather) => (me, 0),
            (true, C::ReduceScatter | C::Scatter) => (0, me),
            (true, _) => (0, 0),
        };
        let n_cells = (input_first + n_input).max(output_first + n_output);
        let n_scratch = program.scratch;
        Shape { collective, mode, me, size, chunks, n_input, n_output, n_scratch, input_first, output_first, n_cells }
    }

    /// The cell that holds a chunk of the input or output, or a slot of scratch.
    pub fn cell(&self, buffer: Buffer, number: u32) -> usize {
        (number
            + match buffer {
                Buffer::Input => self.input_first,
                Buffer::Output => self.output_first,
                Buffer::Scratch => self.n_cells,
            }) as usize
    }

    /// The block that chunk `chunk` of the input is, of those that this rank brings.
    pub fn block_of_input(&self, chunk: u32) -> u32 {
        match self.collective {
            Collective::AllGather | Collective::Gather => self.me,
            _ => chunk,
        }
    }

    /// A symbol for the length of chunk `offset` of the span: chunks of equal symbols are equally long in every call.
    pub fn length(&self, span: Span, offset: u32) -> u64 {
        use Collective as C;
        let block = span.like + offset;
        if self.is_even() {
            return 0;
        }
        let pair = |from: u32, to: u32| {
            // In place what two ranks send each other has one length, or the blocks would not lie in the same places.
            let (from, to) = if self.mode.in_place { (from.min(to), from.max(to)) } else { (from, to) };
            u64::from(from) << 32 | u64::from(to)
        };
        match (self.collective, span.buffer) {
            (C::AllToAll, Buffer::Input) => pair(self.me, block),
            (C::AllToAll, Buffer::Output | Buffer::Scratch) => pair(block, self.me),
            (C::AllGather | C::Gather, Buffer::Input) | (C::ReduceScatter | C::Scatter, Buffer::Output) => {
                u64::from(self.me)
            }
            _ => u64::from(block),
        }
    }

    /// Whether all chunks are equally long. Vectors are never taken to be: their length need not be a multiple.
    pub fn is_even(&self) -> bool {
        self.collective == Collective::Barrier || self.collective.has_blocks() && !self.mode.uneven
    }

    /// The chunk that the span's run of scratch begins with; of no meaning when all chunks are equally long.
    pub fn base(&self, span: Span) -> u32 {
        if self.is_even() { 0 } else { span.like - span.skip }
    }

    /// Whether the step can be one of this rank's.
    pub fn check(&self, step: Step) -> Result<(), Fault> {
        if self.collective == Collective::Barrier {
            self.check_barrier(step)?;
        }
        match step {
            Step::Send { to, source } => {
                self.check_peer(to)?;
                self.check_span(source)
            }
            Step::Recv { from, target } => {
                self.check_peer(from)?;
                self.check_target(target)
            }
            Step::RecvReduce { from, source, target } => {
                self.check_reduces()?;
                self.check_peer(from)?;
                self.check_span(source)?;
                self.check_target(target)?;
                self.check_lengths(source, self, target)
            }
            Step::Copy { source, target } => {
                self.check_span(source)?;
                self.check_target(target)?;
                self.check_lengths(source, self, target)
            }
            Step::Reduce { source, runs, target } => {
                self.check_reduces()?;
                let slots = u64::from(runs) * u64::from(target.count);
                let count = u32::try_from(slots).map_err(|_| Fault::Runs)?;
                if runs < 2 || source.buffer != Buffer::Scratch || source.skip != 0 {
                    return Err(Fault::Runs);
                }
                self.check_span(source)?;
                self.check_slots(source.run(count))?;
                self.check_target(target)?;
                self.check_lengths(source, self, target)
            }
        }
    }

    /// A barrier's messages carry nothing but that they were sent.
    fn check_barrier(&self, step: Step) -> Result<(), Fault> {
        use crate::schedule::{input, output};
        match step {
            Step::Send { source, .. } if source == input(0) => Ok(()),
            Step::Recv { target, .. } if target == output(0) => Ok(()),
            _ => Err(Fault::Kind),
        }
    }

    fn check_reduces(&self) -> Result<(), Fault> {
        if self.collective.reduces() { Ok(()) } else { Err(Fault::Kind) }
    }

    fn check_peer(&self, peer: Rank) -> Result<(), Fault> {
        if peer < self.size && peer != self.me { Ok(()) } else { Err(Fault::Peer(peer)) }
    }

    fn check_target(&self, span: Span) -> Result<(), Fault> {
        if span.buffer == Buffer::Input {
            return Err(Fault::WritesInput);
        }
        self.check_span(span)
    }

    fn check_span(&self, span: Span) -> Result<(), Fault> {
        if span.count == 0 {
            return Err(Fault::Empty);
        }
        self.check_slots(span)?;
        let like_is_right = match span.buffer {
            Buffer::Input | Buffer::Output => span.skip == 0 && span.like == span.first,
            Buffer::Scratch => {
                span.skip <= span.like && u64::from(span.like) + u64::from(span.count) <= u64::from(self.chunks)
            }
        };
        if like_is_right { Ok(()) } else { Err(Fault::Like) }
    }

    fn check_slots(&self, span: Span) -> Result<(), Fault> {
        let len = match span.buffer {
            Buffer::Input => self.n_input,
            Buffer::Output => self.n_output,
            Buffer::Scratch => self.n_scratch,
        };
        let end = u64::from(span.first) + u64::from(span.skip) + u64::from(span.count);
        if end <= u64::from(len) { Ok(()) } else { Err(Fault::Outside { buffer: span.buffer, end, len }) }
    }

    /// Whether a span of this rank is as long as one of another rank (or this one).
    pub fn check_lengths(&self, span: Span, other: &Shape, others: Span) -> Result<(), Fault> {
        let same = span.count == others.count
            && (0..span.count).all(|offset| self.length(span, offset) == other.length(others, offset));
        if same { Ok(()) } else { Err(Fault::Lengths(span.to_string(), others.to_string())) }
    }
}
