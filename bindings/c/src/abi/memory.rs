//! Memory that the library gives, and operators with a factor.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paceline_comm::{Buffer, DataType};

use super::give;
use crate::error::{Failure, SYSTEM_ERROR, pclResult};
use crate::guard::{guard, on_comm};
use crate::handles::{Kind, Room};

const ALIGNMENT: usize = 4096;

/// What was given by address: plain memory with its size, and registered memory.
enum Given {
    Plain(Layout),
    Registered(Buffer<u8>),
}

static GIVEN: Mutex<Option<HashMap<usize, Given>>> = Mutex::new(None);

/// Memory that C has registered, with the communicator's handle.
static REGISTRATIONS: Room<usize> = Room::new(Kind::Registration);

fn given() -> MutexGuard<'static, Option<HashMap<usize, Given>>> {
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclMemAlloc(ptr: *mut *mut c_void, size: usize) -> pclResult {
    guard("pclMemAlloc", || {
        // SAFETY: as C promises.
        unsafe { give(ptr, "ptr", std::ptr::null_mut()) }?;
        let layout = Layout::from_size_align(size.max(1), ALIGNMENT);
        let layout = layout.map_err(|_| Failure::argument(format!("{size} bytes are more than memory can hold")))?;
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return Err(Failure::new(SYSTEM_ERROR, format!("there is no memory for {size} bytes")));
        }
        given().get_or_insert_default().insert(start.addr(), Given::Plain(layout));
        // SAFETY: as C promises.
        unsafe { give(ptr, "ptr", start.cast()) }
    })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclMemFree(ptr: *mut c_void) -> pclResult {
    guard("pclMemFree", || {
        let layout = take(ptr, |given| matches!(given, Given::Plain(_)), "pclMemAlloc")?;
        if let Some(Given::Plain(layout)) = layout {
            // SAFETY: it was allocated with this layout, and is not freed twice: the table has let it go.
            unsafe { dealloc(ptr.cast(), layout) };
        }
        Ok(())
    })
}

/// What was given at an address, which is taken back. Null is nothing, as for `free`.
fn take(ptr: *mut c_void, is_such: impl Fn(&Given) -> bool, maker: &str) -> Result<Option<Given>, Failure> {
    if ptr.is_null() {
        return Ok(None);
    }
    let mut given = given();
    match given.as_mut().filter(|given| given.get(&ptr.addr()).is_some_and(is_such)) {
        Some(given) => Ok(given.remove(&ptr.addr())),
        None => Err(Failure::argument(format!("{ptr:p} is no memory of {maker}, or was freed before"))),
    }
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommMemAlloc(comm: *mut c_void, ptr: *mut *mut c_void, size: usize) -> pclResult {
    on_comm("pclCommMemAlloc", comm, |comm| {
        // SAFETY: as C promises.
        unsafe { give(ptr, "ptr", std::ptr::null_mut()) }?;
        let mut buffer = comm.comm.alloc::<u8>(size.max(1))?;
        let start = buffer.as_mut_ptr();
        given().get_or_insert_default().insert(start.addr(), Given::Registered(buffer));
        // SAFETY: as C promises.
        unsafe { give(ptr, "ptr", start.cast()) }
    })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommMemFree(ptr: *mut c_void) -> pclResult {
    guard("pclCommMemFree", || take(ptr, |given| matches!(given, Given::Registered(_)), "pclCommMemAlloc").map(drop))
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommMemPeer(
    ptr: *mut c_void,
    rank: c_int,
    size: usize,
    theirs: *mut *const c_void,
) -> pclResult {
    guard("pclCommMemPeer", || {
        // SAFETY: as C promises.
        unsafe { give(theirs, "theirs", std::ptr::null()) }?;
        let given = given();
        let Some(Given::Registered(buffer)) = given.as_ref().and_then(|given| given.get(&ptr.addr())) else {
            return Err(Failure::argument(format!("{ptr:p} is no memory of pclCommMemAlloc, or was freed before")));
        };
        let rank = usize::try_from(rank).ok().filter(|rank| *rank < buffer.ranks());
        let rank = rank.ok_or_else(|| Failure::argument("the rank is out of range"))?;
        // SAFETY: only the address is taken; C sees to it that nobody writes while it reads there.
        let start = unsafe { buffer.of(rank, size) }.map(<[u8]>::as_ptr);
        let start = start.ok_or_else(|| {
            Failure::usage(format!(
                "rank {rank} has no {size} bytes that can be reached: another host, or a shorter buffer"
            ))
        })?;
        // SAFETY: as C promises.
        unsafe { give(theirs, "theirs", start.cast()) }
    })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommRegister(
    comm: *mut c_void,
    buff: *mut c_void,
    size: usize,
    handle: *mut *mut c_void,
) -> pclResult {
    on_comm("pclCommRegister", comm, |_| {
        // SAFETY: as C promises.
        unsafe { give(handle, "handle", std::ptr::null_mut()) }?;
        if buff.is_null() || size == 0 {
            return Err(Failure::argument("there is no memory to register"));
        }
        let registration = REGISTRATIONS.admit(Arc::new(comm.addr()));
        // SAFETY: as C promises.
        unsafe { give(handle, "handle", registration) }
    })
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclCommDeregister(comm: *mut c_void, handle: *mut c_void) -> pclResult {
    on_comm("pclCommDeregister", comm, |_| {
        if *REGISTRATIONS.find(handle)? != comm.addr() {
            return Err(Failure::argument("the memory was registered with another communicator"));
        }
        REGISTRATIONS.dismiss(handle).map(drop)
    })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclRedOpCreatePreMulSum(
    op: *mut c_int,
    scalar: *mut c_void,
    datatype: c_int,
    residence: c_int,
    comm: *mut c_void,
) -> pclResult {
    on_comm("pclRedOpCreatePreMulSum", comm, |comm| {
        let data_type = u8::try_from(datatype).ok().and_then(DataType::from_code);
        let data_type =
            data_type.ok_or_else(|| Failure::argument(format!("the type {datatype} is none of pclDataType_t")))?;
        if scalar.is_null() || op.is_null() {
            return Err(Failure::argument("op or scalar is NULL"));
        }
        let mut bits = [0u8; 8];
        match residence {
            // SAFETY: C promises one element of the type there; it has at most 8 bytes.
            1 => unsafe { std::ptr::copy_nonoverlapping(scalar.cast::<u8>(), bits.as_mut_ptr(), data_type.size()) },
            #[cfg(feature = "cuda")]
            // SAFETY: the same, on the device.
            0 => unsafe { crate::device::read(comm, scalar.addr() as u64, &mut bits[..data_type.size()]) }?,
            #[cfg(not(feature = "cuda"))]
            0 => {
                return Err(Failure::usage(
                    "this library was built without CUDA: pass the scalar as pclScalarHostImmediate",
                ));
            }
            _ => return Err(Failure::argument(format!("the residence {residence} is none of pclScalarResidence_t"))),
        }
        // SAFETY: as C promises.
        unsafe { give(op, "op", comm.add_operator(data_type, u64::from_le_bytes(bits))?) }
    })
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclRedOpDestroy(op: c_int, comm: *mut c_void) -> pclResult {
    on_comm("pclRedOpDestroy", comm, |comm| comm.remove_operator(op))
}
