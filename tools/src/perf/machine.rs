//! What the tools ask of the machine: free memory, the processor's name, the time of day.

use std::fs::read_to_string;

/// Bytes that this process may still take: what the host has free, or what its control group allows, if less.
#[must_use]
pub fn available_memory() -> Option<u64> {
    let host = read_to_string("/proc/meminfo").ok().and_then(|text| meminfo(&text));
    let number = |path: &str| read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let group = |limit: &str, used: &str| Some(number(limit)?.saturating_sub(number(used)?));
    let second = group("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current");
    let first = group("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes");
    [host, second, first].into_iter().flatten().min()
}

fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The processor's name, or `CPU`.
#[must_use]
pub fn processor() -> String {
    read_to_string("/proc/cpuinfo").ok().and_then(|text| cpuinfo(&text)).unwrap_or_else(|| "CPU".to_string())
}

fn cpuinfo(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let name = line.split_once(':')?.1.split_whitespace().collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then_some(name)
}

/// The local time of day, as the table and the report write it.
#[must_use]
pub fn now() -> String {
    chrono::Local::now().format(super::table::TIME_FORMAT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_linux_writes() {
        assert_eq!(meminfo("MemTotal: 10 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        assert_eq!(meminfo("MemTotal: 10 kB\n"), None);
        assert_eq!(cpuinfo("vendor\t: x\nmodel name\t: A  CPU @ 2 GHz\n"), Some("A CPU @ 2 GHz".to_string()));
        assert_eq!(cpuinfo("Features: fp\n"), None);
    }
}
