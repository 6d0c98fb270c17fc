//! Where suites run: on a simulated machine, or on this one with its GPUs.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use paceline_comm::cuda::Device;
use paceline_tests::is_asked_for;

use crate::Simulated;

/// Whether suites are to run on the real driver: with the feature `gpu-tests`, or `PACELINE_TEST_CUDA=1`.
#[must_use]
pub fn is_on_gpus() -> bool {
    cfg!(feature = "gpu-tests") || is_asked_for("PACELINE_TEST_CUDA")
}

/// Numbers of processes that share a device in tests.
#[must_use]
pub fn jobs() -> &'static [usize] {
    if is_on_gpus() || is_asked_for("PACELINE_FULL") { &[2, 4, 8] } else { &[2, 4] }
}

/// One job at a time, on GPUs: ranks wait for each other within kernels, so that all their blocks must run at once, and a GPU
/// has room for those of one job.
pub fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    is_on_gpus().then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Where the processes of a test find devices.
pub enum Machine {
    /// Those of the software driver.
    Simulated(Simulated),
    /// The first so many that there are, as `CUDA_VISIBLE_DEVICES` names them.
    Real {
        /// How many.
        devices: usize,
        /// Their names.
        visible: String,
    },
}

impl Machine {
    /// All devices of this machine; two simulated ones unless suites are to run on GPUs. Without them, says that the test is
    /// skipped.
    ///
    /// # Panics
    ///
    /// When there is no driver, or no device, and suites are to run on them.
    #[must_use]
    pub fn here() -> Option<Machine> {
        if is_on_gpus() { Some(Machine::real(count())) } else { Machine::simulated("", |machine| machine) }
    }

    /// As [`Machine::here`], with `n` devices; where there are fewer the test is skipped.
    ///
    /// # Panics
    ///
    /// As of [`Machine::here`].
    #[must_use]
    pub fn with_devices(n: usize) -> Option<Machine> {
        if !is_on_gpus() {
            return Machine::simulated("", |machine| machine.devices(n));
        }
        let there = count();
        if there < n {
            println!("skipped: {n} devices are needed, there are {there}");
            return None;
        }
        Some(Machine::real(n))
    }

    /// A simulated machine of another shape; on GPUs the test is skipped, because they can't be made to be `like` that.
    #[must_use]
    pub fn simulated(like: &str, shape: impl FnOnce(Simulated) -> Simulated) -> Option<Machine> {
        if is_on_gpus() {
            println!("skipped: only the software driver can be made to be {like}");
            return None;
        }
        let simulated = Simulated::here().map_err(|reason| println!("skipped: {reason}")).ok()?;
        Some(Machine::Simulated(shape(simulated)))
    }

    fn real(devices: usize) -> Machine {
        let named = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
        let names = named.split(',').filter(|name| !name.is_empty()).map(str::to_owned);
        let names = names.chain((0..devices).filter(|_| named.is_empty()).map(|ordinal| ordinal.to_string()));
        let visible: Vec<String> = names.take(devices).collect();
        // No device has this number: all are hidden.
        let visible = if visible.is_empty() { "-1".to_owned() } else { visible.join(",") };
        Machine::Real { devices, visible }
    }

    /// How many devices a process finds; of a simulated machine, if it wasn't given another number, two.
    #[must_use]
    pub fn devices(&self) -> usize {
        match self {
            Machine::Simulated(_) => 2,
            Machine::Real { devices, .. } => *devices,
        }
    }

    /// A command that runs `program` there.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match self {
            Machine::Simulated(simulated) => simulated.command(program),
            Machine::Real { visible, .. } => {
                let mut command = Command::new(program);
                command.env("CUDA_VISIBLE_DEVICES", visible).env("CUDA_DEVICE_MAX_CONNECTIONS", "32");
                command
            }
        }
    }

    /// A command that runs one test of this test program again, alone and there.
    ///
    /// # Panics
    ///
    /// When the program doesn't know where it lies.
    pub fn test(&self, name: &str) -> Command {
        let mut command = self.command(std::env::current_exe().expect("a program knows where it lies"));
        command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
        command
    }
}

/// The devices of the real driver.
fn count() -> usize {
    Device::count().unwrap_or_else(|error| panic!("suites are to run on GPUs: {error}"))
}
