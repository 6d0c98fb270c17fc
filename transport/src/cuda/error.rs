//! What can go wrong with the driver, and what to check then.

#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

/// Something that the CUDA driver couldn't do, or that it must not be asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CudaError {
    /// There is no driver that could be used.
    #[error("no CUDA driver: {reason}; {hint}")]
    NoDriver {
        /// What is missing.
        reason: String,
        /// What to check.
        hint: &'static str,
    },
    /// A call of the driver has failed, or has told of an earlier failure.
    #[error(transparent)]
    Call(#[from] Box<FailedCall>),
    /// The device hasn't got so far in time.
    #[error(
        "{what} on CUDA device {device}: not done after {waited:.1?}; something before it waits or is still running"
    )]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// The number of the device.
        device: usize,
        /// How long.
        waited: Duration,
    },
    /// The caller has asked for what the driver can't do, and it wasn't called.
    #[error("{what}: {reason}")]
    Refused {
        /// What was to be done.
        what: &'static str,
        /// Why it can't be, and what to do instead.
        reason: String,
    },
    /// This process was forked from the one that opened the device; the driver works in neither of its objects.
    #[error(
        "CUDA device {device} was opened before this process was forked, and can't be used in a forked process: start \
         processes anew (spawn), or fork before CUDA is used"
    )]
    Forked {
        /// The number of the device.
        device: usize,
    },
}

/// A call of the driver that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedCall {
    /// The function, as NVIDIA's documentation names it.
    pub call: &'static str,
    /// The number of the device that it was for.
    pub device: Option<usize>,
    /// The driver's code.
    pub code: u32,
    /// The code's name, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
    /// What the driver says of the code.
    pub text: String,
    /// Numbers and names that belong to this call.
    pub detail: Option<String>,
}

/// The driver's codes that are told apart here.
pub(super) struct Code;

impl Code {
    pub(super) const SUCCESS: u32 = 0;
    pub(super) const INVALID_VALUE: u32 = 1;
    pub(super) const OUT_OF_MEMORY: u32 = 2;
    const NOT_INITIALIZED: u32 = 3;
    const DEINITIALIZED: u32 = 4;
    const STUB_LIBRARY: u32 = 34;
    const DEVICE_UNAVAILABLE: u32 = 46;
    const NO_DEVICE: u32 = 100;
    const INVALID_DEVICE: u32 = 101;
    const INVALID_IMAGE: u32 = 200;
    pub(super) const INVALID_CONTEXT: u32 = 201;
    const MAP_FAILED: u32 = 205;
    const ALREADY_MAPPED: u32 = 208;
    const NO_BINARY_FOR_GPU: u32 = 209;
    const ECC_UNCORRECTABLE: u32 = 214;
    const PEER_ACCESS_UNSUPPORTED: u32 = 217;
    const INVALID_PTX: u32 = 218;
    const NVLINK_UNCORRECTABLE: u32 = 220;
    const JIT_COMPILER_NOT_FOUND: u32 = 221;
    const UNSUPPORTED_PTX_VERSION: u32 = 222;
    const JIT_COMPILATION_DISABLED: u32 = 223;
    const CONTAINED: u32 = 226;
    const INVALID_SOURCE: u32 = 300;
    const OPERATING_SYSTEM: u32 = 304;
    const INVALID_HANDLE: u32 = 400;
    const NOT_FOUND: u32 = 500;
    pub(super) const NOT_READY: u32 = 600;
    const ILLEGAL_ADDRESS: u32 = 700;
    const LAUNCH_OUT_OF_RESOURCES: u32 = 701;
    const LAUNCH_TIMEOUT: u32 = 702;
    pub(super) const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    const PEER_ACCESS_NOT_ENABLED: u32 = 705;
    const CONTEXT_IS_DESTROYED: u32 = 709;
    const ASSERT: u32 = 710;
    const TOO_MANY_PEERS: u32 = 711;
    const HARDWARE_STACK_ERROR: u32 = 714;
    const LAUNCH_FAILED: u32 = 719;
    const TENSOR_MEMORY_LEAK: u32 = 721;
    const NOT_PERMITTED: u32 = 800;
    const NOT_SUPPORTED: u32 = 801;
    const SYSTEM_NOT_READY: u32 = 802;
    const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    const COMPAT_NOT_SUPPORTED_ON_DEVICE: u32 = 804;
    const MPS_CONNECTION_FAILED: u32 = 805;
    const MPS_CLIENT_TERMINATED: u32 = 810;
    const STREAM_CAPTURE_UNSUPPORTED: u32 = 900;
    const STREAM_CAPTURE_IMPLICIT: u32 = 906;
    const CAPTURED_EVENT: u32 = 907;
    const STREAM_CAPTURE_WRONG_THREAD: u32 = 908;

