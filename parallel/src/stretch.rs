//! Stretches of a part, in row-major order: which logical elements they are, and what two of them share.
//!
//! What two boxes of a tensor have in common is a box, too, whose rows are contiguous in both. So answers come row by row
//! (and where inner dimensions are whole in both, many rows at once), never element by element.

use std::ops::Range;

use crate::error::Result;
use crate::parameter::Part;
use crate::state::Segment;

/// Some elements of a part, one after another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    pub(crate) part: Part,
    /// Row-major places in the part.
    pub(crate) range: Range<usize>,
}

/// Elements that two stretches share, one after another in both: places in their parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shared {
    pub(crate) mine: usize,
    pub(crate) theirs: usize,
    pub(crate) len: usize,
}

impl Stretch {
    /// All of a part.
    pub(crate) fn all(part: Part) -> Stretch {
        let range = 0..part.len();
        Stretch { part, range }
    }

    /// What a segment holds.
    pub(crate) fn of(segment: &Segment) -> Stretch {
        let range = segment.first..segment.first + segment.range.len();
        Stretch { part: segment.parameter.part().clone(), range }
    }

    /// The elements that aren't padding; `theirs` are indices in the logical tensor.
    pub(crate) fn real(&self) -> Vec<Shared> {
        let whole = Stretch::all(Part::all(self.part.whole()));
        self.shared(&whole).expect("it is the same tensor")
    }

    /// How many elements aren't padding.
    pub(crate) fn real_len(&self) -> usize {
        match self.part.is_padded() {
            false => self.range.len(),
            true => self.real().iter().map(|shared| shared.len).sum(),
        }
    }

    /// What both hold, without padding, in order.
    ///
    /// # Errors
    /// They are of tensors of different shapes.
    pub(crate) fn shared(&self, other: &Stretch) -> Result<Vec<Shared>> {
        let Some((first, shape)) = self.part.common(&other.part)? else { return Ok(Vec::new()) };
        let rows = Rows::new(first, shape, [&self.part, &other.part]);
        let ranges = [&self.range, &other.range];
        // Places grow with the row in both parts, so the rows that matter are a range.
        let begin = rows.first_where(|places| (0..2).all(|at| places[at] + rows.len > ranges[at].start));
        let end = rows.first_where(|places| (0..2).any(|at| places[at] >= ranges[at].end));
        let shared = (begin..end.max(begin)).filter_map(|row| {
            let places = rows.places(row);
            let skipped = (0..2).map(|at| ranges[at].start.saturating_sub(places[at])).max().unwrap_or(0);
            let left = (0..2).map(|at| ranges[at].end.saturating_sub(places[at])).min().unwrap_or(0).min(rows.len);
            (skipped < left).then(|| Shared {
                mine: places[0] + skipped,
                theirs: places[1] + skipped,
                len: left - skipped,
            })
        });
        Ok(shared.collect())
    }
}

/// The rows of a box within two parts.
struct Rows<'p> {
    first: Vec<usize>,
    /// The dimensions that tell rows apart.
    outer: Vec<usize>,
    count: usize,
    len: usize,
    parts: [&'p Part; 2],
}

impl<'p> Rows<'p> {
    fn new(first: Vec<usize>, shape: Vec<usize>, parts: [&'p Part; 2]) -> Rows<'p> {
        let mut inner = shape.len();
        while inner > 0 {
            inner -= 1;
            if parts.iter().any(|part| part.shape()[inner] != shape[inner]) {
                break;
            }
        }
        let len = shape[inner..].iter().product();
        let outer = shape[..inner].to_vec();
        Rows { first, count: outer.iter().product(), outer, len, parts }
    }

    /// Where a row begins in each part.
    fn places(&self, row: usize) -> [usize; 2] {
        let mut coordinates = self.first.clone();
        let mut rest = row;
        for (dim, len) in self.outer.iter().enumerate().rev() {
            coordinates[dim] += rest % len;
            rest /= len;
        }
        self.parts.map(|part| {
            let dims = coordinates.iter().zip(part.first()).zip(part.shape());
            dims.fold(0, |place, ((coordinate, first), len)| place * len + (coordinate - first))
        })
    }

    /// The first row of which something holds that holds of all later ones, too.
    fn first_where(&self, holds: impl Fn([usize; 2]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match holds(self.places(middle)) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A box of a tensor, perhaps padded, and a range of it.
    fn stretch(whole: Vec<usize>) -> impl Strategy<Value = Stretch> {
        let cuts = prop::collection::vec((0usize..3, 1usize..4, 0usize..3), 0..3);
        (cuts, any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(move |(cuts, one, two)| {
            let cut = |part: Part, (dim, pieces, piece): (usize, usize, usize)| {
                part.piece(dim % whole.len(), piece % pieces, pieces)
            };
            let part = cuts.into_iter().fold(Part::all(&whole), cut);
            let (one, two) = (one.index(part.len() + 1), two.index(part.len() + 1));
            Stretch { part, range: one.min(two)..one.max(two) }
        })
    }

    fn pair() -> impl Strategy<Value = (Stretch, Stretch)> {
        prop::collection::vec(1usize..6, 1..4).prop_flat_map(|whole| (stretch(whole.clone()), stretch(whole)))
    }

    fn by_index(stretch: &Stretch) -> BTreeMap<u64, usize> {
        let places = stretch.range.clone();
        places.filter_map(|place| stretch.part.index(place).map(|index| (index, place))).collect()
    }

    proptest! {
        #[test]
        fn what_two_stretches_share_is_what_they_share_element_by_element((one, two) in pair()) {
            let (ones, twos) = (by_index(&one), by_index(&two));
            let want: Vec<(usize, usize)> =
                ones.iter().filter_map(|(index, place)| twos.get(index).map(|other| (*place, *other))).collect();
            let runs = one.shared(&two).unwrap();
            let got: Vec<(usize, usize)> =
                runs.iter().flat_map(|run| (0..run.len).map(|at| (run.mine + at, run.theirs + at))).collect();
            prop_assert_eq!(got, want);
            prop_assert_eq!(one.real_len(), ones.len());
            let real: Vec<u64> =
                one.real().iter().flat_map(|run| (0..run.len).map(|at| (run.theirs + at) as u64)).collect();
            prop_assert_eq!(real, ones.into_keys().collect::<Vec<_>>());
        }
    }

    #[test]
    fn whole_dimensions_are_one_run() {
        let whole = Part::all(&[100, 8, 8]);
        let runs = Stretch::all(whole.clone().piece(0, 1, 4)).shared(&Stretch::all(whole.clone())).unwrap();
        assert_eq!(runs, [Shared { mine: 0, theirs: 25 * 64, len: 25 * 64 }]);
        let scalar = Stretch::all(Part::all(&[]));
        assert_eq!(scalar.real(), [Shared { mine: 0, theirs: 0, len: 1 }]);
    }
}
