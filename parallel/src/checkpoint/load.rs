//! Loads a checkpoint into a state, however that is spread now and was then.

use std::collections::{BTreeMap, BTreeSet};

use candle_core::DType;
use safetensors::Dtype;

use super::VALUE;
use super::blocks::BlockFile;
use super::hash::logical_hash;
use super::manifest::Checkpoint;
use super::progress::Progress;
use super::reading::{Found, fill};
use crate::agreement::{agree, gather};
use crate::error::{Error, Result};
use crate::mesh::Mesh;
use crate::optimizer::Ownership;
use crate::state::{Numbers, Shard, State};
use crate::stretch::Stretch;

/// What to do about parameters that the file lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Missing {
    /// Refuse to load.
    #[default]
    Refuse,
    /// Leave them as they are, their moments zero.
    Keep,
}

/// What to do about tensors in the file that are no parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Extra {
    /// Refuse to load.
    #[default]
    Refuse,
    /// Leave them in the file.
    Ignore,
}

/// What may be loaded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoadOptions {
    /// Parameters that the file lacks.
    pub missing: Missing,
    /// Tensors in the file that are no parameters.
    pub extra: Extra,
    /// Moments that must be there: [`Optimizer::moments`](crate::optimizer::Optimizer::moments). All that are there are
    /// loaded.
    pub moments: Vec<String>,
}

/// New numbers of a shard.
pub(super) struct Staged {
    pub(super) values: Numbers,
    pub(super) moments: BTreeMap<String, Numbers>,
}

impl Checkpoint {
    /// Loads values and moments, and publishes them: what else was saved is returned. All ranks of the mesh call it together.
    ///
    /// Each rank reads what it needs; what it reads is verified block by block, and in the end the state's hash is compared
    /// with the one that was saved (unless something was left out by a wish in `options`).
    ///
    /// # Errors
    /// A parameter or element is missing, or there are more than wanted; a shape or type differs; a file is damaged or cut
    /// short; the ranks have different checkpoints. Then no rank has changed its state, but if the hash differs in the end.
    pub fn load(
        &self,
        mesh: &Mesh,
        ownership: &Ownership,
        state: &dyn State,
        options: &LoadOptions,
    ) -> Result<Progress> {
        const WHAT: &str = "loading a checkpoint";
        let identities = gather(mesh.world(), self.identity.as_bytes(), "which checkpoint is loaded")?;
        if let Some(rank) = identities.iter().position(|identity| *identity != identities[0]) {
            return Err(Error::Differs(format!("rank {rank} loads another checkpoint than rank 0")));
        }
        let shapes: BTreeMap<&str, &[usize]> =
            self.tensors().iter().map(|(name, info)| (name.as_str(), info.shape.as_slice())).collect();
        let place = self.path.display().to_string();
        let complete = fits(ownership, &shapes, options, &place)?;
        self.has_moments(options)?;
        let staged = agree(mesh.world(), self.stage(state), WHAT)?;
        install(state, staged)?;
        state.publish()?;
        if complete {
            let hash = logical_hash(mesh, ownership, state)?;
            if hash != self.hash() {
                let saved = self.hash();
                return Err(Error::Differs(format!(
                    "{place} was saved with the hash {saved}, and what was loaded has {hash}"
                )));
            }
        }
        Ok(self.progress().clone())
    }

    fn has_moments(&self, options: &LoadOptions) -> Result<()> {
        for (name, info) in self.tensors() {
            if let Some(missing) = options.moments.iter().find(|moment| !info.kinds.contains(*moment)) {
                let (path, kinds) = (self.path.display(), &info.kinds);
                return Err(Error::invalid(format!("{path} has no {missing} of {name}, only {kinds:?}")));
            }
        }
        Ok(())
    }

