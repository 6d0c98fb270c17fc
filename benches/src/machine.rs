//! What a measurement was made on, and of.

use std::process::Command;

/// The machine and the sources.
#[derive(Clone, Debug)]
pub struct Machine {
    /// When the run began, in local time, to the second.
    pub date: String,
    /// The processor's model.
    pub processor: String,
    /// Processors that this program may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The commit of the sources, `-dirty` if they differ from it; nothing, where git doesn't know.
    pub commit: Option<String>,
}

impl Machine {
    /// This machine, now.
    #[must_use]
    pub fn here() -> Machine {
        let read = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Machine {
            date: chrono::Local::now().format("%Y-%m-%dT%H:%M:%S%:z").to_string(),
            processor: model(&read).unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            commit: commit(),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Machine { date, processor, cores, kernel, commit } = self;
        write!(f, "{date}, {processor}, {cores} cores, Linux {kernel}")?;
        commit.iter().try_for_each(|commit| write!(f, ", paceline at {commit}"))
    }
}

fn model(cpuinfo: &str) -> Option<&str> {
    let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, value)| (name.trim(), value.trim()))
        .find(|(name, _)| *name == "model name")
        .map(|(_, model)| model)
}

fn commit() -> Option<String> {
    let mut command = Command::new("git");
    command.args(["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]);
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found() {
        assert_eq!(model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), Some("Some CPU @ 2 GHz"));
        assert_eq!(model("processor\t: 0\n"), None);
    }
}
