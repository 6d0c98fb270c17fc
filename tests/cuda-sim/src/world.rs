//! Ranks as threads of one process, with ordinary memory for boards, that launch the host's build of the kernels.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paceline_comm::device::{Board, Call, Data, Failure, Lending, LentPlan, MailPlan, Plan, Site, Tuning};
use paceline_comm::{Collective, Counts, DataType, ReduceOp, reduce};
use paceline_tests::noise::noise;
use paceline_tests::{Random, mix};

use crate::host::Host;
use crate::room::Room;

/// What one rank has: its board, and the words of the host.
struct Memory {
    board: Vec<AtomicU64>,
    /// Where the board begins, in words.
    start: usize,
    status: [AtomicU64; Failure::WORDS],
    abort: AtomicU32,
}

/// Before and after a board.
const GUARD: u64 = 0xa5a5_5a5a_a5a5_5a5a;
const GUARD_WORDS: usize = 32;

/// Ranks that know each other's boards.
pub struct World {
    host: &'static Host,
    board: Board,
    memory: Vec<Memory>,
    addresses: Vec<u64>,
    /// Where each rank's input and output lie, in rooms of so many bytes, and how many ranks have said so.
    lent: Mutex<Vec<[(u64, u64); 2]>>,
    said: AtomicUsize,
    /// How long a launch waits.
    pub limit: Duration,
}

impl World {
    /// `ranks` ranks with new boards.
    #[must_use]
    pub fn new(host: &'static Host, ranks: usize, board: Board) -> World {
        World::at_step(host, ranks, board, 0)
    }

    /// The same, as if their last launch had ended with step `step`.
    #[must_use]
    pub fn at_step(host: &'static Host, ranks: usize, board: Board, step: u32) -> World {
        let words = board.bytes() as usize / 8;
        let memory: Vec<Memory> = (0..ranks)
            .map(|_| {
                let storage: Vec<AtomicU64> =
                    (0..words + 2 * GUARD_WORDS + 32).map(|_| AtomicU64::new(GUARD)).collect();
                let start = GUARD_WORDS + storage[GUARD_WORDS..].as_ptr().align_offset(256);
                storage[start..start + words].iter().for_each(|word| word.store(0, Ordering::Relaxed));
                let flags = Board::flag_at(0, 0) as usize / 8..Board::FLAGS_END as usize / 8;
                for flag in &storage[start..][flags] {
                    flag.store(u64::from(step) << 32, Ordering::Relaxed);
                }
                storage[start + Board::STEP_AT as usize / 8].store(u64::from(step), Ordering::Relaxed);
                let status = Default::default();
                Memory { board: storage, start, status, abort: AtomicU32::new(0) }
            })
            .collect();
        let addresses = memory.iter().map(|memory| memory.board[memory.start..].as_ptr() as u64).collect();
        let lent = Mutex::new(vec![[(0, 0); 2]; ranks]);
        World { host, board, memory, addresses, lent, said: AtomicUsize::new(0), limit: Duration::from_secs(60) }
    }

    /// As [`World::new`], as if `gone` chunks of messages had gone every way by every block.
    #[must_use]
    pub fn at_chunk(host: &'static Host, ranks: usize, board: Board, gone: u32) -> World {
        let world = World::new(host, ranks, board);
        let places = Board::LANES_MAX as usize * Board::RANKS_MAX;
        let (taken, counters) = (places * Board::SLOTS as usize, places * (Board::SLOTS as usize + 1));
        for memory in &world.memory {
            let head = &memory.board[memory.start + Board::FLAGS_END as usize / 8..];
            let word = |at: usize, value: u64| head[at].store(value, Ordering::Relaxed);
            // What lies in a slot was posted when its number was that of a chunk.
            (0..taken).for_each(|at| word(at, u64::from(gone - (gone as usize + at + 1) as u32 % 2) << 44));
            (taken..counters).for_each(|at| word(at, u64::from(gone)));
            (counters..counters + places).for_each(|at| word(at, u64::from(gone) << 32 | u64::from(gone)));
        }
        world
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.memory.len()
    }

