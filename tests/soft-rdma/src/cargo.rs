//! Programs and tests of the workspace, built by cargo.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::{Doing, Error, Result};

/// The programs that `cargo <words>` builds: `build -p paceline-tools`, say, or `test --no-run`, which builds tests and the
/// programs of their crate, too.
///
/// # Errors
///
/// If they don't build.
pub fn cargo<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Vec<PathBuf>> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).args(["--quiet", "--message-format=json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().doing("starting cargo")?;
    if !output.status.success() {
        return Err(Error::Failed(format!("{command:?}: {}", output.status)));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect())
}
