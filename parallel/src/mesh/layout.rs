//! Which rank sits where: a mixed-radix number, one digit for each axis, the last axis fastest.
//!
//! The groups along some axes are in closed form: fix the digits of all other axes, run through these
//! (Megatron-Core's orthogonal rank groups are the same sets).

use crate::error::{Error, Result};

/// An axis of parallelism.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Pipeline: each rank has some of the layers.
    Pp,
    /// Data: each rank has some of the samples, and all of the state.
    Dp,
    /// Sharded data: each rank has some of the samples, and a part of the state.
    Fsdp,
    /// Context: each rank has some of each sample's positions.
    Cp,
    /// Expert: each rank has some of the experts.
    Ep,
    /// Sequence: each rank has some of the positions between attention layers, and some of the heads within.
    Sp,
    /// Tensor: each rank has a part of each matrix.
    Tp,
}

impl Axis {
    /// All axes, the one whose messages can wait longest first: the order in which a layout is best written.
    pub const ALL: [Axis; 7] = [Axis::Pp, Axis::Dp, Axis::Fsdp, Axis::Cp, Axis::Ep, Axis::Sp, Axis::Tp];

    /// Its name in layouts and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Axis::Pp => "pp",
            Axis::Dp => "dp",
            Axis::Fsdp => "fsdp",
            Axis::Cp => "cp",
            Axis::Ep => "ep",
            Axis::Sp => "sp",
            Axis::Tp => "tp",
        }
    }
}

impl std::fmt::Display for Axis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Sizes of axes, the outermost first. Axes that aren't named have size 1.
///
/// ```
/// use paceline_parallel::mesh::{Axis, Layout};
///
/// let layout: Layout = "pp=2,dp=2,tp=2".parse()?;
/// assert_eq!(layout.ranks(), 8);
/// assert_eq!(layout.coordinate(5, Axis::Pp), 1);
/// assert_eq!(layout.group(5, &[Axis::Tp]), [4, 5]);
/// assert_eq!(layout.group(5, &[Axis::Dp, Axis::Pp]), [1, 3, 5, 7]);
/// # Ok::<(), paceline_parallel::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Layout {
    axes: Vec<(Axis, usize)>,
}

impl Layout {
    /// A layout of axes and sizes, the outermost first.
    ///
    /// # Errors
    /// An axis is named twice, or has size 0, or there are too many ranks to count.
    pub fn new(axes: &[(Axis, usize)]) -> Result<Layout> {
        let mut ranks = 1usize;
        for (place, (axis, size)) in axes.iter().enumerate() {
            if axes[..place].iter().any(|(other, _)| other == axis) {
                return Err(Error::invalid(format!("the layout names {axis} twice")));
            }
            if *size == 0 {
                return Err(Error::invalid(format!("the layout gives {axis} no ranks: the least is 1")));
            }
            ranks = ranks
                .checked_mul(*size)
                .ok_or_else(|| Error::invalid(format!("{size} along {axis} makes more ranks than can be counted")))?;
        }
        Ok(Layout { axes: axes.to_vec() })
    }

    /// One rank.
    #[must_use]
    pub fn single() -> Layout {
        Layout { axes: Vec::new() }
    }

    /// The axes and their sizes, the outermost first.
    #[must_use]
    pub fn axes(&self) -> &[(Axis, usize)] {
        &self.axes
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.axes.iter().map(|(_, size)| size).product()
    }

    /// How many ranks there are along an axis.
    #[must_use]
    pub fn size(&self, axis: Axis) -> usize {
        self.axes.iter().find(|(other, _)| *other == axis).map_or(1, |(_, size)| *size)
    }

    /// How many ranks there are along some axes together.
    #[must_use]
    pub fn size_of(&self, axes: &[Axis]) -> usize {
        self.axes.iter().filter(|(axis, _)| axes.contains(axis)).map(|(_, size)| size).product()
    }

    /// How far apart two neighbours along an axis are.
    fn stride(&self, axis: Axis) -> usize {
        let inner = self.axes.iter().rev().take_while(|(other, _)| *other != axis);
        inner.map(|(_, size)| size).product()
    }

