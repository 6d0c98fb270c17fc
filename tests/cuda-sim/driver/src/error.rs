//! What calls return, and what is said on standard error when they fail in a way that is easy to get wrong.

use std::ffi::CStr;
use std::fmt;

pub use cudarc::driver::sys::CUresult as Code;

/// What a call came to, before it is a number.
pub type Status<T = ()> = Result<T, Code>;

/// The number that a call returns.
pub fn number(status: Status) -> Code {
    match status {
        Ok(()) => Code::CUDA_SUCCESS,
        Err(code) => code,
    }
}

/// Says on standard error what a number can't.
pub fn say(what: fmt::Arguments<'_>) {
    eprintln!("paceline-cuda-driver[{}]: {what}", std::process::id());
}

/// Fails with `code`, and says why.
pub fn refuse<T>(code: Code, why: fmt::Arguments<'_>) -> Status<T> {
    say(format_args!("{code:?}: {why}"));
    Err(code)
}

/// The name of a number, such as `CUDA_ERROR_INVALID_VALUE`, and what it means.
pub fn described(number: u32) -> Option<(&'static CStr, &'static CStr)> {
    TABLE.iter().find(|(code, ..)| *code as u32 == number).map(|(_, name, meaning)| (*name, *meaning))
}

macro_rules! table {
    ($($code:ident $meaning:literal),* $(,)?) => {
        /// Every number of this CUDA version.
        const TABLE: &[(Code, &CStr, &CStr)] = &[$((
            Code::$code,
            match CStr::from_bytes_with_nul(concat!(stringify!($code), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("no zero within"),
            },
            match CStr::from_bytes_with_nul(concat!($meaning, "\0").as_bytes()) {
                Ok(meaning) => meaning,
                Err(_) => panic!("no zero within"),
            },
        )),*];
    };
}

table! {
    CUDA_SUCCESS "no error",
    CUDA_ERROR_INVALID_VALUE "invalid argument",
    CUDA_ERROR_OUT_OF_MEMORY "out of memory",
    CUDA_ERROR_NOT_INITIALIZED "not initialized",
    CUDA_ERROR_DEINITIALIZED "deinitialized",
    CUDA_ERROR_PROFILER_DISABLED "profiler disabled",
    CUDA_ERROR_PROFILER_NOT_INITIALIZED "profiler not initialized",
    CUDA_ERROR_PROFILER_ALREADY_STARTED "profiler already started",
    CUDA_ERROR_PROFILER_ALREADY_STOPPED "profiler already stopped",
    CUDA_ERROR_STUB_LIBRARY "stub library",
    CUDA_ERROR_DEVICE_UNAVAILABLE "device unavailable",
    CUDA_ERROR_NO_DEVICE "no device",
    CUDA_ERROR_INVALID_DEVICE "invalid device",
    CUDA_ERROR_DEVICE_NOT_LICENSED "device not licensed",
    CUDA_ERROR_INVALID_IMAGE "invalid image",
    CUDA_ERROR_INVALID_CONTEXT "invalid device context",
    CUDA_ERROR_CONTEXT_ALREADY_CURRENT "context already current",
    CUDA_ERROR_MAP_FAILED "map failed",
    CUDA_ERROR_UNMAP_FAILED "unmap failed",
    CUDA_ERROR_ARRAY_IS_MAPPED "array is mapped",
    CUDA_ERROR_ALREADY_MAPPED "already mapped",
    CUDA_ERROR_NO_BINARY_FOR_GPU "no binary for gpu",
    CUDA_ERROR_ALREADY_ACQUIRED "already acquired",
    CUDA_ERROR_NOT_MAPPED "not mapped",
    CUDA_ERROR_NOT_MAPPED_AS_ARRAY "not mapped as array",
    CUDA_ERROR_NOT_MAPPED_AS_POINTER "not mapped as pointer",
    CUDA_ERROR_ECC_UNCORRECTABLE "ecc uncorrectable",
    CUDA_ERROR_UNSUPPORTED_LIMIT "unsupported limit",
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE "context already in use",
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED "peer access unsupported",
    CUDA_ERROR_INVALID_PTX "invalid ptx",
    CUDA_ERROR_INVALID_GRAPHICS_CONTEXT "invalid graphics context",
    CUDA_ERROR_NVLINK_UNCORRECTABLE "nvlink uncorrectable",
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND "jit compiler not found",
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION "unsupported ptx version",
    CUDA_ERROR_JIT_COMPILATION_DISABLED "jit compilation disabled",
    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY "unsupported exec affinity",
    CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC "unsupported devside sync",
    CUDA_ERROR_INVALID_SOURCE "invalid source",
    CUDA_ERROR_FILE_NOT_FOUND "file not found",
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND "shared object symbol not found",
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED "shared object init failed",
    CUDA_ERROR_OPERATING_SYSTEM "operating system",
    CUDA_ERROR_INVALID_HANDLE "invalid resource handle",
    CUDA_ERROR_ILLEGAL_STATE "illegal state",
    CUDA_ERROR_LOSSY_QUERY "lossy query",
    CUDA_ERROR_NOT_FOUND "not found",
    CUDA_ERROR_NOT_READY "device not ready",
    CUDA_ERROR_ILLEGAL_ADDRESS "an illegal memory access was encountered",
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES "launch out of resources",
    CUDA_ERROR_LAUNCH_TIMEOUT "launch timeout",
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING "launch incompatible texturing",
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED "peer access already enabled",
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED "peer access not enabled",
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE "primary context active",
    CUDA_ERROR_CONTEXT_IS_DESTROYED "context is destroyed",
    CUDA_ERROR_ASSERT "assert",
    CUDA_ERROR_TOO_MANY_PEERS "too many peers",
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED "host memory already registered",
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED "host memory not registered",
    CUDA_ERROR_HARDWARE_STACK_ERROR "hardware stack error",
    CUDA_ERROR_ILLEGAL_INSTRUCTION "illegal instruction",
    CUDA_ERROR_MISALIGNED_ADDRESS "misaligned address",
    CUDA_ERROR_INVALID_ADDRESS_SPACE "invalid address space",
    CUDA_ERROR_INVALID_PC "invalid pc",
    CUDA_ERROR_LAUNCH_FAILED "unspecified launch failure",
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE "cooperative launch too large",
    CUDA_ERROR_NOT_PERMITTED "not permitted",
    CUDA_ERROR_NOT_SUPPORTED "not supported",
    CUDA_ERROR_SYSTEM_NOT_READY "system not ready",
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH "system driver mismatch",
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE "compat not supported on device",
    CUDA_ERROR_MPS_CONNECTION_FAILED "mps connection failed",
    CUDA_ERROR_MPS_RPC_FAILURE "mps rpc failure",
    CUDA_ERROR_MPS_SERVER_NOT_READY "mps server not ready",
    CUDA_ERROR_MPS_MAX_CLIENTS_REACHED "mps max clients reached",
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED "mps max connections reached",
    CUDA_ERROR_MPS_CLIENT_TERMINATED "mps client terminated",
    CUDA_ERROR_CDP_NOT_SUPPORTED "cdp not supported",
    CUDA_ERROR_CDP_VERSION_MISMATCH "cdp version mismatch",
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED "not permitted while a stream is capturing",
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED "the capture was invalidated by an earlier error",
    CUDA_ERROR_STREAM_CAPTURE_MERGE "stream capture merge",
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED "the capture did not begin in this stream",
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED "the capture has streams that were not joined to the first",
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION "a dependency would cross the border of the capture",
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT "the legacy stream would depend on a capturing stream",
    CUDA_ERROR_CAPTURED_EVENT "the event was last recorded in a capturing stream",
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD "the capture began in another thread",
    CUDA_ERROR_TIMEOUT "timeout",
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE "graph exec update failure",
    CUDA_ERROR_EXTERNAL_DEVICE "external device",
    CUDA_ERROR_INVALID_CLUSTER_SIZE "invalid cluster size",
    CUDA_ERROR_FUNCTION_NOT_LOADED "function not loaded",
    CUDA_ERROR_INVALID_RESOURCE_TYPE "invalid resource type",
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION "invalid resource configuration",
    CUDA_ERROR_UNKNOWN "unknown",
}
