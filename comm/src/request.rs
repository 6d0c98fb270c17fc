//! A call as data: what is asked for, over which buffers, and whether it can be meant.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::collective::Collective;
use crate::engine::{Extent, Fingerprint, Shape};
use crate::error::{Error, Result};
use crate::reduce::{DataType, ReduceOp};

/// One call of a collective, without its communicator.
///
/// Typed methods of [`crate::Communicator`] build these; programs that learn types and operators at run time may build
/// them themselves and pass them to [`crate::Communicator::run`].
#[derive(Debug)]
pub struct Request<'a> {
    /// What to do.
    pub collective: Collective,
    /// What the elements are.
    pub data_type: DataType,
    /// How they are combined, where they are.
    pub op: ReduceOp,
    /// The root; the peer to send to, for `Send` and `SendRecv`; the peer to receive from, for `Recv`.
    pub root: usize,
    /// The peer to receive from, for `SendRecv`.
    pub source: usize,
    /// Elements of the vector (`all_reduce`, `reduce`, `broadcast`, `send`, `recv`), or of one block (all others).
    /// `send_recv` doesn't look at it: its lengths are those of the buffers.
    pub count: usize,
    /// Where the elements are and go.
    pub buffers: Buffers<'a>,
    /// Blocks of different lengths, for the collectives that have blocks. Then `count` is not looked at.
    pub counts: Option<Counts<'a>>,
}

/// The bytes of a call. Elements need no alignment.
#[derive(Debug)]
pub enum Buffers<'a> {
    /// Input and output apart.
    Separate {
        /// What this rank brings. May be empty where it brings nothing.
        input: &'a [u8],
        /// Where the result goes. May be empty where there is none.
        output: &'a mut [u8],
    },
    /// One buffer for both, as large as the larger. The smaller lies in its place inside: this rank's block.
    InPlace(&'a mut [u8]),
}

/// Lengths and places of uneven blocks, in elements, one per rank.
///
/// `all_gather` and `gather` read `recv_*`, the same on every rank; `scatter` and `reduce_scatter` read `send_*`, the
/// same on every rank; `all_to_all` reads both. Offsets that are left empty are the sums of the counts before. Offsets are
/// each rank's own; that of an empty block is not looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts<'a> {
    /// Elements for each rank.
    pub send_counts: &'a [usize],
    /// Where they start in the input.
    pub send_offsets: &'a [usize],
    /// Elements from each rank.
    pub recv_counts: &'a [usize],
    /// Where they go in the output.
    pub recv_offsets: &'a [usize],
}

/// What may differ from call to call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallOptions {
    /// How long the call may take; the communicator's timeout where `None`.
    pub timeout: Option<Duration>,
    /// The algorithm's name, instead of the choice by price. The same on every rank.
    pub algorithm: Option<String>,
}

/// A request that has been found sound: its addresses, its geometry, and what the ranks must agree on.
pub(crate) struct Sound {
    pub(crate) input: (*const u8, usize),
    pub(crate) output: (*mut u8, usize),
    pub(crate) in_place: bool,
    pub(crate) extent: Extent,
    /// Everything but the row.
    pub(crate) fingerprint: Fingerprint,
    /// Bytes sent to and awaited from each rank, where pairs differ.
    pub(crate) pairs: Option<Arc<[(u64, u64)]>>,
    /// Elements of the message that is sent, and of the one that is received.
    pub(crate) message: (u64, u64),
    /// Bytes of the message as the choice of a row sees it: the vector, or all blocks together.
    pub(crate) message_bytes: usize,
}

impl Sound {
    /// Whether blocks go to other places than those they leave: in place, what comes would cover what still has to leave.
    pub(crate) fn shifts_blocks(&self) -> bool {
        match &self.extent {
            Extent::Uneven { input, output } => self.fingerprint.collective == Collective::AllToAll && input != output,
            _ => false,
        }
    }
}

impl<'a> Request<'a> {
    /// A request with root 0, source 0, the sum, and blocks of one length.
    #[must_use]
    pub fn new(collective: Collective, data_type: DataType, count: usize, buffers: Buffers<'a>) -> Request<'a> {
        Request { collective, data_type, op: ReduceOp::Sum, root: 0, source: 0, count, buffers, counts: None }
    }

    /// The same with another operator.
    #[must_use]
    pub fn op(self, op: ReduceOp) -> Request<'a> {
        Request { op, ..self }
    }

