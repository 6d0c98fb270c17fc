//! Whether a request can be meant: everything that one rank can find out alone, before anything moves.

use std::ops::Range;
use std::sync::Arc;

use super::needs::{Needs, apart, long_enough};
use super::{Counts, Places, Request};
use crate::collective::Collective;
use crate::engine::{Extent, Fingerprint, Shape};
use crate::error::{Error, Result};

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

/// Bytes of `count` elements, or why there can't be so many.
fn bytes_of(count: usize, size: usize, what: &str) -> Result<usize> {
    count.checked_mul(size).filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(|| {
        Error::invalid(format!("{count} elements of {size} bytes for the {what} are more than memory can hold"))
    })
}

impl Request<'_> {
    /// Checks everything that one rank can check alone. Nothing has moved when it returns an error.
    pub(crate) fn check(self, me: usize, ranks: usize) -> Result<Sound> {
        self.over(|mut buffers| buffers.places()).check_places(me, ranks)
    }
}

impl Request<'_, Places> {
    /// As [`Request::check`], wherever the buffers are.
    pub(crate) fn check_places(self, me: usize, ranks: usize) -> Result<Sound> {
        let collective = self.collective;
        self.check_ranks(me, ranks)?;
        let size = self.data_type.size();
        let has_blocks = collective.has_blocks();
        if self.counts.is_some() && !has_blocks {
            return Err(Error::invalid(format!("{collective} takes one count, not a list of counts")));
        }
        let mut message = (0, 0);
        let in_place = matches!(self.buffers, Places::InPlace(_));
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
                let whole = |count: usize| Shape::whole(count * size);
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
            (_, Places::Separate { input: (_, input), output: (_, output) }) => {
                let whole = |bytes: usize| bytes.is_multiple_of(size).then_some(bytes / size);
                whole(*input).zip(whole(*output)).ok_or_else(|| {
                    Error::invalid(format!("buffers of {input} and {output} bytes hold no whole elements of {size}"))
                })
            }
            (_, Places::InPlace(_)) => Err(Error::invalid("send_recv needs input and output apart")
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
        let one = |ranges: &[Range<usize>]| Shape::whole(ranges[me].len());
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
        &self,
        me: usize,
        ranks: usize,
        extent: &Extent,
        size: usize,
    ) -> Result<((*const u8, usize), (*mut u8, usize))> {
        let collective = self.collective;
        let needs = Needs::of(collective, me, self.root, ranks, extent, size);
        match self.buffers {
            Places::Separate { input, output } => {
                long_enough(collective, "input", input.1, needs.input)?;
                long_enough(collective, "output", output.1, needs.output)?;
                apart(collective, input, output)?;
                Ok((input, output))
            }
            Places::InPlace((start, bytes)) => {
                long_enough(collective, "buffer", bytes, needs.input.max(needs.output))?;
                let inside = |range: &Range<usize>| (start.wrapping_add(range.start), range.len());
                let whole = 0..bytes;
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
