//! Where each rank's piece of a buffer lies.

use super::Board;
use crate::error::{Error, Result};

/// A piece of a buffer, in bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Piece {
    pub(super) at: u64,
    pub(super) bytes: u64,
}

impl Piece {
    pub(super) fn end(self) -> u64 {
        self.at + self.bytes
    }
}

/// One piece for each rank; the rest is empty.
pub(super) type Pieces = [Piece; Board::RANKS_MAX];

/// `count` elements of `size` bytes, as bytes.
pub(super) fn bytes_of(count: usize, size: usize) -> Result<u64> {
    let bytes = count.checked_mul(size).filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.map(|bytes| bytes as u64).ok_or_else(|| {
        Error::invalid(format!("{count} elements of {size} bytes are more than memory can hold"))
            .hint("check the count")
    })
}

/// Blocks of one length, one after the other.
pub(super) fn even(count: usize, size: usize, ranks: usize) -> Result<Pieces> {
    bytes_of(count.saturating_mul(ranks), size)?;
    let bytes = bytes_of(count, size)?;
    let mut pieces = Pieces::default();
    for (rank, piece) in pieces[..ranks].iter_mut().enumerate() {
        *piece = Piece { at: rank as u64 * bytes, bytes };
    }
    Ok(pieces)
}

/// Blocks of `counts` elements at `offsets`, or one after the other where there are no offsets.
pub(super) fn uneven(counts: &[usize], offsets: &[usize], what: &str, size: usize, ranks: usize) -> Result<Pieces> {
    if counts.len() != ranks || !(offsets.is_empty() || offsets.len() == ranks) {
        let cause =
            format!("there are {} {what} counts and {} {what} offsets for {ranks} ranks", counts.len(), offsets.len());
        return Err(Error::invalid(cause).hint("give one count per rank, and one offset per rank or none"));
    }
    let mut pieces = Pieces::default();
    let mut next = 0usize;
    for (rank, piece) in pieces[..ranks].iter_mut().enumerate() {
        let at = offsets.get(rank).copied().unwrap_or(next);
        next = at.saturating_add(counts[rank]);
        bytes_of(next, size)?;
        *piece = Piece { at: bytes_of(at, size)?, bytes: bytes_of(counts[rank], size)? };
    }
    Ok(pieces)
}

/// Where the last piece that is not empty ends.
pub(super) fn end(pieces: &Pieces) -> u64 {
    pieces.iter().filter(|piece| piece.bytes > 0).map(|piece| piece.end()).max().unwrap_or(0)
}

/// The bytes of the longest piece.
pub(super) fn longest(pieces: &Pieces) -> u64 {
    pieces.iter().map(|piece| piece.bytes).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_unless_they_are_told_where_to_lie() {
        let pieces = even(3, 4, 3).expect("pieces");
        assert_eq!(
            pieces[..4].iter().map(|piece| (piece.at, piece.bytes)).collect::<Vec<_>>(),
            [(0, 12), (12, 12), (24, 12), (0, 0)]
        );
        assert_eq!((end(&pieces), longest(&pieces)), (36, 12));
        let pieces = uneven(&[2, 0, 5], &[], "recv", 2, 3).expect("pieces");
        assert_eq!((pieces[2], end(&pieces), longest(&pieces)), (Piece { at: 4, bytes: 10 }, 14, 10));
        let pieces = uneven(&[2, 0, 5], &[7, 99, 0], "recv", 2, 3).expect("pieces");
        assert_eq!((pieces[0].at, pieces[2].at, end(&pieces)), (14, 0, 18));
    }

    #[test]
    fn what_memory_cannot_hold_is_refused() {
        assert!(bytes_of(usize::MAX / 4, 8).is_err());
        assert!(even(usize::MAX / 16, 1, 16).is_err());
        assert!(uneven(&[1, 1], &[0, usize::MAX], "send", 1, 2).is_err());
        let error = uneven(&[1, 1, 1], &[0], "send", 1, 3).expect_err("offsets are missing");
        assert!(error.to_string().contains("3 send counts and 1 send offsets for 3 ranks"), "{error}");
    }
}
