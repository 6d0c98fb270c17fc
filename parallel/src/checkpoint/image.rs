//! What one rank writes: a safetensors file in memory, a copy of the stretches that it owns.

use std::collections::HashMap;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Deserialize, Serialize};

use super::VALUE;
use super::blocks::{BLOCK_BYTES, checksums};
use super::hash::LogicalHash;
use crate::error::{Error, Result};
use crate::optimizer::Ownership;
use crate::parameter::Part;
use crate::state::{Numbers, Segment, State};
use crate::stretch::Stretch;

/// Where a stretch lies in a rank's file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) tensor: String,
    /// `value`, or a moment's name.
    pub(super) kind: String,
    pub(super) dtype: Dtype,
    /// The box of the logical tensor of which it is a stretch.
    pub(super) part: Part,
    /// The row-major place of its first element in the box.
    pub(super) first: usize,
    pub(super) len: usize,
    /// Where its bytes begin in the file.
    pub(super) offset: u64,
}

impl Stored {
    pub(super) fn stretch(&self) -> Stretch {
        Stretch { part: self.part.clone(), range: self.first..self.first + self.len }
    }
}

/// A rank's file, as the manifest has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct FileInfo {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) block_bytes: usize,
    /// SHA-256 of each block.
    pub(super) checksums: Vec<String>,
    pub(super) stretches: Vec<Stored>,
}

/// A rank's file in memory.
pub(super) struct Image {
    header: Vec<u8>,
    data: Vec<u8>,
    stretches: Vec<Stored>,
}

impl Image {
    /// A copy of what this rank owns of a state.
    pub(super) fn of(ownership: &Ownership, state: &dyn State) -> Result<Image> {
        let (mut data, mut stretches, mut place) = (Vec::new(), Vec::new(), 0);
        state.visit(&mut |shard| {
            let owned = ownership.of_shard(place, shard.segments.len())?;
            place += 1;
            let moments = shard.moments.iter().map(|(name, numbers)| (name.as_str(), numbers));
            for (kind, numbers) in std::iter::once((VALUE, &shard.values)).chain(moments) {
                let owned =
                    shard.segments.iter().zip(owned).filter(|(segment, owned)| **owned && !segment.range.is_empty());
                for (segment, _) in owned {
                    stretches.push(stored(segment, kind, numbers, data.len()));
                    append(&mut data, numbers, segment);
                }
            }
            Ok(())
        })?;
        let header = header(&stretches, data.len())?;
        stretches.iter_mut().for_each(|stored| stored.offset += header.len() as u64);
        Ok(Image { header, data, stretches })
    }

    /// The file's bytes, in parts.
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        [&self.header, &self.data]
    }

    /// What the manifest says of it.
    pub(super) fn info(&self, name: String) -> FileInfo {
        let bytes = (self.header.len() + self.data.len()) as u64;
        let checksums = checksums(&self.parts(), BLOCK_BYTES);
        FileInfo { name, bytes, block_bytes: BLOCK_BYTES, checksums, stretches: self.stretches.clone() }
    }

    /// The logical hash of what is in it.
    pub(super) fn hash(&self) -> LogicalHash {
        let mut hash = LogicalHash::default();
        for stored in &self.stretches {
            let size = stored.dtype.bitsize() / 8;
            let begin = stored.offset as usize - self.header.len();
            let dtype = format!("{:?}", stored.dtype);
            hash.add(LogicalHash::of(&stored.tensor, &stored.kind, &dtype, &stored.stretch(), |run| {
                let bytes = &self.data[begin + (run.mine - stored.first) * size..][..run.len * size];
                bytes
                    .chunks_exact(size)
                    .map(|bytes| bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)))
            }));
        }
        hash
    }
}

fn stored(segment: &Segment, kind: &str, numbers: &Numbers, offset: usize) -> Stored {
    Stored {
        tensor: segment.parameter.name().to_owned(),
        kind: kind.to_owned(),
        dtype: match numbers {
            Numbers::F32(_) => Dtype::F32,
            Numbers::F64(_) => Dtype::F64,
        },
        part: segment.parameter.part().clone(),
        first: segment.first,
        len: segment.range.len(),
        offset: offset as u64,
    }
}

fn append(data: &mut Vec<u8>, numbers: &Numbers, segment: &Segment) {
    let range = segment.range.clone();
    match numbers {
        Numbers::F32(numbers) => numbers[range].iter().for_each(|number| data.extend(number.to_le_bytes())),
        Numbers::F64(numbers) => numbers[range].iter().for_each(|number| data.extend(number.to_le_bytes())),
    }
}

/// The length and the header of a safetensors file whose tensors are these stretches, as vectors, with their places among
/// the logical tensors as metadata.
fn header(stretches: &[Stored], data_bytes: usize) -> Result<Vec<u8>> {
    let ends = stretches.iter().skip(1).map(|stored| stored.offset as usize).chain([data_bytes]);
    let tensors = stretches.iter().zip(ends).enumerate().map(|(number, (stored, end))| {
        let name = format!("{}:{}:{number}", stored.tensor, stored.kind);
        let data_offsets = (stored.offset as usize, end);
        (name, TensorInfo { dtype: stored.dtype, shape: vec![stored.len], data_offsets })
    });
    let places: Vec<_> = stretches
        .iter()
        .map(|Stored { tensor, kind, part, first, len, .. }| {
            serde_json::json!({ "tensor": tensor, "kind": kind, "part": part, "first": first, "len": len })
        })
        .collect();
    let json = |error: serde_json::Error| Error::invalid(format!("writing a header: {error}"));
    let about = HashMap::from([("stretches".to_owned(), serde_json::to_string(&places).map_err(json)?)]);
    safetensors_header(Some(about), tensors.collect())
}

/// The length and the header of a safetensors file.
pub(super) fn safetensors_header(
    about: Option<HashMap<String, String>>,
    tensors: Vec<(String, TensorInfo)>,
) -> Result<Vec<u8>> {
    let wrong = |error: &dyn std::fmt::Display| Error::invalid(format!("writing a safetensors header: {error}"));
    let metadata = Metadata::new(about, tensors).map_err(|error| wrong(&error))?;
    let mut text = serde_json::to_vec(&metadata).map_err(|error| wrong(&error))?;
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    Ok(header)
}
