//! Archives that a kernel unpacks into its first file system (cpio, "newc").
//!
//! A kernel takes several, one behind the other, so what seldom changes is packed once and what a run brings is appended.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::command::libraries;
use crate::error::{Doing, Result};

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;

/// An archive that is being written.
pub struct Archive {
    file: BufWriter<File>,
    path: PathBuf,
    written: BTreeSet<PathBuf>,
}

impl Archive {
    /// Begins an archive.
    ///
    /// # Errors
    ///
    /// If the file can't be made.
    pub fn create(path: &Path) -> Result<Archive> {
        let file = File::create(path).doing(format!("making {}", path.display()))?;
        Ok(Archive { file: BufWriter::new(file), path: path.to_owned(), written: BTreeSet::new() })
    }

    /// A file of the host, at `target` in the guest (an absolute path).
    ///
    /// # Errors
    ///
    /// If it can't be read, or the archive can't be written.
    pub fn file(&mut self, source: &Path, target: &Path) -> Result<()> {
        let content = std::fs::read(source).doing(format!("reading {}", source.display()))?;
        let mode = source.metadata().doing(format!("looking at {}", source.display()))?.permissions().mode();
        self.entry(target, FILE | mode & 0o777, &content)
    }

    /// A file with a given content.
    ///
    /// # Errors
    ///
    /// If the archive can't be written.
    pub fn text(&mut self, target: &Path, content: &str) -> Result<()> {
        let is_program = content.starts_with("#!");
        self.entry(target, FILE | if is_program { 0o755 } else { 0o644 }, content.as_bytes())
    }

    /// A symbolic link.
    ///
    /// # Errors
    ///
    /// If the archive can't be written.
    pub fn link(&mut self, target: &Path, to: &str) -> Result<()> {
        self.entry(target, LINK, to.as_bytes())
    }

    /// A program or library at `target`, and the libraries that it needs, each where it lies on the host.
    ///
    /// # Errors
    ///
    /// If it can't be read, or lacks a library.
    pub fn program(&mut self, source: &Path, target: &Path) -> Result<()> {
        for library in libraries(source)? {
            self.file(&library, &library)?;
        }
        self.file(source, target)
    }

    /// Ends the archive.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn finish(mut self) -> Result<()> {
        self.put("TRAILER!!!", 0, b"")?;
        self.file.flush().doing(format!("writing {}", self.path.display()))
    }

    fn entry(&mut self, target: &Path, mode: u32, content: &[u8]) -> Result<()> {
        let target = target.strip_prefix("/").unwrap_or(target);
        if !self.written.insert(target.to_owned()) {
            return Ok(());
        }
        let folders: Vec<PathBuf> = target.ancestors().skip(1).map(Path::to_owned).collect();
        for folder in folders.into_iter().rev().filter(|folder| !folder.as_os_str().is_empty()) {
            if self.written.insert(folder.clone()) {
                self.put(&folder.to_string_lossy(), FOLDER, b"")?;
            }
        }
        self.put(&target.to_string_lossy(), mode, content)
    }

    fn put(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        let (links, zero) = (1, 0);
        let (number, length) = (self.written.len(), content.len());
        let mut entry = b"070701".to_vec();
        // Number, mode, user, group, links, time, length, device, device of a node, length of the name, check sum.
        let fields =
            [number, mode as usize, zero, zero, links, zero, length, zero, zero, zero, zero, name.len() + 1, zero];
        for field in fields {
            write!(entry, "{field:08x}").expect("memory takes all");
        }
        entry.extend(name.bytes());
        entry.push(0);
        entry.resize(entry.len().next_multiple_of(4), 0);
        entry.extend(content);
        entry.resize(entry.len().next_multiple_of(4), 0);
        self.file.write_all(&entry).doing(format!("writing {}", self.path.display()))
    }
}
