//! Every row as streams, on ranks that do one thing after the other over bays of a few bytes.
//!
//! Elements are numbers, and a fold mixes two of them so that neither order nor grouping may change: what comes out says which
//! tree of folds has made it. It is compared with the row's own programs, run as the proofs run them.

use super::*;
use crate::algorithm::{ROWS, Row};
use crate::collective::Collective;
use crate::device::Board;
use crate::engine::{Extent, Shape, Slicing};
use crate::reduce::{DataType, Kernel};
use crate::schedule::run::{At, Watch, run};
use crate::schedule::{Buffer, Program, Span, Step, input, output};

const SIZE: usize = 8;

fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ word >> 32
}

fn fold(first: u64, second: u64) -> u64 {
    mixed(mixed(first).wrapping_add(second.rotate_left(7)))
}

fn scaled(element: u64) -> u64 {
    mixed(element ^ 0x5ca1e)
}

fn divided(element: u64) -> u64 {
    mixed(element ^ 0xd17)
}

/// What is asked of a row.
#[derive(Clone, Debug)]
struct Case {
    row: &'static Row,
    n: u32,
    root: u32,
    op: ReduceOp,
    /// Elements of the vector, or of a block.
    count: usize,
    /// Elements of each block.
    counts: Option<Vec<usize>>,
    in_place: bool,
    slicing: Slicing,
    bay: u64,
}

/// A rank's memory: input and output, which may be the same, in one piece.
struct User {
    elements: Vec<u64>,
    input: usize,
    output: usize,
}

impl Case {
    fn programs(&self) -> Vec<Program> {
        self.row.programs(self.n, self.root)
    }

    fn extent(&self, me: usize) -> Extent {
        let Some(counts) = &self.counts else {
            return match self.row.collective.has_blocks() {
                true => Extent::Blocks(self.count),
                false => Extent::Vector(if self.row.collective == Collective::Barrier { 0 } else { self.count }),
            };
        };
        let mut next = 0;
        let mut ranges = Vec::new();
        for count in counts {
            ranges.push(next..next + count * SIZE);
            next += count * SIZE;
        }
        let (one, all) = (Shape::whole(counts[me] * SIZE), Shape::Table(ranges.into()));
        match self.row.collective {
            Collective::AllGather | Collective::Gather => Extent::Uneven { input: one, output: all },
            _ => Extent::Uneven { input: all, output: one },
        }
    }

    fn plan(&self, me: usize) -> Plan {
        let program = self.row.program(me as u32, self.n, self.root);
        let slicing = if self.row.moves_runs { Slicing::UNCUT } else { self.slicing };
        let kernel = Kernel::of(DataType::U64, self.op);
        Plan::new(self.row.collective, self.row.name, program, kernel, SIZE, self.extent(me), slicing)
    }

    /// Elements of the input and of the output, and where the shorter lies in the longer in place.
    fn lengths(&self, me: usize) -> (usize, usize, usize) {
        let block = self.counts.as_ref().map_or(self.count, |counts| counts[me]);
        let all = self.counts.as_ref().map_or(self.count * self.n as usize, |counts| counts.iter().sum());
        let before = self.counts.as_ref().map_or(self.count * me, |counts| counts[..me].iter().sum());
        let is_root = me as u32 == self.root;
        match self.row.collective {
            Collective::AllReduce => (self.count, self.count, 0),
            Collective::Reduce => (self.count, if is_root { self.count } else { 0 }, 0),
            Collective::Broadcast => (if is_root { self.count } else { 0 }, self.count, 0),
            Collective::AllGather => (block, all, before),
            Collective::Gather => (block, if is_root { all } else { 0 }, before),
            Collective::ReduceScatter => (all, block, before),
            Collective::Scatter => (if is_root { all } else { 0 }, block, before),
            Collective::AllToAll => (all, all, 0),
            _ => (0, 0, 0),
        }
    }

