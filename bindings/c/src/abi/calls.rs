//! The collectives and messages, each as a call that blocks and as one that is started.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use paceline_comm::{Collective, Counts};

use super::give;
use crate::call::{Call, Own};
use crate::comm::Comm;
use crate::error::{Failure, pclResult};
use crate::group;
use crate::guard::on_comm;
use crate::work::{self, Part};

/// Makes a call that blocks, or notes it in a group.
///
/// # Safety
///
/// The buffers are lent until the call has ended, or the group.
#[inline]
pub(super) unsafe fn run(
    comm: &Arc<Comm>,
    (handle, stream): (*mut c_void, *mut c_void),
    call: &Call<'_>,
    own: Own,
) -> Result<(), Failure> {
    if !stream.is_null() {
        #[cfg(feature = "cuda")]
        if group::is_open() && matches!(call.collective, Collective::Send | Collective::Recv) && own.is_none() {
            group::note_message(handle, stream, *call);
            return Ok(());
        }
        // SAFETY: passed on from the caller.
        return unsafe { on_stream(comm, stream, call, &own, false) }.map(drop);
    }
    if group::is_open() {
        if !own.is_none() {
            return Err(Failure::usage("a call in a group has no timeout or algorithm of its own"));
        }
        group::note(handle, *call);
        return Ok(());
    }
    let sound = call.check(comm)?;
    // SAFETY: passed on from the caller.
    let request = unsafe { sound.request() };
    if comm.timeout().is_none() && own.is_none() {
        return comm.comm.run(request).map_err(Failure::from);
    }
    comm.patient(own.timeout, own.algorithm).run(request).map_err(Failure::from)
}

/// Starts a call.
///
/// # Safety
///
/// The buffers are lent until the work has ended; `work` is null or may be written.
pub(super) unsafe fn start(
    name: &'static str,
    comm: &Arc<Comm>,
    stream: *mut c_void,
    call: &Call<'_>,
    own: Own,
    work: *mut *mut c_void,
) -> Result<(), Failure> {
    // SAFETY: passed on from the caller.
    unsafe { give(work, "work", std::ptr::null_mut()) }?;
    if group::is_open() {
        return Err(Failure::usage("the thread is in a group, of whose calls pclGroupEndStart makes one work"));
    }
    let part = if stream.is_null() {
        let sound = call.check(comm)?;
        // SAFETY: passed on from the caller.
        let request = unsafe { sound.request() };
        // SAFETY: the same.
        let started = unsafe { comm.patient(own.timeout, own.algorithm).start_request(request, None) }?;
        comm.note_started([started.clone()]);
        Part::Host(started)
    } else {
        // SAFETY: passed on from the caller.
        unsafe { on_stream(comm, stream, call, &own, true) }?
    };
    let handle = work::admit(name, vec![(part, Arc::downgrade(comm))]);
    // SAFETY: passed on from the caller.
    unsafe { give(work, "work", handle) }
}

/// Puts a call into a stream, or beside it.
///
/// # Safety
///
/// The buffers are memory that the stream's device can use, and lent until the stream has done the call. The stream is one.
#[cfg(feature = "cuda")]
unsafe fn on_stream(
    comm: &Comm,
    stream: *mut c_void,
    call: &Call<'_>,
    own: &Own,
    beside: bool,
) -> Result<Part, Failure> {
    // SAFETY: passed on from the caller.
    unsafe { crate::device::enqueue(comm, stream, &call.check(comm)?, own, beside) }.map(Part::Device)
}

/// # Safety
///
/// None is needed.
#[cfg(not(feature = "cuda"))]
unsafe fn on_stream(_: &Comm, _: *mut c_void, _: &Call<'_>, _: &Own, _: bool) -> Result<Part, Failure> {
    let text = "a stream is given, but this library was built without CUDA: pass NULL for memory of the host, or build it \
                with --features cuda";
    Err(Failure::argument(text))
}

