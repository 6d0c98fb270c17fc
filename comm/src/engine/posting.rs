//! What each rank publishes and takes in a call over the boards.

use std::ops::Range;

use crate::collective::Collective;

use super::shape::Shape;
use paceline_transport::Board;

/// What one rank does in an exchange. Ranges are in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Posting {
    /// What it publishes, of its input.
    pub(super) publishes: Range<usize>,
    /// The same, where it is not one run of bytes: what goes to each rank.
    pub(super) pieces: Option<Box<[Range<usize>]>>,
    /// Whom it takes from.
    pub(super) sources: Range<usize>,
    /// The length of each one's message.
    pub(super) message: usize,
    /// What it takes of each one's message.
    pub(super) takes: Range<usize>,
    /// The same of its own input, if that is part of its result.
    pub(super) own: Option<Range<usize>>,
    /// Whether the parts are folded; otherwise they lie in the output, rank by rank, `stride` apart.
    pub(super) folds: bool,
    pub(super) stride: usize,
    /// In place of `message`, `takes` and `stride`, where ranks differ in them.
    pub(super) parts: Option<Box<[Part]>>,
    /// Whether the messages of two ranks are in the cells that they hand to and fro.
    pub(super) swaps: bool,
    /// Whether only the sender knows where in its message a part lies, and says so in front.
    pub(super) tells: bool,
}

/// Bytes up to which the one of two ranks that doesn't need the other's message may get several turns ahead. Longer messages
/// gain more from lying where they are quick to write.
const RUNS_AHEAD_BYTES: usize = 256;

/// What is taken of one rank's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(super) message: usize,
    pub(super) takes: Range<usize>,
    /// Where it goes in the output.
    pub(super) place: usize,
}

/// The longest message that a rank publishes in a call of `bytes`: the vector, or the blocks of all ranks together.
pub(crate) fn published_bytes(collective: Collective, size: usize, bytes: usize) -> usize {
    match collective {
        Collective::AllGather | Collective::Gather => bytes.div_ceil(size),
        Collective::AllToAll | Collective::ReduceScatter if size == 2 => bytes.div_ceil(2),
        Collective::Barrier => 0,
        _ => bytes,
    }
}

/// Whether a call of `bytes` fits on the boards. Uneven blocks may all be one rank's; in an uneven all_to_all the ranks
/// find out there.
pub(crate) fn fits(collective: Collective, size: usize, bytes: usize, uneven: bool) -> bool {
    let published = match (collective, uneven) {
        (Collective::AllToAll, true) => 0,
        (_, true) => bytes,
        (_, false) => published_bytes(collective, size, bytes),
    };
    published <= Board::longest(size)
}

impl Posting {
    /// A turn in which this rank publishes nothing and waits for nobody.
    pub(super) fn nothing() -> Posting {
        Posting::default()
    }

