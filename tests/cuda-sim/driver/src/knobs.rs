//! What the environment says of the machine that is simulated. `README.md` lists the variables.

use std::env;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// The simulated machine, and what goes wrong on it.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// How many devices there are.
    pub devices: usize,
    /// Each device's memory for this process, in bytes.
    pub memory: u64,
    /// The compute capability of all devices: major, minor.
    pub capability: (i32, i32),
    /// Whether memory and events can be shared between processes.
    pub has_ipc: bool,
    /// Whether devices can access each other.
    pub has_peers: bool,
    /// Whether streams can wait for values in memory, and write them.
    pub has_stream_memory: bool,
    /// Whether memory can be allocated in a stream's order.
    pub has_pools: bool,
    /// How long a stream waits before each operation: up to twice this.
    pub delay: Duration,
    /// What the delays are drawn from.
    pub seed: u64,
    /// The allocation of memory on a device that fails, from 1.
    pub failing_allocation: Option<u64>,
    /// The launch of a kernel that fails, from 1.
    pub failing_launch: Option<u64>,
}

impl Knobs {
    /// What the environment says.
    ///
    /// # Panics
    ///
    /// When a variable means nothing.
    pub fn of_environment() -> Knobs {
        let lacks = |name| number::<u32>(name, 0) != 0;
        Knobs {
            devices: visible(number("PACELINE_TEST_CUDA_DEVICES", 2)),
            memory: number("PACELINE_TEST_CUDA_MEMORY", 1 << 30),
            capability: capability(),
            has_ipc: !lacks("PACELINE_TEST_CUDA_NO_IPC"),
            has_peers: !lacks("PACELINE_TEST_CUDA_NO_PEERS"),
            has_stream_memory: !lacks("PACELINE_TEST_CUDA_NO_STREAM_MEMORY"),
            has_pools: !lacks("PACELINE_TEST_CUDA_NO_POOLS"),
            delay: Duration::from_micros(number("PACELINE_TEST_CUDA_DELAY_US", 0)),
            seed: number("PACELINE_TEST_CUDA_SEED", 1),
            failing_allocation: Some(number("PACELINE_TEST_CUDA_FAIL_ALLOCATION", 0)).filter(|nth| *nth > 0),
            failing_launch: Some(number("PACELINE_TEST_CUDA_FAIL_LAUNCH", 0)).filter(|nth| *nth > 0),
        }
    }

    /// How long operation `nth` of stream `stream` is delayed: the same in every run with this seed.
    pub fn delay_of(&self, stream: u64, nth: u64) -> Duration {
        if self.delay.is_zero() {
            return Duration::ZERO;
        }
        let drawn = mix(self.seed ^ mix(stream) ^ mix(nth).rotate_left(17));
        self.delay.mul_f64(2.0 * (drawn >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// The finalizer of splitmix64: every bit of the input changes about half of the output's.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn number<T: FromStr<Err: Display>>(name: &str, otherwise: T) -> T {
    match env::var(name) {
        Ok(text) if !text.is_empty() => {
            text.parse().unwrap_or_else(|error| panic!("{name}={text} is not a number that it can be: {error}"))
        }
        _ => otherwise,
    }
}

/// How many of `devices` devices `CUDA_VISIBLE_DEVICES` leaves: a list of the first ones in order, or `-1` for none.
fn visible(devices: usize) -> usize {
    let Ok(listed) = env::var("CUDA_VISIBLE_DEVICES") else { return devices };
    let numbers: Vec<usize> = listed.split(',').map_while(|name| name.trim().parse().ok()).collect();
    let is_known = numbers.iter().enumerate().all(|(at, number)| at == *number);
    assert!(is_known, "CUDA_VISIBLE_DEVICES={listed}: the software driver can only leave out the last devices");
    devices.min(numbers.len())
}

fn capability() -> (i32, i32) {
    let text = env::var("PACELINE_TEST_CUDA_CAPABILITY").unwrap_or_default();
    let text = if text.is_empty() { "9.0" } else { &text };
    let parts = text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parts.unwrap_or_else(|| panic!("PACELINE_TEST_CUDA_CAPABILITY={text} is not a compute capability, such as 9.0"))
}
