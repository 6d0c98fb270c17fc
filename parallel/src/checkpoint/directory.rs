//! The names in a directory of checkpoints.
//!
//! `checkpoint-0000000007` is committed. `checkpoint-0000000008.writing` isn't yet, and
//! `checkpoint-0000000003.removing` is no longer: both are leftovers if nobody is at them. Numbers only grow, whatever step
//! a run went back to, so the highest one is the latest.

use std::path::{Path, PathBuf};

use super::files::Files;
use crate::error::{Doing, Result};

const PREFIX: &str = "checkpoint-";
const WRITING: &str = ".writing";
const REMOVING: &str = ".removing";

/// What lies in a directory of checkpoints.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Committed ones' numbers, the oldest first.
    pub(super) committed: Vec<u64>,
    /// Names of what is not.
    pub(super) leftovers: Vec<String>,
    /// The highest number of any.
    pub(super) highest: u64,
}

pub(super) fn committed(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{PREFIX}{number:010}"))
}

pub(super) fn writing(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{PREFIX}{number:010}{WRITING}"))
}

/// What is there; nothing, if there is no such directory.
pub(super) fn list(directory: &Path) -> Result<Listing> {
    let doing = || format!("listing the checkpoints in {}", directory.display());
    let mut listing = Listing::default();
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(listing),
        entries => entries.doing(doing)?,
    };
    for entry in entries {
        let name = entry.doing(doing)?.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let (number, leftover) = match rest.strip_suffix(WRITING).or_else(|| rest.strip_suffix(REMOVING)) {
            Some(number) => (number, true),
            None => (rest, false),
        };
        let Ok(number) = number.parse::<u64>() else { continue };
        listing.highest = listing.highest.max(number);
        match leftover {
            true => listing.leftovers.push(name),
            false => listing.committed.push(number),
        }
    }
    listing.committed.sort_unstable();
    Ok(listing)
}

/// Removes what was never committed, or is half removed.
pub(super) fn sweep(files: &dyn Files, directory: &Path, listing: &Listing) -> Result<()> {
    for name in &listing.leftovers {
        let path = directory.join(name);
        files.remove_directory(&path).doing(|| format!("removing the leftover {}", path.display()))?;
    }
    Ok(())
}

/// Removes all but the latest `keep` committed ones. What is being removed loses its name first: nobody takes it for whole.
pub(super) fn prune(files: &dyn Files, directory: &Path, keep: usize) -> Result<()> {
    let listing = list(directory)?;
    let surplus = listing.committed.len().saturating_sub(keep);
    for number in &listing.committed[..surplus] {
        let path = committed(directory, *number);
        let doing = || format!("removing the old checkpoint {}", path.display());
        let removing = directory.join(format!("{PREFIX}{number:010}{REMOVING}"));
        files.rename(&path, &removing).doing(doing)?;
        files.sync_directory(directory).doing(doing)?;
        files.remove_directory(&removing).doing(doing)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Disk;

    #[test]
    fn names_say_what_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        assert_eq!(list(&at("missing")).unwrap(), Listing::default());
        for name in ["checkpoint-0000000002", "checkpoint-0000000011", "checkpoint-0000000003"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        for name in ["checkpoint-0000000012.writing", "checkpoint-0000000001.removing", "notes", "checkpoint-x"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let listing = list(directory.path()).unwrap();
        assert_eq!((&listing.committed[..], listing.highest, listing.leftovers.len()), (&[2, 3, 11][..], 12, 2));
        sweep(&Disk, directory.path(), &listing).unwrap();
        prune(&Disk, directory.path(), 2).unwrap();
        let listing = list(directory.path()).unwrap();
        assert_eq!(listing, Listing { committed: vec![3, 11], leftovers: vec![], highest: 11 });
        assert!(at("notes").exists() && at("checkpoint-x").exists());
    }
}
