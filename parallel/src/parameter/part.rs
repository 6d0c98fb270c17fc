//! Which part of a logical tensor lies here.

use std::ops::Range;

use crate::error::{Error, Result};

/// A box of a logical tensor: the part of it that a rank has. It may reach beyond the tensor's end where that can't be cut
/// evenly: what lies beyond is padding, which is zero and stays so.
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Part {
    whole: Vec<usize>,
    first: Vec<usize>,
    shape: Vec<usize>,
}

impl Part {
    /// All of a tensor.
    #[must_use]
    pub fn all(whole: &[usize]) -> Part {
        Part { whole: whole.to_vec(), first: vec![0; whole.len()], shape: whole.to_vec() }
    }

    /// Piece `piece` of `pieces` along a dimension: equal pieces, the last ones padded.
    ///
    /// # Panics
    /// If there is no such dimension or piece.
    #[must_use]
    pub fn piece(mut self, dim: usize, piece: usize, pieces: usize) -> Part {
        assert!(piece < pieces, "piece {piece} of {pieces}");
        let len = self.shape[dim].div_ceil(pieces);
        self.first[dim] += piece * len;
        self.shape[dim] = len;
        self
    }

    /// Some indices along a dimension.
    ///
    /// # Panics
    /// If there is no such dimension, or the range is not within the part.
    #[must_use]
    pub fn range(mut self, dim: usize, range: Range<usize>) -> Part {
        assert!(range.start <= range.end && range.end <= self.shape[dim], "{range:?} of {}", self.shape[dim]);
        self.first[dim] += range.start;
        self.shape[dim] = range.len();
        self
    }

    /// The logical tensor's shape.
    #[must_use]
    pub fn whole(&self) -> &[usize] {
        &self.whole
    }

    /// The indices of the part's first element in the logical tensor.
    #[must_use]
    pub fn first(&self) -> &[usize] {
        &self.first
    }

    /// The part's shape, with padding.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many elements the part has, with padding.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part's shape without padding.
    #[must_use]
    pub fn real_shape(&self) -> Vec<usize> {
        let dims = self.whole.iter().zip(&self.first).zip(&self.shape);
        dims.map(|((whole, first), len)| whole.saturating_sub(*first).min(*len)).collect()
    }

    /// Whether some of it is padding.
    #[must_use]
    pub fn is_padded(&self) -> bool {
        self.real_shape() != self.shape
    }

    /// For each element in row-major order, its row-major index in the logical tensor; `None` for padding.
    pub fn indices(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        (0..self.len()).map(|place| self.index(place))
    }

    /// The index in the logical tensor of the part's element at a row-major place.
    #[must_use]
    pub fn index(&self, place: usize) -> Option<u64> {
        let (mut rest, mut index, mut stride) = (place, 0u64, 1u64);
        for dim in (0..self.whole.len()).rev() {
            let at = self.first[dim] + rest % self.shape[dim];
            rest /= self.shape[dim];
            if at >= self.whole[dim] {
                return None;
            }
            index += at as u64 * stride;
            stride *= self.whole[dim] as u64;
        }
        Some(index)
    }

    /// What this has in common with another part of the same tensor, without padding: its first indices and shape.
    ///
    /// # Errors
    /// They are parts of tensors of different shapes.
    pub fn common(&self, other: &Part) -> Result<Option<(Vec<usize>, Vec<usize>)>> {
        if self.whole != other.whole {
            let (one, two) = (&self.whole, &other.whole);
            return Err(Error::invalid(format!("a part of a tensor of {one:?} is compared with one of {two:?}")));
        }
        let (mut first, mut shape) = (Vec::new(), Vec::new());
        for dim in 0..self.whole.len() {
            let begin = self.first[dim].max(other.first[dim]);
            let end = (self.first[dim] + self.shape[dim]).min(other.first[dim] + other.shape[dim]).min(self.whole[dim]);
            if end <= begin {
                return Ok(None);
            }
            first.push(begin);
            shape.push(end - begin);
        }
        Ok(Some((first, shape)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Pieces cover each element once, whatever the number of pieces.
        #[test]
        fn pieces_cover_the_tensor(whole in prop::collection::vec(1usize..7, 1..4), dim in 0usize..3, pieces in 1usize..6) {
            let dim = dim % whole.len();
            let mut seen = vec![0; whole.iter().product()];
            for piece in 0..pieces {
                let part = Part::all(&whole).piece(dim, piece, pieces);
                prop_assert_eq!(part.indices().count(), part.len());
                prop_assert_eq!(part.indices().flatten().count(), part.real_shape().iter().product::<usize>());
                part.indices().flatten().for_each(|index| seen[index as usize] += 1);
            }
            prop_assert!(seen.iter().all(|times| *times == 1));
        }
    }

    #[test]
    fn what_two_parts_share() {
        let whole = Part::all(&[5, 4]);
        let (top, left) = (whole.clone().piece(0, 1, 2), whole.clone().piece(1, 0, 2));
        assert_eq!(top.common(&left).unwrap(), Some((vec![3, 0], vec![2, 2])));
        assert_eq!(top.common(&whole.clone().piece(0, 0, 2)).unwrap(), None);
        assert!(top.is_padded() && top.shape() == [3, 4] && top.real_shape() == [2, 4]);
        assert!(whole.common(&Part::all(&[5])).is_err());
    }
}
