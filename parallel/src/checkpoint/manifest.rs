//! What a committed checkpoint holds: a list of all stretches, and everything that isn't a tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use super::blocks::{BlockFile, sha256};
use super::directory;
use super::hash::LogicalHash;
use super::image::FileInfo;
use super::progress::Progress;
use crate::error::{Doing, Error, Result};
use crate::mesh::Layout;

pub(super) const MANIFEST: &str = "manifest.json";
/// In the format of `sha256sum`.
pub(super) const MANIFEST_CHECKSUM: &str = "manifest.sha256";
const FORMAT: u32 = 1;

/// A logical tensor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TensorInfo {
    /// Its shape.
    pub shape: Vec<usize>,
    /// The type of its values.
    pub dtype: Dtype,
    /// What is there of each element: `value`, and the moments' names.
    pub kinds: BTreeSet<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    pub(super) layout: Layout,
    pub(super) hash: LogicalHash,
    pub(super) progress: Progress,
    pub(super) tensors: BTreeMap<String, TensorInfo>,
    pub(super) files: Vec<FileInfo>,
}

impl Manifest {
    /// Puts together what all ranks have written.
    ///
    /// # Errors
    /// An element is missing, or there twice.
    pub(super) fn new(layout: Layout, hash: LogicalHash, progress: Progress, files: Vec<FileInfo>) -> Result<Manifest> {
        let mut tensors: BTreeMap<String, TensorInfo> = BTreeMap::new();
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for stored in files.iter().flat_map(|file| &file.stretches) {
            let (shape, dtype) = (stored.part.whole().to_vec(), stored.dtype);
            let info = TensorInfo { shape, dtype, kinds: BTreeSet::new() };
            let known = tensors.entry(stored.tensor.clone()).or_insert_with(|| info.clone());
            if (&known.shape, known.dtype) != (&info.shape, dtype) {
                let (name, is, other) = (&stored.tensor, &known.shape, &info.shape);
                return Err(Error::Differs(format!(
                    "{name} is {is:?} of one type, and {other:?} of {dtype:?} elsewhere"
                )));
            }
            known.kinds.insert(stored.kind.clone());
            *counts.entry((&stored.tensor, &stored.kind)).or_default() += stored.stretch().real_len();
        }
        for ((name, kind), count) in counts {
            let should = tensors[name].shape.iter().product::<usize>();
            if count != should {
                return Err(Error::Differs(format!(
                    "of {name}'s {should} elements the ranks have written {count} ({kind}): they don't all have it"
                )));
            }
        }
        Ok(Manifest { format: FORMAT, layout, hash, progress, tensors, files })
    }

    /// The manifest, and the file with its checksum.
    pub(super) fn to_bytes(&self) -> Result<[Vec<u8>; 2]> {
        let text = serde_json::to_vec(self).map_err(|error| Error::invalid(format!("writing a manifest: {error}")))?;
        let checksum = format!("{}  {MANIFEST}\n", sha256(&[&text]));
        Ok([text, checksum.into_bytes()])
    }
}

/// A committed checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint {
    pub(super) path: PathBuf,
    pub(super) manifest: Manifest,
    /// The manifest's checksum, by which ranks see that they have the same one.
    pub(super) identity: String,
}

impl Checkpoint {
    /// The checkpoint in a directory of its own.
    ///
    /// # Errors
    /// It isn't there, its manifest is damaged, or of a format that isn't known.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref();
        let read = |name: &str| {
            let path = path.join(name);
            std::fs::read(&path).doing(|| format!("reading {}", path.display()))
        };
        let (text, checksum) = (read(MANIFEST)?, read(MANIFEST_CHECKSUM)?);
        let identity = sha256(&[&text]);
        let damaged = |why: String| Error::invalid(format!("the manifest in {} {why}", path.display()));
        if !checksum.starts_with(identity.as_bytes()) {
            return Err(damaged("is damaged: its checksum is another".to_owned()));
        }
        let format = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).ok()?.get("format")?.as_u64();
        if format(&text) != Some(u64::from(FORMAT)) {
            return Err(damaged(format!("is not of format {FORMAT}, the only one that is known here")));
        }
        let manifest = serde_json::from_slice(&text).map_err(|error| damaged(format!("makes no sense: {error}")))?;
        Ok(Checkpoint { path: path.to_owned(), manifest, identity })
    }

    /// The latest committed checkpoint in a directory of checkpoints, if there is one.
    ///
    /// # Errors
    /// As [`Checkpoint::open`]: a damaged one is an error, and not a reason to take an older one.
    pub fn latest(directory: impl AsRef<Path>) -> Result<Option<Checkpoint>> {
        let latest = directory::list(directory.as_ref())?.committed.pop();
        latest.map(|number| Checkpoint::open(directory::committed(directory.as_ref(), number))).transpose()
    }

    /// All committed checkpoints in a directory of checkpoints, the oldest first.
    ///
    /// # Errors
    /// The directory can't be read.
    pub fn all(directory: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
        let numbers = directory::list(directory.as_ref())?.committed;
        Ok(numbers.into_iter().map(|number| directory::committed(directory.as_ref(), number)).collect())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was saved beside tensors.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.manifest.progress
    }

    /// The layout of the ranks that wrote it.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.manifest.layout
    }

    /// The hash of the state that was saved.
    #[must_use]
    pub fn hash(&self) -> LogicalHash {
        self.manifest.hash
    }

    /// The logical tensors by name.
    #[must_use]
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.manifest.tensors
    }

    /// Reads all of it, to see whether it is what was written.
    ///
    /// # Errors
    /// It isn't, or can't be read.
    pub fn verify(&self) -> Result<()> {
        (0..self.manifest.files.len()).try_for_each(|file| self.file(file)?.verify())
    }

    pub(super) fn file(&self, number: usize) -> Result<BlockFile<'_>> {
        let info = &self.manifest.files[number];
        BlockFile::open(&self.path.join(&info.name), info.bytes, info.block_bytes, &info.checksums)
    }
}
