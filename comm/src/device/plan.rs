//! From a collective to the launch that does this rank's part of it.
//!
//! What all ranks must do alike (the kernel, the grid, the cells, the number of steps) follows from what all ranks know
//! alike, and a digest of it all rides in every flag.

use std::ops::Range;
use std::time::Duration;

use super::blocks::{Pieces, bytes_of, end, even, longest, uneven};
use super::choice::{Tuning, Walk, goes_in_two_shots, walk};
use super::{Board, Kernel, PeerArguments};
use crate::collective::Collective;
use crate::error::{Error, Result};
use crate::reduce::{DataType, ReduceOp};
use crate::request::Counts;

/// What all ranks call, with the same values everywhere but for a factor and offsets.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What to do. Messages between two ranks are none of it: see [`MailPlan`](super::MailPlan).
    pub collective: Collective,
    /// What the elements are.
    pub data_type: DataType,
    /// How they are combined, where they are.
    pub op: ReduceOp,
    /// The root, where there is one.
    pub root: usize,
    /// Elements of the vector, or of one block.
    pub count: usize,
    /// Blocks of different lengths, as in a [`Request`](crate::Request). Then `count` is not looked at. Not for an all_to_all, of
    /// which no rank knows the longest block, though all have to take as many steps: its blocks are messages.
    pub counts: Option<Counts<'a>>,
}

/// Where this rank's elements lie: addresses on its device, multiples of the element's size. What is not used may be 0.
///
/// In place is where the two are the same; or where, for a collective with one block on one side, that one lies where this
/// rank's block lies on the other side. All else must be apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data {
    /// What this rank brings.
    pub input: u64,
    /// Where the result goes.
    pub output: u64,
}

/// Where a rank's launches happen.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// This rank.
    pub rank: usize,
    /// How every board is laid out.
    pub board: Board,
    /// Where this rank's device reaches the board of every rank, its own included.
    pub boards: &'a [u64],
    /// Where it reaches the status record: [`Failure::WORDS`](super::Failure::WORDS) words of eight bytes in memory of the
    /// host.
    pub status: u64,
    /// Where it reaches the abort word: four bytes in memory of the host. What is not 0 ends all launches that wait.
    pub abort: u64,
    /// How long a launch waits for another rank at most, each time.
    pub limit: Duration,
}

/// How many threads a launch has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// The blocks.
    pub blocks: u32,
    /// The threads of each block.
    pub threads: u32,
}

/// A launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The kernel.
    pub kernel: Kernel,
    /// Exactly so many threads; no memory shared between them.
    pub grid: Grid,
    /// The kernel's one argument.
    pub arguments: PeerArguments,
}

impl Plan {
    /// The launch of this rank's part of `call`. It may be launched any number of times, and in a captured graph.
    ///
    /// # Errors
    ///
    /// What no launch can do: more than [`Board::RANKS_MAX`] ranks, messages between two ranks, ranks, roots or counts that
    /// don't fit, addresses that are no multiple of what they must be, buffers that overlap, no limit for waiting.
    pub fn new(call: &Call<'_>, data: Data, site: &Site<'_>, tuning: &Tuning) -> Result<Plan> {
        check(call, site, tuning)?;
        let mut planner = Planner { call, data, site, tuning, arguments: fixed(call, site) };
        let (kernel, walk) = planner.lay_out()?;
        let steps = u32::try_from(walk.steps).ok().filter(|steps| *steps < 1 << 31).ok_or_else(|| {
            let cause = format!("{} would take {} steps", call.collective, walk.steps);
            Error::invalid(cause).hint("give the boards more scratch")
        })?;
        let mut arguments = planner.arguments;
        (arguments.span, arguments.steps) = (walk.span, steps);
        let grid = Grid { blocks: walk.blocks, threads: tuning.threads };
        tell(call, kernel, grid, &mut arguments);
        Ok(Plan { kernel, grid, arguments })
    }
}

fn check(call: &Call<'_>, site: &Site<'_>, tuning: &Tuning) -> Result<()> {
    let (ranks, collective) = (site.boards.len(), call.collective);
    let refused = |cause: String, hint: &str| Err(Error::invalid(cause).hint(hint));
    check_site(&collective.to_string(), site, tuning)?;
    if collective.is_message() || (collective == Collective::AllToAll && call.counts.is_some()) {
        return refused(format!("{collective} of pairs is no collective over boards"), "send it as messages");
    }
    if collective.has_root() && call.root >= ranks {
        let cause = format!("root {} of {collective} between {ranks} ranks", call.root);
        return refused(cause, "ranks are numbered from 0");
    }
    Ok(())
}

