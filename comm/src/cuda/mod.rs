//! Collectives over the memory of GPUs, as work of the caller's stream.
//!
//! [`Communicator::attach`](crate::Communicator::attach) gives each rank its device; [`DeviceCommunicator::on`] makes the calls.
//! `docs/cuda.md` says which way a call takes.

mod attach;
mod buffer;
mod calls;
mod direct;
mod enqueue;
mod group;
mod job;
mod kernels;
mod mail;
mod order;
mod passing;
mod register;
mod segments;
mod staging;
mod streamed;
mod watch;
mod work;
mod worker;

use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use paceline_transport::cuda::{
    Comparison, CudaError, Device, DeviceMemory, Event, Graph, HostMemory, Priority, Stream,
};

use crate::Communicator;
use crate::error::{Error, ErrorKind, Result};
use crate::request::CallOptions;

pub use attach::AttachOptions;
pub use buffer::{DeviceBuffers, DeviceInput, DeviceOutput, DeviceSlice, DeviceSliceMut, DeviceVec, Lent};
pub use calls::OnStream;
pub use group::DeviceGroup;
pub(crate) use order::Pending;
pub use register::Registered;
pub use work::DeviceWork;

use order::LastStream;
use staging::Pool;
use watch::Watch;
use worker::Worker;

/// A communicator whose ranks may bring memory of GPUs.
///
/// A call puts work into the caller's stream and returns at once: it begins when the stream gets there, and what follows
/// in the stream sees its result. Every rank makes the same calls in the same order, as on the [`Communicator`] that it was
/// attached to; ranks without a device make theirs there, with memory of the host. The calls of a device communicator run one
/// after the other, whatever their streams.
///
/// A call that fails leaves the stream running, with what the output then holds undefined: [`DeviceWork::wait`], every later
/// call and [`DeviceCommunicator::check`] give the error.
pub struct DeviceCommunicator {
    comm: Communicator,
    attached: Arc<Attached>,
}

/// What the handles of a device communicator share.
struct Attached {
    device: Option<Device>,
    /// A stream of the communicator's own.
    own: Option<Stream>,
    worker: Worker,
    staging: Pool,
    /// How much of a call through the host is copied at once; `None` where a rank without a device takes part.
    segment_bytes: Option<usize>,
    /// Held while a call is put into its stream, so that all streams get the calls in one order.
    last: Arc<Mutex<LastStream>>,
    /// From how many bytes on all_gather and all_to_all are left to copy engines.
    copy_engines: Option<u64>,
    /// Where all ranks reach each other's devices.
    watch: Option<Arc<Watch>>,
}

impl DeviceCommunicator {
    /// This rank's device.
    #[must_use]
    pub fn device(&self) -> Option<&Device> {
        self.attached.device.as_ref()
    }

    /// The communicator underneath.
    #[must_use]
    pub fn communicator(&self) -> &Communicator {
        &self.comm
    }

    /// Another handle of the same communicator, whose calls have other options.
    #[must_use]
    pub fn with(&self, options: CallOptions) -> DeviceCommunicator {
        DeviceCommunicator { comm: self.comm.with(options), attached: self.attached.clone() }
    }

    /// How long a call of this handle may take, from when the stream gets there.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.comm.timeout()
    }

    /// Calls that become work of `stream`.
    #[must_use]
    pub fn on<'a>(&'a self, stream: &'a Stream) -> OnStream<'a> {
        OnStream::new(self, stream)
    }

    /// Calls that run beside `stream`, on a stream of the communicator's own, before whatever kernels wait for a multiprocessor:
    /// they begin when `stream` has done what it was given so far. What follows in `stream` waits for them only from
    /// [`DeviceWork::join`] on.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use paceline_comm::{Communicator, ReduceOp, cuda::{Device, DeviceVec, Priority}};
    /// # let comm = Communicator::from_env()?;
    /// # let device = Device::open(0)?;
    /// # let (devices, stream) = (comm.attach(Some(&device))?, device.stream(Priority::Normal)?);
    /// # let mut gradients = DeviceVec::of(&device, &[1.0f32; 1000])?;
    /// let work = devices.beside(&stream)?.all_reduce_in_place(&mut gradients, ReduceOp::Sum)?;
    /// // ... give `stream` something to compute ...
    /// work.join(&stream)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// This rank has no device, or it is lost.
    pub fn beside(&self, stream: &Stream) -> Result<OnStream<'_>> {
        let device = self.own_device()?;
        let own = self.attached.own.as_ref().expect("whoever has a device has a stream");
        let begin = Event::new(device).map_err(refused)?;
        stream.record(&begin).and_then(|()| own.wait(&begin)).map_err(refused)?;
        Ok(self.on(own))
    }

    /// Whether the communicator still works.
    ///
    /// # Errors
    ///
    /// The first error of a call whose stream has got that far.
    pub fn check(&self) -> Result<()> {
        self.attached.worker.check()?;
        let failure = self.attached.watch.as_ref().and_then(|watch| watch.failure());
        failure.map_or(Ok(()), |error| Err(error.repeated()))
    }

    /// Whether calls run on the devices, which reach each other's memory; otherwise they pass by the host. The same on all
    /// ranks.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.attached.watch.is_some()
    }

    fn own_device(&self) -> Result<&Device> {
        self.attached.device.as_ref().ok_or_else(|| {
            Error::invalid(format!("rank {} was attached without a device", self.comm.rank()))
                .hint("pass its device to Communicator::attach, or make the call on the Communicator, with memory of the host")
        })
    }
}

impl std::fmt::Debug for DeviceCommunicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceCommunicator {{ rank: {}, device: {:?} }}", self.comm.rank(), self.attached.device)
    }
}

/// What the driver refused, as an error of the communicator's.
fn refused(error: CudaError) -> Error {
    Error::new(ErrorKind::System, error.to_string())
}