    fn user(&self, me: usize, in_place: bool) -> User {
        let (n_in, n_out, place) = self.lengths(me);
        let input = |at: usize| mixed((me as u64 + 1) << 32 | at as u64);
        let in_place = in_place && n_in > 0 && n_out > 0;
        let (len, input_at, output_at) = match in_place {
            false => (n_in + n_out, 0, n_in),
            true if n_in < n_out => (n_out, place, 0),
            true => (n_in, 0, place),
        };
        let mut elements = vec![0xdead; len];
        (0..n_in).for_each(|at| elements[input_at + at] = input(at));
        User { elements, input: input_at, output: output_at }
    }

    /// What every rank's output must be.
    fn wanted(&self) -> Vec<Vec<u64>> {
        let plans: Vec<Plan> = (0..self.n as usize).map(|me| self.plan(me)).collect();
        let users: Vec<User> = (0..self.n as usize).map(|me| self.user(me, false)).collect();
        let scratch = plans.iter().map(|plan| vec![0; plan.scratch_bytes() / SIZE]).collect();
        let mut strict = Strict { op: self.op, plans: &plans, users, scratch, shapes: Vec::new() };
        if self.op == ReduceOp::PreMulSum(7) {
            for user in &mut strict.users {
                let inputs = ..user.output;
                user.elements[inputs].iter_mut().for_each(|element| *element = scaled(*element));
            }
        }
        let programs = self.programs();
        for slice in 0..plans[0].slices {
            strict.shapes = plans.iter().map(|plan| plan.shapes(slice)).collect();
            run(&programs, &mut strict).unwrap_or_else(|stop| panic!("{self:?}: {stop:?}"));
        }
        let divides = self.op == ReduceOp::Avg;
        let output = |(me, user): (usize, User)| {
            let mut output = user.elements[user.output..].to_vec();
            if divides && plans[me].summed_chunks() > 0 {
                output.iter_mut().for_each(|element| *element = divided(*element));
            }
            output
        };
        strict.users.into_iter().enumerate().map(output).collect()
    }
}

/// The programs as the proofs run them, over numbers.
struct Strict<'a> {
    op: ReduceOp,
    plans: &'a [Plan],
    users: Vec<User>,
    scratch: Vec<Vec<u64>>,
    shapes: Vec<crate::engine::Shapes>,
}

impl Strict<'_> {
    fn places(&self, rank: usize, span: Span) -> Vec<(bool, usize)> {
        let plan = &self.plans[rank];
        let user = &self.users[rank];
        // Blocks of a slice don't follow each other, so chunk by chunk.
        let mut places = Vec::new();
        for offset in 0..span.count {
            let range = match span.buffer {
                Buffer::Scratch => plan.range(&Span { count: span.count, ..span }, &self.shapes[rank], 0),
                _ => plan.range(&span.part(offset, 1), &self.shapes[rank], 0),
            };
            let (is_scratch, base) = match span.buffer {
                Buffer::Input => (false, user.input),
                Buffer::Output => (false, user.output),
                Buffer::Scratch => (true, 0),
            };
            places.extend((range.start / SIZE..range.end / SIZE).map(|at| (is_scratch, base + at)));
            if is_scratch {
                break;
            }
        }
        places
    }

    fn read(&self, rank: usize, span: Span) -> Vec<u64> {
        let element =
            |(is_scratch, at)| if is_scratch { self.scratch[rank][at] } else { self.users[rank].elements[at] };
        self.places(rank, span).into_iter().map(element).collect()
    }

    fn write(&mut self, rank: usize, span: Span, elements: &[u64]) {
        let places = self.places(rank, span);
        assert_eq!(places.len(), elements.len(), "{span:?} of rank {rank}");
        for ((is_scratch, at), element) in places.into_iter().zip(elements) {
            let memory = if is_scratch { &mut self.scratch[rank] } else { &mut self.users[rank].elements };
            memory[at] = *element;
        }
    }

    fn step(&self, at: At) -> Step {
        self.plans[at.rank as usize].program.steps_of(at.round)[at.step]
    }
}

