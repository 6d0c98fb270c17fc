//! How ranks write a checkpoint together.
//!
//! ```text
//! rank 0     make checkpoint-N.writing
//! all        agree; write and sync the rank's file; agree
//! rank 0     write and sync the manifest; sync the directory; rename it to checkpoint-N; sync the directory above
//! all        agree
//! rank 0     remove old ones
//! ```
//!
//! Whatever happens before the rename, nothing was saved, and what is left is swept by the next save. It is the only moment
//! that matters: after it, everything the manifest names is on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use paceline_comm::Communicator;

use super::directory::{committed, list, prune, sweep, writing};
use super::files::Files;
use super::hash::LogicalHash;
use super::image::{FileInfo, Image};
use super::manifest::{MANIFEST, MANIFEST_CHECKSUM, Manifest};
use super::progress::Progress;
use super::saver::Saved;
use crate::agreement::{agree, gather};
use crate::error::{Doing, Error, Result};
use crate::mesh::Layout;

const WHAT: &str = "saving a checkpoint";

/// What a save needs that isn't the state.
pub(super) struct Target {
    pub(super) comm: Arc<Communicator>,
    pub(super) layout: Layout,
    pub(super) files: Arc<dyn Files>,
    pub(super) directory: PathBuf,
    pub(super) keep: usize,
}

/// What a rank tells rank 0.
#[derive(serde::Serialize, serde::Deserialize)]
struct Report {
    file: FileInfo,
    hash: LogicalHash,
    missed: std::collections::BTreeMap<String, u64>,
}

/// Writes and commits. All ranks call it together, and get the same answer.
pub(super) fn save(target: &Target, image: &Image, progress: Progress) -> Result<Saved> {
    let (comm, files) = (&*target.comm, &*target.files);
    let began = if comm.rank() == 0 { begin(files, &target.directory) } else { Ok(0) };
    let mut number = [agree(comm, began, WHAT)?];
    comm.broadcast(&mut number, 0).doing(|| WHAT.to_owned())?;
    let (place, path) = (writing(&target.directory, number[0]), committed(&target.directory, number[0]));

    let written = agree(comm, write(files, &place, comm.rank(), image), WHAT);
    let saved = written.and_then(|file| {
        let report = Report { file, hash: image.hash(), missed: progress.optimizer.missed.clone() };
        let report = serde_json::to_vec(&report).map_err(|error| Error::invalid(error.to_string()))?;
        let reports = gather(comm, &report, "what has been written")?;
        let hash = match comm.rank() {
            0 => commit(target, &place, &path, progress, &reports),
            _ => Ok(LogicalHash::default()),
        };
        let hash = agree(comm, hash, WHAT)?;
        let said = gather(comm, hash.to_string().as_bytes(), WHAT)?;
        let hash = String::from_utf8_lossy(&said[0]).parse()?;
        Ok(Saved { path, hash })
    });
    if comm.rank() == 0 {
        let tidied = match &saved {
            Ok(_) => prune(files, &target.directory, target.keep),
            Err(_) if place.exists() => files.remove_directory(&place).doing(|| "removing it".to_owned()),
            Err(_) => Ok(()),
        };
        // What is left is swept by the next save.
        tidied.unwrap_or_else(|error| tracing::warn!(%error, "checkpoints weren't tidied up"));
    }
    saved
}

fn begin(files: &dyn Files, directory: &Path) -> Result<u64> {
    let listing = list(directory)?;
    sweep(files, directory, &listing)?;
    let number = listing.highest + 1;
    let place = writing(directory, number);
    files.create_directory(&place).doing(|| format!("making {}", place.display()))?;
    Ok(number)
}

fn write(files: &dyn Files, place: &Path, rank: usize, image: &Image) -> Result<FileInfo> {
    let info = image.info(format!("rank-{rank:05}.safetensors"));
    let path = place.join(&info.name);
    files.write(&path, &image.parts()).doing(|| format!("writing {}", path.display()))?;
    files.sync_directory(place).doing(|| format!("syncing {}", place.display()))?;
    Ok(info)
}

fn commit(
    target: &Target,
    place: &Path,
    path: &Path,
    mut progress: Progress,
    reports: &[Vec<u8>],
) -> Result<LogicalHash> {
    let (mut hash, mut infos) = (LogicalHash::default(), Vec::new());
    for report in reports {
        let report: Report = serde_json::from_slice(report).map_err(|error| Error::invalid(error.to_string()))?;
        hash.add(report.hash);
        infos.push(report.file);
        // Who loaded a checkpoint remembers what other stages had missed by then; they have missed no less since.
        for (name, count) in report.missed {
            let known = progress.optimizer.missed.entry(name).or_default();
            *known = count.max(*known);
        }
    }
    let files = &*target.files;
    let manifest = Manifest::new(target.layout.clone(), hash, progress, infos)?;
    for (name, bytes) in [MANIFEST, MANIFEST_CHECKSUM].into_iter().zip(manifest.to_bytes()?) {
        let path = place.join(name);
        files.write(&path, &[&bytes]).doing(|| format!("writing {}", path.display()))?;
    }
    files.sync_directory(place).doing(|| format!("syncing {}", place.display()))?;
    files.rename(place, path).doing(|| format!("renaming {} to {}", place.display(), path.display()))?;
    files.sync_directory(&target.directory).doing(|| format!("syncing {}", target.directory.display()))?;
    Ok(hash)
}
