//! Programs of the host: where they are, and what they write.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Doing, Error, Result};

/// Where a program lies, looked for in PATH and where only root usually looks.
///
/// # Errors
///
/// [`Error::Missing`], with the package of Debian that has it.
pub fn find(program: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    let mut places = folders.map(|folder| folder.join(program));
    places
        .find(|place| place.is_file())
        .ok_or_else(|| Error::Missing(format!("no {program} on this machine (apt-get install {package})")))
}

/// What a command writes to its standard output.
///
/// # Errors
///
/// If it can't be started, or fails: with what it complained of.
pub fn output(command: &mut Command) -> Result<String> {
    let words = format!("{command:?}");
    let output = command.output().doing(format!("starting {words}"))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Error::Failed(format!("{words}: {}: {}", output.status, complaints.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The shared libraries that a program or library needs, where they lie on this machine.
///
/// # Errors
///
/// If one of them is not there.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let listed = match output(Command::new("ldd").arg(program)) {
        Ok(listed) => listed,
        // What ldd says of a program that is linked statically, and of a script.
        Err(Error::Failed(why)) if why.contains("not a dynamic executable") => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    if let Some(line) = listed.lines().find(|line| line.contains("not found")) {
        return Err(Error::Failed(format!("{} needs a library: {}", program.display(), line.trim())));
    }
    let paths = listed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}