    /// Whether the code says that its context can't be used any more.
    fn is_fatal(code: u32) -> bool {
        let fatal = [
            Code::DEINITIALIZED,
            Code::ECC_UNCORRECTABLE,
            Code::NVLINK_UNCORRECTABLE,
            Code::CONTAINED,
            Code::ILLEGAL_ADDRESS,
            Code::LAUNCH_TIMEOUT,
            Code::CONTEXT_IS_DESTROYED,
            Code::ASSERT,
            Code::TENSOR_MEMORY_LEAK,
            Code::MPS_CLIENT_TERMINATED,
        ];
        // Between these two are what a kernel's instructions may do wrong.
        fatal.contains(&code) || (Code::HARDWARE_STACK_ERROR..=Code::LAUNCH_FAILED).contains(&code)
    }

    /// What to check, by the code and, for codes with several meanings, by the call.
    fn hint(code: u32, call: &str) -> Option<&'static str> {
        let is_ipc = call.starts_with("cuIpc");
        Some(match code {
            Code::INVALID_VALUE if call == "cuIpcGetMemHandle" => IPC_EXPORT,
            Code::NOT_SUPPORTED if is_ipc => IPC_UNSUPPORTED,
            Code::INVALID_CONTEXT if is_ipc => {
                "the process that exported a handle can't open it: use the address itself there"
            }
            Code::INVALID_VALUE
            | Code::MAP_FAILED
            | Code::ALREADY_MAPPED
            | Code::INVALID_HANDLE
            | Code::INVALID_DEVICE
            | Code::OPERATING_SYSTEM
            | Code::NOT_PERMITTED
            | Code::OUT_OF_MEMORY
                if is_ipc =>
            {
                IPC_OPEN
            }
            Code::OUT_OF_MEMORY if call == "cuMemHostAlloc" => {
                "pinned memory is the host's: look at its free memory and at the container's memory limit"
            }
            Code::OUT_OF_MEMORY => {
                "`nvidia-smi` shows who uses the memory; frameworks keep what they once had (in PyTorch, \
                 `torch.cuda.empty_cache()` gives it back)"
            }
            Code::NOT_INITIALIZED => {
                "CUDA was used before this process was forked, which it doesn't survive: start processes anew (spawn), or fork \
                 first"
            }
            Code::DEINITIALIZED => "the process is ending, and the driver has gone before",
            Code::STUB_LIBRARY => {
                "this libcuda is the toolkit's stub for linking: take its folder (`.../lib64/stubs`) out of LD_LIBRARY_PATH, so \
                 that the driver's own library is found"
            }
            Code::DEVICE_UNAVAILABLE => {
                "another process has the device for itself: look at its compute mode (`nvidia-smi -q -d COMPUTE`)"
            }
            Code::NO_DEVICE => {
                "look at `nvidia-smi` and CUDA_VISIBLE_DEVICES; a container needs `--gpus`; without a GPU use `--device cpu`"
            }
            Code::INVALID_DEVICE => "devices are numbered from 0, and CUDA_VISIBLE_DEVICES takes some away",
            Code::INVALID_IMAGE | Code::NO_BINARY_FOR_GPU | Code::INVALID_SOURCE | Code::INVALID_PTX => {
                "the code wasn't compiled for this GPU, or is damaged: compile it for the device's architecture (for kept \
                 kernels, empty the cache's folder)"
            }
            Code::UNSUPPORTED_PTX_VERSION => {
                "the compiler is newer than the driver: install a newer driver, or compile with an older NVRTC"
            }
            Code::JIT_COMPILER_NOT_FOUND | Code::JIT_COMPILATION_DISABLED => {
                "the driver can't compile PTX here: a container needs libnvidia-ptxjitcompiler.so.1 (the driver capability \
                 `compute`), and CUDA_DISABLE_PTX_JIT must not be set"
            }
            Code::NOT_FOUND if call == "cuModuleGetFunction" => "the code has no kernel of this name",
            Code::PEER_ACCESS_UNSUPPORTED | Code::PEER_ACCESS_NOT_ENABLED => {
                "the devices can't reach each other's memory: `nvidia-smi topo -p2p r` shows which can; virtual machines, MIG and \
                 some boards can't"
            }
            Code::TOO_MANY_PEERS => "the hardware lets a device reach only some others at a time",
            Code::LAUNCH_OUT_OF_RESOURCES => {
                "fewer threads in a block, or a kernel that uses fewer registers, will start"
            }
            Code::LAUNCH_TIMEOUT => "the context is lost: a kernel ran longer than the display's watchdog allows",
            Code::ECC_UNCORRECTABLE | Code::NVLINK_UNCORRECTABLE | Code::CONTAINED => {
                "the context is lost to a fault of the hardware: `nvidia-smi -q` and `dmesg` (Xid) say which; start the process \
                 anew, and reset the device if it happens again"
            }
            Code::MPS_CONNECTION_FAILED => {
                "MPS's daemon isn't reached: look at CUDA_MPS_PIPE_DIRECTORY and `nvidia-cuda-mps-control`"
            }
            Code::NOT_SUPPORTED if call.contains("Value32") => {
                "the device has no stream memory operations here (MPS before Volta, some virtual machines)"
            }
            Code::SYSTEM_NOT_READY => "on systems with NVSwitch, `nvidia-fabricmanager` must run",
            Code::SYSTEM_DRIVER_MISMATCH => {
                "the kernel's driver and libcuda are of different versions: after an update restart the host or the container"
            }
            Code::COMPAT_NOT_SUPPORTED_ON_DEVICE => {
                "this device allows no forward compatibility: take the `compat` folder out of LD_LIBRARY_PATH"
            }
            Code::STREAM_CAPTURE_UNSUPPORTED..=Code::STREAM_CAPTURE_IMPLICIT | Code::STREAM_CAPTURE_WRONG_THREAD => {
                "a stream is being captured into a graph, where this isn't allowed: do it before or after"
            }
            Code::CAPTURED_EVENT => "the event belongs to a graph: it can't be asked or waited for outside of it",
            _ if Code::is_fatal(code) => {
                "the context is lost, and every later call in this process fails alike: a kernel before this call used an \
                 address that isn't its own (`compute-sanitizer` finds which); start the process anew"
            }
            _ => return None,
        })
    }
}

