//! The driver's functions, looked up at run time, so that a program starts where there is no driver and can say so.
//!
//! The library is the one that `cudarc` loads, and the types are its types. The functions are looked up here and not called
//! through it for two reasons: it panics where a driver lacks a function, and its results are a Rust enum, in which a newer
//! driver's code would be undefined behaviour. Here all must be there before the first is called, and a result is a number.

#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys as ffi;
use ffi::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream};

use super::error::{Code, CudaError, FailedCall};

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*);)*) => {
        /// The functions that this crate calls, by their names in the library.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl Functions {
            fn find() -> Result<Functions, String> {
                // SAFETY: the driver library's initializers have no conditions.
                if !unsafe { ffi::is_culib_present() } {
                    return Err("libcuda.so.1 was not found".to_owned());
                }
                // SAFETY: as above; it has been found, so this doesn't panic, and it is never unloaded.
                let library = unsafe { ffi::culib() };
                Ok(Functions {
                    $($name: {
                        // SAFETY: the signatures are those of the library's header, with the bindings' types; a result is a
                        // C enum without negative values, which is passed as this number is.
                        let found = unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> u32>(stringify!($name).as_bytes()) };
                        *found.map_err(|_| concat!("the driver's library has no function ", stringify!($name)).to_owned())?
                    },)*
                })
            }
        }
    };
}

