//! Runs cases in worlds: one world for each kind of link and number of ranks, all its cases one after the other.

use std::collections::{BTreeMap, HashMap};

use half::{bf16, f16};
use paceline_comm::{Collective, Communicator, DataType, Element, Work};
use paceline_tests::case::{Case, Part};
use paceline_tests::exact::Columns;
use paceline_tests::world::{PATIENCE, Wire, at_once, world};
use paceline_tests::{Random, mix};
use paceline_transport::sim::{Jitter, RankStep, SimNetwork, SimOptions};

use crate::sample::Placed;

/// How many failures of a world are told.
const TOLD: usize = 5;

/// Runs all cases; what was wrong.
pub fn run(cases: &[Placed]) -> Vec<String> {
    let mut worlds: BTreeMap<(Wire, usize), Vec<Case>> = BTreeMap::new();
    for (wire, case) in cases {
        worlds.entry((*wire, case.ranks)).or_default().push(*case);
    }
    let mut wrong = Vec::new();
    for ((wire, ranks), cases) in worlds {
        let found = match wire {
            Wire::Sim => run_simulated(ranks, &cases),
            _ => run_threads(world(wire, ranks), &cases),
        };
        wrong.extend(found.into_iter().take(TOLD).map(|text| format!("{wire:?}: {text}")));
    }
    wrong
}

/// Columns that were drawn, for cases that share them.
#[derive(Default)]
struct Drawn {
    columns: HashMap<(DataType, u8, u64), Columns>,
}

impl Drawn {
    fn of(&mut self, case: &Case) -> &Columns {
        let key = (case.data_type, case.op.code(), case.seed % 7);
        self.columns.entry(key).or_insert_with(|| case.columns())
    }
}

/// Runs cases among ranks that wait in their calls, each in a thread of its own; what was wrong.
pub fn run_threads(ranks: Vec<Communicator>, cases: &[Case]) -> Vec<String> {
    let ends = at_once(ranks, |comm| {
        let (mut drawn, mut wrong) = (Drawn::default(), Vec::new());
        // A small call takes the short way once another like it has been made.
        let turns = |case: &Case| if case.count < 4096 { 2 } else { 1 };
        for case in cases.iter().flat_map(|case| std::iter::repeat_n(case, turns(case))) {
            let part = case.part(comm.rank(), drawn.of(case));
            let shift = (case.seed % 16) as usize;
            let what = match part.run(&comm, shift) {
                Ok(None) => continue,
                Ok(Some(what)) => what,
                Err(error) => error.to_string(),
            };
            wrong.push(format!("rank {}, {case:?}: {what}", comm.rank()));
            if wrong.len() == TOLD || what.contains("this communicator has failed") {
                break;
            }
        }
        wrong
    });
    ends.into_iter().flatten().collect()
}

/// A started call of any type.
trait Started {
    fn has_ended(&self) -> bool;
    fn end(self: Box<Self>) -> Result<Vec<u8>, String>;
}

impl<T: Element> Started for Work<T> {
    fn has_ended(&self) -> bool {
        self.test()
    }

    fn end(self: Box<Self>) -> Result<Vec<u8>, String> {
        let elements = self.wait().map_err(|error| error.to_string())?;
        Ok(paceline_comm::reduce::as_bytes(&elements).to_vec())
    }
}

fn start(part: &Part, case: &Case, comm: &Communicator) -> Result<Box<dyn Started>, String> {
    fn boxed<T: Element>(part: &Part, comm: &Communicator) -> Result<Box<dyn Started>, String> {
        part.start::<T>(comm).map(|work| Box::new(work) as Box<dyn Started>).map_err(|error| error.to_string())
    }
    if case.row.collective == Collective::Barrier {
        return comm.start_barrier().map(|work| Box::new(work) as Box<dyn Started>).map_err(|error| error.to_string());
    }
    match case.data_type {
        DataType::I8 => boxed::<i8>(part, comm),
        DataType::U8 => boxed::<u8>(part, comm),
        DataType::I32 => boxed::<i32>(part, comm),
        DataType::U32 => boxed::<u32>(part, comm),
        DataType::I64 => boxed::<i64>(part, comm),
        DataType::U64 => boxed::<u64>(part, comm),
        DataType::F16 => boxed::<f16>(part, comm),
        DataType::F32 => boxed::<f32>(part, comm),
        DataType::F64 => boxed::<f64>(part, comm),
        DataType::Bf16 => boxed::<bf16>(part, comm),
        DataType::F8E4M3 => boxed::<float8::F8E4M3>(part, comm),
        DataType::F8E5M2 => boxed::<float8::F8E5M2>(part, comm),
    }
}

/// One simulated rank on its way through the cases.
struct Walk<'a> {
    comm: &'a Communicator,
    cases: std::slice::Iter<'a, Case>,
    current: Option<(&'a Case, Part, Box<dyn Started>)>,
    drawn: Drawn,
    wrong: Vec<String>,
}

impl Walk<'_> {
    fn step(&mut self) -> RankStep {
        if let Some((case, part, work)) = self.current.take_if(|(_, _, work)| work.has_ended()) {
            let what = work.end().map_or_else(Some, |bytes| part.want.compare(&bytes));
            self.wrong.extend(what.map(|what| format!("rank {}, {case:?}: {what}", self.comm.rank())));
        }
        if self.current.is_some() {
            return self.comm.step();
        }
        let Some(case) = self.cases.next() else { return RankStep::Done };
        let part = case.part(self.comm.rank(), self.drawn.of(case));
        match start(&part, case, self.comm) {
            Ok(work) => self.current = Some((case, part, work)),
            Err(what) => self.wrong.push(format!("rank {}, {case:?}: {what}", self.comm.rank())),
        }
        if self.wrong.len() < TOLD { RankStep::Moved } else { RankStep::Done }
    }
}

fn run_simulated(ranks: usize, cases: &[Case]) -> Vec<String> {
    let seed = mix(paceline_tests::seed() ^ ranks as u64);
    let random = &mut Random::new(seed);
    let mut options = SimOptions::new(ranks, seed);
    options.link.jitter = Jitter::Uniform(std::time::Duration::from_micros(30));
    options.frame_bytes = 1000 + random.below(60_000) as usize;
    options.ragged = random.chance(500);
    options.piece_bytes = options.frame_bytes / 3;
    let network = SimNetwork::new(options);
    let comms = Communicator::simulated(&network, PATIENCE * 100).expect("simulated ranks");
    let mut walks: Vec<Walk<'_>> = comms
        .iter()
        .map(|comm| Walk { comm, cases: cases.iter(), current: None, drawn: Drawn::default(), wrong: Vec::new() })
        .collect();
    let mut steps: Vec<_> = walks.iter_mut().map(|walk| move |_| walk.step()).collect();
    let end = paceline_transport::sim::run(&network, &mut steps);
    drop(steps);
    let told = walks.into_iter().flat_map(|walk| walk.wrong);
    told.chain(end.err().map(|error| format!("{ranks} ranks: {error}"))).collect()
}
