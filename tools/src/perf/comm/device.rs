//! The library's communicator over memory of devices, as the tools see it.
//!
//! Buffers are filled and checked on the host. Each has a twin on the rank's device, at which calls work; a buffer's place
//! in memory tells its twin.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use paceline_comm::cuda::{AttachOptions, Device, DeviceBuffers, DeviceCommunicator, DeviceVec, Priority, Stream};
use paceline_comm::{Buffers, Communicator, Environment, Request};

use super::library::failed;
use super::{Comm, CommError, Replay};
use crate::perf::arguments::Options;
use crate::perf::buffers::Memory;
use crate::perf::failure::Failure;

/// What a buffer's start is a multiple of, on both sides.
const ALIGNMENT: usize = 4096;

/// One rank and its device.
pub struct DeviceRank {
    comm: Communicator,
    devices: DeviceCommunicator,
    device: Device,
    stream: Stream,
    registers: bool,
    twins: Mutex<Vec<Arc<Twin>>>,
}

/// A buffer's twin.
struct Twin {
    /// Where the buffer begins, and how long it is.
    start: usize,
    bytes: usize,
    memory: Mutex<DeviceVec<u8>>,
    address: u64,
}

/// A buffer that has a twin.
struct Buffer {
    storage: Vec<u8>,
    first: usize,
    bytes: usize,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[self.first..self.first + self.bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.first..self.first + self.bytes]
    }
}

fn told(error: impl std::fmt::Display) -> CommError {
    CommError::Failed(error.to_string())
}

/// Gives each rank of this process a device: those of the host by turns.
///
/// # Errors
///
/// There is no driver, no device, or the ranks don't come together.
pub fn attach(comms: Vec<Communicator>, options: &Options) -> Result<Vec<DeviceRank>, Failure> {
    let (registers, copy_engines) = (options.registered, options.copy_engines);
    let attach = |comm: &Communicator| {
        let start = |error: &dyn std::fmt::Display| Failure::Start(error.to_string());
        let count = Device::count().map_err(|error| start(&error))?;
        let device = Device::open(comm.local_rank() % count.max(1)).map_err(|error| start(&error))?;
        let environment = Environment::from_process();
        let mut how = AttachOptions::from_env(&environment).map_err(|error| start(&error))?;
        if copy_engines {
            // Whatever the length: what is measured is when they are worth while.
            how.copy_engines = Some(1);
        }
        let devices = comm.attach_with(Some(&device), &how).map_err(|error| start(&error))?;
        let stream = device.stream(Priority::Normal).map_err(|error| start(&error))?;
        Ok((devices, device, stream))
    };
    let attached: Vec<Result<_, Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> = comms.iter().map(|comm| scope.spawn(move || attach(comm))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(Failure::Internal("a rank panicked when it was given its device".into())))
        };
        threads.into_iter().map(join).collect()
    });
    let ranks = comms.into_iter().zip(attached).map(|(comm, attached)| {
        let (devices, device, stream) = attached?;
        Ok(DeviceRank { comm, devices, device, stream, registers, twins: Mutex::default() })
    });
    ranks.collect()
}

impl DeviceRank {
    fn twin(&self, buffer: &[u8]) -> Result<(Arc<Twin>, u64), CommError> {
        let start = buffer.as_ptr().addr();
        let twins = self.twins.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |twin: &&Arc<Twin>| twin.start <= start && start + buffer.len() <= twin.start + twin.bytes;
        let twin = twins.iter().find(holds).ok_or_else(|| told("a buffer has no twin on the device"))?;
        Ok((twin.clone(), twin.address + (start - twin.start) as u64))
    }

    /// Where a buffer of a call has its twin. A buffer of no length needs none.
    fn place(&self, buffer: &[u8]) -> Result<(u64, usize), CommError> {
        if buffer.is_empty() {
            return Ok((0, 0));
        }
        self.twin(buffer).map(|(_, address)| (address, buffer.len()))
    }

    fn placed<'r>(&self, request: Request<'r>) -> Result<Request<'r, DeviceBuffers>, CommError> {
        let Request { collective, data_type, op, root, source, count, buffers, counts } = request;
        let buffers = match buffers {
            Buffers::Separate { input, output } => {
                DeviceBuffers::Separate { input: self.place(input)?, output: self.place(output)? }
            }
            Buffers::InPlace(buffer) => DeviceBuffers::InPlace(self.place(buffer)?),
        };
        Ok(Request { collective, data_type, op, root, source, count, buffers, counts })
    }

    fn start(&self, requests: Vec<Request<'_>>) -> Result<(), CommError> {
        let requests = requests.into_iter().map(|request| self.placed(request)).collect::<Result<_, _>>()?;
        // SAFETY: twins live as long as this rank, which waits for its stream before it ends.
        unsafe { self.devices.on(&self.stream).run_all(requests) }.map(drop).map_err(failed)
    }
}

