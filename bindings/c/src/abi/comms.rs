//! What a communicator is asked, and its end.

use std::ffi::{c_char, c_int, c_void};

use paceline_comm::{Collective, ErrorKind};

use super::{give, give_text, offer};
use crate::comm;
use crate::config::{DEVICE_NONE, text};
use crate::error::{Failure, SUCCESS, pclResult};
use crate::guard::{guard, on_comm};

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclCommFinalize(comm: *mut c_void) -> pclResult {
    on_comm("pclCommFinalize", comm, |comm| comm.finish())
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclCommDestroy(comm: *mut c_void) -> pclResult {
    guard("pclCommDestroy", || comm::free(comm, None))
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclCommAbort(comm: *mut c_void) -> pclResult {
    guard("pclCommAbort", || comm::free(comm, Some("pclCommAbort was called")))
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommRevoke(comm: *mut c_void, reason: *const c_char) -> pclResult {
    on_comm("pclCommRevoke", comm, |comm| {
        // SAFETY: as C promises.
        let reason = unsafe { text(reason, "reason") }?;
        comm.comm.abort(reason.as_deref().unwrap_or("pclCommRevoke was called"));
        Ok(())
    })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommGetAsyncError(comm: *mut c_void, error: *mut pclResult) -> pclResult {
    on_comm("pclCommGetAsyncError", comm, |known| {
        let found = known.comm.check();
        #[cfg(feature = "cuda")]
        let found = found.and_then(|()| known.device.get().map_or(Ok(()), |device| device.check()));
        let code = match found {
            Ok(()) => SUCCESS,
            // Such as a process that was forked: the communicator itself is as it was.
            Err(error) if error.kind() == ErrorKind::InvalidArgument => return Err(error.into()),
            Err(error) => crate::guard::tell("pclCommGetAsyncError", error.into(), Some(known)),
        };
        // SAFETY: as C promises.
        unsafe { give(error, "asyncError", code) }
    })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommCount(comm: *mut c_void, count: *mut c_int) -> pclResult {
    // SAFETY: as C promises.
    on_comm("pclCommCount", comm, |comm| unsafe { give(count, "count", comm.comm.size() as c_int) })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommUserRank(comm: *mut c_void, rank: *mut c_int) -> pclResult {
    // SAFETY: as C promises.
    on_comm("pclCommUserRank", comm, |comm| unsafe { give(rank, "rank", comm.comm.rank() as c_int) })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommCuDevice(comm: *mut c_void, device: *mut c_int) -> pclResult {
    on_comm("pclCommCuDevice", comm, |known| {
        // SAFETY: as C promises.
        unsafe { give(device, "device", device_of(known)) }
    })
}

#[cfg(feature = "cuda")]
fn device_of(comm: &comm::Comm) -> c_int {
    let device = comm.device.get().and_then(|device| device.device());
    device.map_or(DEVICE_NONE, |device| device.ordinal() as c_int)
}

#[cfg(not(feature = "cuda"))]
fn device_of(_: &comm::Comm) -> c_int {
    DEVICE_NONE
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommLocality(
    comm: *mut c_void,
    local_rank: *mut c_int,
    local_size: *mut c_int,
    hosts: *mut c_int,
) -> pclResult {
    on_comm("pclCommLocality", comm, |known| {
        // SAFETY: as C promises.
        unsafe {
            offer(local_rank, known.comm.local_rank() as c_int);
            offer(local_size, known.comm.local_size() as c_int);
            offer(hosts, known.comm.n_hosts() as c_int);
        }
        Ok(())
    })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommPeer(
    comm: *mut c_void,
    rank: c_int,
    text: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> pclResult {
    on_comm("pclCommPeer", comm, |known| {
        let rank = usize::try_from(rank).ok().filter(|rank| *rank < known.comm.size());
        let rank = rank.ok_or_else(|| Failure::argument("the rank is out of range"))?;
        let link = known.comm.link_kind(rank).map_or("this rank", |kind| kind.name());
        // SAFETY: as C promises.
        unsafe { give_text(&format!("{}, {link}", known.comm.peer(rank)), text, capacity, needed) }
    })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommExplain(
    comm: *mut c_void,
    collective: c_int,
    bytes: usize,
    text: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> pclResult {
    on_comm("pclCommExplain", comm, |known| {
        let named = Collective::ALL.into_iter().find(|known| *known as c_int == collective);
        let named = named
            .ok_or_else(|| Failure::argument(format!("the collective {collective} is none of pclCollective_t")))?;
        // SAFETY: as C promises.
        unsafe { give_text(&known.comm.explain(named, bytes)?.to_string(), text, capacity, needed) }
    })
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclCommSetTimeout(comm: *mut c_void, timeout_ms: u64) -> pclResult {
    on_comm("pclCommSetTimeout", comm, |comm| {
        comm.set_timeout(timeout_ms);
        Ok(())
    })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommGetTimeout(comm: *mut c_void, timeout_ms: *mut u64) -> pclResult {
    on_comm("pclCommGetTimeout", comm, |comm| {
        let timeout = comm.timeout().unwrap_or(comm.comm.timeout());
        // SAFETY: as C promises.
        unsafe { give(timeout_ms, "timeoutMs", u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)) }
    })
}