    fn stage(&self, state: &dyn State) -> Result<Vec<Staged>> {
        let mut index: BTreeMap<(&str, &str), Vec<Found>> = BTreeMap::new();
        for (file, info) in self.manifest.files.iter().enumerate() {
            for stored in &info.stretches {
                let found = Found { file, offset: stored.offset, stretch: stored.stretch() };
                index.entry((&stored.tensor, &stored.kind)).or_default().push(found);
            }
        }
        let kinds: BTreeSet<&str> = index.keys().map(|(_, kind)| *kind).collect();
        let mut files: BTreeMap<usize, BlockFile<'_>> = BTreeMap::new();
        let mut read = |file: usize, offset: u64, target: &mut [u8]| {
            let file = match files.entry(file) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => entry.insert(self.file(file)?),
            };
            file.read(offset, target)
        };
        let mut staged = Vec::new();
        state.visit(&mut |shard| {
            let moments = kinds.iter().filter(|kind| **kind != VALUE);
            let mut new = Staged {
                values: shard.values.clone(),
                moments: moments.map(|kind| ((*kind).to_owned(), shard.values.zeros_alike())).collect(),
            };
            for kind in &kinds {
                let target =
                    if *kind == VALUE { &mut new.values } else { new.moments.get_mut(*kind).expect("made above") };
                for segment in &shard.segments {
                    let name = segment.parameter.name();
                    let (Some(found), Some(info)) = (index.get(&(name, *kind)), self.tensors().get(name)) else {
                        continue;
                    };
                    same_type(name, target, info.dtype)?;
                    let wanted = Stretch::of(segment);
                    fill(&wanted, found, info.dtype, &mut read, (&mut *target, segment.range.start))
                        .map_err(|error| about(error, name, kind))?;
                }
            }
            staged.push(new);
            Ok(())
        })?;
        Ok(staged)
    }
}

/// Says of which tensor something is wrong.
pub(super) fn about(error: Error, name: &str, kind: &str) -> Error {
    match error {
        Error::Invalid(text) => Error::Invalid(format!("{name} ({kind}): {text}")),
        other => other,
    }
}

fn same_type(name: &str, numbers: &Numbers, dtype: Dtype) -> Result<()> {
    match (numbers.dtype(), dtype) {
        (DType::F32, Dtype::F32) | (DType::F64, Dtype::F64) => Ok(()),
        (is, saved) => Err(Error::invalid(format!("{name} is trained in {is:?}, and was saved in {saved:?}"))),
    }
}

/// Whether the file's tensors are the parameters, all of them.
///
/// # Errors
/// They aren't, and that isn't wished for.
pub(super) fn fits(
    ownership: &Ownership,
    shapes: &BTreeMap<&str, &[usize]>,
    options: &LoadOptions,
    place: &str,
) -> Result<bool> {
    let wanted = ownership.shapes();
    // Of a tensor without elements there is nothing to find.
    let some = wanted.iter().filter(|(_, shape)| !shape.contains(&0));
    let missing: Vec<&str> = some.map(|(name, _)| name.as_str()).filter(|name| !shapes.contains_key(name)).collect();
    let extra: Vec<&str> = shapes.keys().copied().filter(|name| !wanted.contains_key(*name)).collect();
    if options.missing == Missing::Refuse && !missing.is_empty() {
        return Err(Error::invalid(format!("{place} has no {}", missing.join(", "))));
    }
    if options.extra == Extra::Refuse && !extra.is_empty() {
        return Err(Error::invalid(format!("{place} has {}, which are no parameters here", extra.join(", "))));
    }
    for (name, shape) in wanted {
        if let Some(saved) = shapes.get(name.as_str()).filter(|saved| *saved != shape) {
            return Err(Error::invalid(format!("{name} is {shape:?}, and in {place} it is {saved:?}")));
        }
    }
    Ok(missing.is_empty() && extra.is_empty())
}

/// Puts new numbers in the place of the old ones.
pub(super) fn install(state: &dyn State, staged: Vec<Staged>) -> Result<()> {
    let mut staged = staged.into_iter();
    state.visit(&mut |shard: &mut Shard| {
        let new = staged.next().ok_or_else(|| Error::invalid("the state has more shards than it had"))?;
        (shard.values, shard.moments) = (new.values, new.moments);
        Ok(())
    })
}