/// Whether `what` can be launched there.
pub(super) fn check_site(what: &str, site: &Site<'_>, tuning: &Tuning) -> Result<()> {
    let ranks = site.boards.len();
    let refused = |cause: String, hint: &str| Err(Error::invalid(cause).hint(hint));
    if ranks == 0 || ranks > Board::RANKS_MAX {
        return refused(format!("{what} between the boards of {ranks} ranks"), "1 to 16 ranks share boards");
    }
    if site.rank >= ranks {
        return refused(format!("{what} of rank {} of {ranks}", site.rank), "ranks are numbered from 0");
    }
    if let Some(rank) = site.boards.iter().position(|board| *board == 0 || !board.is_multiple_of(256)) {
        let cause = format!("the board of rank {rank} lies at {:#x}", site.boards[rank]);
        return refused(cause, "a board begins at a multiple of 256");
    }
    if site.status == 0 || !site.status.is_multiple_of(8) || site.abort == 0 || !site.abort.is_multiple_of(4) {
        let cause = format!("the status lies at {:#x} and the abort word at {:#x}", site.status, site.abort);
        return refused(cause, "pass addresses of mapped host memory, multiples of 8 and 4");
    }
    if site.limit.is_zero() {
        return refused(format!("{what} may wait for no time at all"), "give a limit for waiting");
    }
    if tuning.blocks == 0
        || tuning.threads == 0
        || !tuning.threads.is_multiple_of(32)
        || tuning.threads > Kernel::THREADS_MAX
    {
        let cause = format!("launches of up to {} blocks of {} threads", tuning.blocks, tuning.threads);
        return refused(cause, "choose at least one block, and 32, 64, ... 512 threads");
    }
    Ok(())
}

/// What doesn't depend on where the elements are.
fn fixed(call: &Call<'_>, site: &Site<'_>) -> PeerArguments {
    let ranks = site.boards.len();
    let mut arguments = PeerArguments {
        status: site.status,
        abort: site.abort,
        limit_ns: u64::try_from(site.limit.as_nanos()).unwrap_or(u64::MAX),
        half: site.board.half(),
        room: site.board.room(),
        rank: site.rank as u32,
        ranks: ranks as u32,
        n_sources: ranks as u32,
        ..PeerArguments::default()
    };
    arguments.boards[..ranks].copy_from_slice(site.boards);
    match call.op {
        ReduceOp::PreMulSum(factor) => arguments.factor = factor,
        ReduceOp::Avg => arguments.divisor = ranks as u32,
        _ => {}
    }
    arguments
}

/// Two digests of the same call are the same.
fn tell(call: &Call<'_>, kernel: Kernel, grid: Grid, arguments: &mut PeerArguments) {
    let words = [
        u64::from(matches!(kernel, Kernel::TwoShot(..))) | u64::from(arguments.ranks) << 32,
        u64::from(grid.blocks) | u64::from(grid.threads) << 32,
        u64::from(arguments.span) | u64::from(arguments.steps) << 32,
        arguments.room,
        arguments.half,
    ];
    let digest = digest_of(call, words);
    let ranks = arguments.ranks as usize;
    arguments.says[..ranks].fill(digest);
    arguments.expects[..ranks].fill(digest);
}

/// A digest of what all ranks call alike, and of how they do it.
pub(super) fn digest_of(call: &Call<'_>, how: impl IntoIterator<Item = u64>) -> u32 {
    let counts = match (call.collective, &call.counts) {
        (Collective::AllGather | Collective::Gather, Some(counts)) => counts.recv_counts,
        (Collective::ReduceScatter | Collective::Scatter, Some(counts)) => counts.send_counts,
        _ => &[call.count],
    };
    let words = [
        u64::from(call.collective as u8)
            | u64::from(call.data_type.code()) << 8
            | u64::from(call.counts.is_some()) << 16,
        if call.collective.reduces() { u64::from(call.op.code()) } else { 0 },
        if call.collective.has_root() { call.root as u64 } else { 0 },
    ];
    let counts = counts.iter().map(|count| *count as u64);
    let digest = words.into_iter().chain(how).chain(counts).fold(0, mixed);
    (digest ^ digest >> 32) as u32
}