/// One number per rank; none where C gives none and `is_needed` says that it may.
///
/// # Safety
///
/// `start` is null or there are so many numbers.
pub(super) unsafe fn numbers<'a>(
    start: *const usize,
    comm: &Comm,
    is_needed: bool,
    what: &str,
) -> Result<&'a [usize], Failure> {
    match start.is_null() {
        true if is_needed => Err(Failure::argument(format!("{what} is NULL"))),
        true => Ok(&[]),
        false if !start.is_aligned() => Err(Failure::argument(format!("{what} isn't aligned as size_t is"))),
        // SAFETY: the caller promises it.
        false => Ok(unsafe { std::slice::from_raw_parts(start, comm.comm.size()) }),
    }
}

/// # Safety
///
/// As [`numbers`].
unsafe fn sent<'a>(comm: &Comm, counts: *const usize, displs: *const usize) -> Result<Counts<'a>, Failure> {
    // SAFETY: passed on from the caller.
    let send_counts = unsafe { numbers(counts, comm, true, "sendcounts") }?;
    // SAFETY: the same.
    let send_offsets = unsafe { numbers(displs, comm, false, "senddispls") }?;
    Ok(Counts { send_counts, send_offsets, ..Counts::default() })
}

/// # Safety
///
/// As [`numbers`].
unsafe fn received<'a>(comm: &Comm, counts: *const usize, displs: *const usize) -> Result<Counts<'a>, Failure> {
    // SAFETY: passed on from the caller.
    let recv_counts = unsafe { numbers(counts, comm, true, "recvcounts") }?;
    // SAFETY: the same.
    let recv_offsets = unsafe { numbers(displs, comm, false, "recvdispls") }?;
    Ok(Counts { recv_counts, recv_offsets, ..Counts::default() })
}

macro_rules! call {
    ($run:ident, $start:ident, ($($name:ident: $type:ty),*), $collective:ident, |$comm:ident| { $($field:ident: $value:expr),* }) => {
        /// See `paceline.h`.
        ///
        /// # Safety
        ///
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $run($($name: $type,)* comm: *mut c_void, stream: *mut c_void) -> pclResult {
            // SAFETY: as C promises, here and below.
            on_comm(stringify!($run), comm, |$comm| unsafe {
                let call = Call { $($field: $value,)* ..Call::of(Collective::$collective) };
                run($comm, (comm, stream), &call, Own::default())
            })
        }

        /// See `paceline.h`.
        ///
        /// # Safety
        ///
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $start(
            $($name: $type,)*
            comm: *mut c_void,
            stream: *mut c_void,
            work: *mut *mut c_void,
        ) -> pclResult {
            // SAFETY: as C promises, here and below.
            on_comm(stringify!($start), comm, |$comm| unsafe {
                let call = Call { $($field: $value,)* ..Call::of(Collective::$collective) };
                start(stringify!($start), $comm, stream, &call, Own::default(), work)
            })
        }
    };
}

type In = *const c_void;
type Out = *mut c_void;
type Numbers = *const usize;

call!(pclAllReduce, pclStartAllReduce,
    (sendbuff: In, recvbuff: Out, count: usize, datatype: c_int, op: c_int), AllReduce,
    |_comm| { send: sendbuff.cast(), recv: recvbuff.cast(), count: count, data_type: datatype, op: op });

call!(pclReduce, pclStartReduce,
    (sendbuff: In, recvbuff: Out, count: usize, datatype: c_int, op: c_int, root: c_int), Reduce,
    |_comm| { send: sendbuff.cast(), recv: recvbuff.cast(), count: count, data_type: datatype, op: op, root: root });

call!(pclBroadcast, pclStartBroadcast,
    (sendbuff: In, recvbuff: Out, count: usize, datatype: c_int, root: c_int), Broadcast,
    |_comm| { send: sendbuff.cast(), recv: recvbuff.cast(), count: count, data_type: datatype, root: root });

call!(pclAllGather, pclStartAllGather,
    (sendbuff: In, recvbuff: Out, sendcount: usize, datatype: c_int), AllGather,
    |_comm| { send: sendbuff.cast(), recv: recvbuff.cast(), count: sendcount, data_type: datatype });

call!(pclAllGatherV, pclStartAllGatherV,
    (sendbuff: In, recvbuff: Out, recvcounts: Numbers, recvdispls: Numbers, datatype: c_int), AllGather,
    |comm| { send: sendbuff.cast(), recv: recvbuff.cast(), data_type: datatype,
        counts: Some(received(comm, recvcounts, recvdispls)?) });