    /// Where `rank`'s launches happen.
    #[must_use]
    pub fn site(&self, rank: usize) -> Site<'_> {
        let memory = &self.memory[rank];
        Site {
            rank,
            board: self.board,
            boards: &self.addresses,
            status: memory.status.as_ptr() as u64,
            abort: memory.abort.as_ptr() as u64,
            limit: self.limit,
        }
    }

    /// Launches a plan for `rank`.
    pub fn launch(&self, plan: &Plan) {
        // SAFETY: plans are made for this world's boards and for rooms of the calling thread, which outlive the launch.
        let misaligned = unsafe { self.host.launch(plan.kernel, &plan.arguments, plan.grid) };
        assert_eq!(misaligned, 0, "{plan:?}: misaligned accesses");
    }

    /// Launches a plan for a rank that may lend its arrays.
    pub fn launch_lent(&self, plan: &LentPlan) {
        // SAFETY: as above, and all ranks' rooms outlive the launches of all.
        let misaligned = unsafe { self.host.launch(plan.kernel, &plan.arguments, plan.grid) };
        assert_eq!(misaligned, 0, "{plan:?}: misaligned accesses");
    }

    /// Says where a rank's arrays lie, and returns where those of all do, as windows of inputs and of outputs. `place` counts
    /// what the ranks have said before.
    fn lend(&self, rank: usize, places: [(u64, u64); 2], before: usize) -> Vec<Option<(Vec<u64>, u64)>> {
        self.lent.lock().expect("no rank panics there")[rank] = places;
        self.meet(before);
        let lent = self.lent.lock().expect("no rank panics there").clone();
        let windows =
            (0..2).map(|which| Some((lent.iter().map(|places| places[which].0).collect(), lent[rank][which].1)));
        windows.collect()
    }

    /// Waits until all ranks have come here who came `before` times.
    fn meet(&self, before: usize) {
        self.said.fetch_add(1, Ordering::AcqRel);
        while self.said.load(Ordering::Acquire) < (before + 1) * self.ranks() {
            let is_aborted = self.memory.iter().any(|memory| memory.abort.load(Ordering::Relaxed) != 0);
            assert!(!is_aborted, "another rank has found a fault");
            std::thread::yield_now();
        }
    }

    /// Launches messages for `rank`.
    pub fn launch_mail(&self, plan: &MailPlan) {
        // SAFETY: as above.
        let misaligned = unsafe { self.host.launch(MailPlan::KERNEL, &plan.arguments, plan.grid) };
        assert_eq!(misaligned, 0, "{plan:?}: misaligned accesses");
    }

    /// What `rank`'s status says.
    #[must_use]
    pub fn failure(&self, rank: usize) -> Option<Failure> {
        Failure::read(self.memory[rank].status.each_ref().map(|word| word.load(Ordering::Acquire)))
    }

    /// Sets `rank`'s abort word.
    pub fn abort(&self, rank: usize) {
        self.memory[rank].abort.store(1, Ordering::Relaxed);
    }

    /// Says to `rank` what `peer` would say in step `step` of a call of that digest.
    pub fn say(&self, rank: usize, block: u32, peer: usize, step: u32, digest: u32) {
        let memory = &self.memory[rank];
        let flag = &memory.board[memory.start + Board::flag_at(block, peer) as usize / 8];
        flag.store(u64::from(step) << 32 | u64::from(digest), Ordering::Release);
    }

    /// A word of the flags in `rank`'s board by which block 0 and the same block of `peer` tell of chunks: where what the peer
    /// posts in a slot is, or, without a slot, how many chunks it has taken.
    #[must_use]
    pub fn mail_flag(&self, rank: usize, peer: usize, slot: Option<usize>) -> &AtomicU64 {
        let memory = &self.memory[rank];
        let (places, slots) = (Board::LANES_MAX as usize * Board::RANKS_MAX, Board::SLOTS as usize);
        let at = slot.map_or(places * slots + peer, |slot| peer * slots + slot);
        &memory.board[memory.start + Board::FLAGS_END as usize / 8 + at]
    }

    /// What `peer` has told `rank` of messages that it has put into its bay.
    #[must_use]
    pub fn filled(&self, rank: usize, peer: usize) -> u64 {
        let memory = &self.memory[rank];
        let at = Board::CELLS_AT as usize / 8 - 2 * Board::RANKS_MAX + peer;
        memory.board[memory.start + at].load(Ordering::Acquire)
    }

    /// The step that `rank`'s launches have come to.
    #[must_use]
    pub fn step(&self, rank: usize) -> u32 {
        let memory = &self.memory[rank];
        memory.board[memory.start + Board::STEP_AT as usize / 8].load(Ordering::Relaxed) as u32
    }

    /// Runs `cases` on all ranks, each on a thread of its own, and checks all that they may have written.
    pub fn run(&self, cases: &[Case]) {
        let met = self.said.load(Ordering::Acquire) / self.ranks();
        let inputs: Vec<Arc<Inputs>> = cases.iter().map(|case| Arc::new(case.inputs(self.ranks()))).collect();
        std::thread::scope(|scope| {
            for rank in 0..self.ranks() {
                let inputs = &inputs;
                scope.spawn(move || {
                    let _others = EndOthers(self);
                    let mut met = met;
                    for (case, inputs) in cases.iter().zip(inputs) {
                        case.run(self, rank, inputs, &mut met);
                    }
                });
            }
        });
        self.check_guards();
    }

    /// Nothing has written beside a board.
    pub fn check_guards(&self) {
        for memory in &self.memory {
            let end = memory.start + self.board.bytes() as usize / 8;
            let guards = memory.board[..memory.start].iter().chain(&memory.board[end..]);
            assert!(guards.into_iter().all(|word| word.load(Ordering::Relaxed) == GUARD), "wrote beside a board");
        }
    }
}

