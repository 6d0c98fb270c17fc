//! Calls that are described by data.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::time::Duration;

use paceline_comm::{Collective, Counts};

use super::calls::{numbers, run, start};
use crate::call::{Call, Own};
use crate::comm::Comm;
use crate::config::text;
use crate::error::{Failure, pclResult};
use crate::guard::on_comm;

const VERSION: c_uint = 1;

/// `pclCall_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pclCall {
    size: usize,
    version: c_uint,
    collective: c_int,
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    recvcount: usize,
    datatype: c_int,
    op: c_int,
    root: c_int,
    source: c_int,
    sendcounts: *const usize,
    senddispls: *const usize,
    recvcounts: *const usize,
    recvdispls: *const usize,
    timeout_ms: u64,
    algorithm: *const c_char,
}

/// What a `pclCall_t` asks for.
///
/// # Safety
///
/// `call` is null, or its member `size` can be read, and so many bytes if that is the length of a version.
unsafe fn read<'a>(call: *const pclCall, comm: &Comm) -> Result<(Call<'a>, Own), Failure> {
    if call.is_null() {
        return Err(Failure::argument("call is NULL"));
    }
    // SAFETY: the caller promises it.
    let size = unsafe { call.cast::<usize>().read_unaligned() };
    // The first version has no shorter form; what later ones add is not looked at.
    if size < size_of::<pclCall>() || 4096 < size {
        return Err(Failure::argument(format!(
            "the call says that it has {size} bytes; start from PCL_CALL_INITIALIZER"
        )));
    }
    // SAFETY: it is as long as that (the caller); members are numbers and pointers, for which any bits will do.
    let known = unsafe { call.read_unaligned() };
    if known.version == 0 || VERSION < known.version {
        let version = known.version;
        return Err(Failure::argument(format!("the call has version {version}; this library knows {VERSION}")));
    }
    let collective = Collective::ALL.into_iter().find(|collective| *collective as c_int == known.collective);
    let collective = collective
        .ok_or_else(|| Failure::argument(format!("the collective {} is none of pclCollective_t", known.collective)))?;
    let mut call = Call {
        send: known.sendbuff.cast(),
        recv: known.recvbuff.cast(),
        count: known.count,
        recv_count: known.recvcount,
        data_type: known.datatype,
        op: known.op,
        root: known.root,
        source: known.source,
        ..Call::of(collective)
    };
    let (sends, receives) = match collective {
        Collective::ReduceScatter | Collective::Scatter => (!known.sendcounts.is_null(), false),
        Collective::AllGather | Collective::Gather => (false, !known.recvcounts.is_null()),
        Collective::AllToAll => {
            let any = !known.sendcounts.is_null() || !known.recvcounts.is_null();
            (any, any)
        }
        _ => (false, false),
    };
    if sends || receives {
        let mut counts = Counts::default();
        if sends {
            // SAFETY: as C promises.
            counts.send_counts = unsafe { numbers(known.sendcounts, comm, true, "sendcounts") }?;
            // SAFETY: the same.
            counts.send_offsets = unsafe { numbers(known.senddispls, comm, false, "senddispls") }?;
        }
        if receives {
            // SAFETY: the same.
            counts.recv_counts = unsafe { numbers(known.recvcounts, comm, true, "recvcounts") }?;
            // SAFETY: the same.
            counts.recv_offsets = unsafe { numbers(known.recvdispls, comm, false, "recvdispls") }?;
        }
        call.counts = Some(counts);
    }
    let timeout = (known.timeout_ms != 0).then(|| Duration::from_millis(known.timeout_ms));
    // SAFETY: the same.
    let algorithm = unsafe { text(known.algorithm, "algorithm") }?;
    Ok((call, Own { timeout, algorithm }))
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclRun(call: *const pclCall, comm: *mut c_void, stream: *mut c_void) -> pclResult {
    // SAFETY: as C promises, here and below.
    on_comm("pclRun", comm, |known| unsafe {
        let (call, own) = read(call, known)?;
        run(known, (comm, stream), &call, own)
    })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclStart(
    call: *const pclCall,
    comm: *mut c_void,
    stream: *mut c_void,
    work: *mut *mut c_void,
) -> pclResult {
    // SAFETY: as C promises, here and below.
    on_comm("pclStart", comm, |known| unsafe {
        let (call, own) = read(call, known)?;
        start("pclStart", known, stream, &call, own, work)
    })
}
