//! What a checkpoint does to files, as a trait, so that a test can fail at each call.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Changes to files. When a call returns, what it did has reached the disk, unless it says otherwise.
pub trait Files: Send + Sync {
    /// Makes a directory and those above it, where they aren't there. Not durable before the directory above is synced.
    ///
    /// # Errors
    /// Those of the system.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Makes a file of some parts, one after another. Its name is not durable before the directory is synced.
    ///
    /// # Errors
    /// Those of the system; there may be some of the file then.
    fn write(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Those of the system.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Gives a directory another name in the same directory, at once. Not durable before that is synced.
    ///
    /// # Errors
    /// Those of the system; it has the old name then.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a directory and all that is in it. Not durable.
    ///
    /// # Errors
    /// Those of the system; some of it may be left.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn write(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        let mut file = File::create(path)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        file.sync_all()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }
}
