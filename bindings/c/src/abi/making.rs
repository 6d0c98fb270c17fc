//! Where communicators come from.

use std::ffi::{c_char, c_int, c_void};
use std::fmt::Display;
use std::time::Duration;

use paceline_comm::{Communicator, Rendezvous, Setup, UniqueId};

use super::give;
use crate::config::{Config, DEVICE_NONE, pclConfig, text};
use crate::error::{Failure, INVALID_ARGUMENT, RENDEZVOUS_ERROR, SUCCESS, pclResult};
use crate::guard::{guard, on_comm};
use crate::{comm, group};

/// `pclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pclUniqueId {
    internal: [u8; UniqueId::BYTES],
}

impl std::fmt::Debug for pclUniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("pclUniqueId { not shown }")
    }
}

/// Where C wants a result that another thread makes.
struct Target(*mut *mut c_void);

// SAFETY: C lends the place until the function, or the group, has ended.
unsafe impl Send for Target {}

fn refused(error: impl Display) -> Failure {
    Failure::new(INVALID_ARGUMENT, error.to_string())
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclGetUniqueId(id: *mut pclUniqueId) -> pclResult {
    guard("pclGetUniqueId", || {
        if id.is_null() {
            return Err(Failure::argument("id is NULL"));
        }
        let setup = Setup::alone().with_options_of(&Config::default().environment()).map_err(refused)?;
        let made = UniqueId::open(&setup).map_err(|error| Failure::new(RENDEZVOUS_ERROR, error.to_string()))?;
        // SAFETY: as C promises.
        unsafe { give(id, "id", pclUniqueId { internal: made.to_bytes() }) }
    })
}

/// A handle for a communicator, which gets the device that the config names.
fn finish(made: Communicator, config: Config) -> Result<*mut c_void, Failure> {
    let Config { name, timeout_ms, device, .. } = config.clone();
    let handle = comm::admit(made, name, timeout_ms);
    if device != DEVICE_NONE {
        let attached = comm::with(handle, |comm| attach(comm, device, &config));
        if let Err(failure) = attached.and_then(|attached| attached) {
            // The handle was given to nobody.
            let _ = comm::free(handle, None);
            return Err(failure);
        }
    }
    Ok(handle)
}

#[cfg(feature = "cuda")]
fn attach(comm: &comm::Comm, device: c_int, config: &Config) -> Result<(), Failure> {
    crate::device::attach(comm, device, config)
}

#[cfg(not(feature = "cuda"))]
fn attach(_: &comm::Comm, device: c_int, _: &Config) -> Result<(), Failure> {
    let text = format!("device {device} is asked for, but this library was built without CUDA (--features cuda)");
    Err(Failure::usage(text))
}

/// Makes a communicator now, or notes that in a group.
///
/// # Safety
///
/// `target` is null or may be written, also at the end of the group.
unsafe fn make(
    name: &'static str,
    target: *mut *mut c_void,
    config: Result<Config, Failure>,
    setup: impl FnOnce(&Config) -> Result<Setup, Failure>,
) -> pclResult {
    let mut ready = None;
    let checked = guard(name, || {
        // SAFETY: passed on from the caller.
        unsafe { give(target, "comm", std::ptr::null_mut()) }?;
        let config = config?;
        ready = Some((setup(&config)?, config));
        Ok(())
    });
    let Some((setup, config)) = ready else { return checked };
    let target = Target(target);
    let making = move || {
        let Target(target) = { target };
        guard(name, || {
            let handle = finish(Communicator::connect(&setup)?, config)?;
            // SAFETY: as above.
            unsafe { give(target, "comm", handle) }
        })
    };
    if group::is_open() {
        group::note_making(Box::new(making));
        return SUCCESS;
    }
    making()
}

/// The rank and the size as numbers that can be meant.
fn rank_of(rank: c_int, size: c_int) -> Result<(usize, usize), Failure> {
    let size = usize::try_from(size).ok().filter(|size| (1..=Setup::MOST_RANKS).contains(size));
    let size = size.ok_or_else(|| Failure::argument(format!("nranks is not 1 to {}", Setup::MOST_RANKS)))?;
    let below = usize::try_from(rank).ok().filter(|rank| *rank < size);
    below
        .map(|rank| (rank, size))
        .ok_or_else(|| Failure::argument(format!("rank {rank} is not below nranks, {size}, or negative")))
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommInitRank(
    comm: *mut *mut c_void,
    nranks: c_int,
    id: pclUniqueId,
    rank: c_int,
) -> pclResult {
    // SAFETY: as C promises.
    unsafe { init_rank("pclCommInitRank", comm, nranks, id, rank, std::ptr::null()) }
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommInitRankConfig(
    comm: *mut *mut c_void,
    nranks: c_int,
    id: pclUniqueId,
    rank: c_int,
    config: *mut pclConfig,
) -> pclResult {
    // SAFETY: as C promises.
    unsafe { init_rank("pclCommInitRankConfig", comm, nranks, id, rank, config) }
}

/// # Safety
///
/// As `paceline.h` says.
unsafe fn init_rank(
    name: &'static str,
    comm: *mut *mut c_void,
    nranks: c_int,
    id: pclUniqueId,
    rank: c_int,
    config: *const pclConfig,
) -> pclResult {
    // SAFETY: passed on from the caller.
    let config = unsafe { Config::read(config) };
    let setup = |config: &Config| {
        let (rank, size) = rank_of(rank, nranks)?;
        let id = UniqueId::from_bytes(&id.internal);
        let id = id.ok_or_else(|| Failure::argument("the id is none of pclGetUniqueId's"))?;
        Setup::with_id(rank, size, &id).with_options_of(&config.environment()).map_err(refused)
    };
    // SAFETY: the same.
    unsafe { make(name, comm, config, setup) }
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommInitFromEnv(comm: *mut *mut c_void, config: *const pclConfig) -> pclResult {
    // SAFETY: as C promises.
    let config = unsafe { Config::read(config) };
    let setup = |config: &Config| Setup::from_env(&config.environment()).map_err(refused);
    // SAFETY: the same.
    unsafe { make("pclCommInitFromEnv", comm, config, setup) }
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommInitFromUrl(
    comm: *mut *mut c_void,
    nranks: c_int,
    url: *const c_char,
    rank: c_int,
    config: *const pclConfig,
) -> pclResult {
    // SAFETY: as C promises.
    let (config, url) = unsafe { (Config::read(config), text(url, "url")) };
    let setup = |config: &Config| {
        let (rank, size) = rank_of(rank, nranks)?;
        let url = url?.ok_or_else(|| Failure::argument("url is NULL"))?;
        let how: Rendezvous = url.parse().map_err(refused)?;
        Setup::new(rank, size, how).with_options_of(&config.environment()).map_err(refused)
    };
    // SAFETY: the same.
    unsafe { make("pclCommInitFromUrl", comm, config, setup) }
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommInitAll(comms: *mut *mut c_void, ndev: c_int, devlist: *const c_int) -> pclResult {
    guard("pclCommInitAll", || {
        let (_, size) = rank_of(0, ndev)?;
        if comms.is_null() {
            return Err(Failure::argument("comms is NULL"));
        }
        let environment = Config::default().environment();
        let timeout = Setup::alone().with_options_of(&environment).map_err(refused)?.timeout;
        let timeout_ms = if timeout == Setup::TIMEOUT { 0 } else { millis(timeout) };
        let made = Communicator::in_process(size)?;
        let device = |rank: usize| match cfg!(feature = "cuda") && !devlist.is_null() {
            // SAFETY: C promises one number per rank.
            true => unsafe { devlist.add(rank).read_unaligned() },
            false => DEVICE_NONE,
        };
        let devices: Vec<c_int> = (0..size).map(device).collect();
        let has_devices = devices.iter().any(|device| *device != DEVICE_NONE);
        let handles: Vec<*mut c_void> =
            made.into_iter().map(|one| comm::admit(one, String::new(), timeout_ms)).collect();
        if has_devices && let Err(failure) = attach_all(&handles, &devices) {
            for handle in handles {
                let _ = comm::free(handle, None);
            }
            return Err(failure);
        }
        for (rank, handle) in handles.into_iter().enumerate() {
            // SAFETY: C promises so many places.
            unsafe { give(comms.add(rank), "comms", handle) }?;
        }
        Ok(())
    })
}

/// Gives each rank of this process its device, all at once, for they wait for each other.
fn attach_all(handles: &[*mut c_void], devices: &[c_int]) -> Result<(), Failure> {
    let pairs: Vec<(usize, c_int)> = handles.iter().map(|handle| handle.addr()).zip(devices.iter().copied()).collect();
    std::thread::scope(|scope| {
        let one = |(handle, device): (usize, c_int)| {
            let handle = std::ptr::without_provenance_mut(handle);
            comm::with(handle, |comm| attach(comm, device, &Config::default())).and_then(|attached| attached)
        };
        let threads: Vec<_> = pairs.into_iter().map(|pair| scope.spawn(move || one(pair))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::new(crate::error::INTERNAL_ERROR, "a thread panicked")))
        })
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommSplit(
    comm: *mut c_void,
    color: c_int,
    key: c_int,
    newcomm: *mut *mut c_void,
    config: *mut pclConfig,
) -> pclResult {
    on_comm("pclCommSplit", comm, |known| {
        let color = match color {
            -1 => None,
            _ => Some(u64::try_from(color).map_err(|_| Failure::argument(format!("the color {color} is negative")))?),
        };
        // SAFETY: as C promises.
        unsafe { split(known, color, key, newcomm, config) }
    })
}

/// See `paceline.h`.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclCommDuplicate(
    comm: *mut c_void,
    newcomm: *mut *mut c_void,
    config: *mut pclConfig,
) -> pclResult {
    // SAFETY: as C promises.
    on_comm("pclCommDuplicate", comm, |known| unsafe { split(known, Some(0), 0, newcomm, config) })
}

/// # Safety
///
/// As `paceline.h` says of `newcomm` and `config`.
unsafe fn split(
    comm: &comm::Comm,
    color: Option<u64>,
    key: c_int,
    newcomm: *mut *mut c_void,
    config: *const pclConfig,
) -> Result<(), Failure> {
    if group::is_open() {
        return Err(Failure::usage("communicators are split outside of groups, each rank in a thread of its own"));
    }
    // SAFETY: passed on from the caller.
    unsafe { give(newcomm, "newcomm", std::ptr::null_mut()) }?;
    // SAFETY: the same.
    let mut config = unsafe { Config::read(config) }?;
    if config.name.is_empty() {
        config.name = comm.name().to_owned();
    }
    let patient = comm.patient(None, None);
    let Some(part) = patient.split(color, key.into())? else { return Ok(()) };
    let handle = finish(part, config)?;
    // SAFETY: the same.
    unsafe { give(newcomm, "newcomm", handle) }
}

/// See `paceline.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclCommAttach(comm: *mut c_void, device: c_int) -> pclResult {
    on_comm("pclCommAttach", comm, |known| attach(known, device, &Config::default()))
}
