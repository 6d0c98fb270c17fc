//! Devices: what they are called, what they can do, and how much memory of theirs this process has.

use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;

use crate::error::{Code, Status, refuse};
use crate::knobs::Knobs;

/// One device.
pub struct Device {
    pub ordinal: usize,
    /// Its memory for this process, in bytes.
    pub memory: u64,
    used: AtomicU64,
}

/// How many threads a multiprocessor runs, and how many a block may have.
pub const THREADS_PER_MULTIPROCESSOR: i32 = 2048;
pub const THREADS_PER_BLOCK: u32 = 1024;
/// The shared memory of a multiprocessor and of a block in bytes, unless more is asked for, and the most.
pub const SHARED_PER_MULTIPROCESSOR: usize = 228 << 10;
pub const SHARED_PER_BLOCK: usize = 48 << 10;
pub const SHARED_PER_BLOCK_MAX: usize = 227 << 10;
/// Few, because threads run one after the other.
const MULTIPROCESSORS: i32 = 4;

impl Device {
    pub fn new(ordinal: usize, knobs: &Knobs) -> Device {
        Device { ordinal, memory: knobs.memory, used: AtomicU64::new(0) }
    }

    pub fn name(&self) -> String {
        "paceline software device".to_owned()
    }

    /// The same in all processes of a host.
    pub fn uuid(&self) -> [u8; 16] {
        let mut uuid = *b"paceline-soft-00";
        uuid[15] = self.ordinal as u8;
        uuid
    }

    pub fn bus(&self) -> String {
        format!("0000:{:02x}:00.0", self.ordinal + 1)
    }

    /// Bytes that nobody has.
    pub fn free(&self) -> u64 {
        self.memory - self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes` of its memory.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn take(&self, bytes: u64) -> Status {
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.memory);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .map(drop)
            .map_err(|_| Code::CUDA_ERROR_OUT_OF_MEMORY)
    }

    pub fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What `cuDeviceGetAttribute` answers. What is not known here is 0.
    pub fn attribute(&self, attribute: u32, knobs: &Knobs) -> Status<i32> {
        let stream_memory = i32::from(knobs.has_stream_memory);
        let table = [
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, THREADS_PER_BLOCK as i32),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, THREADS_PER_BLOCK as i32),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, THREADS_PER_BLOCK as i32),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, i32::MAX),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65_535),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65_535),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED_PER_BLOCK as i32),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, SHARED_PER_BLOCK_MAX as i32),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, SHARED_PER_MULTIPROCESSOR as i32),
            (Attribute::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 1 << 16),
            (Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 1 << 16),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 1 << 16),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32),
            (Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, THREADS_PER_MULTIPROCESSOR),
            (Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, MULTIPROCESSORS),
            (Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1_000_000),
            (Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1_000_000),
            (Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64),
            (Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20),
            (Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512),
            (Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2),
            (Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, self.ordinal as i32 + 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, knobs.capability.0),
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, knobs.capability.1),
            (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1),
            (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, stream_memory),
            (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, stream_memory),
            (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, stream_memory),
            (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, stream_memory),
            (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, stream_memory),
            (Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, i32::from(knobs.has_pools)),
            (Attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, i32::from(knobs.has_ipc)),
        ];
        if attribute == 0 || attribute >= Attribute::CU_DEVICE_ATTRIBUTE_MAX as u32 {
            return refuse(Code::CUDA_ERROR_INVALID_VALUE, format_args!("there is no device attribute {attribute}"));
        }
        Ok(table.iter().find(|(known, _)| *known as u32 == attribute).map_or(0, |(_, value)| *value))
    }
}