    /// The same with another root, or peer.
    #[must_use]
    pub fn root(self, root: usize) -> Request<'a> {
        Request { root, ..self }
    }

    /// The same with another peer to receive from.
    #[must_use]
    pub fn source(self, source: usize) -> Request<'a> {
        Request { source, ..self }
    }

    /// The same with blocks of different lengths.
    #[must_use]
    pub fn counts(self, counts: Counts<'a>) -> Request<'a> {
        Request { counts: Some(counts), ..self }
    }
}

/// Bytes of `count` elements, or why there can't be so many.
fn bytes_of(count: usize, size: usize, what: &str) -> Result<usize> {
    count.checked_mul(size).filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(|| {
        Error::invalid(format!("{count} elements of {size} bytes for the {what} are more than memory can hold"))
    })
}

impl Request<'_> {
    /// Checks everything that one rank can check alone. Nothing has moved when it returns an error.
    pub(crate) fn check(mut self, me: usize, ranks: usize) -> Result<Sound> {
        let collective = self.collective;
        self.check_ranks(me, ranks)?;
        let size = self.data_type.size();
        let has_blocks = collective.has_blocks();
        if self.counts.is_some() && !has_blocks {
            return Err(Error::invalid(format!("{collective} takes one count, not a list of counts")));
        }
        let mut message = (0, 0);
        let in_place = matches!(self.buffers, Buffers::InPlace(_));
        let (extent, pairs, count, message_bytes) = match self.counts {
            Some(counts) => self.uneven(counts, me, ranks)?,
            None if has_blocks => {
                let block = bytes_of(self.count, size, "block")?;
                let all = bytes_of(block, ranks, "blocks of all ranks")?;
                (Extent::Blocks(self.count), None, self.count as u64, all)
            }
            None if collective.is_message() => {
                let (sends, receives) = self.message_counts(size)?;
                if collective == Collective::SendRecv && self.root == me && sends != receives {
                    let cause = format!("rank {me} sends itself {sends} elements but expects {receives}");
                    return Err(Error::invalid(cause).hint("make both buffers of a message to oneself equally long"));
                }
                message = (sends as u64, receives as u64);
                let whole = |count: usize| Shape::Table(Arc::new([0..count * size]));
                let extent = Extent::Uneven { input: whole(sends), output: whole(receives) };
                (extent, None, message.0.max(message.1), 0)
            }
            None => {
                let bytes = bytes_of(self.count, size, "vector")?;
                (Extent::Vector(self.count), None, self.count as u64, bytes)
            }
        };
        let (input, output) = self.places(me, ranks, &extent, size)?;
        let reduces = collective.reduces();
        let fingerprint = Fingerprint {
            collective,
            data_type: self.data_type,
            op: if reduces { self.op.code() } else { 0 },
            row: 0,
            root: if collective.has_root() { self.root as u32 } else { 0 },
            count,
            uneven: self.counts.is_some(),
        };
        Ok(Sound { input, output, in_place, extent, fingerprint, pairs, message, message_bytes })
    }

    /// How many elements a message call sends and receives.
    fn message_counts(&self, size: usize) -> Result<(usize, usize)> {
        let count = self.count;
        bytes_of(count, size, "message")?;
        match (self.collective, &self.buffers) {
            (Collective::Send, _) => Ok((count, 0)),
            (Collective::Recv, _) => Ok((0, count)),
            (_, Buffers::Separate { input, output }) => {
                let whole = |bytes: usize| bytes.is_multiple_of(size).then_some(bytes / size);
                whole(input.len()).zip(whole(output.len())).ok_or_else(|| {
                    let cause = format!(
                        "buffers of {} and {} bytes hold no whole elements of {size}",
                        input.len(),
                        output.len()
                    );
                    Error::invalid(cause)
                })
            }
            (_, Buffers::InPlace(_)) => Err(Error::invalid("send_recv needs input and output apart")
                .hint("pass two buffers; what leaves would be overwritten by what arrives")),
        }
    }

    fn check_ranks(&self, me: usize, ranks: usize) -> Result<()> {
        let collective = self.collective;
        let below = |rank: usize, what: &str| {
            if rank < ranks {
                return Ok(());
            }
            let cause = format!("{what} {rank} of {collective} is not below the communicator's size, {ranks}");
            Err(Error::invalid(cause).hint("ranks are numbered from 0"))
        };
        match collective {
            Collective::Send => below(self.root, "the target")?,
            Collective::Recv => below(self.root, "the source")?,
            Collective::SendRecv => {
                below(self.root, "the target")?;
                below(self.source, "the source")?;
            }
            _ if collective.has_root() => below(self.root, "the root")?,
            _ => {}
        }
        let (to, from) = match collective {
            Collective::SendRecv => (self.root, self.source),
            Collective::Send | Collective::Recv => (self.root, usize::MAX),
            _ => return Ok(()),
        };
        if (to == me || from == me) && to != from {
            let cause = format!("{collective} of rank {me} with itself has no partner");
            return Err(Error::invalid(cause).hint("a rank's message to itself takes send_recv with both peers itself"));
        }
        Ok(())
    }

    /// Shapes of uneven blocks; the bytes between each pair; a digest of what all ranks must agree on; the message.
    #[allow(clippy::type_complexity, reason = "one caller, which takes it apart at once")]
    fn uneven(
        &self,
        counts: Counts<'_>,
        me: usize,
        ranks: usize,
    ) -> Result<(Extent, Option<Arc<[(u64, u64)]>>, u64, usize)> {
        let size = self.data_type.size();
        let table = |counts: &[usize], offsets: &[usize], what: &str| table(counts, offsets, what, size, ranks);
        let one = |ranges: &[Range<usize>]| Shape::Table(Arc::new([0..ranges[me].len()]));
        let total = |ranges: &[Range<usize>]| ranges.iter().map(Range::len).sum::<usize>();
        match self.collective {
            Collective::AllGather | Collective::Gather => {
                let recv = table(counts.recv_counts, counts.recv_offsets, "recv")?;
                let (input, bytes) = (one(&recv), total(&recv));
                let extent = Extent::Uneven { input, output: Shape::Table(recv.into()) };
                Ok((extent, None, Fingerprint::digest(counts.recv_counts), bytes))
            }
            Collective::ReduceScatter | Collective::Scatter => {
                let send = table(counts.send_counts, counts.send_offsets, "send")?;
                let (output, bytes) = (one(&send), total(&send));
                let extent = Extent::Uneven { input: Shape::Table(send.into()), output };
                Ok((extent, None, Fingerprint::digest(counts.send_counts), bytes))
            }
            _ => {
                let send = table(counts.send_counts, counts.send_offsets, "send")?;
                let recv = table(counts.recv_counts, counts.recv_offsets, "recv")?;
                if send[me].len() != recv[me].len() {
                    let cause = format!(
                        "rank {me} sends itself {} elements but expects {} from itself",
                        counts.send_counts[me], counts.recv_counts[me]
                    );
                    return Err(Error::invalid(cause));
                }
                let pairs = send.iter().zip(&recv).map(|(s, r)| ((s.len() / size) as u64, (r.len() / size) as u64));
                let (pairs, bytes) = (pairs.collect::<Arc<[_]>>(), total(&send).max(total(&recv)));
                let extent = Extent::Uneven { input: Shape::Table(send.into()), output: Shape::Table(recv.into()) };
                Ok((extent, Some(pairs), 0, bytes))
            }
        }
    }

    /// The addresses, once the buffers are found long enough for what this rank reads and writes.
    #[allow(clippy::type_complexity, reason = "one caller, which takes it apart at once")]
    fn places(
        &mut self,
        me: usize,
        ranks: usize,
        extent: &Extent,
        size: usize,
    ) -> Result<((*const u8, usize), (*mut u8, usize))> {
        let collective = self.collective;
        let needs = Needs::of(collective, me, self.root, ranks, extent, size);
        match &mut self.buffers {
            Buffers::Separate { input, output } => {
                long_enough(collective, "input", input.len(), needs.input)?;
                long_enough(collective, "output", output.len(), needs.output)?;
                apart(collective, input, output)?;
                Ok(((input.as_ptr(), input.len()), (output.as_mut_ptr(), output.len())))
            }
            Buffers::InPlace(buffer) => {
                long_enough(collective, "buffer", buffer.len(), needs.input.max(needs.output))?;
                let start = buffer.as_mut_ptr();
                let inside = |range: &Range<usize>| {
                    // SAFETY: the range was checked to be inside the buffer by `long_enough`: every block is.
                    (unsafe { start.add(range.start) }, range.len())
                };
                let whole = 0..buffer.len();
                let (input, output) = match collective {
                    Collective::AllGather => (needs.block_in_output.clone(), whole.clone()),
                    Collective::Gather if me == self.root => (needs.block_in_output.clone(), whole.clone()),
                    Collective::ReduceScatter => (whole.clone(), needs.block_in_input.clone()),
                    Collective::Scatter if me == self.root => (whole.clone(), needs.block_in_input.clone()),
                    _ => (whole.clone(), whole.clone()),
                };
                let (input, output) = (inside(&input), inside(&output));
                Ok(((input.0.cast_const(), input.1), output))
            }
        }
    }
}

