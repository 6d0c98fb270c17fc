//! What processes use of the machine.

use std::time::Duration;

/// The processor time that this process has used, in all its threads.
#[must_use]
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The memory in paceline's shared segments that these processes have touched, in bytes: each page counted once, however
/// many map it.
///
/// # Panics
///
/// If a process is gone.
#[must_use]
pub fn shared_memory_bytes(pids: &[u32]) -> u64 {
    let of_process = |pid: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("the process is there");
        let mut in_segment = false;
        let mut kilobytes = 0;
        for line in text.lines() {
            let first = line.split(' ').next().unwrap_or_default();
            if first.contains('-') {
                in_segment = line.contains("memfd:paceline");
            } else if in_segment && first == "Pss:" {
                let number = line.trim_start_matches("Pss:").trim_end_matches("kB").trim();
                kilobytes += number.parse::<u64>().expect("the kernel writes a number");
            }
        }
        kilobytes << 10
    };
    pids.iter().map(of_process).sum()
}