/// Ends what all ranks launch when one of them has found a fault, which they would wait for in vain.
pub struct EndOthers<'a>(pub &'a World);

impl Drop for EndOthers<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (0..self.0.ranks()).for_each(|rank| self.0.abort(rank));
        }
    }
}

/// Whose arrays others may read where they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lends {
    /// Nobody's: the kernels that read cells.
    No,
    /// Everybody's.
    All,
    /// Everybody's but those of one rank, so that all read cells after all.
    AllBut(usize),
}

/// One collective, the same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// What to do.
    pub collective: Collective,
    /// Of what.
    pub data_type: DataType,
    /// How elements are combined; the factor is drawn.
    pub op: ReduceOp,
    /// Who is special.
    pub root: usize,
    /// Elements.
    pub count: usize,
    /// Whether blocks have different lengths, up to `count`, with gaps between them.
    pub uneven: bool,
    /// Whether input and output share their place.
    pub in_place: bool,
    /// Whether arrays begin anywhere, instead of at multiples of 64.
    pub anywhere: bool,
    /// How it is done.
    pub tuning: Tuning,
    /// How often it is launched, from the same place into the same place.
    pub times: usize,
    /// By which kernels, where the collective has both.
    pub lends: Lends,
    /// Of everything that is drawn.
    pub seed: u64,
}

/// What all ranks bring, as it lies in their buffers, and what follows from it.
pub struct Inputs {
    bytes: Vec<Vec<u8>>,
    factors: Vec<u64>,
    /// Elements from each rank to each rank, of collectives of blocks.
    matrix: Vec<Vec<usize>>,
}

impl Case {
    fn random(&self, of: u64) -> Random {
        Random::new(mix(self.seed ^ mix(of + 1)))
    }

    /// Lengths of blocks in the order of the ranks, and where they begin.
    fn offsets(&self, counts: &[usize]) -> Vec<usize> {
        let gap = usize::from(self.uneven);
        counts
            .iter()
            .scan(0, |next, count| {
                let at = *next + gap;
                *next = at + count;
                Some(at)
            })
            .collect()
    }

