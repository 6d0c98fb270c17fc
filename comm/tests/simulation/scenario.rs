//! What happens in a run, drawn from a seed: how many ranks, which calls, on what wires, with which faults.

use std::time::Duration;

use paceline_comm::algorithm::{ROWS, Row};
use paceline_comm::{CallOptions, Collective, Communicator, ReduceOp, Result, Work};
use paceline_transport::Time;
use paceline_transport::sim::{Fault, Jitter, LinkProfile, Random, SimOptions};

/// How long faults that pass last at most, all together far less than [`PATIENT`].
pub const WITHIN: Duration = Duration::from_millis(2);

/// A timeout that nothing but a lasting fault uses up.
pub const PATIENT: Duration = Duration::from_secs(100);

/// One run, to be printed when it fails.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub options: SimOptions,
    pub calls: Vec<Call>,
    /// When each rank starts its calls.
    pub starts: Vec<Duration>,
    pub slow: Vec<(usize, usize, LinkProfile)>,
    pub faults: Vec<Fault>,
    pub timeout: Duration,
    /// Whether a rank drops its communicator as soon as its own part is done.
    pub leaves_early: bool,
}

/// One call, the same on all ranks.
#[derive(Clone, Copy)]
pub struct Call {
    pub row: &'static Row,
    /// Elements of the vector, or of one block.
    pub count: usize,
    pub root: usize,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} of {} to or from {}", self.row.name, self.row.collective, self.count, self.root)
    }
}

impl Scenario {
    /// One call of a row without faults; `None` if the row doesn't fit as many ranks as the seed says.
    pub fn calm(seed: u64, row: usize) -> Option<Scenario> {
        let mut random = Random::new(seed.wrapping_mul(1000) + row as u64);
        let ranks = 2 + random.below(15) as usize;
        let mut scenario = Scenario::quiet(seed, ranks, &mut random);
        let row = &ROWS[row];
        if !(row.fits)(ranks as u32) {
            return None;
        }
        scenario.calls.push(Call::draw(row, &scenario.options, &mut random));
        Some(scenario)
    }

    /// Up to five calls of any rows, started together, without faults.
    pub fn crowded(seed: u64) -> Scenario {
        let mut random = Random::new(seed ^ 0xc10d);
        let ranks = 2 + random.below(9) as usize;
        let mut scenario = Scenario::quiet(seed, ranks, &mut random);
        scenario.draw_calls(5, &mut random);
        scenario
    }

    /// Up to three calls and up to three faults.
    pub fn faulty(seed: u64, part: u64) -> Scenario {
        let mut random = Random::new(seed.wrapping_mul(1000) + 500 + part);
        let ranks = 2 + random.below(15) as usize;
        let mut scenario = Scenario::quiet(seed, ranks, &mut random);
        scenario.draw_calls(3, &mut random);
        let n_faults = 1 + random.below(3);
        scenario.faults = (0..n_faults).map(|_| Fault::random(&mut random, ranks, WITHIN)).collect();
        scenario
    }

    fn quiet(seed: u64, ranks: usize, random: &mut Random) -> Scenario {
        let mut options = SimOptions::new(ranks, seed);
        options.link.latency = Duration::from_nanos(random.below(50_000));
        options.link.bytes_per_second = 1 << (24 + random.below(12));
        options.link.jitter = match random.below(3) {
            0 => Jitter::None,
            1 => Jitter::Uniform(Duration::from_micros(random.below(100))),
            _ => {
                let (usual, spike) = (Duration::from_micros(5), Duration::from_millis(1));
                Jitter::Spikes { usual, per_mille: 50, spike }
            }
        };
        options.frame_bytes = 1 << (3 + random.below(14));
        options.window_bytes = options.frame_bytes * (1 + random.below(8) as usize);
        options.ragged = random.chance(300);
        options.piece_bytes = if random.chance(500) { usize::MAX } else { options.frame_bytes.div_ceil(3) };
        let slow_profile = LinkProfile { slowdown: 2 + random.below(20) as u32, ..options.link };
        let slow = (0..random.below(3)).map(|_| {
            let from = random.below(ranks as u64) as usize;
            (from, (from + 1 + random.below(ranks as u64 - 1) as usize) % ranks, slow_profile)
        });
        let slow = slow.collect();
        let late = if random.chance(500) { 1_000_000 } else { 1 };
        let starts = (0..ranks).map(|_| Duration::from_nanos(random.below(late))).collect();
        let leaves_early = random.chance(500);
        Scenario { options, calls: Vec::new(), starts, slow, faults: Vec::new(), timeout: PATIENT, leaves_early }
    }

    fn draw_calls(&mut self, most: u64, random: &mut Random) {
        let ranks = self.options.ranks;
        let rows: Vec<_> = ROWS.iter().filter(|row| (row.fits)(ranks as u32)).collect();
        let n_calls = 1 + random.below(most);
        let draw = |_| Call::draw(rows[random.below(rows.len() as u64) as usize], &self.options, random);
        self.calls = (0..n_calls).map(draw).collect();
    }

