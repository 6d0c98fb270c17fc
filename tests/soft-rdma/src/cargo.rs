//! Programs and tests of the workspace, built by cargo.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::{Doing, Error, Result};

/// What `cargo test --no-run` builds with these words: the tests, and the programs that they start.
///
/// # Errors
///
/// If it doesn't build.
pub fn build(words: &str) -> Result<Vec<PathBuf>> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--no-run", "--quiet", "--message-format=json-render-diagnostics"]);
    command.args(words.split_whitespace()).stderr(Stdio::inherit());
    let output = command.output().doing("starting cargo")?;
    if !output.status.success() {
        return Err(Error::Failed(format!("cargo test --no-run {words}: {}", output.status)));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect())
}