    /// What the ranks bring.
    #[must_use]
    pub fn inputs(&self, ranks: usize) -> Inputs {
        let mut random = self.random(1000);
        let mut drawn = || if self.uneven { random.below(self.count as u64 + 1) as usize } else { self.count };
        let matrix: Vec<Vec<usize>> = match self.collective {
            Collective::AllGather | Collective::Gather => (0..ranks).map(|_| vec![drawn(); ranks]).collect(),
            Collective::ReduceScatter | Collective::Scatter => {
                let row: Vec<usize> = (0..ranks).map(|_| drawn()).collect();
                vec![row; ranks]
            }
            _ => (0..ranks).map(|_| (0..ranks).map(|_| drawn()).collect()).collect(),
        };
        let element = |random: &mut Random| {
            let mut low = [0; 8];
            let bytes = noise(self.data_type, random, 1);
            low[..bytes.len()].copy_from_slice(&bytes);
            u64::from_le_bytes(low)
        };
        let factors = (0..ranks).map(|rank| element(&mut self.random(2000 + rank as u64))).collect();
        let bytes = (0..ranks).map(|rank| {
            let elements = match self.collective {
                Collective::AllGather | Collective::Gather => matrix[rank][0],
                Collective::ReduceScatter | Collective::Scatter | Collective::AllToAll => {
                    self.offsets(&matrix[rank]).last().expect("a rank") + matrix[rank].last().expect("a rank")
                }
                Collective::Barrier => 0,
                _ => self.count,
            };
            noise(self.data_type, &mut self.random(rank as u64), elements)
        });
        Inputs { bytes: bytes.collect(), factors, matrix }
    }

    /// What should lie where in the output of `me`, in bytes, and how long the output is.
    fn want(&self, me: usize, inputs: &Inputs) -> (Vec<(usize, Vec<u8>)>, usize) {
        let (size, ranks) = (self.data_type.size(), inputs.bytes.len());
        let all = |range: &dyn Fn(usize) -> (usize, usize)| -> Vec<Vec<u8>> {
            (0..ranks)
                .map(|rank| {
                    let (at, elements) = range(rank);
                    inputs.bytes[rank][at * size..(at + elements) * size].to_vec()
                })
                .collect()
        };
        let sent = |rank: usize, to: usize| (self.offsets(&inputs.matrix[rank])[to], inputs.matrix[rank][to]);
        let received: Vec<usize> = (0..ranks).map(|rank| inputs.matrix[rank][me]).collect();
        let (places, taken) = (self.offsets(&received), received.iter().sum::<usize>());
        let length = (taken + if self.uneven { ranks } else { 0 }) * size;
        let placed = |pieces: Vec<Vec<u8>>| {
            (places.iter().zip(pieces).map(|(place, piece)| (place * size, piece)).collect(), length)
        };
        let one = |piece: Vec<u8>| {
            let length = piece.len();
            (vec![(0, piece)], length)
        };
        match self.collective {
            Collective::AllReduce => one(self.folded(all(&|_| (0, self.count)), inputs)),
            Collective::Reduce if me == self.root => one(self.folded(all(&|_| (0, self.count)), inputs)),
            Collective::Broadcast => one(inputs.bytes[self.root].clone()),
            Collective::AllGather => placed(inputs.bytes.clone()),
            Collective::Gather if me == self.root => placed(inputs.bytes.clone()),
            Collective::ReduceScatter => one(self.folded(all(&|rank| sent(rank, me)), inputs)),
            Collective::Scatter => one(all(&|rank| sent(rank, me)).swap_remove(self.root)),
            Collective::AllToAll => placed(all(&|rank| sent(rank, me))),
            _ => (Vec::new(), 0),
        }
    }

    /// What the host makes of all ranks' elements.
    fn folded(&self, mut sources: Vec<Vec<u8>>, inputs: &Inputs) -> Vec<u8> {
        let kernel = reduce::Kernel::of(self.data_type, self.op);
        if let ReduceOp::PreMulSum(_) = self.op {
            for (source, factor) in sources.iter_mut().zip(&inputs.factors) {
                reduce::Kernel::of(self.data_type, ReduceOp::PreMulSum(*factor)).scale_bytes_in_place(source);
            }
        }
        let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let mut want = vec![0; sources[0].len()];
        kernel.fold_bytes(&mut want, &sources);
        if self.op == ReduceOp::Avg {
            kernel.finish_bytes(sources.len() as u32, &mut want);
        }
        want
    }

    /// This rank's plan, with its elements at `data`.
    pub fn plan(&self, site: &Site<'_>, inputs: &Inputs, data: Data) -> Plan {
        let plan = |call: &Call<'_>| Plan::new(call, data, site, &self.tuning);
        self.with_call(site, inputs, plan).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    fn with_call<R>(&self, site: &Site<'_>, inputs: &Inputs, make: impl FnOnce(&Call<'_>) -> R) -> R {
        let me = site.rank;
        let send = inputs.matrix[me].clone();
        let recv: Vec<usize> = inputs.matrix.iter().map(|row| row[me]).collect();
        let (send_offsets, recv_offsets) = (self.offsets(&send), self.offsets(&recv));
        let counts =
            Counts { send_counts: &send, send_offsets: &send_offsets, recv_counts: &recv, recv_offsets: &recv_offsets };
        let op = match self.op {
            ReduceOp::PreMulSum(_) => ReduceOp::PreMulSum(inputs.factors[me]),
            op => op,
        };
        let call = Call {
            collective: self.collective,
            data_type: self.data_type,
            op,
            root: self.root,
            count: self.count,
            counts: self.uneven.then_some(counts),
        };
        make(&call)
    }