functions! {
    cuInit: fn(c_uint);
    cuGetErrorName: fn(u32, *mut *const c_char);
    cuGetErrorString: fn(u32, *mut *const c_char);
    cuDriverGetVersion: fn(*mut c_int);
    cuDeviceGetCount: fn(*mut c_int);
    cuDeviceGet: fn(*mut CUdevice, c_int);
    cuDeviceGetName: fn(*mut c_char, c_int, CUdevice);
    cuDeviceGetUuid_v2: fn(*mut ffi::CUuuid, CUdevice);
    cuDeviceGetPCIBusId: fn(*mut c_char, c_int, CUdevice);
    cuDeviceGetAttribute: fn(*mut c_int, u32, CUdevice);
    cuDeviceTotalMem_v2: fn(*mut usize, CUdevice);
    cuDevicePrimaryCtxGetState: fn(CUdevice, *mut c_uint, *mut c_int);
    cuDevicePrimaryCtxRetain: fn(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2: fn(CUdevice);
    cuDeviceCanAccessPeer: fn(*mut c_int, CUdevice, CUdevice);
    cuCtxEnablePeerAccess: fn(CUcontext, c_uint);
    cuCtxGetCurrent: fn(*mut CUcontext);
    cuCtxPushCurrent_v2: fn(CUcontext);
    cuCtxPopCurrent_v2: fn(*mut CUcontext);
    cuCtxGetStreamPriorityRange: fn(*mut c_int, *mut c_int);
    cuThreadExchangeStreamCaptureMode: fn(*mut u32);
    cuMemGetInfo_v2: fn(*mut usize, *mut usize);
    cuMemAlloc_v2: fn(*mut CUdeviceptr, usize);
    cuMemFree_v2: fn(CUdeviceptr);
    cuMemsetD8Async: fn(CUdeviceptr, u8, usize, CUstream);
    cuMemcpyAsync: fn(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemcpyHtoDAsync_v2: fn(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync_v2: fn(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemHostAlloc: fn(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost: fn(*mut c_void);
    cuMemHostGetDevicePointer_v2: fn(*mut CUdeviceptr, *mut c_void, c_uint);
    cuMemGetAddressRange_v2: fn(*mut CUdeviceptr, *mut usize, CUdeviceptr);
    cuPointerGetAttribute: fn(*mut c_void, u32, CUdeviceptr);
    cuIpcGetMemHandle: fn(*mut ffi::CUipcMemHandle, CUdeviceptr);
    cuIpcOpenMemHandle_v2: fn(*mut CUdeviceptr, ffi::CUipcMemHandle, c_uint);
    cuIpcCloseMemHandle: fn(CUdeviceptr);
    cuIpcGetEventHandle: fn(*mut ffi::CUipcEventHandle, CUevent);
    cuIpcOpenEventHandle: fn(*mut CUevent, ffi::CUipcEventHandle);
    cuStreamCreateWithPriority: fn(*mut CUstream, c_uint, c_int);
    cuStreamDestroy_v2: fn(CUstream);
    cuStreamQuery: fn(CUstream);
    cuStreamIsCapturing: fn(CUstream, *mut u32);
    cuStreamBeginCapture_v2: fn(CUstream, u32);
    cuStreamEndCapture: fn(CUstream, *mut CUgraph);
    cuStreamWaitEvent: fn(CUstream, CUevent, c_uint);
    cuStreamWaitValue32_v2: fn(CUstream, CUdeviceptr, u32, c_uint);
    cuStreamWriteValue32_v2: fn(CUstream, CUdeviceptr, u32, c_uint);
    cuEventCreate: fn(*mut CUevent, c_uint);
    cuEventDestroy_v2: fn(CUevent);
    cuEventRecord: fn(CUevent, CUstream);
    cuEventQuery: fn(CUevent);
    cuEventElapsedTime: fn(*mut f32, CUevent, CUevent);
    cuModuleLoadData: fn(*mut CUmodule, *const c_void);
    cuModuleUnload: fn(CUmodule);
    cuModuleGetFunction: fn(*mut CUfunction, CUmodule, *const c_char);
    cuLaunchKernel: fn(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void
    );
    cuLaunchHostFunc: fn(CUstream, ffi::CUhostFn, *mut c_void);
    cuGraphInstantiateWithFlags: fn(*mut CUgraphExec, CUgraph, u64);
    cuGraphLaunch: fn(CUgraphExec, CUstream);
    cuGraphExecDestroy: fn(CUgraphExec);
    cuGraphDestroy: fn(CUgraph);
}

/// The driver, loaded and initialized once in this process, and never unloaded.
///
/// # Errors
/// [`CudaError::NoDriver`] where the library or one of its functions is missing, and what `cuInit` says. What was found
/// stays found: a driver that is installed later counts in new processes only.
pub(super) fn functions() -> Result<&'static Functions, CudaError> {
    static LOADED: OnceLock<Result<Functions, CudaError>> = OnceLock::new();
    let load = || {
        let functions = Functions::find().map_err(CudaError::no_driver)?;
        // SAFETY: may be called at any time, with 0.
        let code = unsafe { (functions.cuInit)(0) };
        functions.check("cuInit", None, code).map(|()| functions)
    };
    LOADED.get_or_init(load).as_ref().map_err(CudaError::clone)
}

impl Functions {
    /// What became of a call on the device with this number.
    pub(super) fn check(&self, call: &'static str, device: Option<usize>, code: u32) -> Result<(), CudaError> {
        if code == Code::SUCCESS {
            return Ok(());
        }
        let name = self.text(self.cuGetErrorName, code);
        let text = self.text(self.cuGetErrorString, code);
        Err(FailedCall::new(call, device, code, name, text).into())
    }

    fn text(&self, says: unsafe extern "C" fn(u32, *mut *const c_char) -> u32, code: u32) -> Option<String> {
        let mut text = std::ptr::null();
        // SAFETY: the driver writes a pointer to a text of its own that stays, or null for a code that it doesn't know.
        unsafe {
            let known = says(code, &raw mut text) == Code::SUCCESS && !text.is_null();
            known.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }

    /// The newest version of CUDA that the driver supports, 1000 for each major and 10 for each minor version.
    pub(super) fn version(&self) -> Result<u32, CudaError> {
        let mut version = 0;
        // SAFETY: the driver writes one number.
        self.check("cuDriverGetVersion", None, unsafe { (self.cuDriverGetVersion)(&raw mut version) })?;
        Ok(u32::try_from(version).unwrap_or(0))
    }
}
