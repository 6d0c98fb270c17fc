//! Plain safetensors files of whole tensors: to give a model away, and to begin from one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use candle_core::DType;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::VALUE;
use super::image::safetensors_header;
use super::load::{LoadOptions, Staged, about, fits, install};
use super::manifest::Checkpoint;
use super::reading::{Found, fill};
use crate::agreement::agree;
use crate::error::{Doing, Error, Result};
use crate::mesh::Mesh;
use crate::optimizer::Ownership;
use crate::parameter::Part;
use crate::state::{Numbers, State};
use crate::stretch::Stretch;

impl Checkpoint {
    /// Writes the values of all logical tensors, in the types in which they were saved, to one safetensors file. One process
    /// does it, with room for one tensor. The file appears under its name when it is whole.
    ///
    /// # Errors
    /// The checkpoint is damaged, or a file can't be written.
    pub fn export(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let doing = || format!("writing {}", path.display());
        let (mut infos, mut end) = (Vec::new(), 0);
        for (name, info) in self.tensors() {
            let begin = end;
            end += info.shape.iter().product::<usize>() * info.dtype.bitsize() / 8;
            let (shape, dtype) = (info.shape.clone(), info.dtype);
            infos.push((name.clone(), TensorInfo { dtype, shape, data_offsets: (begin, end) }));
        }
        let partial = path.with_extension("partial");
        let mut file = std::io::BufWriter::new(File::create(&partial).doing(doing)?);
        file.write_all(&safetensors_header(None, infos)?).doing(doing)?;
        for name in self.tensors().keys() {
            file.write_all(&self.logical(name)?).doing(doing)?;
        }
        file.into_inner().map_err(std::io::IntoInnerError::into_error).and_then(|file| file.sync_all()).doing(doing)?;
        std::fs::rename(&partial, path).doing(doing)?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(above).and_then(|above| above.sync_all()).doing(doing)
    }

    /// The bytes of a tensor's values.
    fn logical(&self, name: &str) -> Result<Vec<u8>> {
        let info = &self.tensors()[name];
        let mut files: BTreeMap<usize, _> = BTreeMap::new();
        let mut found = Vec::new();
        for (number, file) in self.manifest.files.iter().enumerate() {
            for stored in file.stretches.iter().filter(|stored| stored.tensor == name && stored.kind == VALUE) {
                files.entry(number).or_insert(self.file(number)?);
                found.push(Found { file: number, offset: stored.offset, stretch: stored.stretch() });
            }
        }
        let mut read = |file: usize, offset: u64, target: &mut [u8]| {
            files.get_mut(&file).expect("all were opened").read(offset, target)
        };
        let wanted = Stretch::all(Part::all(&info.shape));
        let dtype = if info.dtype == Dtype::F64 { DType::F64 } else { DType::F32 };
        let mut numbers = Numbers::zeros(dtype, wanted.range.len());
        fill(&wanted, &found, info.dtype, &mut read, (&mut numbers, 0)).map_err(|error| about(error, name, VALUE))?;
        Ok(match numbers {
            Numbers::F32(numbers) => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
            Numbers::F64(numbers) => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        })
    }
}

/// Loads values from a plain safetensors file of logical tensors, of any floating-point type, and publishes them. Moments
/// begin anew. All ranks of the mesh call it together; each reads what it needs.
///
/// # Errors
/// As [`Checkpoint::load`], as far as a plain file can tell. Then no rank has changed its state.
pub fn import(
    path: impl AsRef<Path>,
    mesh: &Mesh,
    ownership: &Ownership,
    state: &dyn State,
    options: &LoadOptions,
) -> Result<()> {
    let path = path.as_ref();
    let staged = stage(path, ownership, state, options);
    let staged = agree(mesh.world(), staged, "importing tensors")?;
    install(state, staged)?;
    state.publish()
}

fn stage(path: &Path, ownership: &Ownership, state: &dyn State, options: &LoadOptions) -> Result<Vec<Staged>> {
    let doing = || format!("reading {}", path.display());
    let mut file = File::open(path).doing(doing)?;
    let (begin, metadata) = header(&mut file, path)?;
    let tensors = metadata.tensors();
    let shapes = tensors.iter().map(|(name, info)| (name.as_str(), info.shape.as_slice())).collect();
    fits(ownership, &shapes, options, &path.display().to_string())?;
    let mut read = |_: usize, offset: u64, target: &mut [u8]| {
        file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(target)).doing(doing)
    };
    let mut staged = Vec::new();
    state.visit(&mut |shard| {
        let mut values = shard.values.clone();
        for segment in &shard.segments {
            let name = segment.parameter.name();
            let Some(info) = tensors.get(name) else { continue };
            let stretch = Stretch::all(Part::all(&info.shape));
            let found = Found { file: 0, offset: begin + info.data_offsets.0 as u64, stretch };
            let target = (&mut values, segment.range.start);
            fill(&Stretch::of(segment), &[found], info.dtype, &mut read, target)
                .map_err(|error| about(error, name, VALUE))?;
        }
        staged.push(Staged { values, moments: BTreeMap::new() });
        Ok(())
    })?;
    Ok(staged)
}

/// Where the tensors' bytes begin, and what the header says of them.
fn header(file: &mut File, path: &Path) -> Result<(u64, Metadata)> {
    let doing = || format!("reading the header of {}", path.display());
    let wrong = |why: String| Error::invalid(format!("{}: {why}", path.display()));
    let bytes = file.metadata().doing(doing)?.len();
    let mut len = [0; 8];
    file.read_exact(&mut len).doing(doing)?;
    let len = u64::from_le_bytes(len);
    if bytes.saturating_sub(8) < len {
        return Err(wrong(format!("its header should have {len} bytes, and the file has {bytes}")));
    }
    let mut text = vec![0; len as usize];
    file.read_exact(&mut text).doing(doing)?;
    let metadata: Metadata = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    let should = 8 + len + metadata.data_len() as u64;
    if should != bytes {
        let what = if bytes < should { "cut short" } else { "too long" };
        return Err(wrong(format!("it is {what}: it has {bytes} bytes, and should have {should}")));
    }
    Ok((8 + len, metadata))
}
