//! All that this process has of the simulated machine, from `cuInit` on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use crate::capture::Capture;
use crate::clock::Clock;
use crate::context::Context;
use crate::device::Device;
use crate::error::{Code, Status};
use crate::event::Event;
use crate::graph::{Executable, Graph};
use crate::handle::Table;
use crate::knobs::Knobs;
use crate::memory::Memory;
use crate::module::{Function, Module};
use crate::stream::Stream;

/// The one of this process.
pub struct Driver {
    pub knobs: Knobs,
    pub devices: Vec<Device>,
    pub contexts: Table<Context>,
    pub streams: Table<Stream>,
    pub events: Table<Event>,
    pub modules: Table<Module>,
    pub functions: Table<Function>,
    pub graphs: Table<Graph>,
    pub executables: Table<Executable>,
    pub memory: Memory,
    /// Captures that have begun and not ended.
    pub captures: Mutex<Vec<Arc<Capture>>>,
    /// Held while an operation gets its place, so that all agree on what came before what.
    pub issue: Mutex<()>,
    pub order: Order,
}

/// What is known to have happened, for whom clocks can't be followed.
#[derive(Default)]
pub struct Order {
    /// What the host has waited for, or was told by a host function or a value in its memory.
    pub host: Mutex<Clock>,
    /// What came before the values at these addresses.
    pub values: Mutex<BTreeMap<u64, Clock>>,
    /// What came before anything that another process or a kernel may have seen.
    pub outward: Mutex<Clock>,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// The driver.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_INITIALIZED` before `cuInit`.
pub fn driver() -> Status<&'static Driver> {
    DRIVER.get().ok_or(Code::CUDA_ERROR_NOT_INITIALIZED)
}

/// `cuInit`: reads the environment, once.
///
/// # Errors
///
/// `CUDA_ERROR_NO_DEVICE`.
pub fn initialise() -> Status {
    let driver = DRIVER.get_or_init(|| {
        let knobs = Knobs::of_environment();
        Driver {
            devices: (0..knobs.devices).map(|ordinal| Device::new(ordinal, &knobs)).collect(),
            memory: Memory::new(),
            knobs,
            contexts: Table::new(),
            streams: Table::new(),
            events: Table::new(),
            modules: Table::new(),
            functions: Table::new(),
            graphs: Table::new(),
            executables: Table::new(),
            captures: Mutex::new(Vec::new()),
            issue: Mutex::new(()),
            order: Order::default(),
        }
    });
    if driver.devices.is_empty() { Err(Code::CUDA_ERROR_NO_DEVICE) } else { Ok(()) }
}

impl Driver {
    /// The device with this number.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_DEVICE`.
    pub fn device(&self, ordinal: i32) -> Status<&Device> {
        let ordinal = usize::try_from(ordinal).map_err(|_| Code::CUDA_ERROR_INVALID_DEVICE)?;
        self.devices.get(ordinal).ok_or(Code::CUDA_ERROR_INVALID_DEVICE)
    }
}
