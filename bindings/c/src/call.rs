//! A call as C makes it: addresses and counts, from which the lengths of buffers follow.

use std::ffi::c_int;
use std::time::Duration;

use paceline_comm::{Buffers, Collective, Counts, DataType, ReduceOp, Request};

use crate::comm::Comm;
use crate::error::Failure;

/// A call as C makes it. Nothing is read or written through it before [`Call::request`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) collective: Collective,
    pub(crate) send: *const u8,
    pub(crate) recv: *mut u8,
    pub(crate) count: usize,
    /// What `SendRecv` receives.
    pub(crate) recv_count: usize,
    pub(crate) data_type: c_int,
    pub(crate) op: c_int,
    pub(crate) root: c_int,
    /// Where `SendRecv` receives from.
    pub(crate) source: c_int,
    pub(crate) counts: Option<Counts<'a>>,
}

/// Where the elements of a call are: address and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extents {
    Apart { input: (*const u8, usize), output: (*mut u8, usize) },
    InPlace(*mut u8, usize),
}

/// A call whose arguments have been found to mean something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sound<'a> {
    pub(crate) collective: Collective,
    pub(crate) data_type: DataType,
    pub(crate) op: ReduceOp,
    pub(crate) root: usize,
    pub(crate) source: usize,
    pub(crate) count: usize,
    pub(crate) extents: Extents,
    pub(crate) counts: Option<Counts<'a>>,
}

/// What a single call may have of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    pub(crate) timeout: Option<Duration>,
    pub(crate) algorithm: Option<String>,
}

impl Own {
    pub(crate) fn is_none(&self) -> bool {
        self.timeout.is_none() && self.algorithm.is_none()
    }
}

fn bytes_of(elements: usize, size: usize) -> Result<usize, Failure> {
    elements
        .checked_mul(size)
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or_else(|| Failure::argument(format!("{elements} elements of {size} bytes are more than memory can hold")))
}

/// How many elements blocks reach to, without the displacements one behind the other.
fn end_of(counts: &[usize], offsets: &[usize]) -> Result<usize, Failure> {
    let too_many = || Failure::argument("the counts and displacements are more than memory can hold");
    let mut end = 0usize;
    for (rank, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let start = offsets.get(rank).copied().unwrap_or(end);
        end = end.max(start.checked_add(*count).ok_or_else(too_many)?);
    }
    Ok(end)
}

/// Where a rank's block begins, in elements.
fn start_of(counts: &[usize], offsets: &[usize], rank: usize) -> usize {
    offsets.get(rank).copied().unwrap_or_else(|| counts[..rank].iter().fold(0, |sum, count| sum.saturating_add(*count)))
}

impl<'a> Call<'a> {
    #[inline]
    pub(crate) fn of(collective: Collective) -> Call<'a> {
        Call {
            collective,
            send: std::ptr::null(),
            recv: std::ptr::null_mut(),
            count: 0,
            recv_count: 0,
            data_type: DataType::U8 as c_int,
            op: 0,
            root: 0,
            source: 0,
            counts: None,
        }
    }

    /// Checks what can be checked of the arguments alone, and finds out how long the buffers are.
    #[inline]
    pub(crate) fn check(&self, comm: &Comm) -> Result<Sound<'a>, Failure> {
        let data_type = u8::try_from(self.data_type).ok().and_then(DataType::from_code);
        let data_type = data_type
            .ok_or_else(|| Failure::argument(format!("the type {} is none of pclDataType_t", self.data_type)))?;
        let op = if self.collective.reduces() { comm.operator(self.op, data_type)? } else { ReduceOp::Sum };
        let has_peer = self.collective.has_root() || self.collective.is_message();
        let root = if has_peer { rank_of(self.root, "root or peer")? } else { 0 };
        let source = if self.collective == Collective::SendRecv { rank_of(self.source, "source")? } else { 0 };
        let extents = match self.counts {
            None => self.even(comm, data_type.size(), root)?,
            Some(counts) => self.uneven(comm, data_type.size(), root, counts)?,
        };
        let Call { collective, count, counts, .. } = *self;
        let sound = Sound { collective, data_type, op, root, source, count, extents, counts };
        sound.check_buffers()?;
        Ok(sound)
    }

    #[inline]
    fn even(&self, comm: &Comm, size: usize, root: usize) -> Result<Extents, Failure> {
        let one = bytes_of(self.count, size)?;
        let (me, ranks) = (comm.comm.rank(), comm.comm.size());
        let at_root = |bytes: usize| if me == root { bytes } else { 0 };
        let block_in = |start: *const u8| start.wrapping_add(me.wrapping_mul(one));
        let all = || bytes_of(one, ranks);
        let (send, recv) = (self.send, self.recv);
        let is_one = std::ptr::eq(send, recv) && one > 0;
        let (input, output, in_place) = match self.collective {
            Collective::AllReduce => (one, one, is_one),
            Collective::Reduce => (one, at_root(one), is_one),
            Collective::Broadcast => (at_root(one), one, is_one),
            Collective::AllGather => (one, all()?, one > 0 && send == block_in(recv)),
            Collective::ReduceScatter => (all()?, one, one > 0 && recv.cast_const() == block_in(send)),
            Collective::AllToAll => (all()?, all()?, is_one),
            Collective::Gather => (one, at_root(all()?), one > 0 && me == root && send == block_in(recv)),
            Collective::Scatter => (at_root(all()?), one, one > 0 && me == root && recv.cast_const() == block_in(send)),
            Collective::Barrier => (0, 0, false),
            Collective::Send => (one, 0, false),
            Collective::Recv => (0, one, false),
            Collective::SendRecv => (one, bytes_of(self.recv_count, size)?, false),
        };
        Ok(self.extents(input, output, in_place))
    }

    fn uneven(&self, comm: &Comm, size: usize, root: usize, counts: Counts<'_>) -> Result<Extents, Failure> {
        let me = comm.comm.rank();
        let Counts { send_counts, send_offsets, recv_counts, recv_offsets } = counts;
        let at_root = |bytes: usize| if me == root { bytes } else { 0 };
        let own = |counts: &[usize]| bytes_of(counts[me], size);
        let all = |counts: &[usize], offsets: &[usize]| bytes_of(end_of(counts, offsets)?, size);
        let place = |start: *const u8, counts: &[usize], offsets: &[usize]| {
            start.wrapping_add(start_of(counts, offsets, me).wrapping_mul(size))
        };
        let (send, recv) = (self.send, self.recv);
        let (input, output, in_place) = match self.collective {
            Collective::AllGather | Collective::Gather => {
                let (input, all) = (own(recv_counts)?, all(recv_counts, recv_offsets)?);
                let is_whole = self.collective == Collective::AllGather;
                let output = if is_whole { all } else { at_root(all) };
                let in_place = input > 0 && output > 0 && send == place(recv, recv_counts, recv_offsets);
                (input, output, in_place)
            }
            Collective::ReduceScatter | Collective::Scatter => {
                let (all, output) = (all(send_counts, send_offsets)?, own(send_counts)?);
                let is_whole = self.collective == Collective::ReduceScatter;
                let input = if is_whole { all } else { at_root(all) };
                let in_place = input > 0 && output > 0 && recv.cast_const() == place(send, send_counts, send_offsets);
                (input, output, in_place)
            }
            _ => {
                let (input, output) = (all(send_counts, send_offsets)?, all(recv_counts, recv_offsets)?);
                (input, output, input > 0 && output > 0 && std::ptr::eq(send, recv))
            }
        };
        Ok(self.extents(input, output, in_place))
    }

    #[inline]
    fn extents(&self, input: usize, output: usize, in_place: bool) -> Extents {
        match in_place {
            false => Extents::Apart { input: (self.send, input), output: (self.recv, output) },
            true if input > output && self.collective.has_blocks() => Extents::InPlace(self.send.cast_mut(), input),
            true => Extents::InPlace(self.recv, input.max(output)),
        }
    }
}

