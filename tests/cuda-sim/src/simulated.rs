//! The software driver and NVRTC, as programs find them.

use std::ffi::{CStr, OsString, c_char};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;
use tempfile::TempDir;

/// A folder with `libcuda.so.1` and `libnvrtc.so` that are the software driver and NVRTC, and a machine of devices that are
/// none: what a program needs to find them.
///
/// ```no_run
/// use paceline_cuda_sim::Simulated;
///
/// let simulated = match Simulated::here() {
///     Ok(simulated) => simulated.devices(4).memory(64 << 20),
///     Err(reason) => return println!("skipped: {reason}"),
/// };
/// let output = simulated.command("target/debug/all_reduce_perf").arg("--help").output();
/// ```
///
/// The folder is removed when this is dropped.
pub struct Simulated {
    folder: TempDir,
    environment: Vec<(OsString, OsString)>,
}

/// The software driver in this process.
pub struct Loaded {
    races: unsafe extern "C" fn() -> u64,
    launches: unsafe extern "C" fn(*const c_char) -> u64,
}

impl Simulated {
    /// The libraries that cargo built beside this program, or why there are none: no C++ compiler, by which kernels are
    /// compiled. Two devices with 1 GiB each, that can do everything, unless the methods below say otherwise.
    ///
    /// # Errors
    ///
    /// A reason to say after `skipped: `.
    ///
    /// # Panics
    ///
    /// When cargo didn't build the libraries, or the folder can't be made.
    pub fn here() -> Result<Simulated, String> {
        paceline_cuda_nvrtc::compiler()?;
        let folder = tempfile::Builder::new().prefix("paceline-cuda-").tempdir().expect("a temporary folder");
        let link = |library: &str, names: &[&str]| {
            let library = built(library);
            for name in names {
                symlink(&library, folder.path().join(name)).expect("a link is made");
            }
        };
        link(paceline_cuda_driver::LIBRARY, &["libcuda.so", "libcuda.so.1"]);
        link(paceline_cuda_nvrtc::LIBRARY, &["libnvrtc.so", "libnvrtc.so.12"]);
        let mut paths: Vec<PathBuf> = vec![folder.path().to_owned()];
        paths.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
        let paths = std::env::join_paths(paths).expect("they were paths before");
        let cache = folder.path().join("kernels");
        let environment = vec![
            ("LD_LIBRARY_PATH".into(), paths),
            ("PACELINE_CACHE".into(), cache.into()),
            // A program may have loaded a real one, of another name, whose kernels are of no use here.
            ("PACELINE_NVRTC".into(), folder.path().join("libnvrtc.so").into()),
        ];
        Ok(Simulated { folder, environment })
    }

    /// The same with another value of an environment variable: `README.md` of the driver lists its own.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Simulated {
        let name = name.into();
        self.environment.retain(|(other, _)| *other != name);
        self.environment.push((name, value.into()));
        self
    }

    /// The same with `n` devices.
    #[must_use]
    pub fn devices(self, n: usize) -> Simulated {
        self.with("PACELINE_TEST_CUDA_DEVICES", n.to_string())
    }

    /// The same with devices of `bytes` bytes for each process.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Simulated {
        self.with("PACELINE_TEST_CUDA_MEMORY", bytes.to_string())
    }

    /// The same without sharing of memory and events between processes.
    #[must_use]
    pub fn without_ipc(self) -> Simulated {
        self.with("PACELINE_TEST_CUDA_NO_IPC", "1")
    }

    /// The same without access between devices.
    #[must_use]
    pub fn without_peers(self) -> Simulated {
        self.with("PACELINE_TEST_CUDA_NO_PEERS", "1")
    }

    /// The same without streams that wait for values in memory and write them.
    #[must_use]
    pub fn without_stream_memory(self) -> Simulated {
        self.with("PACELINE_TEST_CUDA_NO_STREAM_MEMORY", "1")
    }

    /// The same without memory that is allocated in a stream's order: cudarc's slices can then be shared between
    /// processes.
    #[must_use]
    pub fn without_pools(self) -> Simulated {
        self.with("PACELINE_TEST_CUDA_NO_POOLS", "1")
    }

    /// The same where each operation of a stream is delayed by up to twice `delay_us` microseconds, drawn from `seed`.
    #[must_use]
    pub fn delayed(self, delay_us: u64, seed: u64) -> Simulated {
        self.with("PACELINE_TEST_CUDA_DELAY_US", delay_us.to_string()).with("PACELINE_TEST_CUDA_SEED", seed.to_string())
    }

    /// What a program's environment must have.
    #[must_use]
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    /// The folder with the libraries.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command that runs `program` on the simulated machine.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// A command that runs one test of this test program again, alone and on the simulated machine.
    ///
    /// # Panics
    ///
    /// When the program doesn't know where it lies.
    pub fn test(&self, name: &str) -> Command {
        let mut command = self.command(std::env::current_exe().expect("a program knows where it lies"));
        command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
        command
    }

    /// Loads the driver and NVRTC into this process, for good: who looks for `libcuda.so` or `libnvrtc.so` from now on, as
    /// cudarc does when it is first used, gets them. The machine is then what this process's own environment says.
    ///
    /// # Errors
    ///
    /// As for [`here`](Simulated::here).
    ///
    /// # Panics
    ///
    /// When a library can't be loaded.
    pub fn load() -> Result<&'static Loaded, String> {
        static LOADED: OnceLock<Result<Loaded, String>> = OnceLock::new();
        let load = || {
            paceline_cuda_nvrtc::compiler()?;
            let library = |name: &str| -> &'static Library {
                // SAFETY: nothing runs when these libraries are loaded.
                let library = unsafe { Library::new(built(name)) };
                Box::leak(Box::new(library.expect("what cargo built can be loaded")))
            };
            library(paceline_cuda_nvrtc::LIBRARY);
            let driver = library(paceline_cuda_driver::LIBRARY);
            // SAFETY: the driver defines this function with these types.
            let races = *unsafe { driver.get("paceline_cuda_sim_races") }.expect("the driver counts races");
            // SAFETY: as above.
            let launches = *unsafe { driver.get("paceline_cuda_sim_launches") }.expect("the driver counts launches");
            Ok(Loaded { races, launches })
        };
        LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
    }
}

impl Loaded {
    /// How many races the driver saw in this process.
    #[must_use]
    pub fn races(&self) -> u64 {
        // SAFETY: the function may be called by anybody.
        unsafe { (self.races)() }
    }

    /// How often kernels have run in this process: the one of a name, or all.
    #[must_use]
    pub fn launches(&self, name: Option<&CStr>) -> u64 {
        // SAFETY: the function may be called by anybody, with a text or with null.
        unsafe { (self.launches)(name.map_or(std::ptr::null(), CStr::as_ptr)) }
    }
}

/// Where cargo put a library: beside this program or in `deps` there.
fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a program knows where it lies");
    let folders = program.ancestors().skip(1).take(2).flat_map(|folder| [folder.to_owned(), folder.join("deps")]);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not near {}: cargo build --workspace builds it", program.display()))
}
