//! A hash of a state's logical elements, the same in every layout.
//!
//! Each element has a hash of its name, its index in the logical tensor and its bits; that of the state is their sum, which
//! doesn't depend on who has what.

use std::fmt;

use paceline_comm::ReduceOp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::VALUE;
use crate::error::{Doing, Error, Result};
use crate::mesh::Mesh;
use crate::optimizer::Ownership;
use crate::state::{Numbers, State};
use crate::stretch::{Shared, Stretch};

/// A hash of values and moments.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct LogicalHash([u64; 2]);

impl LogicalHash {
    pub(super) fn add(&mut self, other: LogicalHash) {
        self.0 = [self.0[0].wrapping_add(other.0[0]), self.0[1].wrapping_add(other.0[1])];
    }

    /// Adds elements from a logical index on.
    fn add_run(&mut self, seed: u64, index: u64, bits: impl Iterator<Item = u64>) {
        for (index, bits) in (index..).zip(bits) {
            let hash = mix(mix(seed ^ index) ^ bits);
            self.add(LogicalHash([hash, mix(hash ^ 0x9e37_79b9_7f4a_7c15)]));
        }
    }

    /// That of a stretch, whose elements' bits from one place of the part on are what `bits` gives.
    pub(super) fn of<I: Iterator<Item = u64>>(
        tensor: &str,
        kind: &str,
        dtype: &str,
        stretch: &Stretch,
        bits: impl Fn(&Shared) -> I,
    ) -> LogicalHash {
        let digest = Sha256::digest(format!("{tensor}\n{kind}\n{dtype}"));
        let seed = u64::from_le_bytes(digest[..8].try_into().expect("eight bytes"));
        let mut hash = LogicalHash::default();
        stretch.real().iter().for_each(|run| hash.add_run(seed, run.theirs as u64, bits(run)));
        hash
    }
}

/// The end of MurmurHash3, with other constants (Stafford's thirteenth).
fn mix(mut number: u64) -> u64 {
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// The hash of all values and moments of a state, on all ranks. All ranks of the mesh call it together.
///
/// # Errors
/// The collective fails, or the state's shards have changed since `ownership` was agreed on.
pub fn logical_hash(mesh: &Mesh, ownership: &Ownership, state: &dyn State) -> Result<LogicalHash> {
    let (mut hash, mut place) = (LogicalHash::default(), 0);
    state.visit(&mut |shard| {
        let owned = ownership.of_shard(place, shard.segments.len())?;
        place += 1;
        let moments = shard.moments.iter().map(|(name, numbers)| (name.as_str(), numbers));
        for (kind, numbers) in std::iter::once((VALUE, &shard.values)).chain(moments) {
            for (segment, _) in shard.segments.iter().zip(owned).filter(|(_, owned)| **owned) {
                let (name, stretch) = (segment.parameter.name(), Stretch::of(segment));
                let begin = |run: &Shared| segment.range.start + run.mine - segment.first;
                hash.add(match numbers {
                    Numbers::F32(numbers) => LogicalHash::of(name, kind, "F32", &stretch, |run| {
                        numbers[begin(run)..][..run.len].iter().map(|number| u64::from(number.to_bits()))
                    }),
                    Numbers::F64(numbers) => LogicalHash::of(name, kind, "F64", &stretch, |run| {
                        numbers[begin(run)..][..run.len].iter().map(|number| number.to_bits())
                    }),
                });
            }
        }
        Ok(())
    })?;
    let doing = || "adding up the state's hash".to_owned();
    mesh.world().all_reduce_in_place(&mut hash.0, ReduceOp::Sum).doing(doing)?;
    Ok(hash)
}

impl fmt::Display for LogicalHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

impl fmt::Debug for LogicalHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for LogicalHash {
    type Err = Error;

    fn from_str(text: &str) -> Result<LogicalHash> {
        let half = |from: usize| text.get(from..from + 16).and_then(|half| u64::from_str_radix(half, 16).ok());
        match (text.len(), half(0), half(16)) {
            (32, Some(one), Some(two)) => Ok(LogicalHash([one, two])),
            _ => Err(Error::invalid(format!("`{text}` is no hash: it has 32 hexadecimal digits"))),
        }
    }
}

impl Serialize for LogicalHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LogicalHash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<LogicalHash, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::Part;

    fn of(name: &str, part: &Part, range: std::ops::Range<usize>, bits: &[u64]) -> LogicalHash {
        let stretch = Stretch { part: part.clone(), range };
        LogicalHash::of(name, VALUE, "F64", &stretch, |run| {
            (run.theirs..run.theirs + run.len).map(|index| bits[index]).collect::<Vec<_>>().into_iter()
        })
    }

    #[test]
    fn it_depends_on_elements_and_not_on_cuts() {
        let bits: Vec<u64> = (0..15).map(|number| number * number).collect();
        let whole = Part::all(&[5, 3]);
        let want = of("w", &whole, 0..15, &bits);
        assert_eq!(want.to_string().parse::<LogicalHash>().unwrap(), want);
        let mut sum = of("w", &whole, 0..4, &bits);
        sum.add(of("w", &whole, 4..15, &bits));
        assert_eq!(sum, want);
        for dim in 0..2 {
            let mut sum = LogicalHash::default();
            for piece in 0..2 {
                let part = whole.clone().piece(dim, piece, 2);
                sum.add(of("w", &part, 0..part.len(), &bits));
            }
            assert_eq!(sum, want, "cut along {dim}");
        }
        let mut swapped = bits.clone();
        swapped.swap(3, 7);
        assert_ne!(of("w", &whole, 0..15, &swapped), want);
        assert_ne!(of("v", &whole, 0..15, &bits), want);
        assert!("12".parse::<LogicalHash>().is_err());
    }
}
