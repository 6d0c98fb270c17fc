//! Modules, functions and launches.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use cudarc::driver::sys::{CUfunction_attribute_enum as Attribute, CUlaunchConfig};

use super::{api, put};
use crate::capture;
use crate::context::{current, stream};
use crate::device::{SHARED_PER_BLOCK_MAX, SHARED_PER_MULTIPROCESSOR, THREADS_PER_BLOCK, THREADS_PER_MULTIPROCESSOR};
use crate::error::{Code, Status, refuse};
use crate::module::{Grid, Launch, Module};
use crate::operation::Operation;

/// # Safety
///
/// An image begins at `image`.
unsafe fn load(image: *const c_void) -> Status<usize> {
    let (driver, context) = current()?;
    capture::refuse_unsafe(driver)?;
    // SAFETY: as the caller says.
    Ok(unsafe { Module::load(driver, context.handle, image)? }.handle)
}

/// # Safety
///
/// `parameters` is what the kernel takes.
unsafe fn launch(
    function: usize,
    grid: &Grid,
    handle: usize,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status {
    let (driver, stream) = stream(handle)?;
    let function = driver.functions.get(function)?;
    if function.context != stream.context.handle {
        let why = format_args!("{} was loaded in another context than the stream's", function.name);
        return refuse(Code::CUDA_ERROR_INVALID_HANDLE, why);
    }
    if !extra.is_null() {
        return refuse(Code::CUDA_ERROR_NOT_SUPPORTED, format_args!("{}: parameters by `extra`", function.name));
    }
    // SAFETY: as the caller says.
    let launch = unsafe { Launch::new(function, grid, parameters)? };
    stream.submit(driver, Operation::Launch(launch)).map(drop)
}

/// How many blocks of so many threads and so much shared memory a multiprocessor runs.
fn blocks(function: usize, threads: c_int, shared: usize) -> Status<c_int> {
    let (driver, _) = current()?;
    driver.functions.get(function)?;
    if !(1..=THREADS_PER_BLOCK as c_int).contains(&threads) {
        return Err(Code::CUDA_ERROR_INVALID_VALUE);
    }
    let by_threads = (THREADS_PER_MULTIPROCESSOR / threads).min(32);
    let by_shared = SHARED_PER_MULTIPROCESSOR.checked_div(shared).unwrap_or(usize::MAX);
    Ok(by_shared.min(by_threads as usize) as c_int)
}

api! {
    fn cuModuleLoadData(module: *mut usize, image: *const c_void) {
        put(module, load(image)?)
    }

    fn cuModuleLoadDataEx(
        module: *mut usize,
        image: *const c_void,
        _count: c_uint,
        _options: *mut c_uint,
        _values: *mut *mut c_void,
    ) {
        put(module, load(image)?)
    }

    fn cuModuleUnload(module: usize) {
        let (driver, _) = current()?;
        driver.modules.remove(module)?.unload(driver);
        Ok(())
    }

    fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) {
        let (driver, _) = current()?;
        let module = driver.modules.get(module)?;
        if name.is_null() {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        put(function, module.function(driver, CStr::from_ptr(name))?)
    }

    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: usize) {
        let (driver, _) = current()?;
        let function = driver.functions.get(function)?;
        let known = |known: Attribute| known as u32 == attribute;
        let answer = if known(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) {
            THREADS_PER_BLOCK as c_int
        } else if known(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
            function.shared_max.load(Ordering::Relaxed) as c_int
        } else if known(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS) {
            32
        } else if attribute < Attribute::CU_FUNC_ATTRIBUTE_MAX as u32 {
            0
        } else {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        };
        put(value, answer)
    }

    fn cuFuncSetAttribute(function: usize, attribute: c_uint, value: c_int) {
        let (driver, _) = current()?;
        let function = driver.functions.get(function)?;
        if attribute == Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32 {
            let bytes = usize::try_from(value).ok().filter(|bytes| *bytes <= SHARED_PER_BLOCK_MAX);
            function.shared_max.store(bytes.ok_or(Code::CUDA_ERROR_INVALID_VALUE)?, Ordering::Relaxed);
            return Ok(());
        }
        let is_hint = attribute == Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT as u32;
        if is_hint { Ok(()) } else { Err(Code::CUDA_ERROR_INVALID_VALUE) }
    }

    fn cuFuncSetCacheConfig(function: usize, _config: c_uint) {
        let (driver, _) = current()?;
        driver.functions.get(function).map(drop)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(count: *mut c_int, function: usize, threads: c_int, shared: usize) {
        put(count, blocks(function, threads, shared)?)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        count: *mut c_int,
        function: usize,
        threads: c_int,
        shared: usize,
        _flags: c_uint,
    ) {
        put(count, blocks(function, threads, shared)?)
    }

    fn cuLaunchKernel(
        function: usize,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        handle: usize,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let grid =
            Grid { blocks: [grid_x, grid_y, grid_z], threads: [block_x, block_y, block_z], shared: shared as usize };
        launch(function, &grid, handle, parameters, extra)
    }

    fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        function: usize,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let config = config.as_ref().ok_or(Code::CUDA_ERROR_INVALID_VALUE)?;
        let grid = Grid {
            blocks: [config.gridDimX, config.gridDimY, config.gridDimZ],
            threads: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared: config.sharedMemBytes as usize,
        };
        launch(function, &grid, config.hStream as usize, parameters, extra)
    }
}
