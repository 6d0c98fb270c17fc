//! One call of one row, the same on all ranks: what each rank brings and what it must hold afterwards.

use paceline_comm::algorithm::Row;
use paceline_comm::{
    Buffers, CallOptions, Collective, Communicator, Counts, DataType, Element, ReduceOp, Request, Result, Work,
};

use crate::exact::Columns;
use crate::places::{Blocks, Place, Want};
use crate::{Random, mix};

/// A call. Its `Debug` form says all there is to say of it.
#[derive(Clone, Copy)]
pub struct Case {
    /// The algorithm.
    pub row: &'static Row,
    /// How many ranks.
    pub ranks: usize,
    /// The elements' type.
    pub data_type: DataType,
    /// The operator, with any factor.
    pub op: ReduceOp,
    /// Elements of the vector, or of a block; of uneven blocks, the most that one has.
    pub count: usize,
    /// The root, where there is one.
    pub root: usize,
    /// Whether input and output are one buffer.
    pub in_place: bool,
    /// Whether blocks differ in length, and lie scattered with gaps between them.
    pub uneven: bool,
    /// What draws the elements, and the lengths of uneven blocks.
    pub seed: u64,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Case { row, ranks, data_type, op, count, root, in_place, uneven, seed } = self;
        write!(f, "{} {} over {ranks} ranks: {count} {data_type}", row.collective, row.name)?;
        if row.collective.reduces() {
            write!(f, ", {op}")?;
        }
        if row.collective.has_root() {
            write!(f, ", root {root}")?;
        }
        let how = |is, what| if is { what } else { "" };
        write!(f, "{}{}, seed {seed}", how(*in_place, ", in place"), how(*uneven, ", uneven"))
    }
}

/// The geometry of the blocks on one rank's two sides; packed vectors have one block.
struct Sides {
    input: Blocks,
    output: Blocks,
}

/// One rank's part of a case, before the call.
pub struct Part {
    case: Case,
    sides: Sides,
    op: ReduceOp,
    /// Out of place: what is brought. In place: nothing.
    pub input: Vec<u8>,
    /// What the output, or the one buffer, holds before.
    pub output: Vec<u8>,
    /// What it must hold after.
    pub want: Want,
}

const UNTOUCHED: u8 = 0x5a;

impl Case {
    /// Whether blocks may have lengths of their own: rows that move several blocks as one need them one behind the other
    /// and aren't offered.
    #[must_use]
    pub fn may_be_uneven(row: &Row) -> bool {
        row.uneven && row.collective.has_blocks() && !row.moves_runs
    }

    /// The columns that the case reduces; cases may share them.
    #[must_use]
    pub fn columns(&self) -> Columns {
        Columns::new(self.data_type, self.op, self.ranks, self.seed % 7)
    }