const IPC_EXPORT: &str = "only memory of cuMemAlloc (cudaMalloc) can be given to other processes, not that of stream-ordered \
    pools (cudaMallocAsync) or of virtual memory management (PyTorch: unset `expandable_segments:True` in \
    PYTORCH_CUDA_ALLOC_CONF)";
const IPC_OPEN: &str = "the other process must still run and hold its memory, on this host, and both must see each other: \
    containers need `--ipc=host` and `--pid=host`, or be one; devices or MIG slices that this process doesn't see \
    (CUDA_VISIBLE_DEVICES) can't be reached";
const IPC_UNSUPPORTED: &str =
    "this device or system has no CUDA IPC (Jetson, WSL, some MIG and virtual machine set-ups)";
const INSTALL: &str = "install NVIDIA's driver (its libcuda.so.1 must be in the loader's path; a container needs `--gpus`), or use \
    `--device cpu`";
const UPDATE: &str = "the driver is too old: paceline needs one for CUDA 12.0 or newer (525 on Linux); update it, or use \
    `--device cpu`";

impl CudaError {
    pub(super) fn no_driver(reason: String) -> CudaError {
        let hint = if reason.contains("no function") { UPDATE } else { INSTALL };
        CudaError::NoDriver { reason, hint }
    }

    pub(super) fn refused(what: &'static str, reason: impl Into<String>) -> CudaError {
        CudaError::Refused { what, reason: reason.into() }
    }

    /// Adds numbers or names to a failed call.
    pub(super) fn with(mut self, detail: impl FnOnce() -> String) -> CudaError {
        if let CudaError::Call(failed) = &mut self {
            failed.detail = Some(detail());
        }
        self
    }

    /// The driver's code, if a call of it failed.
    #[must_use]
    pub fn code(&self) -> Option<u32> {
        match self {
            CudaError::Call(failed) => Some(failed.code),
            _ => None,
        }
    }

    /// Whether the device's context is lost: every later call for it in this process fails, and what the device had is gone.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.code().is_some_and(Code::is_fatal)
    }

    /// Whether there is no driver or no device, so that tests and programs may go on without.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        matches!(self, CudaError::NoDriver { .. }) || matches!(self.code(), Some(Code::NO_DEVICE | Code::STUB_LIBRARY))
    }

    /// What to check, where this is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            CudaError::NoDriver { hint, .. } => Some(hint),
            CudaError::Call(failed) => failed.hint(),
            _ => None,
        }
    }
}

impl From<FailedCall> for CudaError {
    fn from(failed: FailedCall) -> CudaError {
        CudaError::Call(Box::new(failed))
    }
}

