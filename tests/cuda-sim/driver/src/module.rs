//! Modules: kernels that were built for the host, loaded, and launched.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use libloading::Library;

use crate::device::{SHARED_PER_BLOCK, THREADS_PER_BLOCK};
use crate::driver::Driver;
use crate::error::{Code, Status, refuse, say};
use crate::fault::Guard;
use crate::handle::lock;
use crate::mapping::shared_file;

/// What `paceline_cuda_nvrtc` defines for each kernel: its argument, the blocks and the threads of each. Returns how many
/// addresses were misaligned.
pub type Entry = unsafe extern "C" fn(*const c_void, u32, u32) -> usize;

/// The longest argument of a kernel, in bytes.
const ARGUMENT_MAX: usize = 4096;

/// A loaded module.
pub struct Module {
    pub handle: usize,
    pub context: usize,
    library: Library,
    /// What it was loaded from.
    _file: OwnedFd,
    /// The functions that were asked for.
    functions: Mutex<BTreeMap<String, usize>>,
}

/// A kernel.
pub struct Function {
    pub name: String,
    pub context: usize,
    entry: Entry,
    argument_bytes: usize,
    guard: Guard,
    /// The most shared memory, in bytes, that a launch may ask for.
    pub shared_max: AtomicUsize,
    /// What it is in.
    _module: Arc<Module>,
}

/// One launch of a kernel.
#[derive(Clone)]
pub struct Launch {
    function: Arc<Function>,
    /// A copy of the argument, as aligned as any is.
    argument: Arc<[u128]>,
    blocks: u32,
    threads: u32,
}

/// The length of the image that begins at `image`.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_PTX`, `CUDA_ERROR_NO_BINARY_FOR_GPU`: it is no library for this processor.
///
/// # Safety
///
/// An image begins there: an ELF file, or text that ends with a zero.
unsafe fn image_bytes(image: *const u8) -> Status<usize> {
    // SAFETY: what isn't ELF ends with a zero, at which the comparison ends.
    let is_elf = b"\x7fELF".iter().enumerate().all(|(at, byte)| unsafe { *image.add(at) } == *byte);
    if !is_elf {
        return refuse(
            Code::CUDA_ERROR_INVALID_PTX,
            format_args!("this is the software driver: it runs what the software NVRTC compiled, and no PTX"),
        );
    }
    // SAFETY: an ELF file has a header of 64 bytes.
    let header = unsafe { std::slice::from_raw_parts(image, 64) };
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let machine = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    if half(16) != 3 || half(18) != machine {
        return refuse(
            Code::CUDA_ERROR_NO_BINARY_FOR_GPU,
            format_args!("this is the software driver: it runs what the software NVRTC compiled, and no code for GPUs"),
        );
    }
    let sections = u64::from_le_bytes(header[40..48].try_into().expect("8 bytes")) as usize;
    // Linkers put the table of sections last.
    Ok(sections + usize::from(half(58)) * usize::from(half(60)))
}

