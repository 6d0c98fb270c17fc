//! How long a call's buffers must be on one rank.

use std::ops::Range;

use crate::collective::Collective;
use crate::engine::{Extent, Shape};
use crate::error::{Error, Result};

/// How long a rank's buffers must be, in bytes, and where its own block lies in the larger one.
pub(super) struct Needs {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) block_in_input: Range<usize>,
    pub(super) block_in_output: Range<usize>,
}

impl Needs {
    pub(super) fn of(
        collective: Collective,
        me: usize,
        root: usize,
        ranks: usize,
        extent: &Extent,
        size: usize,
    ) -> Needs {
        let (one_in, all_in, one_out, all_out, block_in, block_out) = match extent {
            Extent::Vector(count) => (count * size, count * size, count * size, count * size, 0..0, 0..0),
            Extent::Blocks(count) => {
                let block = count * size;
                let place = me * block..(me + 1) * block;
                (block, block * ranks, block, block * ranks, place.clone(), place)
            }
            Extent::Uneven { input, output } => {
                let end = |shape: &Shape| match shape {
                    Shape::Table(ranges) => ranges.iter().map(|range| range.end).max().unwrap_or(0),
                    Shape::Blocks { bytes, .. } | Shape::Vector { bytes, .. } => *bytes,
                };
                let place = |shape: &Shape| match shape {
                    Shape::Table(ranges) if ranges.len() == ranks => ranges[me].clone(),
                    Shape::Blocks { bytes, .. } if ranks == 1 => 0..*bytes,
                    _ => 0..0,
                };
                (end(input), end(input), end(output), end(output), place(input), place(output))
            }
        };
        let at_root = |bytes: usize| if me == root { bytes } else { 0 };
        let (input, output) = match collective {
            Collective::AllReduce | Collective::SendRecv => (one_in, one_out),
            Collective::Reduce => (one_in, at_root(one_out)),
            Collective::Broadcast => (at_root(one_in), one_out),
            Collective::AllGather => (one_in, all_out),
            Collective::ReduceScatter => (all_in, one_out),
            Collective::AllToAll => (all_in, all_out),
            Collective::Gather => (one_in, at_root(all_out)),
            Collective::Scatter => (at_root(all_in), one_out),
            Collective::Barrier => (0, 0),
            Collective::Send => (one_in, 0),
            Collective::Recv => (0, one_out),
        };
        Needs { input, output, block_in_input: block_in, block_in_output: block_out }
    }
}

pub(super) fn long_enough(collective: Collective, which: &str, bytes: usize, needed: usize) -> Result<()> {
    if needed <= bytes {
        return Ok(());
    }
    let cause = format!("the {which} of {collective} has {bytes} bytes but {needed} are needed");
    Err(Error::invalid(cause).hint("check the count, the element type and the number of ranks"))
}

/// Safe code can't lend overlapping buffers; foreign code can.
pub(super) fn apart(collective: Collective, input: (*const u8, usize), output: (*mut u8, usize)) -> Result<()> {
    let range = |start: usize, bytes: usize| start..start.saturating_add(bytes);
    let (a, b) = (range(input.0.addr(), input.1), range(output.0.addr(), output.1));
    if a.is_empty() || b.is_empty() || a.end <= b.start || b.end <= a.start {
        return Ok(());
    }
    let bytes = a.end.min(b.end) - a.start.max(b.start);
    Err(Error::invalid(format!("input and output of {collective} overlap by {bytes} bytes"))
        .hint("pass one buffer as in place, or two apart"))
}