/// How long a rank's buffers must be, in bytes, and where its own block lies in the larger one.
struct Needs {
    input: usize,
    output: usize,
    block_in_input: Range<usize>,
    block_in_output: Range<usize>,
}

impl Needs {
    fn of(collective: Collective, me: usize, root: usize, ranks: usize, extent: &Extent, size: usize) -> Needs {
        let (one_in, all_in, one_out, all_out, block_in, block_out) = match extent {
            Extent::Vector(count) => (count * size, count * size, count * size, count * size, 0..0, 0..0),
            Extent::Blocks(count) => {
                let block = count * size;
                let place = me * block..(me + 1) * block;
                (block, block * ranks, block, block * ranks, place.clone(), place)
            }
            Extent::Uneven { input, output } => {
                let end = |shape: &Shape| match shape {
                    Shape::Table(ranges) => ranges.iter().map(|range| range.end).max().unwrap_or(0),
                    _ => unreachable!("uneven blocks have tables"),
                };
                let place = |shape: &Shape| match shape {
                    Shape::Table(ranges) if ranges.len() == ranks => ranges[me].clone(),
                    _ => 0..0,
                };
                (end(input), end(input), end(output), end(output), place(input), place(output))
            }
        };
        let at_root = |bytes: usize| if me == root { bytes } else { 0 };
        let (input, output) = match collective {
            Collective::AllReduce | Collective::SendRecv => (one_in, one_out),
            Collective::Reduce => (one_in, at_root(one_out)),
            Collective::Broadcast => (at_root(one_in), one_out),
            Collective::AllGather => (one_in, all_out),
            Collective::ReduceScatter => (all_in, one_out),
            Collective::AllToAll => (all_in, all_out),
            Collective::Gather => (one_in, at_root(all_out)),
            Collective::Scatter => (at_root(all_in), one_out),
            Collective::Barrier => (0, 0),
            Collective::Send => (one_in, 0),
            Collective::Recv => (0, one_out),
        };
        Needs { input, output, block_in_input: block_in, block_in_output: block_out }
    }
}