    /// The same with `ranks` ranks that start at random within `late`, on unbroken wires.
    pub fn resize(&mut self, ranks: usize, late: Duration) {
        let mut random = Random::new(self.options.seed);
        self.options.ranks = ranks;
        self.starts = (0..ranks).map(|_| Duration::from_nanos(random.below(late.as_nanos() as u64))).collect();
        self.slow.clear();
    }

    /// Whether no fault is of a kind that a patient group doesn't outlast.
    pub fn is_survivable(&self) -> bool {
        self.faults.iter().all(|fault| match *fault {
            Fault::Kill { .. } | Fault::Cut { .. } => false,
            Fault::Stop { until, .. } | Fault::Partition { until, .. } => until != Time::NEVER,
            Fault::Straggle { .. } | Fault::DropNotices { .. } => true,
        })
    }
}

/// A call under way.
pub enum Started {
    Elements(Work<i64>),
    Barrier(Work<u8>),
}

impl Started {
    pub fn has_ended(&self) -> bool {
        match self {
            Started::Elements(work) => work.test(),
            Started::Barrier(work) => work.test(),
        }
    }

    pub fn wait(self) -> Result<Vec<i64>> {
        match self {
            Started::Elements(work) => work.wait(),
            Started::Barrier(work) => work.wait().map(|_| Vec::new()),
        }
    }
}

impl Call {
    /// Counts are such that a message is at most 40 windows long: it then takes at most some 40 round trips.
    fn draw(row: &'static Row, options: &SimOptions, random: &mut Random) -> Call {
        let ranks = options.ranks;
        let blocks = if row.collective.has_blocks() { ranks } else { 1 };
        let most = 3 + 40 * options.window_bytes / size_of::<i64>() / blocks;
        let count = match random.below(10) {
            0 => 0,
            1..=3 => random.below(9) as usize,
            4..=8 => random.below(2000) as usize,
            _ => 80_000 / ranks,
        };
        Call { row, count: count.min(most), root: random.below(ranks as u64) as usize }
    }

    pub fn start(&self, comm: &Communicator, number: usize, n: usize) -> Result<Started> {
        use Collective::*;
        let (me, root, count) = (comm.rank(), self.root, self.count);
        let comm = comm.with(CallOptions { algorithm: Some(self.row.name.into()), ..CallOptions::default() });
        let mine = |blocks: usize| (0..blocks * count).map(|at| element(number, me, at)).collect::<Vec<i64>>();
        let at_root = |blocks: usize| if me == root { blocks } else { 0 };
        let work = match self.row.collective {
            AllReduce => comm.start_all_reduce(mine(1), ReduceOp::Sum),
            Reduce => comm.start_reduce(mine(1), ReduceOp::Sum, root),
            Broadcast => comm.start_broadcast(mine(1), root),
            AllGather => comm.start_all_gather(mine(1), vec![0; n * count]),
            ReduceScatter => comm.start_reduce_scatter(mine(n), vec![0; count], ReduceOp::Sum),
            AllToAll => comm.start_all_to_all(mine(n), vec![0; n * count]),
            Gather => comm.start_gather(mine(1), vec![0; at_root(n) * count], root),
            Scatter => comm.start_scatter(mine(at_root(n)), vec![0; count], root),
            Barrier => return comm.start_barrier().map(Started::Barrier),
            Send | Recv | SendRecv => unreachable!("messages have no rows"),
        };
        work.map(Started::Elements)
    }

    /// What rank `me` must end with.
    pub fn wanted(&self, number: usize, me: usize, n: usize) -> Vec<i64> {
        use Collective::*;
        let (root, count) = (self.root, self.count);
        let sum = |at: usize| (0..n).map(|rank| element(number, rank, at)).sum::<i64>();
        let block = |rank: usize, block: usize| (0..count).map(move |at| element(number, rank, block * count + at));
        match self.row.collective {
            AllReduce => (0..count).map(sum).collect(),
            Reduce if me == root => (0..count).map(sum).collect(),
            Reduce => block(me, 0).collect(),
            Broadcast => block(root, 0).collect(),
            AllGather => (0..n).flat_map(|rank| block(rank, 0)).collect(),
            ReduceScatter => (me * count..(me + 1) * count).map(sum).collect(),
            AllToAll => (0..n).flat_map(|rank| block(rank, me)).collect(),
            Gather if me == root => (0..n).flat_map(|rank| block(rank, 0)).collect(),
            Gather | Barrier => Vec::new(),
            Scatter => block(root, me).collect(),
            Send | Recv | SendRecv => unreachable!("messages have no rows"),
        }
    }
}

/// What a rank brings at a place of a call: sums of a thousand fit.
fn element(number: usize, rank: usize, at: usize) -> i64 {
    let mut random = Random::new((number as u64) << 48 ^ (rank as u64) << 32 ^ at as u64);
    (random.next() >> 16) as i64
}