    /// The part of rank `me` of `size` in a call with this root, whose vector or block has `bytes`.
    pub(crate) fn new(collective: Collective, (me, size, root): (usize, usize, usize), bytes: usize) -> Posting {
        use Collective::{
            AllGather, AllReduce, AllToAll, Barrier, Broadcast, Gather, Recv, Reduce, ReduceScatter, Scatter, Send,
            SendRecv,
        };
        let (is_root, whole, all, block) = (me == root, 0..bytes, 0..size * bytes, me * bytes..(me + 1) * bytes);
        let (everyone, only_root, nobody, nothing) = (0..size, root..root + 1, 0..0, 0..0);
        // Of two ranks, each needs one block of the other's only.
        let one_block = size == 2 && matches!(collective, ReduceScatter | AllToAll);
        let for_peer = || (1 - me) * bytes..(2 - me) * bytes;
        let (publishes, sources, takes, own) = match collective {
            AllReduce | AllGather => (whole.clone(), everyone, whole.clone(), Some(whole)),
            Reduce | Gather if is_root => (nothing, everyone, whole.clone(), Some(whole)),
            Reduce | Gather => (whole, nobody, nothing, None),
            Broadcast if is_root => (whole.clone(), nobody, nothing, Some(whole)),
            Broadcast => (nothing, only_root, whole, None),
            Scatter if is_root => (all, nobody, nothing, Some(block)),
            Scatter => (nothing, only_root, block, None),
            ReduceScatter | AllToAll if one_block => (for_peer(), everyone, whole, Some(block)),
            ReduceScatter | AllToAll => (all, everyone, block.clone(), Some(block)),
            Barrier => (nothing.clone(), everyone, nothing, None),
            Send | Recv | SendRecv => unreachable!("messages have no direct row"),
        };
        let stride = if matches!(collective, AllGather | Gather | AllToAll) { bytes } else { 0 };
        let folds = collective.reduces() && own.is_some();
        let has_all = matches!(collective, Scatter | ReduceScatter | AllToAll) && !one_block;
        let message = if has_all { size * bytes } else { takes.len() };
        let both_bring = matches!(collective, AllReduce | AllGather | ReduceScatter | AllToAll | Barrier);
        let swaps = size == 2 && (both_bring || bytes > RUNS_AHEAD_BYTES);
        Posting { publishes, sources, message, takes, own, folds, stride, swaps, ..Posting::default() }
    }

    /// The part of rank `me` of `size` in a call whose blocks lie there in the input and the output.
    pub(crate) fn uneven(
        collective: Collective,
        (me, size, root): (usize, usize, usize),
        (input, output): (&Shape, &Shape),
    ) -> Posting {
        let (is_root, everyone) = (me == root, 0..size);
        let swaps = size == 2 && !collective.has_root();
        match (collective, input, output) {
            (Collective::AllGather | Collective::Gather, _, Shape::Table(blocks)) => {
                let takes = is_root || collective == Collective::AllGather;
                let publishes = if takes && collective == Collective::Gather { 0..0 } else { 0..blocks[me].len() };
                let part =
                    |block: &Range<usize>| Part { message: block.len(), takes: 0..block.len(), place: block.start };
                Posting {
                    publishes,
                    sources: if takes { everyone } else { 0..0 },
                    own: takes.then(|| 0..blocks[me].len()),
                    parts: Some(blocks.iter().map(part).collect()),
                    swaps,
                    ..Posting::default()
                }
            }
            (Collective::ReduceScatter | Collective::Scatter, Shape::Table(blocks), _) => {
                let scatters = collective == Collective::Scatter;
                let sends = is_root || !scatters;
                let before: usize = blocks[..me].iter().map(Range::len).sum();
                Posting {
                    pieces: sends.then(|| blocks.iter().cloned().collect()),
                    sources: match (scatters, is_root) {
                        (true, true) => 0..0,
                        (true, false) => root..root + 1,
                        (false, _) => everyone,
                    },
                    message: blocks.iter().map(Range::len).sum(),
                    takes: if scatters && is_root { 0..0 } else { before..before + blocks[me].len() },
                    own: sends.then(|| blocks[me].clone()),
                    folds: !scatters,
                    swaps,
                    ..Posting::default()
                }
                .in_one_run()
            }
            (Collective::AllToAll, Shape::Table(leaving), Shape::Table(arriving)) => {
                let of_others = |(rank, block): (usize, &Range<usize>)| if rank == me { 0..0 } else { block.clone() };
                // How long the message is, and where in it the part lies, the others will say.
                let part = |block: &Range<usize>| Part { message: 0, takes: 0..block.len(), place: block.start };
                Posting {
                    pieces: Some(leaving.iter().enumerate().map(of_others).collect()),
                    sources: everyone,
                    own: Some(leaving[me].clone()),
                    parts: Some(arriving.iter().map(part).collect()),
                    tells: true,
                    swaps,
                    ..Posting::default()
                }
            }
            _ => unreachable!("{collective} has no blocks of different lengths"),
        }
    }