fn mixed(digest: u64, word: u64) -> u64 {
    let mixed = (digest ^ word).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

struct Planner<'a> {
    call: &'a Call<'a>,
    data: Data,
    site: &'a Site<'a>,
    tuning: &'a Tuning,
    arguments: PeerArguments,
}

impl Planner<'_> {
    fn lay_out(&mut self) -> Result<(Kernel, Walk)> {
        let (data_type, op) = (self.call.data_type, self.call.op);
        match self.call.collective {
            Collective::AllReduce | Collective::Reduce | Collective::Broadcast => self.vector(),
            Collective::AllGather | Collective::Gather => self.collect(),
            Collective::ReduceScatter => Ok((Kernel::Fold(data_type, op), self.spread()?)),
            Collective::Scatter => Ok((Kernel::Copy, self.spread()?)),
            Collective::AllToAll => self.exchange(),
            Collective::Barrier => Ok((Kernel::Copy, self.walk(0, 1, 1))),
            Collective::Send | Collective::Recv | Collective::SendRecv => unreachable!("messages are refused"),
        }
    }

    fn walk(&self, longest: u64, cells: usize, width: usize) -> Walk {
        walk(longest, cells as u64, width as u64, &self.site.board, self.tuning)
    }

    /// Vectors of one length, folded or copied.
    fn vector(&mut self) -> Result<(Kernel, Walk)> {
        let Call { collective, data_type, op, root, count, .. } = *self.call;
        let (ranks, is_root) = (self.site.boards.len(), self.site.rank == root);
        let bytes = bytes_of(count, data_type.size())?;
        let brings = collective != Collective::Broadcast || is_root;
        let takes = collective != Collective::Reduce || is_root;
        let input = self.placed("input", self.data.input, if brings { bytes } else { 0 })?;
        let output = self.placed("output", self.data.output, if takes { bytes } else { 0 })?;
        if self.data.input != self.data.output {
            self.apart(&input, &output)?;
        }
        // What the root broadcasts in place is where it belongs.
        let is_there = collective == Collective::Broadcast && is_root && self.data.input == self.data.output;
        let taken = if takes && !is_there { bytes } else { 0 };
        let arguments = &mut self.arguments;
        (arguments.sources[0], arguments.outgoing[0]) = (self.data.input, if brings { bytes } else { 0 });
        let copies = collective == Collective::Broadcast;
        if goes_in_two_shots(collective, ranks, bytes, self.tuning) {
            (arguments.targets[0], arguments.incoming[0], arguments.whole) = (self.data.output, taken, bytes);
            arguments.piece = self.site.rank as u32;
            if copies {
                // A fold of one source is a copy.
                (arguments.first, arguments.n_sources, arguments.divisor) = (root as u32, 1, 0);
            }
            let mut walk = self.walk(bytes.div_ceil(ranks as u64), ranks + 1, ranks);
            walk.steps += 1;
            let kernel = if copies { (DataType::U8, ReduceOp::Sum) } else { (data_type, op) };
            return Ok((Kernel::TwoShot(kernel.0, kernel.1), walk));
        }
        arguments.pieces = u32::from(brings);
        let from = if copies { root } else { 0 };
        (arguments.targets[from], arguments.incoming[from]) = (self.data.output, taken);
        let kernel = if copies { Kernel::Copy } else { Kernel::Fold(data_type, op) };
        Ok((kernel, self.walk(bytes, 1, 1)))
    }

    /// All ranks' blocks, to all or to the root.
    fn collect(&mut self) -> Result<(Kernel, Walk)> {
        let Call { collective, root, .. } = *self.call;
        let (ranks, me) = (self.site.boards.len(), self.site.rank);
        let pieces = self.pieces(|counts| (counts.recv_counts, counts.recv_offsets, "recv"))?;
        let takes = collective == Collective::AllGather || me == root;
        let input = self.placed("input", self.data.input, pieces[me].bytes)?;
        let output = self.placed("output", self.data.output, if takes { end(&pieces) } else { 0 })?;
        let is_there = takes && self.data.input == self.data.output + pieces[me].at;
        if !is_there {
            self.apart(&input, &output)?;
        }
        let arguments = &mut self.arguments;
        arguments.pieces = 1;
        (arguments.sources[0], arguments.outgoing[0]) = (self.data.input, pieces[me].bytes);
        if takes {
            self.take(&pieces);
        }
        if is_there {
            self.arguments.incoming[me] = 0;
        }
        Ok((Kernel::Copy, self.walk(longest(&pieces), 1, ranks)))
    }

    /// A block for every rank, from all or from the root.
    fn spread(&mut self) -> Result<Walk> {
        let Call { collective, root, .. } = *self.call;
        let (ranks, me) = (self.site.boards.len(), self.site.rank);
        let pieces = self.pieces(|counts| (counts.send_counts, counts.send_offsets, "send"))?;
        let brings = collective == Collective::ReduceScatter || me == root;
        let input = self.placed("input", self.data.input, if brings { end(&pieces) } else { 0 })?;
        let output = self.placed("output", self.data.output, pieces[me].bytes)?;
        let is_there = brings && self.data.output == self.data.input + pieces[me].at;
        if !is_there {
            self.apart(&input, &output)?;
        }
        if brings {
            self.bring(&pieces);
        }
        let arguments = &mut self.arguments;
        arguments.piece = me as u32;
        let from = if collective == Collective::Scatter { root } else { 0 };
        let is_done = collective == Collective::Scatter && is_there;
        (arguments.targets[from], arguments.incoming[from]) =
            (self.data.output, if is_done { 0 } else { pieces[me].bytes });
        Ok(self.walk(longest(&pieces), ranks, ranks))
    }

    /// A block from every rank to every rank.
    fn exchange(&mut self) -> Result<(Kernel, Walk)> {
        let (ranks, me) = (self.site.boards.len(), self.site.rank);
        let pieces = even(self.call.count, self.call.data_type.size(), ranks)?;
        let input = self.placed("input", self.data.input, end(&pieces))?;
        let output = self.placed("output", self.data.output, end(&pieces))?;
        if self.data.input != self.data.output {
            self.apart(&input, &output)?;
        }
        self.bring(&pieces);
        self.take(&pieces);
        self.arguments.piece = me as u32;
        Ok((Kernel::Copy, self.walk(longest(&pieces), ranks, ranks)))
    }

    fn pieces<'c>(&'c self, of: impl Fn(&Counts<'c>) -> (&'c [usize], &'c [usize], &'c str)) -> Result<Pieces> {
        let (size, ranks) = (self.call.data_type.size(), self.site.boards.len());
        match &self.call.counts {
            Some(counts) => {
                let (counts, offsets, what) = of(counts);
                uneven(counts, offsets, what, size, ranks)
            }
            None => even(self.call.count, size, ranks),
        }
    }

    fn bring(&mut self, pieces: &Pieces) {
        self.arguments.pieces = self.arguments.ranks;
        for (rank, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.bytes > 0) {
            self.arguments.sources[rank] = self.data.input + piece.at;
            self.arguments.outgoing[rank] = piece.bytes;
        }
    }

    fn take(&mut self, pieces: &Pieces) {
        for (rank, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.bytes > 0) {
            self.arguments.targets[rank] = self.data.output + piece.at;
            self.arguments.incoming[rank] = piece.bytes;
        }
    }

    /// The addresses of a buffer, where its elements can lie there.
    fn placed(&self, what: &str, address: u64, bytes: u64) -> Result<Range<u64>> {
        let Call { collective, data_type, .. } = *self.call;
        let end = address.checked_add(bytes);
        if bytes == 0 {
            return Ok(address..address);
        }
        match end {
            Some(end) if address != 0 && address.is_multiple_of(data_type.size() as u64) => Ok(address..end),
            _ => {
                let cause = format!("the {what} of {collective}, {bytes} bytes, lies at {address:#x}");
                let size = data_type.size();
                Err(Error::invalid(cause).hint(format!("elements of {data_type} lie at multiples of {size}")))
            }
        }
    }

    fn apart(&self, a: &Range<u64>, b: &Range<u64>) -> Result<()> {
        if a.is_empty() || b.is_empty() || a.end <= b.start || b.end <= a.start {
            return Ok(());
        }
        let bytes = a.end.min(b.end) - a.start.max(b.start);
        let cause = format!("input and output of {} overlap by {bytes} bytes", self.call.collective);
        Err(Error::invalid(cause).hint("pass them in place, or apart"))
    }
}

#[cfg(test)]
mod tests;