impl FailedCall {
    pub(super) fn new(
        call: &'static str,
        device: Option<usize>,
        code: u32,
        name: Option<String>,
        text: Option<String>,
    ) -> FailedCall {
        let name = name.unwrap_or_else(|| format!("code {code}"));
        FailedCall {
            call,
            device,
            code,
            name,
            text: text.unwrap_or_else(|| "an unknown code".to_owned()),
            detail: None,
        }
    }

    /// What to check, where this is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Code::hint(self.code, self.call)
    }
}

impl fmt::Display for FailedCall {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.call)?;
        if let Some(device) = self.device {
            write!(out, " on CUDA device {device}")?;
        }
        write!(out, ": {} ({}, {})", self.name, self.code, self.text)?;
        if let Some(detail) = &self.detail {
            write!(out, ": {detail}")?;
        }
        if let Some(hint) = self.hint() {
            write!(out, "; {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for FailedCall {}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(call: &'static str, code: u32) -> CudaError {
        FailedCall::new(call, Some(3), code, Some("CUDA_ERROR_X".to_owned()), Some("it failed".to_owned())).into()
    }

    #[test]
    fn errors_say_what_to_check() {
        for (call, code, expected) in [
            ("cuMemAlloc", 2, "nvidia-smi"),
            ("cuMemHostAlloc", 2, "container's memory limit"),
            ("cuIpcGetMemHandle", 1, "expandable_segments"),
            ("cuIpcOpenMemHandle", 1, "--ipc=host"),
            ("cuIpcOpenMemHandle", 201, "the address itself"),
            ("cuIpcGetMemHandle", 801, "no CUDA IPC"),
            ("cuInit", 100, "--device cpu"),
            ("cuInit", 34, "stub"),
            ("cuInit", 803, "different versions"),
            ("cuDeviceGetCount", 3, "spawn"),
            ("cuDeviceGet", 101, "CUDA_VISIBLE_DEVICES"),
            ("cuModuleLoadData", 209, "architecture"),
            ("cuModuleLoadData", 222, "older NVRTC"),
            ("cuModuleGetFunction", 500, "no kernel of this name"),
            ("cuCtxEnablePeerAccess", 217, "topo -p2p"),
            ("cuLaunchKernel", 719, "context is lost"),
            ("cuStreamQuery", 700, "context is lost"),
            ("cuStreamWaitValue32", 801, "stream memory operations"),
            ("cuStreamQuery", 900, "captured"),
        ] {
            let text = failed(call, code).to_string();
            assert!(text.contains(expected), "{call} {code}: {text}");
            assert!(text.starts_with(&format!("{call} on CUDA device 3: CUDA_ERROR_X ({code}, it failed)")), "{text}");
        }
        assert_eq!(
            failed("cuStreamCreate", 1).to_string(),
            "cuStreamCreate on CUDA device 3: CUDA_ERROR_X (1, it failed)"
        );
        let detailed = failed("cuMemAlloc", 2).with(|| "asked for 5 bytes, 3 of 4 are free".to_owned()).to_string();
        assert!(detailed.contains("it failed): asked for 5 bytes, 3 of 4 are free; "), "{detailed}");
    }

    #[test]
    fn a_lost_context_is_told_from_other_failures() {
        for code in [214, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719] {
            assert!(failed("cuStreamQuery", code).is_fatal(), "{code}");
            assert!(failed("cuStreamQuery", code).to_string().contains("context is lost") || code == 4, "{code}");
        }
        for code in [1, 2, 100, 201, 217, 600, 701, 704, 713, 720, 800, 801, 900, 999] {
            assert!(!failed("cuStreamQuery", code).is_fatal(), "{code}");
        }
        assert!(!CudaError::Forked { device: 0 }.is_fatal());
    }

    #[test]
    fn a_missing_driver_and_an_old_one_have_different_hints() {
        let missing = CudaError::no_driver("libcuda.so.1 was not found".to_owned());
        assert!(missing.is_absence() && missing.to_string().contains("install NVIDIA's driver"), "{missing}");
        let old = CudaError::no_driver("the driver's library has no function cuX".to_owned());
        assert!(old.is_absence() && old.to_string().contains("too old"), "{old}");
        assert!(failed("cuInit", 100).is_absence() && !failed("cuInit", 2).is_absence());
    }

    #[test]
    fn a_code_that_the_driver_does_not_know_is_told_as_a_number() {
        let unknown = CudaError::from(FailedCall::new("cuInit", None, 4711, None, None));
        assert_eq!(unknown.to_string(), "cuInit: code 4711 (4711, an unknown code)");
        assert_eq!(unknown.code(), Some(4711));
    }
}
