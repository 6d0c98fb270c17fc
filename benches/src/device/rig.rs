//! One device, its stream and two events: copies and launches of reductions, timed by the device.

use std::path::Path;
use std::time::{Duration, Instant};

use paceline_comm::device::{Architecture, Arguments, Kernel, source};
use paceline_transport::cuda::{
    Compiler, CompilerError, CudaError, Device, DeviceMemory, Event, Function, HostMemory, Priority, Shape, Stream,
};

use super::PATIENCE;

/// What PTX may be compiled for where the compiler doesn't know the device.
const OLDER: [Architecture; 3] = [Architecture::new(9, 0), Architecture::new(8, 0), Architecture::new(7, 0)];

pub(super) struct Rig {
    pub(super) device: Device,
    stream: Stream,
    events: [Event; 2],
}

/// An array's place: so many bytes of memory.
pub(super) enum Array<'a> {
    Device(&'a DeviceMemory),
    Host(&'a HostMemory),
}

impl Array<'_> {
    fn address(&self) -> u64 {
        match self {
            Array::Device(memory) => memory.address(),
            Array::Host(memory) => memory.device_address(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Array::Device(memory) => memory.bytes(),
            Array::Host(memory) => memory.bytes(),
        }
    }
}

pub(super) fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Rig {
    pub(super) fn new(device: Device) -> Result<Rig, CudaError> {
        let stream = device.stream(Priority::Normal)?;
        let events = [Event::with_timing(&device)?, Event::with_timing(&device)?];
        Ok(Rig { device, stream, events })
    }

    /// The kernel that folds arrays, compiled and loaded.
    pub(super) fn reduction(&self, kernel: Kernel) -> Result<Function, String> {
        let named = std::env::var_os("PACELINE_NVRTC");
        let compiler = Compiler::find(named.as_ref().map(Path::new)).map_err(told)?;
        let (major, minor) = self.device.architecture();
        let own = Architecture::new(major, minor);
        let mut refusal = None;
        for architecture in [own].into_iter().chain(OLDER.into_iter().filter(|older| *older < own)) {
            let source = source(kernel, architecture);
            match compiler.compile(source.text, &source.name, &source.options) {
                Ok(compiled) => {
                    let image = if architecture == own { compiled.cubin } else { compiled.ptx };
                    return self.device.load(&image).and_then(|module| module.function(&source.name)).map_err(told);
                }
                Err(error @ CompilerError::InvalidOption { .. }) => refusal = refusal.or(Some(error)),
                Err(error) => return Err(error.to_string()),
            }
        }
        Err(refusal.map_or_else(|| "no architecture".to_owned(), told))
    }

    /// Puts a copy of all bytes into the stream.
    pub(super) fn copy(&self, target: &Array<'_>, source: &Array<'_>) -> Result<(), String> {
        assert_eq!(target.bytes(), source.bytes(), "a copy is of the whole array");
        // SAFETY: both are so long, and are lent by callers that wait for the stream: `timed` does, and drops wait for it.
        unsafe { self.stream.copy(target.address(), source.address(), source.bytes()) }.map_err(told)
    }

    /// Puts a fold of whole arrays into the stream.
    pub(super) fn fold(
        &self,
        kernel: &Function,
        blocks: u32,
        target: &DeviceMemory,
        sources: &[DeviceMemory],
        element_bytes: usize,
    ) -> Result<(), String> {
        assert!(sources.iter().all(|source| source.bytes() == target.bytes()), "arrays are of one length");
        let addresses: Vec<u64> = sources.iter().map(DeviceMemory::address).collect();
        let arguments = Arguments::new(target.address(), &addresses, (target.bytes() / element_bytes) as u64);
        // SAFETY: plain numbers without padding between them.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const arguments).cast::<u8>(), size_of::<Arguments>()) };
        let shape = Shape { blocks, threads: Kernel::THREADS_MAX, shared_bytes: 0 };
        // SAFETY: the argument is the kernel's, and the arrays are as long as it says and lent as in `copy`.
        unsafe { self.stream.launch(kernel, shape, bytes) }.map_err(told)
    }

    /// How long the device takes for what is put into the stream, once.
    pub(super) fn timed(&self, work: impl FnOnce() -> Result<(), String>) -> Result<Duration, String> {
        let [start, end] = &self.events;
        self.stream.record(start).map_err(told)?;
        work()?;
        self.stream.record(end).map_err(told)?;
        end.synchronize(Instant::now() + PATIENCE).map_err(told)?;
        start.elapsed(end).map_err(told)
    }
}