#[inline]
fn rank_of(rank: c_int, what: &str) -> Result<usize, Failure> {
    usize::try_from(rank).map_err(|_| Failure::argument(format!("the {what} {rank} is negative")))
}

impl<'a> Sound<'a> {
    #[inline]
    fn check_buffers(&self) -> Result<(), Failure> {
        let check = |name: &str, start: *const u8, bytes: usize| {
            if bytes == 0 || (!start.is_null() && start.addr().checked_add(bytes).is_some()) {
                return Ok(());
            }
            let problem = if start.is_null() { "is NULL" } else { "ends beyond all addresses" };
            Err(Failure::argument(format!("{name} {problem}, but has {bytes} bytes for {}", self.collective)))
        };
        match self.extents {
            Extents::InPlace(start, bytes) => check("the buffer", start, bytes),
            Extents::Apart { input, output } => {
                check("sendbuff", input.0, input.1)?;
                check("recvbuff", output.0, output.1)?;
                let (from, to) = (input.0.addr(), output.0.addr());
                let is_apart = input.1 == 0 || output.1 == 0 || from + input.1 <= to || to + output.1 <= from;
                if is_apart {
                    return Ok(());
                }
                Err(Failure::argument(format!(
                    "sendbuff ({} bytes) and recvbuff ({} bytes) of {} overlap, and not as they do in place",
                    input.1, output.1, self.collective
                )))
            }
        }
    }

    /// The call for memory of the host.
    ///
    /// # Safety
    ///
    /// The addresses are those of so many bytes, which are lent for as long as the result is used, and as long as a work lasts
    /// that is started with it: nobody else writes what is read, or looks at what is written.
    #[inline]
    pub(crate) unsafe fn request(&self) -> Request<'a> {
        let buffers = match self.extents {
            // SAFETY: as the caller promises; not null, or of no length (`check_buffers`).
            Extents::InPlace(start, bytes) => Buffers::InPlace(unsafe { bytes_mut(start, bytes) }),
            Extents::Apart { input, output } => Buffers::Separate {
                // SAFETY: as the caller promises, and the two don't overlap (`check_buffers`).
                input: unsafe { bytes(input.0, input.1) },
                // SAFETY: the same.
                output: unsafe { bytes_mut(output.0, output.1) },
            },
        };
        self.over(buffers)
    }

    /// The call over these buffers.
    #[inline]
    pub(crate) fn over<B>(&self, buffers: B) -> Request<'a, B> {
        let Sound { collective, data_type, op, root, source, count, counts, .. } = *self;
        let request = Request::new(collective, data_type, count, buffers).op(op).root(root).source(source);
        Request { counts, ..request }
    }
}

/// # Safety
///
/// `bytes` is 0, or so many bytes from `start` on are there, for reading only as long as the result is used.
#[inline]
unsafe fn bytes<'a>(start: *const u8, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: the caller promises it.
    unsafe { std::slice::from_raw_parts(start, bytes) }
}

/// # Safety
///
/// `bytes` is 0, or so many bytes from `start` on are there, for nobody else as long as the result is used.
#[inline]
unsafe fn bytes_mut<'a>(start: *mut u8, bytes: usize) -> &'a mut [u8] {
    if bytes == 0 {
        return &mut [];
    }
    // SAFETY: the caller promises it.
    unsafe { std::slice::from_raw_parts_mut(start, bytes) }
}