    fn run(&self, world: &World, rank: usize, inputs: &Inputs, met: &mut usize) {
        let size = self.data_type.size();
        let mut random = self.random(3000 + rank as u64);
        let (want, length) = self.want(rank, inputs);
        let input = &inputs.bytes[rank];
        let mut start = || if self.anywhere { random.below(48 / size as u64) as usize * size } else { 0 };
        // Where this rank's block lies on the longer side.
        let (inside_output, inside_input) = match self.collective {
            Collective::AllGather => (want[rank].0, 0),
            Collective::Gather if rank == self.root => (want[rank].0, 0),
            Collective::ReduceScatter => (0, self.offsets(&inputs.matrix[rank])[rank] * size),
            Collective::Scatter if rank == self.root => (0, self.offsets(&inputs.matrix[rank])[rank] * size),
            _ => (0, 0),
        };
        let mut shared = vec![0x77; length.max(input.len())];
        let mut before = vec![0x77; length];
        if self.in_place {
            // Only what is brought is known; a root's peers bring nothing to a broadcast or a scatter.
            let brings = !matches!(self.collective, Collective::Broadcast | Collective::Scatter) || rank == self.root;
            if brings {
                shared[inside_output..inside_output + input.len()].copy_from_slice(input);
            }
            before = shared.clone();
        }
        let mut input_room = Room::new(start(), input);
        let mut output_room = Room::new(start(), &before);
        let output = output_room.address();
        let data = match self.in_place {
            true => Data { input: output + inside_output as u64, output: output + inside_input as u64 },
            false => Data { input: input_room.address(), output },
        };
        let site = world.site(rank);
        let lends =
            self.lends != Lends::No && self.with_call(&site, inputs, |call| LentPlan::takes(call, world.ranks(), 0));
        let plan = self.plan(&site, inputs, data);
        let lent_plan = lends.then(|| {
            let (input_bytes, output_bytes) = match self.lends == Lends::AllBut(rank) {
                true => (0, 0),
                false => (input.len() as u64, length.max(input.len() * usize::from(self.in_place)) as u64),
            };
            let windows = world.lend(rank, [(data.input, input_bytes), (data.output, output_bytes)], *met);
            *met += 1;
            let lending = Lending { windows: &windows };
            let plan = |call: &Call<'_>| LentPlan::new(call, data, &lending, &site, &self.tuning);
            let plan = self.with_call(&site, inputs, plan).unwrap_or_else(|error| panic!("{self:?}: {error}"));
            let covers = self.collective == Collective::AllToAll && self.in_place;
            assert_eq!(plan.lends().0, self.lends != Lends::AllBut(rank) && !covers, "{self:?}");
            plan
        });
        let what = format!("rank {rank} of {}: {self:?}", world.ranks());
        for time in 0..self.times {
            linger(&mut random);
            match &lent_plan {
                Some(plan) => world.launch_lent(plan),
                None => world.launch(&plan),
            }
            assert!(world.failure(rank).is_none(), "{what}: {}", world.failure(rank).expect("a failure"));
            let mut after = before.clone();
            for (at, piece) in &want {
                let at = at + if self.in_place { inside_input } else { 0 };
                after[at..at + piece.len()].copy_from_slice(piece);
            }
            output_room.check(size, &after, &format!("{what}, launch {time}"));
            input_room.check(size, input, &format!("{what}: the input"));
        }
    }
}

/// Comes late, now and then.
pub fn linger(random: &mut Random) {
    match random.below(8) {
        0 => std::thread::sleep(Duration::from_micros(random.below(200))),
        1 | 2 => (0..random.below(4)).for_each(|_| std::thread::yield_now()),
        _ => {}
    }
}