impl Drop for DeviceRank {
    fn drop(&mut self) {
        // What the stream still does with the twins.
        let _ = self.stream.synchronize(Instant::now() + self.comm.timeout());
    }
}

impl Comm for DeviceRank {
    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn size(&self) -> usize {
        self.comm.size()
    }

    fn local_rank(&self) -> usize {
        self.comm.local_rank()
    }

    fn local_size(&self) -> usize {
        self.comm.local_size()
    }

    fn host(&self, rank: usize) -> String {
        Comm::host(&self.comm, rank)
    }

    fn pid(&self, rank: usize) -> u32 {
        Comm::pid(&self.comm, rank)
    }

    fn link(&self, peer: usize) -> &'static str {
        match self.devices.is_direct() && peer != self.rank() {
            true => "cuda",
            false => Comm::link(&self.comm, peer),
        }
    }

    fn run(&self, request: Request<'_>) -> Result<(), CommError> {
        match &request.buffers {
            // What the tool tells the other ranks, beside what it measures.
            Buffers::InPlace(buffer) if !buffer.is_empty() && self.twin(buffer).is_err() => {
                self.comm.run(request).map_err(failed)
            }
            Buffers::Separate { input, output } if self.place(input).is_err() || self.place(output).is_err() => {
                self.comm.run(request).map_err(failed)
            }
            _ => self.start(vec![request]),
        }
    }

    fn run_group(&self, requests: Vec<Request<'_>>) -> Result<(), CommError> {
        self.start(requests)
    }

    fn barrier(&self) -> Result<(), CommError> {
        self.comm.barrier().map_err(failed)
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, CommError> {
        let storage = vec![0; bytes + ALIGNMENT];
        let first = storage.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let buffer = Buffer { storage, first, bytes };
        let memory = DeviceVec::zeroed(&self.device, bytes + ALIGNMENT).map_err(failed)?;
        if self.registers {
            // It stays registered until the rank ends.
            let _ = self.devices.register(&memory).map_err(failed)?;
        }
        let address = memory.address().next_multiple_of(ALIGNMENT as u64);
        let twin = Twin { start: buffer.as_ptr().addr(), bytes, memory: Mutex::new(memory), address };
        self.twins.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(twin));
        Ok(Box::new(buffer))
    }

    fn has_device(&self) -> bool {
        true
    }

    fn device(&self) -> Option<(usize, String)> {
        Some((self.device.ordinal(), format!("{} ({})", self.device.name(), self.device.pci_bus_id())))
    }

    fn finish(&self) -> Result<(), CommError> {
        let ended = self.stream.synchronize(Instant::now() + self.comm.timeout());
        self.devices.check().map_err(failed)?;
        ended.map_err(told)
    }

    fn upload(&self, buffer: &[u8]) -> Result<(), CommError> {
        self.finish()?;
        let (twin, address) = self.twin(buffer)?;
        let mut memory = twin.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (address - memory.address()) as usize;
        memory.write_at(at, buffer).map_err(failed)
    }

    fn download(&self, buffer: &mut [u8]) -> Result<(), CommError> {
        self.finish()?;
        let (twin, address) = self.twin(buffer)?;
        let memory = twin.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (address - memory.address()) as usize;
        memory.read_at(at, buffer).map_err(failed)
    }

    fn copy(&self, from: &[u8], to: &mut [u8]) -> Result<(), CommError> {
        let ((from, bytes), (to, _)) = (self.place(from)?, self.place(to)?);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both are parts of twins, which live as long as this rank.
        unsafe { self.stream.copy(to, from, bytes) }.map_err(told)
    }

    fn record<'a>(&'a self, calls: &mut dyn FnMut() -> Result<(), CommError>) -> Result<Replay<'a>, CommError> {
        self.finish()?;
        self.stream.begin_capture().map_err(told)?;
        let made = calls();
        let graph = self.stream.end_capture().map_err(told);
        made?;
        let mut graph = graph?;
        Ok(Box::new(move || graph.launch(&self.stream).map_err(told)))
    }

    fn abort(&self, reason: &str) {
        self.comm.abort(reason);
    }
}