fn long_enough(collective: Collective, which: &str, bytes: usize, needed: usize) -> Result<()> {
    if needed <= bytes {
        return Ok(());
    }
    let cause = format!("the {which} of {collective} has {bytes} bytes but {needed} are needed");
    Err(Error::invalid(cause).hint("check the count, the element type and the number of ranks"))
}

/// Safe code can't lend overlapping buffers; foreign code can.
fn apart(collective: Collective, input: &[u8], output: &[u8]) -> Result<()> {
    let (a, b) = (input.as_ptr_range(), output.as_ptr_range());
    if input.is_empty() || output.is_empty() || a.end <= b.start || b.end <= a.start {
        return Ok(());
    }
    let bytes = (a.end as usize).min(b.end as usize) - (a.start as usize).max(b.start as usize);
    Err(Error::invalid(format!("input and output of {collective} overlap by {bytes} bytes"))
        .hint("pass one buffer as in place, or two apart"))
}

fn table(counts: &[usize], offsets: &[usize], what: &str, size: usize, ranks: usize) -> Result<Vec<Range<usize>>> {
    if counts.len() != ranks {
        let cause = format!("there are {} {what} counts for {ranks} ranks", counts.len());
        return Err(Error::invalid(cause).hint("give one count per rank"));
    }
    if !offsets.is_empty() && offsets.len() != ranks {
        let cause = format!("there are {} {what} offsets for {ranks} ranks", offsets.len());
        return Err(Error::invalid(cause).hint("give one offset per rank, or none"));
    }
    let mut next = 0usize;
    let mut ranges = Vec::with_capacity(ranks);
    for (rank, count) in counts.iter().enumerate() {
        let offset = offsets.get(rank).copied().unwrap_or(next);
        let end = offset.checked_add(*count).ok_or_else(|| {
            Error::invalid(format!("the {what} block of rank {rank} ends beyond what memory can hold"))
        })?;
        // Where nothing lies, it lies within every buffer.
        ranges.push(if *count == 0 { 0..0 } else { bytes_of(offset, size, what)?..bytes_of(end, size, what)? });
        next = end;
    }
    let mut sorted: Vec<usize> = (0..ranks).filter(|rank| !ranges[*rank].is_empty()).collect();
    sorted.sort_by_key(|rank| ranges[*rank].start);
    for pair in sorted.windows(2) {
        if ranges[pair[0]].end > ranges[pair[1]].start {
            let cause = format!("the {what} blocks of ranks {} and {} overlap", pair[0], pair[1]);
            return Err(Error::invalid(cause).hint("check the counts and offsets"));
        }
    }
    Ok(ranges)
}
