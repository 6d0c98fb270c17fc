//! One device by itself: what its memory does, and the reductions against that.

use std::time::Duration;

use half::{bf16, f16};
use paceline_comm::device::Kernel;
use paceline_comm::{DataType, ReduceOp};
use paceline_transport::cuda::{Device, DeviceMemory, Function, HostMemory};

use super::Sizes;
use super::rig::{Array, Rig, told};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalCell {
    /// A copy within the device's memory.
    Copy,
    /// A copy to pinned memory of the host.
    ToHost,
    /// A copy from there.
    FromHost,
    /// A sum of so many arrays into another.
    Sum(DataType, usize),
}

const TYPES: [DataType; 3] = [DataType::F32, DataType::Bf16, DataType::F16];
const SOURCES_MAX: usize = 8;
/// Blocks for each multiprocessor; the quickest is taken.
const BLOCKS: [u32; 5] = [1, 2, 4, 8, 16];
/// How many bytes of an array are written by the host; the rest repeats them.
const PATTERN_BYTES: usize = 64 << 10;

impl LocalCell {
    /// All cells, in the order of their numbers. Before the rounds comes the number of blocks for each multiprocessor that was
    /// the quickest for each sum.
    #[must_use]
    pub fn all() -> Vec<LocalCell> {
        let sums =
            TYPES.iter().flat_map(|data_type| (2..=SOURCES_MAX).map(|sources| LocalCell::Sum(*data_type, sources)));
        [LocalCell::Copy, LocalCell::ToHost, LocalCell::FromHost].into_iter().chain(sums).collect()
    }

    /// The bytes that are read and written for arrays of `array` bytes; of copies from and to the host, those that pass.
    #[must_use]
    pub fn moved(self, array: usize) -> usize {
        match self {
            LocalCell::Copy => 2 * array,
            LocalCell::ToHost | LocalCell::FromHost => array,
            LocalCell::Sum(_, sources) => (sources + 1) * array,
        }
    }
}

impl std::fmt::Display for LocalCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LocalCell::Copy => write!(f, "copy within the device"),
            LocalCell::ToHost => write!(f, "copy to the host"),
            LocalCell::FromHost => write!(f, "copy from the host"),
            LocalCell::Sum(data_type, sources) => write!(f, "sum of {sources} arrays of {data_type}"),
        }
    }
}

struct Bench {
    rig: Rig,
    arrays: Vec<DeviceMemory>,
    target: DeviceMemory,
    pinned: HostMemory,
    kernels: Vec<Function>,
}

/// Measures the first device: the worker of [`super::Part::Local`].
///
/// # Errors
///
/// The device refuses something, or a sum is wrong.
pub fn local(sizes: &Sizes) -> Result<(), String> {
    // It doesn't outlive the program that started it.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let rig = Rig::new(Device::open(0).map_err(told)?).map_err(told)?;
    let array = sizes.array();
    let allocate = || rig.device.allocate(array).map_err(told);
    let arrays = (0..SOURCES_MAX).map(|_| allocate()).collect::<Result<Vec<_>, _>>()?;
    let (target, pinned) = (allocate()?, rig.device.pinned(array).map_err(told)?);
    let kernel = |data_type: &DataType| rig.reduction(Kernel::Reduce(*data_type, ReduceOp::Sum));
    let kernels = TYPES.iter().map(kernel).collect::<Result<Vec<_>, _>>()?;
    let mut bench = Bench { rig, arrays, target, pinned, kernels };
    let cells = LocalCell::all();
    let mut runs = Vec::new();
    for cell in &cells {
        runs.push(bench.prepare(*cell, sizes)?);
    }
    for ((blocks, _), cell) in runs.iter().zip(&cells) {
        if matches!(cell, LocalCell::Sum(..)) {
            println!("time {blocks}");
        }
    }
    for _ in 0..sizes.rounds() {
        for (cell, (blocks, iterations)) in cells.iter().zip(&runs) {
            let took = bench.time(*cell, *blocks, *iterations)?;
            println!("time {:.4}", 1e6 * took.as_secs_f64() / *iterations as f64);
        }
    }
    Ok(())
}

impl Bench {
    /// The blocks for each multiprocessor, and how often a cell is run for a number. Checks a sum's result.
    fn prepare(&mut self, cell: LocalCell, sizes: &Sizes) -> Result<(u32, usize), String> {
        let LocalCell::Sum(data_type, sources) = cell else {
            self.time(cell, 0, 1)?;
            return Ok((0, sizes.iterations(self.time(cell, 0, 1)?)));
        };
        if sources == 2 {
            for (source, array) in self.arrays.iter().enumerate() {
                fill(array, &pattern(data_type, |at| at % 7 + source))?;
            }
        }
        let mut quickest = (Duration::MAX, BLOCKS[0]);
        for blocks in BLOCKS {
            self.time(cell, blocks, 1)?;
            quickest = quickest.min((self.time(cell, blocks, 3)? / 3, blocks));
        }
        let offsets: usize = (0..sources).sum();
        let want = pattern(data_type, |at| at % 7 * sources + offsets);
        let (bytes, mut got) = (self.target.bytes(), vec![0; want.len()]);
        for at in [0, (bytes - 1) / want.len() * want.len()] {
            let len = want.len().min(bytes - at);
            self.target.read(at, &mut got[..len]).map_err(told)?;
            if got[..len] != want[..len] {
                return Err(format!("the {cell} is wrong after byte {at}"));
            }
        }
        Ok((quickest.1, sizes.iterations(quickest.0)))
    }

    fn time(&self, cell: LocalCell, blocks: u32, iterations: usize) -> Result<Duration, String> {
        let Bench { rig, arrays, target, pinned, kernels } = self;
        let grid = blocks * rig.device.multiprocessors();
        rig.timed(|| {
            (0..iterations).try_for_each(|_| match cell {
                LocalCell::Copy => rig.copy(&Array::Device(target), &Array::Device(&arrays[0])),
                LocalCell::ToHost => rig.copy(&Array::Host(pinned), &Array::Device(&arrays[0])),
                LocalCell::FromHost => rig.copy(&Array::Device(target), &Array::Host(pinned)),
                LocalCell::Sum(data_type, sources) => {
                    let at = TYPES.iter().position(|known| *known == data_type).expect("one of the types");
                    rig.fold(&kernels[at], grid, target, &arrays[..sources], data_type.size())
                }
            })
        })
    }
}

/// Elements whose values are small numbers, which all types can add exactly.
fn pattern(data_type: DataType, value: impl Fn(usize) -> usize) -> Vec<u8> {
    let values = (0..PATTERN_BYTES / data_type.size()).map(|at| value(at) as f32);
    match data_type {
        DataType::Bf16 => values.flat_map(|value| bf16::from_f32(value).to_ne_bytes()).collect(),
        DataType::F16 => values.flat_map(|value| f16::from_f32(value).to_ne_bytes()).collect(),
        _ => values.flat_map(f32::to_ne_bytes).collect(),
    }
}

/// Writes a pattern again and again.
fn fill(array: &DeviceMemory, pattern: &[u8]) -> Result<(), String> {
    let piece = pattern.repeat((8 << 20usize).min(array.bytes()).div_ceil(pattern.len()));
    for at in (0..array.bytes()).step_by(piece.len()) {
        array.write(at, &piece[..piece.len().min(array.bytes() - at)]).map_err(told)?;
    }
    Ok(())
}
