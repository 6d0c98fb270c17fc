//! Cells that come while the ranks are up: so several libraries' ranks can take turns cell by cell, and those whose turn it
//! isn't sleep.

use std::path::Path;

use crate::matrix::Cell;

/// The word after which nothing more comes.
const END: &str = "end";

/// Runs the cells that are written to the pipe of this name, a word each, until `end` comes. Whoever writes opens it for
/// every cell anew.
///
/// # Errors
///
/// If the pipe can't be read, a word is no cell, or what runs it fails.
pub fn obey(pipe: &Path, mut run: impl FnMut(&Cell) -> Result<(), String>) -> Result<(), String> {
    loop {
        let text = std::fs::read_to_string(pipe).map_err(|error| format!("{}: {error}", pipe.display()))?;
        for word in text.split_whitespace() {
            if word == END {
                return Ok(());
            }
            run(&word.parse().map_err(|error| format!("{}: {error}", pipe.display()))?)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_run_until_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("0");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                std::fs::write(&pipe, "all_reduce:f32:8:2\n").unwrap();
                std::fs::write(&pipe, "ping_pong:f32:16:3\nend\n").unwrap();
            }
        });
        let mut seen = Vec::new();
        let ended = obey(&pipe, |cell| {
            seen.push(cell.to_string());
            Ok(())
        });
        writer.join().unwrap();
        ended.unwrap();
        assert_eq!(seen, ["all_reduce:f32:8:2", "ping_pong:f32:16:3"]);
    }

    #[test]
    fn words_that_are_no_cells_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("orders");
        std::fs::write(&pipe, "all_reduce:f32").unwrap();
        let error = obey(&pipe, |_| Ok(())).unwrap_err();
        assert!(error.contains("orders"), "{error}");
    }
}
