//! What a sound call reads and writes of its buffers: less than they hold where a rank brings or gets nothing, and where
//! blocks lie apart.

use super::Sound;
use crate::collective::Collective;
use crate::engine::{Extent, Shape};

/// An address and a number of bytes.
pub(crate) type Piece = (usize, usize);

impl Sound {
    fn is_root(&self, me: usize) -> bool {
        self.fingerprint.root as usize == me
    }

    /// What rank `me` of `ranks` reads of its input: one piece, empty where it brings nothing.
    pub(crate) fn read(&self, me: usize, ranks: usize) -> Piece {
        let size = self.fingerprint.data_type.size();
        let brings = match self.fingerprint.collective {
            Collective::Barrier | Collective::Recv => false,
            Collective::Broadcast | Collective::Scatter => self.is_root(me),
            _ => true,
        };
        let all = matches!(
            self.fingerprint.collective,
            Collective::ReduceScatter | Collective::AllToAll | Collective::Scatter
        );
        let needed = match &self.extent {
            Extent::Vector(count) => count * size,
            Extent::Blocks(count) if all => count * size * ranks,
            Extent::Blocks(count) => count * size,
            Extent::Uneven { input, .. } => end(input),
        };
        (self.input.0.addr(), if brings { needed.min(self.input.1) } else { 0 })
    }

    /// What rank `me` of `ranks` writes of its output.
    pub(crate) fn written(&self, me: usize, ranks: usize) -> Vec<Piece> {
        let size = self.fingerprint.data_type.size();
        let collective = self.fingerprint.collective;
        let gets = match collective {
            Collective::Barrier | Collective::Send => false,
            Collective::Reduce | Collective::Gather => self.is_root(me),
            Collective::Broadcast => !(self.in_place && self.is_root(me)),
            _ => true,
        };
        let start = self.output.0.addr();
        let all = matches!(collective, Collective::AllGather | Collective::AllToAll | Collective::Gather);
        let pieces = match &self.extent {
            Extent::Vector(count) => vec![(start, count * size)],
            Extent::Blocks(count) if all => vec![(start, count * size * ranks)],
            Extent::Blocks(count) => vec![(start, count * size)],
            Extent::Uneven { output: Shape::Table(ranges), .. } => {
                ranges.iter().map(|range| (start + range.start, range.len())).collect()
            }
            Extent::Uneven { output, .. } => vec![(start, end(output))],
        };
        pieces.into_iter().filter(|(_, bytes)| gets && *bytes > 0).collect()
    }
}

fn end(shape: &Shape) -> usize {
    match shape {
        Shape::Table(ranges) => ranges.iter().map(|range| range.end).max().unwrap_or(0),
        Shape::Blocks { bytes, .. } | Shape::Vector { bytes, .. } => *bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::DataType;
    use crate::request::{Counts, Places, Request};

    const IN: usize = 1 << 20;
    const OUT: usize = 2 << 20;

    fn apart(collective: Collective, count: usize, bytes: usize) -> Request<'static, Places> {
        let places = Places::Separate {
            input: (std::ptr::without_provenance(IN), bytes),
            output: (std::ptr::without_provenance_mut(OUT), bytes),
        };
        Request::new(collective, DataType::F32, count, places)
    }

    fn touched(request: Request<'_, Places>, me: usize) -> (Piece, Vec<Piece>) {
        let sound = request.check_places(me, 3).unwrap();
        (sound.read(me, 3), sound.written(me, 3))
    }

    #[test]
    fn ranks_that_bring_or_get_nothing_touch_nothing() {
        let of = |collective, me| touched(apart(collective, 5, 100).root(1), me);
        assert_eq!(of(Collective::AllReduce, 0), ((IN, 20), vec![(OUT, 20)]));
        assert_eq!(of(Collective::Reduce, 0), ((IN, 20), vec![]));
        assert_eq!(of(Collective::Reduce, 1), ((IN, 20), vec![(OUT, 20)]));
        assert_eq!(of(Collective::Broadcast, 2), ((IN, 0), vec![(OUT, 20)]));
        assert_eq!(of(Collective::Scatter, 2), ((IN, 0), vec![(OUT, 20)]));
        assert_eq!(of(Collective::Scatter, 1), ((IN, 60), vec![(OUT, 20)]));
        assert_eq!(of(Collective::Gather, 1), ((IN, 20), vec![(OUT, 60)]));
        assert_eq!(of(Collective::AllToAll, 0), ((IN, 60), vec![(OUT, 60)]));
        assert_eq!(of(Collective::ReduceScatter, 0), ((IN, 60), vec![(OUT, 20)]));
        assert_eq!(of(Collective::Send, 0), ((IN, 20), vec![]));
        assert_eq!(of(Collective::Recv, 0), ((IN, 0), vec![(OUT, 20)]));
        assert_eq!(of(Collective::SendRecv, 2).1, vec![(OUT, 100)]);
    }

    #[test]
    fn one_buffer_is_touched_where_the_call_says() {
        let of = |collective, me| {
            let request = apart(collective, 5, 60).root(1);
            let place = Places::InPlace((std::ptr::without_provenance_mut(OUT), 60));
            touched(request.over(|_| place), me)
        };
        assert_eq!(of(Collective::AllGather, 2), ((OUT + 40, 20), vec![(OUT, 60)]));
        assert_eq!(of(Collective::ReduceScatter, 2), ((OUT, 60), vec![(OUT + 40, 20)]));
        assert_eq!(of(Collective::Broadcast, 1), ((OUT, 20), vec![]));
        assert_eq!(of(Collective::Broadcast, 0), ((OUT, 0), vec![(OUT, 20)]));
        assert_eq!(of(Collective::Reduce, 0), ((OUT, 20), vec![]));
    }

    #[test]
    fn gaps_between_blocks_are_not_written() {
        let counts = Counts { recv_counts: &[2, 0, 3], recv_offsets: &[10, 99, 1], ..Counts::default() };
        let request = apart(Collective::AllGather, 0, 100).counts(counts);
        assert_eq!(touched(request, 0), ((IN, 8), vec![(OUT + 40, 8), (OUT + 4, 12)]));
    }
}