call!(pclReduceScatter, pclStartReduceScatter,
    (sendbuff: In, recvbuff: Out, recvcount: usize, datatype: c_int, op: c_int), ReduceScatter,
    |_comm| { send: sendbuff.cast(), recv: recvbuff.cast(), count: recvcount, data_type: datatype, op: op });

call!(pclReduceScatterV, pclStartReduceScatterV,
    (sendbuff: In, recvbuff: Out, sendcounts: Numbers, senddispls: Numbers, datatype: c_int, op: c_int), ReduceScatter,
    |comm| { send: sendbuff.cast(), recv: recvbuff.cast(), data_type: datatype, op: op,
        counts: Some(sent(comm, sendcounts, senddispls)?) });

call!(pclAlltoAll, pclStartAlltoAll,
    (sendbuff: In, recvbuff: Out, count: usize, datatype: c_int), AllToAll,
    |_comm| { send: sendbuff.cast(), recv: recvbuff.cast(), count: count, data_type: datatype });

call!(pclAlltoAllV, pclStartAlltoAllV,
    (sendbuff: In, sendcounts: Numbers, senddispls: Numbers, recvbuff: Out, recvcounts: Numbers, recvdispls: Numbers,
        datatype: c_int), AllToAll,
    |comm| { send: sendbuff.cast(), recv: recvbuff.cast(), data_type: datatype,
        counts: Some({
            let Counts { recv_counts, recv_offsets, .. } = received(comm, recvcounts, recvdispls)?;
            Counts { recv_counts, recv_offsets, ..sent(comm, sendcounts, senddispls)? }
        }) });

call!(pclGather, pclStartGather,
    (sendbuff: In, recvbuff: Out, count: usize, datatype: c_int, root: c_int), Gather,
    |_comm| { send: sendbuff.cast(), recv: recvbuff.cast(), count: count, data_type: datatype, root: root });

call!(pclGatherV, pclStartGatherV,
    (sendbuff: In, recvbuff: Out, recvcounts: Numbers, recvdispls: Numbers, datatype: c_int, root: c_int), Gather,
    |comm| { send: sendbuff.cast(), recv: recvbuff.cast(), data_type: datatype, root: root,
        counts: Some(received(comm, recvcounts, recvdispls)?) });

call!(pclScatter, pclStartScatter,
    (sendbuff: In, recvbuff: Out, count: usize, datatype: c_int, root: c_int), Scatter,
    |_comm| { send: sendbuff.cast(), recv: recvbuff.cast(), count: count, data_type: datatype, root: root });

call!(pclScatterV, pclStartScatterV,
    (sendbuff: In, recvbuff: Out, sendcounts: Numbers, senddispls: Numbers, datatype: c_int, root: c_int), Scatter,
    |comm| { send: sendbuff.cast(), recv: recvbuff.cast(), data_type: datatype, root: root,
        counts: Some(sent(comm, sendcounts, senddispls)?) });

call!(pclBarrier, pclStartBarrier, (), Barrier, |_comm| {});

call!(pclSend, pclStartSend,
    (sendbuff: In, count: usize, datatype: c_int, peer: c_int), Send,
    |_comm| { send: sendbuff.cast(), count: count, data_type: datatype, root: peer });

call!(pclRecv, pclStartRecv,
    (recvbuff: Out, count: usize, datatype: c_int, peer: c_int), Recv,
    |_comm| { recv: recvbuff.cast(), count: count, data_type: datatype, root: peer });

call!(pclSendRecv, pclStartSendRecv,
    (sendbuff: In, sendcount: usize, to: c_int, recvbuff: Out, recvcount: usize, from: c_int, datatype: c_int), SendRecv,
    |_comm| { send: sendbuff.cast(), recv: recvbuff.cast(), count: sendcount, recv_count: recvcount, data_type: datatype,
        root: to, source: from });

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclBcast(
    buff: Out,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: *mut c_void,
    stream: *mut c_void,
) -> pclResult {
    // SAFETY: as C promises.
    unsafe { pclBroadcast(buff, buff, count, datatype, root, comm, stream) }
}