fn folded(first: &[u64], second: &[u64]) -> Vec<u64> {
    first.iter().zip(second).map(|(first, second)| fold(*first, *second)).collect()
}

impl Watch for Strict<'_> {
    type Fault = String;

    fn begin(&mut self, rank: u32, round: usize) -> Result<(), String> {
        let me = rank as usize;
        for step in self.plans[me].program.steps_of(round).to_vec() {
            match step {
                Step::Copy { source, target } => {
                    let elements = self.read(me, source);
                    self.write(me, target, &elements);
                }
                Step::Reduce { source, runs, target } => {
                    let run = |k: u32| Span { first: source.first + k * target.count, count: target.count, ..source };
                    let runs: Vec<Vec<u64>> = (0..runs).map(|k| self.read(me, run(k))).collect();
                    let total = runs.into_iter().reduce(|total, next| folded(&total, &next)).expect("a run");
                    self.write(me, target, &total);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn transfer(&mut self, send: At, receive: At) -> Result<(), String> {
        let Step::Send { source, .. } = self.step(send) else { unreachable!("a send is a send") };
        let message = self.read(send.rank as usize, source);
        let me = receive.rank as usize;
        match self.step(receive) {
            Step::Recv { target, .. } => self.write(me, target, &message),
            Step::RecvReduce { source, target, .. } => {
                let total = folded(&self.read(me, source), &message);
                self.write(me, target, &total);
            }
            step => return Err(format!("{step} receives nothing ({:?})", self.op)),
        }
        Ok(())
    }

    fn end(&mut self, _: u32, _: usize) -> Result<(), String> {
        Ok(())
    }
}

/// Ranks whose streams do one thing after the other.
struct Streams<'a> {
    case: &'a Case,
    users: Vec<User>,
    bays: Vec<Vec<u64>>,
    ops: Vec<Vec<Op>>,
    next: Vec<usize>,
    /// What each rank has been told by each: messages put, and messages taken.
    puts: Vec<Vec<u32>>,
    takes: Vec<Vec<u32>>,
    told: Vec<bool>,
}

impl Streams<'_> {
    fn memory(&mut self, rank: usize, place: Place) -> (&mut Vec<u64>, usize) {
        let at = place.at as usize / SIZE;
        let user = &mut self.users[rank];
        match place.base {
            Base::Input => (&mut user.elements, user.input + at),
            Base::Output => (&mut user.elements, user.output + at),
            Base::Bay(owner) => (&mut self.bays[owner], at),
        }
    }

    fn read(&mut self, rank: usize, place: Place, len: usize) -> Vec<u64> {
        assert!(!matches!(place.base, Base::Bay(owner) if owner != rank), "another's bay is written, not read");
        let (memory, at) = self.memory(rank, place);
        memory[at..at + len].to_vec()
    }

    fn write(&mut self, rank: usize, place: Place, elements: &[u64]) {
        let (memory, at) = self.memory(rank, place);
        memory[at..at + elements.len()].copy_from_slice(elements);
    }

    /// Does a rank's next thing, if it can be done.
    fn go_on(&mut self, rank: usize) -> bool {
        let Some(op) = self.ops[rank].get(self.next[rank]).cloned() else { return false };
        match op {
            Op::Tell(signals) => {
                let tells = !std::mem::replace(&mut self.told[rank], true);
                if tells {
                    for peer in 0..self.case.n as usize {
                        let tell = |known: &mut u32, said: u32| *known = (*known).max(said);
                        tell(&mut self.puts[peer][rank], signals.puts[peer]);
                        tell(&mut self.takes[peer][rank], signals.takes[peer]);
                    }
                }
                let has_come = (0..self.case.n as usize).all(|peer| {
                    self.puts[rank][peer] >= signals.awaited_puts[peer]
                        && self.takes[rank][peer] >= signals.awaited_takes[peer]
                });
                if !has_come {
                    return tells;
                }
                self.told[rank] = false;
            }
            Op::Copy { target, source, bytes } => {
                let elements = self.read(rank, source, bytes as usize / SIZE);
                self.write(rank, target, &elements);
            }
            Op::Reduce { target, sources, elements, also } => {
                let runs: Vec<Vec<u64>> =
                    sources.iter().map(|place| self.read(rank, *place, elements as usize)).collect();
                let total = runs.into_iter().reduce(|total, next| folded(&total, &next)).expect("a source");
                let total = match also {
                    Also::Nothing => total,
                    Also::Scales => total.into_iter().map(scaled).collect(),
                    Also::Divides => total.into_iter().map(divided).collect(),
                };
                self.write(rank, target, &total);
            }
        }
        self.next[rank] += 1;
        true
    }
}

/// Which rank goes on when several can.
#[derive(Clone, Copy, Debug)]
enum Order {
    Lowest,
    Highest,
    Drawn(u64),
}

fn check(case: &Case) {
    let n = case.n as usize;
    let stages = matches!(case.op, ReduceOp::PreMulSum(_)) || !case.row.in_place;
    let staging = match (case.op, case.in_place && !case.row.in_place) {
        (ReduceOp::PreMulSum(_), _) if case.row.collective.reduces() => Staging::Scaled,
        (_, true) => Staging::Moved,
        _ => Staging::None,
    };
    let bays = Bays::new(&case.programs(), stages, case.bay).unwrap_or_else(|| panic!("{case:?}: no room"));
    let wanted = case.wanted();
    let drawn = (n <= 8).then_some(Order::Drawn(case.count as u64));
    for order in [Order::Lowest, Order::Highest].into_iter().chain(drawn) {
        let none = || vec![vec![0; n]; n];
        let last = |me| {
            let Streamed { mut ops, last } = Streamed::new(&case.plan(me), case.op, &bays, staging);
            ops.push(Op::Tell(Box::new(last)));
            ops
        };
        let mut streams = Streams {
            case,
            users: (0..n).map(|me| case.user(me, case.in_place)).collect(),
            bays: vec![vec![0xbad; case.bay as usize / SIZE]; n],
            ops: (0..n).map(last).collect(),
            next: vec![0; n],
            puts: none(),
            takes: none(),
            told: vec![false; n],
        };
        let mut random = match order {
            Order::Drawn(seed) => seed,
            _ => 0,
        };
        loop {
            random = mixed(random + 1);
            let first = random as usize % n;
            let moved = match order {
                Order::Lowest => (0..n).any(|rank| streams.go_on(rank)),
                Order::Highest => (0..n).rev().any(|rank| streams.go_on(rank)),
                Order::Drawn(_) => (first..n).chain(0..first).any(|rank| streams.go_on(rank)),
            };
            if !moved {
                break;
            }
        }
        for (rank, wanted) in wanted.iter().enumerate() {
            let (next, all) = (streams.next[rank], streams.ops[rank].len());
            let stands = &streams.ops[rank][next.min(all - 1)];
            assert_eq!(next, all, "{case:?}, {order:?}: rank {rank} stands at {stands:?}");
            let user = &streams.users[rank];
            let output = &user.elements[user.output..user.output + wanted.len()];
            assert_eq!(output, wanted, "{case:?}, {order:?}: rank {rank}");
        }
    }
}

const CUT: Slicing = Slicing { chunk_bytes: 2 * SIZE, lanes: 2 };

/// Bays so small that a few elements of each chunk make a window.
fn small_bay(row: &Row, n: u32, root: u32, stages: bool) -> u64 {
    let unit = Bays::new(&row.programs(n, root), stages, 1 << 30).expect("room").unit();
    // So that a chunk has three elements, in sixteens of bytes four.
    ((1 << 30) / unit + 1) * 3 * 16
}

fn cases(row: &'static Row, n: u32) -> Vec<Case> {
    let has_operator = row.collective.reduces();
    let operators: &[ReduceOp] =
        if has_operator { &[ReduceOp::Sum, ReduceOp::Avg, ReduceOp::PreMulSum(7)] } else { &[ReduceOp::Sum] };
    let mut cases = Vec::new();
    for (number, op) in operators.iter().enumerate() {
        for in_place in [false, true] {
            let root = if row.collective.has_root() { (n - 1) * (number as u32 % 2) } else { 0 };
            let stages = matches!(op, ReduceOp::PreMulSum(_)) || !row.in_place;
            let bay = small_bay(row, n, root, stages);
            for (count, slicing) in [(0, Slicing::UNCUT), (1, Slicing::UNCUT), (9, Slicing::UNCUT), (70, CUT)] {
                // Many elements of few ranks, as many of many.
                let count = if count > 1 && row.collective.has_blocks() && n > 4 { 4 + count / 10 } else { count };
                let case = Case { row, n, root, op: *op, count, counts: None, in_place, slicing, bay };
                cases.push(case.clone());
                let takes_uneven = row.uneven && !row.moves_runs && row.collective != Collective::AllToAll;
                if takes_uneven && row.collective.has_blocks() && count > 1 {
                    let counts = (0..n as usize).map(|rank| (rank * 7 + 3) % 17).collect();
                    cases.push(Case { counts: Some(counts), ..case });
                }
            }
        }
    }
    cases
}

/// No row is left out: none of them is run by the host for being a row.
#[test]
fn every_row_comes_to_its_end_in_order_with_what_its_program_says() {
    for row in ROWS {
        for n in (1..=Board::RANKS_MAX as u32).filter(|n| (row.fits)(*n)) {
            cases(row, n).iter().for_each(check);
        }
    }
}

/// Rank 2 waits in one round for rank 0 and for rank 1, who waits for what rank 0 does after its next message to rank 2: with one
/// place for that, it would wait for rank 2.
fn tangled(p: &mut Program) {
    let send = |to| Step::Send { to, source: input(0) };
    let recv = |from, chunk| Step::Recv { from, target: output(chunk) };
    match p.me {
        0 => {
            p.round([send(2)]);
            p.round([send(1), send(2)]);
        }
        1 => {
            p.round([recv(0, 0)]);
            p.round([send(2)]);
        }
        _ => {
            p.round([recv(0, 0), recv(1, 1)]);
            p.round([recv(0, 2)]);
        }
    }
}

#[test]
fn a_program_that_ends_without_places_ends_in_order() {
    static ROW: Row = Row::new(Collective::AllGather, "tangled", tangled, |_| crate::schedule::cost::Work::default());
    let (n, root, op, counts, in_place) = (3, 0, ReduceOp::Sum, None, false);
    let bay = small_bay(&ROW, n, root, false);
    for count in [0, 1, 20] {
        let (counts, slicing) = (counts.clone(), Slicing::UNCUT);
        check(&Case { row: &ROW, n, root, op, count, counts, in_place, slicing, bay });
    }
}

/// What attached ranks have by default leaves room for every row.
#[test]
fn every_row_has_room() {
    let board = Board::new(16 << 20, Board::BLOCKS_MAX).expect("a board");
    let least = Board::new(0xc000, Board::BLOCKS_MAX).expect("a board");
    for row in ROWS {
        for n in (1..=Board::RANKS_MAX as u32).filter(|n| (row.fits)(*n)) {
            for stages in [false, true] {
                let bays = Bays::new(&row.programs(n, 0), stages, board.bay_bytes());
                let unit = bays.expect("room").unit();
                assert!(unit >= 32 << 10, "{} {}, {n} ranks: {unit} bytes", row.collective, row.name);
                assert!(Bays::new(&row.programs(n, 0), stages, least.bay_bytes()).is_some());
            }
        }
    }
}