    fn salt(&self) -> u64 {
        mix(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// How many elements `from` has for `to` in an uneven all-to-all, or `from` has at all where `to` doesn't matter.
    fn uneven_count(&self, from: usize, to: usize) -> usize {
        // In place what leaves must be as long as what comes instead.
        let (from, to) = if self.in_place { (from.min(to), from.max(to)) } else { (from, to) };
        let drawn = mix(self.salt() ^ (from as u64) << 20 ^ (to as u64) << 40);
        if drawn.is_multiple_of(4) { 0 } else { (drawn >> 8) as usize % (self.count + 1) }
    }

    fn sides(&self, me: usize) -> Sides {
        use Collective::{AllGather, AllToAll, Gather, ReduceScatter, Scatter};
        let whole = |count| Blocks::packed(vec![count]);
        let count_of = |from: usize, to: usize| if self.uneven { self.uneven_count(from, to) } else { self.count };
        let all = |counts: Vec<usize>, side: u64| {
            if !self.uneven {
                return Blocks::packed(counts);
            }
            let random = &mut Random::new(self.salt() ^ side ^ (me as u64) << 8);
            let mut order: Vec<usize> = (0..self.ranks).collect();
            (1..self.ranks).for_each(|last| order.swap(last, random.below(last as u64 + 1) as usize));
            match random.below(3) {
                0 => Blocks::packed(counts),
                gap => Blocks::scattered(counts, &order, gap as usize - 1),
            }
        };
        let ranks = || 0..self.ranks;
        match self.row.collective {
            AllGather | Gather => {
                let output = all(ranks().map(|rank| count_of(rank, rank)).collect(), 1);
                Sides { input: whole(output.counts[me]), output }
            }
            ReduceScatter | Scatter => {
                let input = all(ranks().map(|rank| count_of(rank, rank)).collect(), 1);
                Sides { output: whole(input.counts[me]), input }
            }
            AllToAll => {
                let input = all(ranks().map(|to| count_of(me, to)).collect(), 1);
                let theirs = if self.in_place { 1 } else { 2 };
                Sides { input, output: all(ranks().map(|from| count_of(from, me)).collect(), theirs) }
            }
            _ => Sides { input: whole(self.count), output: whole(self.count) },
        }
    }

    /// What rank `me` brings and must hold.
    #[must_use]
    pub fn part(&self, me: usize, columns: &Columns) -> Part {
        let sides = self.sides(me);
        let input = self.input(me, &sides, columns);
        let (output, want) = self.output(me, &sides, &input, columns);
        let input = if self.in_place { Vec::new() } else { input };
        Part { case: *self, sides, op: columns.op(me), input, output, want }
    }

    /// The elements of a block that `rank` has for `block`, where nothing is reduced.
    fn elements(&self, rank: usize, block: usize, count: usize) -> Vec<u8> {
        let mut random = Random::new(mix(self.salt() ^ (rank as u64) << 24 ^ (block as u64) << 44));
        let mut bytes = Vec::with_capacity(count * self.data_type.size() + 8);
        while bytes.len() < count * self.data_type.size() {
            bytes.extend_from_slice(&random.next().to_le_bytes());
        }
        bytes.truncate(count * self.data_type.size());
        bytes
    }

    fn input(&self, me: usize, sides: &Sides, columns: &Columns) -> Vec<u8> {
        use Collective::{Broadcast, Scatter};
        let size = self.data_type.size();
        let collective = self.row.collective;
        if matches!(collective, Broadcast | Scatter) && me != self.root {
            return Vec::new();
        }
        let mut input = vec![UNTOUCHED; sides.input.bytes(size)];
        for block in 0..sides.input.counts.len() {
            let count = sides.input.counts[block];
            let elements = if collective.reduces() {
                columns.input(me, self.salt(), block << 32, count)
            } else {
                self.elements(me, block, count)
            };
            sides.input.put(&mut input, block, size, &elements);
        }
        input
    }

    /// What the output holds before and after; in place, the one buffer.
    fn output(&self, me: usize, sides: &Sides, input: &[u8], columns: &Columns) -> (Vec<u8>, Want) {
        use Collective::*;
        let size = self.data_type.size();
        let at_root = me == self.root;
        let collective = self.row.collective;
        let bytes = match collective {
            Reduce | Gather if !at_root => 0,
            Barrier => 0,
            _ => sides.output.bytes(size),
        };
        let mut before = vec![UNTOUCHED; if self.in_place { bytes.max(input.len()) } else { bytes }];
        let mut free = Vec::new();
        if self.in_place {
            let place = match collective {
                AllGather => sides.output.range(me, size),
                Gather if at_root => sides.output.range(me, size),
                _ => 0..input.len(),
            };
            before[place].copy_from_slice(input);
        }
        let mut after = before.clone();
        let mut put = |block: usize, elements: &[u8]| sides.output.put(&mut after, block, size, elements);
        let ranks = || 0..self.ranks;
        match collective {
            AllReduce => put(0, &columns.result(self.salt(), 0, self.count)),
            Reduce if at_root => put(0, &columns.result(self.salt(), 0, self.count)),
            Broadcast => put(0, &self.elements(self.root, 0, self.count)),
            AllGather => ranks().for_each(|rank| put(rank, &self.elements(rank, 0, sides.output.counts[rank]))),
            Gather if at_root => ranks().for_each(|rank| put(rank, &self.elements(rank, 0, sides.output.counts[rank]))),
            AllToAll => ranks().for_each(|rank| put(rank, &self.elements(rank, me, sides.output.counts[rank]))),
            ReduceScatter => {
                let result = columns.result(self.salt(), me << 32, sides.input.counts[me]);
                if self.in_place {
                    sides.input.put(&mut after, me, size, &result);
                    let others = ranks().filter(|rank| *rank != me);
                    free = others.map(|rank| sides.input.range(rank, size)).collect();
                } else {
                    put(0, &result);
                }
            }
            Scatter => {
                let block = self.elements(self.root, me, sides.input.counts[me]);
                match self.in_place && at_root {
                    true => sides.input.put(&mut after, me, size, &block),
                    false => put(0, &block),
                }
            }
            Reduce | Gather | Barrier | Send | Recv | SendRecv => {}
        }
        (before, Want { bytes: after, free })
    }
}

impl Part {
    /// Makes the call and says what was wrong, if anything. The buffers lie `shift` bytes further than they might.
    ///
    /// # Errors
    ///
    /// As the call.
    pub fn run(&self, comm: &Communicator, shift: usize) -> Result<Option<String>> {
        let comm = comm.with(options(comm, self.case.row));
        self.run_by(shift, |request| comm.run(request))
    }

    /// As [`Part::run`], by whatever makes the call.
    ///
    /// # Errors
    ///
    /// As `call`.
    pub fn run_by(&self, shift: usize, call: impl FnOnce(Request<'_>) -> Result<()>) -> Result<Option<String>> {
        let (input, mut output) = (Place::new(&self.input, shift), Place::new(&self.output, shift / 2));
        let buffers = match self.case.in_place {
            true => Buffers::InPlace(output.bytes_mut()),
            false => Buffers::Separate { input: input.bytes(), output: output.bytes_mut() },
        };
        call(self.request(buffers))?;
        if input.bytes() != self.input || !input.is_guarded() {
            return Ok(Some("the input was written".into()));
        }
        if !output.is_guarded() {
            return Ok(Some("bytes beside the output were written".into()));
        }
        Ok(self.want.compare(output.bytes()))
    }

    fn request<'a>(&'a self, buffers: Buffers<'a>) -> Request<'a> {
        let Case { row, data_type, count, root, uneven, .. } = self.case;
        let request = Request::new(row.collective, data_type, count, buffers).op(self.op).root(root);
        if !uneven {
            return request;
        }
        let Sides { input, output } = &self.sides;
        let packed = |blocks: &Blocks| Blocks::packed(blocks.counts.clone()) == *blocks;
        // Where blocks are packed the offsets may be left out.
        let offsets = |blocks: &'a Blocks| if packed(blocks) { &[][..] } else { &blocks.offsets[..] };
        let send = Counts { send_counts: &input.counts, send_offsets: offsets(input), ..Counts::default() };
        let recv = Counts { recv_counts: &output.counts, recv_offsets: offsets(output), ..Counts::default() };
        request.counts(match row.collective {
            Collective::AllGather | Collective::Gather => recv,
            Collective::ReduceScatter | Collective::Scatter => send,
            _ => Counts { recv_counts: recv.recv_counts, recv_offsets: recv.recv_offsets, ..send },
        })
    }

    /// Starts the call with buffers that it owns, of elements of type `T`.
    ///
    /// # Errors
    ///
    /// As the call.
    ///
    /// # Panics
    ///
    /// If `T` is not the case's type, or the call can't be started so: [`Case::can_be_started`].
    pub fn start<T: Element>(&self, comm: &Communicator) -> Result<Work<T>> {
        use Collective::*;
        let Case { row, data_type, root, .. } = self.case;
        assert!(T::DATA_TYPE == data_type && self.case.can_be_started(), "{:?}", self.case);
        let comm = comm.with(options(comm, row));
        let (input, output) = (elements::<T>(&self.input), elements::<T>(&self.output));
        match row.collective {
            AllReduce => comm.start_all_reduce(output, self.op),
            Reduce => comm.start_reduce(output, self.op, root),
            Broadcast => comm.start_broadcast(output, root),
            AllGather => comm.start_all_gather(input, output),
            ReduceScatter => comm.start_reduce_scatter(input, output, self.op),
            AllToAll => comm.start_all_to_all(input, output),
            Gather => comm.start_gather(input, output, root),
            Scatter => comm.start_scatter(input, output, root),
            Barrier | Send | Recv | SendRecv => unreachable!("without elements"),
        }
    }
}

impl Case {
    /// Whether there is a call for it that owns its buffers.
    #[must_use]
    pub fn can_be_started(&self) -> bool {
        use Collective::{AllReduce, Barrier, Broadcast, Reduce};
        let in_place = matches!(self.row.collective, AllReduce | Reduce | Broadcast);
        self.row.collective != Barrier && self.in_place == in_place && !self.uneven
    }
}

fn options(comm: &Communicator, row: &Row) -> CallOptions {
    CallOptions { timeout: Some(comm.timeout()), algorithm: Some(row.name.into()) }
}

fn elements<T: Element>(bytes: &[u8]) -> Vec<T> {
    let bits = |element: &[u8]| {
        let mut low = [0; 8];
        low[..element.len()].copy_from_slice(element);
        T::from_bits64(u64::from_le_bytes(low))
    };
    bytes.chunks_exact(size_of::<T>()).map(bits).collect()
}