impl Module {
    /// Loads the image that begins at `image`.
    ///
    /// # Safety
    ///
    /// An image begins there: an ELF file, or text that ends with a zero.
    pub unsafe fn load(driver: &Driver, context: usize, image: *const c_void) -> Status<Arc<Module>> {
        if image.is_null() {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller gives an image.
        let bytes = unsafe {
            let bytes = image_bytes(image.cast())?;
            std::slice::from_raw_parts(image.cast::<u8>(), bytes)
        };
        let (library, file) =
            load(bytes).or_else(|why| refuse(Code::CUDA_ERROR_INVALID_IMAGE, format_args!("{why}")))?;
        if let Some(needs) = constant(&library, "paceline_architecture") {
            let (major, minor) = driver.knobs.capability;
            if needs > (major * 10 + minor) as usize {
                let why = format_args!("the kernel is for sm_{needs}, the device is sm_{major}{minor}");
                return refuse(Code::CUDA_ERROR_NO_BINARY_FOR_GPU, why);
            }
        }
        Ok(driver.modules.insert(|handle| Module {
            handle,
            context,
            library,
            _file: file,
            functions: Mutex::default(),
        }))
    }

    /// The handle of the kernel with this name.
    pub fn function(self: &Arc<Module>, driver: &Driver, name: &CStr) -> Status<usize> {
        let name = name.to_string_lossy().into_owned();
        let mut functions = lock(&self.functions);
        if let Some(handle) = functions.get(&name) {
            return Ok(*handle);
        }
        // SAFETY: the software NVRTC defines functions of this name with these arguments.
        let entry = unsafe { self.library.get::<Entry>(format!("launch_{name}")) };
        let Ok(entry) = entry.map(|entry| *entry) else {
            return refuse(Code::CUDA_ERROR_NOT_FOUND, format_args!("the module has no kernel {name}"));
        };
        let argument_bytes = constant(&self.library, &format!("size_{name}")).unwrap_or(ARGUMENT_MAX);
        if argument_bytes > ARGUMENT_MAX {
            return refuse(Code::CUDA_ERROR_INVALID_IMAGE, format_args!("{name} takes {argument_bytes} bytes"));
        }
        let context = self.context;
        let guard = Guard::of(&self.library)
            .ok_or(Code::CUDA_ERROR_INVALID_IMAGE)
            .or_else(|code| refuse(code, format_args!("the module lacks what ends its launches")))?;
        let mut given = 0;
        driver.functions.insert(|handle| {
            given = handle;
            let shared_max = AtomicUsize::new(SHARED_PER_BLOCK);
            Function { name: name.clone(), context, entry, argument_bytes, guard, shared_max, _module: self.clone() }
        });
        functions.insert(name, given);
        Ok(given)
    }

    /// Forgets its functions.
    pub fn unload(&self, driver: &Driver) {
        for handle in lock(&self.functions).values() {
            let _ = driver.functions.remove(*handle);
        }
    }
}

/// Loads a library that lies in memory.
fn load(bytes: &[u8]) -> Result<(Library, OwnedFd), String> {
    let file = shared_file("paceline-cuda-module", 0).map_err(|error| error.to_string())?;
    // The loader may keep a library for ever, and knows it by its name: each has another way to its file.
    static LOADED: AtomicU64 = AtomicU64::new(0);
    let number = LOADED.fetch_add(1, Ordering::Relaxed);
    let way: String = (0..24).map(|bit| if number >> bit & 1 == 1 { "/." } else { "/" }).collect();
    let path = format!("/proc/self{way}/fd/{}", file.as_raw_fd());
    std::fs::File::from(file.try_clone().map_err(|error| error.to_string())?)
        .write_all(bytes)
        .map_err(|error| error.to_string())?;
    // SAFETY: nothing runs when what the software NVRTC made is loaded.
    let library = unsafe { Library::new(&path) }.map_err(|error| error.to_string())?;
    Ok((library, file))
}

/// A number that a library defines.
fn constant(library: &Library, name: &str) -> Option<usize> {
    // SAFETY: the software NVRTC defines numbers of these names with this type.
    unsafe { library.get::<*const usize>(name).ok().map(|number| **number) }
}

/// How often each kernel has run in this process.
static LAUNCHED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// How often kernels have run in this process: the one of a name, or all.
pub fn launches(name: Option<&str>) -> u64 {
    let launched = lock(&LAUNCHED);
    name.map_or_else(|| launched.values().sum(), |name| launched.get(name).copied().unwrap_or(0))
}

/// What a launch is given.
pub struct Grid {
    pub blocks: [u32; 3],
    pub threads: [u32; 3],
    pub shared: usize,
}

impl Launch {
    /// # Errors
    ///
    /// What a GPU's driver refuses, and grids and blocks of more than one dimension.
    ///
    /// # Safety
    ///
    /// `parameters` has one pointer, to the kernel's argument.
    pub unsafe fn new(function: Arc<Function>, grid: &Grid, parameters: *mut *mut c_void) -> Status<Launch> {
        let Grid { blocks: [blocks, y, z], threads: [threads, thread_y, thread_z], shared } = *grid;
        if [blocks, y, z, threads, thread_y, thread_z].contains(&0) || blocks > i32::MAX as u32 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        if threads > THREADS_PER_BLOCK {
            return refuse(
                Code::CUDA_ERROR_INVALID_VALUE,
                format_args!("{}: {threads} threads in a block", function.name),
            );
        }
        if [y, z, thread_y, thread_z] != [1; 4] {
            let why = format_args!("{}: the software driver runs grids and blocks of one dimension", function.name);
            return refuse(Code::CUDA_ERROR_NOT_SUPPORTED, why);
        }
        let most = function.shared_max.load(Ordering::Relaxed);
        if shared > most {
            let why = format_args!("{}: {shared} bytes of shared memory, and {most} are permitted", function.name);
            return refuse(Code::CUDA_ERROR_INVALID_VALUE, why);
        }
        if parameters.is_null() {
            return refuse(Code::CUDA_ERROR_INVALID_VALUE, format_args!("{}: no parameters", function.name));
        }
        let mut argument = vec![0u128; function.argument_bytes.div_ceil(16)];
        // SAFETY: the caller gives a pointer to an argument that is as long as the kernel's.
        unsafe {
            let given = *parameters;
            if given.is_null() {
                return Err(Code::CUDA_ERROR_INVALID_VALUE);
            }
            std::ptr::copy_nonoverlapping(given.cast::<u8>(), argument.as_mut_ptr().cast(), function.argument_bytes);
        }
        Ok(Launch { function, argument: argument.into(), blocks, threads })
    }

    /// # Errors
    ///
    /// What ends the context.
    pub fn run(&self, driver: &Driver) -> Status {
        static LAUNCHES: AtomicU64 = AtomicU64::new(0);
        let nth = LAUNCHES.fetch_add(1, Ordering::Relaxed) + 1;
        let name = &self.function.name;
        *lock(&LAUNCHED).entry(name.clone()).or_default() += 1;
        if driver.knobs.failing_launch == Some(nth) {
            return refuse(Code::CUDA_ERROR_LAUNCH_FAILED, format_args!("{name}: launch {nth} is meant to fail"));
        }
        let argument = self.argument.as_ptr().cast();
        // SAFETY: the argument is the kernel's; what it says of memory is its caller's promise.
        let run = || unsafe { self.function.guard.run(self.function.entry, argument, self.blocks, self.threads) };
        let misaligned = run().or_else(|address| {
            let history = driver.memory.history(address);
            let why = format_args!("{name} accesses {address:#x}, which is not its to access{history}");
            refuse(Code::CUDA_ERROR_ILLEGAL_ADDRESS, why)
        })?;
        if misaligned > 0 {
            say(format_args!("{name}: {misaligned} misaligned accesses"));
            return Err(Code::CUDA_ERROR_MISALIGNED_ADDRESS);
        }
        Ok(())
    }
}
