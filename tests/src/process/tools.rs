//! Programs: the worker, the tools of the workspace, and what the machine has.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The directory of the profile that this test was built with: `target/debug`, say.
fn profile() -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its program");
    test.parent().and_then(Path::parent).expect("tests lie in target/<profile>/deps").to_owned()
}

/// The worker of this crate, which cargo builds before its tests.
#[must_use]
pub fn worker() -> PathBuf {
    profile().join("worker")
}

/// A program of `paceline-tools`, of this test's profile; built if it isn't there.
///
/// # Panics
///
/// If it can't be built.
#[must_use]
pub fn tool(name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    let path = profile().join(name);
    BUILT.get_or_init(|| {
        if path.is_file() {
            return;
        }
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--quiet", "-p", "paceline-tools"]);
        if profile().ends_with("release") {
            build.arg("--release");
        }
        let status = build.status().expect("cargo runs");
        assert!(status.success(), "building paceline-tools: {status}");
    });
    assert!(path.is_file(), "{} is not there; run cargo build -p paceline-tools", path.display());
    path
}

/// `paceline`, the launcher.
#[must_use]
pub fn paceline() -> PathBuf {
    tool("paceline")
}

/// Whether the machine has a program; if not, says that what needs it is skipped.
#[must_use]
pub fn found(program: &str) -> bool {
    let is_there = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(program).is_file()));
    if !is_there {
        eprintln!("skipped: {program} not found");
    }
    is_there
}

/// Whether this process may make namespaces and mounts; if not, says that what needs it is skipped.
#[must_use]
pub fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: {what} takes root");
    }
    is_root
}
