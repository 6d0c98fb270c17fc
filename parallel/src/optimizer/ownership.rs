//! Which rank counts which element, where several have it: each logical element belongs to exactly one.
//!
//! Along an axis on which a parameter varies, or the state is cut, each rank has elements of its own. Along every other axis
//! the ranks have the same, and those at the least coordinate at which anybody has the parameter own it. Where stretches
//! are the same even so (heads that are fewer than the ranks they are spread over), the lowest rank owns them. What comes
//! out is counted: an element with two owners, or none, is an error before the first step and not a wrong norm at each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::agreement::gather;
use crate::error::{Error, Result};
use crate::mesh::{Axis, Layout, Mesh};
use crate::parameter::Part;
use crate::state::State;
use crate::stretch::Stretch;
use crate::value::{Kind, Spread};

/// Which of this rank's segments it owns, and which parameters there are anywhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// By shard and segment.
    owned: Vec<Vec<bool>>,
    shapes: BTreeMap<String, Vec<usize>>,
}

/// A stretch that a rank has.
#[derive(Clone, Serialize, Deserialize)]
struct Claim {
    name: String,
    part: Part,
    first: usize,
    len: usize,
    spread: Spread,
}

impl Claim {
    /// What is the same for the same elements.
    fn key(&self) -> (&str, &[usize], &[usize], usize, usize) {
        (&self.name, self.part.first(), self.part.shape(), self.first, self.len)
    }

    fn stretch(&self) -> Stretch {
        Stretch { part: self.part.clone(), range: self.first..self.first + self.len }
    }
}

impl Ownership {
    /// What the ranks of a mesh own of a state, whose shards must stay as they are. All ranks call it together.
    ///
    /// # Errors
    /// Ranks say different things of a parameter, an element has no owner or two, or the ranks don't come together.
    pub fn agree(mesh: &Mesh, state: &dyn State) -> Result<Ownership> {
        let mut shards = Vec::new();
        state.visit(&mut |shard| {
            let claims = shard.segments.iter().map(|segment| Claim {
                name: segment.parameter.name().to_owned(),
                part: segment.parameter.part().clone(),
                first: segment.first,
                len: segment.range.len(),
                spread: segment.parameter.spread().clone(),
            });
            shards.push(claims.collect::<Vec<_>>());
            Ok(())
        })?;
        let claims: Vec<&Claim> = shards.iter().flatten().collect();
        let said = serde_json::to_vec(&claims).map_err(|error| Error::invalid(error.to_string()))?;
        let all = gather(mesh.world(), &said, "who has which parameters")?;
        let all: Vec<Vec<Claim>> = all
            .iter()
            .map(|said| serde_json::from_slice(said).map_err(|error| Error::invalid(error.to_string())))
            .collect::<Result<_>>()?;
        let (shapes, mut owned) = resolve(mesh.layout(), &state.distinct_along(), &all)?;
        let mut mine = owned.swap_remove(mesh.rank()).into_iter();
        let owned = shards.iter().map(|claims| mine.by_ref().take(claims.len()).collect()).collect();
        Ok(Ownership { owned, shapes })
    }

    /// The shapes of all logical tensors by name, those on other ranks too.
    #[must_use]
    pub fn shapes(&self) -> &BTreeMap<String, Vec<usize>> {
        &self.shapes
    }

    /// How many logical elements there are.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shapes.values().map(|shape| shape.iter().product::<usize>()).sum()
    }

    /// Which segments of a shard this rank owns.
    ///
    /// # Errors
    /// There were other shards when it was agreed.
    pub(crate) fn of_shard(&self, shard: usize, segments: usize) -> Result<&[bool]> {
        let owned = self.owned.get(shard).filter(|owned| owned.len() == segments);
        owned
            .map(Vec::as_slice)
            .ok_or_else(|| Error::invalid("the state's shards have changed since their owners were agreed on"))
    }
}

/// By rank and claim, whether the rank owns it; and all shapes.
type Resolved = (BTreeMap<String, Vec<usize>>, Vec<Vec<bool>>);

/// Parameters that vary along `pp` are others on each stage: what two have, each would train alone.
fn two_stages(claim: &Claim, [one, other]: [usize; 2]) -> Error {
    Error::Differs(format!(
        "{} is kept by ranks {one} and {other}, of two stages: pipeline::Ties makes one of them its owner, and the other's a copy",
        claim.name
    ))
}

fn resolve(layout: &Layout, distinct: &[Axis], all: &[Vec<Claim>]) -> Result<Resolved> {
    let mut known: BTreeMap<&str, &Claim> = BTreeMap::new();
    for (rank, claim) in all.iter().enumerate().flat_map(|(rank, claims)| claims.iter().map(move |claim| (rank, claim)))
    {
        let first = known.entry(&claim.name).or_insert(claim);
        if first.part.whole() != claim.part.whole() || first.spread != claim.spread {
            let (name, one, two) = (&claim.name, first.part.whole(), claim.part.whole());
            let (spread, other) = (&first.spread, &claim.spread);
            return Err(Error::Differs(format!(
                "{name} is {one:?} ({spread}) on one rank, and {two:?} ({other}) on rank {rank}"
            )));
        }
    }
    // Where a rank is along the axes on which others have the same.
    let place = |rank: usize, claim: &Claim| -> Vec<usize> {
        let same = |axis: &Axis| claim.spread.along(*axis) != Kind::Varying && !distinct.contains(axis);
        layout
            .axes()
            .iter()
            .map(|(axis, _)| axis)
            .filter(|axis| same(axis))
            .map(|axis| layout.coordinate(rank, *axis))
            .collect()
    };
    let mut least: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (rank, claim) in all.iter().enumerate().flat_map(|(rank, claims)| claims.iter().map(move |claim| (rank, claim)))
    {
        let place = place(rank, claim);
        let least = least.entry(&claim.name).or_insert_with(|| place.clone());
        if place < *least {
            *least = place;
        }
    }
    let mut taken = BTreeMap::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut owned = Vec::new();
    for (rank, claims) in all.iter().enumerate() {
        let mut mine = Vec::new();
        for claim in claims {
            let may_own = place(rank, claim) == least[claim.name.as_str()];
            let first = if may_own { *taken.entry(claim.key()).or_insert(rank) } else { rank };
            let owns = may_own && first == rank;
            if layout.coordinate(first, Axis::Pp) != layout.coordinate(rank, Axis::Pp) {
                return Err(two_stages(claim, [first, rank]));
            }
            if owns {
                *counts.entry(&claim.name).or_default() += claim.stretch().real_len();
            }
            mine.push(owns);
        }
        owned.push(mine);
    }
    for (name, claim) in &known {
        let (count, should) = (counts.get(name).copied().unwrap_or(0), claim.part.whole().iter().product::<usize>());
        if count != should {
            return Err(Error::Differs(format!(
                "{name} has {should} elements, and the ranks of the layout {layout} that own some own {count} together: \
                 the parameter ({}) or the state says wrongly along which axes ranks have different parts of it",
                claim.spread
            )));
        }
    }
    Ok((known.into_iter().map(|(name, claim)| (name.to_owned(), claim.part.whole().to_vec())).collect(), owned))
}
