//! Calls over memory of CUDA devices.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use paceline_comm::Collective;
use paceline_comm::cuda::{AttachOptions, Device, DeviceBuffers, DeviceWork, Stream};

use crate::call::{Call, Extents, Own, Sound};
use crate::comm::Comm;
use crate::config::{Config, DEVICE_NONE};
use crate::error::{Failure, SYSTEM_ERROR, UNHANDLED_CUDA_ERROR};
use crate::rounds::{Half, rounds};
use crate::work::{Part, Work};

/// `PCL_DEVICE_CURRENT`.
const CURRENT: c_int = -2;

fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::new(UNHANDLED_CUDA_ERROR, error.to_string())
}

/// An error of a call over memory of devices: what the system refuses there, the driver does.
fn failed(error: paceline_comm::Error) -> Failure {
    let failure = Failure::from(error);
    let code = if failure.code == SYSTEM_ERROR { UNHANDLED_CUDA_ERROR } else { failure.code };
    Failure { code, ..failure }
}

/// Gives a rank its device, or none. Every rank of the communicator does.
pub(crate) fn attach(comm: &Comm, device: c_int, config: &Config) -> Result<(), Failure> {
    if comm.device.get().is_some() {
        return Err(Failure::usage("the communicator has been attached before"));
    }
    let device = match device {
        DEVICE_NONE => None,
        CURRENT => match Device::current().map_err(refused)? {
            Some(device) => Some(device),
            None => Some(Device::open(0).map_err(refused)?),
        },
        number => {
            let number =
                usize::try_from(number).map_err(|_| Failure::argument(format!("there is no device {number}")))?;
            Some(Device::open(number).map_err(refused)?)
        }
    };
    let mut options = AttachOptions::from_env(&Config::default().environment())?;
    if config.device_scratch_bytes != 0 {
        options.scratch_bytes = config.device_scratch_bytes;
    }
    if config.device_copy_engine_bytes != 0 {
        options.copy_engines = Some(config.device_copy_engine_bytes);
    }
    let attached = comm.patient(None, None).attach_with(device.as_ref(), &options).map_err(failed)?;
    comm.device.set(attached).map_err(|_| Failure::usage("two threads attach the communicator at once"))
}

/// Puts a call into a stream, or beside it.
///
/// # Safety
///
/// The buffers are memory that the stream's device can use, and lent until the stream has done the call. The stream is one of
/// the device's.
pub(crate) unsafe fn enqueue(
    comm: &Comm,
    stream: *mut c_void,
    call: &Sound<'_>,
    own: &Own,
    beside: bool,
) -> Result<DeviceWork, Failure> {
    let attached = comm.device.get().ok_or_else(|| {
        Failure::usage(
            "a stream is given, but the communicator has no device: see pclConfig_t.device and pclCommAttach",
        )
    })?;
    let device = attached.device().ok_or_else(|| Failure::usage("a stream is given, but this rank has no device"))?;
    // SAFETY: as the caller promises. What is made of it ends with the call, which is in the stream by then.
    let stream = unsafe { Stream::borrowed(device, stream) };
    let address = |start: *const u8| start.addr() as u64;
    let buffers = match call.extents {
        Extents::InPlace(start, bytes) => DeviceBuffers::InPlace((address(start), bytes)),
        Extents::Apart { input, output } => {
            DeviceBuffers::Separate { input: (address(input.0), input.1), output: (address(output.0), output.1) }
        }
    };
    let options =
        paceline_comm::CallOptions { timeout: own.timeout.or(comm.timeout()), algorithm: own.algorithm.clone() };
    let patient = attached.with(options);
    let on = if beside { patient.beside(&stream).map_err(failed)? } else { patient.on(&stream) };
    // SAFETY: as the caller promises.
    unsafe { on.run(call.over(buffers)) }.map_err(failed)
}

/// A message of a group: the communicator's handle, the stream, and the call.
pub(crate) type Message = (usize, usize, Call<'static>);

/// Puts a group's messages of one communicator into their streams: see `rounds.rs`.
///
/// # Safety
///
/// As [`enqueue`], for each.
pub(crate) unsafe fn put_messages(comm: &Comm, messages: &[Message]) -> Result<(), Failure> {
    let leaves = |call: &Call<'_>| call.collective == Collective::Send;
    // One that is no rank is told when the call is made.
    let peer = |call: &Call<'_>| usize::try_from(call.root).unwrap_or(0);
    let halves: Vec<Half> =
        messages.iter().map(|(_, _, call)| Half { leaves: leaves(call), peer: peer(call) }).collect();
    let put = |stream: usize, call: &Call<'_>| {
        let stream = std::ptr::without_provenance_mut(stream);
        // SAFETY: passed on from the caller.
        unsafe { enqueue(comm, stream, &call.check(comm)?, &Own::default(), false) }.map(drop)
    };
    for (leaving, arriving) in rounds(&halves, comm.comm.rank(), comm.comm.size()) {
        let (leaving, arriving) = (leaving.map(|place| &messages[place]), arriving.map(|place| &messages[place]));
        match (leaving, arriving) {
            (Some((_, stream, send)), Some((_, other, recv)))
                if stream == other && send.data_type == recv.data_type =>
            {
                let both = Call {
                    collective: Collective::SendRecv,
                    recv: recv.recv,
                    recv_count: recv.count,
                    source: recv.root,
                    ..*send
                };
                put(*stream, &both)?;
            }
            (leaving, arriving) => {
                leaving.into_iter().chain(arriving).try_for_each(|(_, stream, call)| put(*stream, call))?;
            }
        }
    }
    Ok(())
}

/// How a call ended, if it has within `timeout`.
pub(crate) fn wait(work: &DeviceWork, timeout: Option<Duration>) -> Option<Result<(), Failure>> {
    let done = match timeout {
        None => true,
        Some(timeout) => match work.test() {
            Ok(done) => done || (!timeout.is_zero() && has_ended(work, timeout)),
            Err(error) => return Some(Err(failed(error))),
        },
    };
    done.then(|| work.wait().map_err(failed))
}

fn has_ended(work: &DeviceWork, timeout: Duration) -> bool {
    // How it ended is asked afterwards.
    let _ = work.wait_timeout(timeout);
    work.test().unwrap_or(true)
}

/// Lets a stream wait for what was started with a stream.
///
/// # Safety
///
/// `stream` is null or one of the device's.
pub(crate) unsafe fn join(work: &Work, stream: *mut c_void) -> Result<(), Failure> {
    for part in work.parts() {
        let Part::Device(part) = part else {
            return Err(Failure::usage("the work was started without a stream: wait for it"));
        };
        // SAFETY: as the caller promises.
        let stream = unsafe { Stream::borrowed(part.event().device(), stream) };
        part.join(&stream).map_err(failed)?;
    }
    Ok(())
}

/// Reads bytes of the device's memory, at once.
///
/// # Safety
///
/// So many bytes are there.
pub(crate) unsafe fn read(comm: &Comm, address: u64, bytes: &mut [u8]) -> Result<(), Failure> {
    let device = comm.device.get().and_then(|attached| attached.device());
    let device = device.ok_or_else(|| Failure::usage("the scalar is on a device, but this rank has none"))?;
    // SAFETY: passed on from the caller.
    unsafe { device.read_at(address, bytes) }.map_err(refused)
}