    /// The same without pieces, if they lie one behind the other.
    fn in_one_run(mut self) -> Posting {
        let Some(pieces) = &self.pieces else { return self };
        let mut all = pieces.iter().filter(|piece| !piece.is_empty());
        let Some(first) = all.next() else { return Posting { pieces: None, ..self } };
        if let Some(end) = all.try_fold(first.end, |end, piece| (piece.start == end).then_some(piece.end)) {
            self.publishes = first.start..end;
            self.pieces = None;
        }
        self
    }

    /// What is taken of a rank's message: its length, the range, and where that goes.
    #[inline(always)]
    pub(super) fn part(&self, rank: usize) -> (usize, Range<usize>, usize) {
        match &self.parts {
            None => (self.message, self.takes.clone(), rank * self.stride),
            Some(parts) => {
                let part = &parts[rank];
                (part.message, part.takes.clone(), part.place)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_brings_what() {
        let of = |collective, me| Posting::new(collective, (me, 3, 1), 8);
        let reduce = of(Collective::Reduce, 0);
        assert_eq!((reduce.publishes, reduce.sources.len(), reduce.own), (0..8, 0, None));
        let scatter = of(Collective::Scatter, 2);
        assert_eq!((scatter.publishes.len(), scatter.sources, scatter.takes), (0, 1..2, 16..24));
        let scatter = of(Collective::Scatter, 1);
        assert_eq!((scatter.publishes, scatter.own), (0..24, Some(8..16)));
        let all_to_all = of(Collective::AllToAll, 2);
        assert_eq!((all_to_all.takes, all_to_all.stride, all_to_all.folds), (16..24, 8, false));
        assert!(of(Collective::ReduceScatter, 0).folds && !of(Collective::Barrier, 0).folds);
        let of_two = Posting::new(Collective::ReduceScatter, (1, 2, 0), 8);
        assert_eq!((of_two.publishes, of_two.takes, of_two.own, of_two.message), (0..8, 0..8, Some(8..16), 8));
    }

    #[test]
    fn what_fits_is_what_one_rank_publishes() {
        let longest = Board::longest(4);
        assert!(
            fits(Collective::AllGather, 4, 4 * longest, false) && !fits(Collective::AllReduce, 4, 4 * longest, false)
        );
        assert!(!fits(Collective::AllGather, 4, 4 * longest, true) && fits(Collective::AllGather, 4, longest, true));
        assert!(fits(Collective::AllToAll, 4, 4 * longest, true));
        assert!(fits(Collective::Barrier, 1000, 0, false));
    }

    #[test]
    fn who_brings_what_in_uneven_blocks() {
        let table = |ranges: [Range<usize>; 3]| Shape::Table(ranges.into());
        let blocks = table([0..4, 4..4, 4..12]);
        let of = |collective, me| Posting::uneven(collective, (me, 3, 0), (&blocks, &blocks));
        let gather = of(Collective::AllGather, 2);
        assert_eq!((gather.publishes.clone(), gather.part(0), gather.part(2)), (0..8, (4, 0..4, 0), (8, 0..8, 4)));
        assert_eq!((of(Collective::Gather, 0).publishes, of(Collective::Gather, 2).sources), (0..0, 0..0));
        let scatter = of(Collective::ReduceScatter, 2);
        assert_eq!((scatter.publishes.clone(), scatter.pieces.clone(), scatter.part(0)), (0..12, None, (12, 4..12, 0)));
        let apart = table([20..24, 0..0, 0..8]);
        let scatter = Posting::uneven(Collective::ReduceScatter, (2, 3, 0), (&apart, &Shape::whole(8)));
        assert_eq!(
            (scatter.pieces.map(|pieces| pieces.len()), scatter.takes, scatter.own),
            (Some(3), 4..12, Some(0..8))
        );
        let exchange = of(Collective::AllToAll, 0);
        assert_eq!(exchange.pieces.as_deref(), Some(&[0..0, 4..4, 4..12][..]));
        assert!(exchange.tells && exchange.own == Some(0..4));
    }
}
