//! The driver itself: its start, its version, and what its numbers mean.

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::{api, put};
use crate::driver::initialise;
use crate::error::{Code, described};
use crate::{module, race};

/// No version that NVIDIA's driver has, so that nothing compiled for one is taken for the other's.
pub const VERSION: c_int = 12_990;

api! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        initialise()
    }

    fn cuDriverGetVersion(version: *mut c_int) {
        put(version, VERSION)
    }

    fn cuGetErrorName(error: u32, text: *mut *const c_char) {
        let (name, _) = described(error).ok_or(Code::CUDA_ERROR_INVALID_VALUE)?;
        put(text, name.as_ptr())
    }

    fn cuGetErrorString(error: u32, text: *mut *const c_char) {
        let (_, meaning) = described(error).ok_or(Code::CUDA_ERROR_INVALID_VALUE)?;
        put(text, meaning.as_ptr())
    }

    fn cuProfilerStart() {
        Ok(())
    }

    fn cuProfilerStop() {
        Ok(())
    }
}

/// How many races were seen in this process.
#[unsafe(no_mangle)]
extern "C" fn paceline_cuda_sim_races() -> u64 {
    race::count()
}

/// How often kernels have run in this process: the one of that name, or all where there is none.
///
/// # Safety
///
/// A text begins at `name`, or it is null.
#[unsafe(no_mangle)]
unsafe extern "C" fn paceline_cuda_sim_launches(name: *const c_char) -> u64 {
    // SAFETY: as the caller says.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy());
    module::launches(name.as_deref())
}