    /// Where a rank is along an axis.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn coordinate(&self, rank: usize, axis: Axis) -> usize {
        assert!(rank < self.ranks(), "rank {rank} of {}", self.ranks());
        let size = self.size(axis);
        if size == 1 { 0 } else { rank / self.stride(axis) % size }
    }

    /// Where a rank is along some axes together, counted in the layout's order: its place in [`Layout::group`].
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn place(&self, rank: usize, axes: &[Axis]) -> usize {
        let named = self.axes.iter().filter(|(axis, _)| axes.contains(axis));
        named.fold(0, |place, (axis, size)| place * size + self.coordinate(rank, *axis))
    }

    /// The rank at some coordinates; axes that aren't named are at 0.
    ///
    /// # Panics
    /// If a coordinate is beyond its axis.
    #[must_use]
    pub fn rank(&self, coordinates: &[(Axis, usize)]) -> usize {
        let along = |(axis, coordinate): &(Axis, usize)| {
            assert!(*coordinate < self.size(*axis), "{coordinate} along {axis}, which has {}", self.size(*axis));
            if self.size(*axis) == 1 { 0 } else { coordinate * self.stride(*axis) }
        };
        coordinates.iter().map(along).sum()
    }

    /// The ranks that differ from this one along these axes only, in rank order.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn group(&self, rank: usize, axes: &[Axis]) -> Vec<usize> {
        let mut group = vec![rank];
        for (axis, size) in self.axes.iter().filter(|(axis, _)| axes.contains(axis)) {
            let stride = self.stride(*axis);
            let spread = |rank: &usize| {
                let first = rank - self.coordinate(*rank, *axis) * stride;
                (0..*size).map(move |coordinate| first + coordinate * stride).collect::<Vec<_>>()
            };
            group = group.iter().flat_map(spread).collect();
        }
        group
    }

    /// A number that the ranks of a group share and no other group along the same axes has.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn color(&self, rank: usize, axes: &[Axis]) -> usize {
        let others = self.axes.iter().filter(|(axis, _)| !axes.contains(axis));
        others.fold(0, |color, (axis, size)| color * size + self.coordinate(rank, *axis))
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.axes.is_empty() {
            return f.write_str("one rank");
        }
        let words: Vec<String> = self.axes.iter().map(|(axis, size)| format!("{axis}={size}")).collect();
        f.write_str(&words.join(","))
    }
}

impl std::str::FromStr for Layout {
    type Err = Error;

    /// `pp=2,dp=4,tp=8`.
    fn from_str(text: &str) -> Result<Layout> {
        let word = |word: &str| {
            let wrong = || Error::invalid(format!("`{word}` in the layout `{text}`: it must be like tp=4"));
            let (name, size) = word.trim().split_once('=').ok_or_else(wrong)?;
            let axis = Axis::ALL.into_iter().find(|axis| axis.name() == name.trim()).ok_or_else(|| {
                let names = Axis::ALL.map(Axis::name).join(", ");
                Error::invalid(format!("`{}` in the layout `{text}`: the axes are {names}", name.trim()))
            })?;
            Ok((axis, size.trim().parse().map_err(|_| wrong())?))
        };
        let words = text.split(',').filter(|word| !word.trim().is_empty());
        Layout::new(&words.map(word).collect::<Result<Vec<_>>>()?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layouts() -> impl Strategy<Value = Layout> {
        let axes = Just(Axis::ALL.to_vec()).prop_shuffle();
        (axes, prop::collection::vec(1usize..4, 0..=7)).prop_map(|(axes, sizes)| {
            let axes: Vec<_> = axes.into_iter().zip(sizes).collect();
            Layout::new(&axes).unwrap()
        })
    }

    proptest! {
        #[test]
        fn groups_cut_all_ranks_into_equal_parts(layout in layouts(), chosen in prop::collection::vec(any::<bool>(), 7)) {
            let axes: Vec<Axis> = Axis::ALL.into_iter().zip(&chosen).filter(|(_, is)| **is).map(|(axis, _)| axis).collect();
            let mut seen = vec![0; layout.ranks()];
            for rank in 0..layout.ranks() {
                let group = layout.group(rank, &axes);
                prop_assert_eq!(group.len(), layout.size_of(&axes));
                prop_assert!(group.is_sorted());
                prop_assert_eq!(group[layout.place(rank, &axes)], rank);
                for other in &group {
                    prop_assert_eq!(&layout.group(*other, &axes), &group);
                    prop_assert_eq!(layout.color(*other, &axes), layout.color(rank, &axes));
                    for axis in Axis::ALL.iter().filter(|axis| !axes.contains(axis)) {
                        prop_assert_eq!(layout.coordinate(*other, *axis), layout.coordinate(rank, *axis));
                    }
                }
                seen[rank] += 1;
            }
            let colors: std::collections::BTreeSet<_> = (0..layout.ranks()).map(|rank| layout.color(rank, &axes)).collect();
            prop_assert_eq!(colors.len() * layout.size_of(&axes), layout.ranks());
        }

        #[test]
        fn coordinates_and_ranks_are_inverse(layout in layouts()) {
            for rank in 0..layout.ranks() {
                let coordinates: Vec<_> = Axis::ALL.iter().map(|axis| (*axis, layout.coordinate(rank, *axis))).collect();
                prop_assert_eq!(layout.rank(&coordinates), rank);
            }
        }

        #[test]
        fn a_layout_is_read_as_it_is_written(layout in layouts()) {
            if !layout.axes().is_empty() {
                prop_assert_eq!(layout.to_string().parse::<Layout>().unwrap(), layout);
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_layout_is_said() {
        for (text, said) in
            [("tp=2,tp=2", "twice"), ("tp=0", "no ranks"), ("qp=2", "the axes are"), ("tp", "like tp=4")]
        {
            let error = text.parse::<Layout>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
