//! Every schedule against one process: the same losses and the same gradients, bit for bit where one order of adding is kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use candle_core::{DType, Tensor};
use paceline_comm::Communicator;

use super::*;
use crate::autograd::{Output, function};
use crate::mesh::Axis;
use crate::parameter::{Builder, Init, Parameter, ParameterOptions, Part};
use crate::pipeline::price::{Costs, price};
use crate::pipeline::{Placement, SCHEDULES, Shape};
use crate::state::{Local, Numbers};
use crate::value::{Spread, Value};

const WIDTH: usize = 3;

/// tanh(x W) on a stage; the first one begins with an input of its own, the last one sums squares.
struct Layer {
    weight: Parameter,
    is_first: bool,
    is_last: bool,
}

fn matmul(x: &Tensor, weight: &Parameter) -> Result<Tensor> {
    let (usage, input) = (Arc::new(weight.used()), x.detach());
    let output = input.matmul(&usage.value()?)?;
    function("matmul", &[x], Output::Fresh(output), move |gradient, _| {
        let (own, input) = (gradient.clone(), input.clone());
        let back = gradient.matmul(&usage.value()?.t()?)?;
        usage.gradient(move |_| Ok(input.t()?.matmul(&own)?))?;
        Ok(vec![Some(back)])
    })
}

fn wire() -> Wire {
    Wire { dims: vec![2, WIDTH], dtype: DType::F64, spread: Spread::invariant() }
}

impl Stage for Layer {
    fn incoming(&self, _: u32) -> Result<Wire> {
        Ok(wire())
    }

    fn outgoing(&self, _: u32) -> Result<Wire> {
        Ok(wire())
    }

    fn forward(&self, micro_batch: u32, input: Option<&Value>) -> Result<Value> {
        assert_eq!(self.is_first, input.is_none());
        let own = Init::Normal { std: 1.0 };
        let stream = crate::random::Stream::new(1, "input").at(micro_batch.into());
        let input = match input {
            Some(value) => value.tensor().clone(),
            None => own.tensor(&Part::all(&[2, WIDTH]), stream, DType::F64)?,
        };
        let output = matmul(&input, &self.weight)?.tanh()?;
        Ok(Value::invariant(if self.is_last { output.sqr()?.sum_all()? } else { output }))
    }
}

/// Stages by number, and the parameters of each.
type Built = (BTreeMap<u32, Arc<dyn Stage>>, BTreeMap<u32, Vec<Parameter>>);

/// The stages of these numbers, and their parameters; the last stage's weight is the first one's if they are tied.
fn build(numbers: &[u32], stages: u32, tied: bool) -> Built {
    let builder = Builder::new(ParameterOptions { seed: 5, dtype: DType::F64 });
    let (mut models, mut parameters) = (BTreeMap::<u32, Arc<dyn Stage>>::new(), BTreeMap::new());
    for number in numbers {
        let name = if tied && number + 1 == stages { "0".to_owned() } else { number.to_string() };
        let init = Init::Normal { std: 0.7 };
        let make = || builder.parameter(&name, Part::all(&[WIDTH, WIDTH]), Spread::invariant(), init).unwrap();
        let weight = builder.made(&name).unwrap_or_else(make);
        parameters.insert(*number, vec![weight.clone()]);
        models.insert(*number, Arc::new(Layer { weight, is_first: *number == 0, is_last: number + 1 == stages }));
    }
    (models, parameters)
}

/// Losses by micro-batch, and gradients by parameter.
type Found = (BTreeMap<u32, f64>, BTreeMap<String, Numbers>);

fn gradients(state: &Local) -> BTreeMap<String, Numbers> {
    let mut found = BTreeMap::new();
    let visit = &mut |shard: &mut crate::state::Shard| {
        for segment in &shard.segments {
            let tensor = shard.gradients.tensor(segment.range.clone(), segment.range.len(), DType::F64)?;
            let mut numbers = Numbers::zeros(DType::F64, segment.range.len());
            numbers.write(0, &tensor)?;
            found.insert(segment.parameter.name().to_owned(), numbers);
        }
        Ok(())
    };
    state.visit(visit).unwrap();
    found
}

fn losses(report: &Report) -> BTreeMap<u32, f64> {
    report.losses.iter().map(|(micro_batch, loss)| (*micro_batch, loss.to_scalar::<f64>().unwrap())).collect()
}

/// Runs a schedule on threads; what all ranks found together, and how many activations each had at most.
fn run(schedule: &Schedule, tied: bool) -> (Found, Vec<usize>) {
    let (found, in_flight) = (Mutex::new(Found::default()), Mutex::new(vec![0; schedule.n_ranks() as usize]));
    std::thread::scope(|scope| {
        for comm in Communicator::in_process(schedule.n_ranks() as usize).unwrap() {
            let (found, in_flight) = (&found, &in_flight);
            scope.spawn(move || {
                let group = Group::of(comm, Axis::Pp);
                let rank = group.rank();
                let (stages, parameters) = build(&schedule.stages_of(rank as u32), schedule.n_stages(), tied);
                let (ties, kept) = Ties::agree(&group, schedule, &parameters).unwrap();
                let state = Local::new(kept).unwrap();
                let pipeline = Pipeline::new(schedule.clone(), group, stages).unwrap().with_ties(ties);
                let report = pipeline.run(&state).unwrap();
                is_told(schedule, rank, &report);
                assert!(parameters.values().flatten().all(|parameter| parameter.open_uses() == 0));
                in_flight.lock().unwrap()[rank] = report.most_in_flight;
                let mut found = found.lock().unwrap();
                found.0.extend(losses(&report));
                for (name, numbers) in gradients(&state) {
                    assert!(found.1.insert(name, numbers).is_none(), "two ranks keep one parameter");
                }
            });
        }
    });
    (found.into_inner().unwrap(), in_flight.into_inner().unwrap())
}

/// The timeline has the schedule's computations in their order, one after another, within the run.
fn is_told(schedule: &Schedule, rank: usize, report: &Report) {
    let should: Vec<Action> = schedule.ranks[rank].iter().flat_map(|step| step.actions()).collect();
    let is: Vec<Action> = report.timeline.iter().flat_map(|timed| timed.step.actions()).collect();
    assert_eq!(is, should);
    let times: Vec<f64> = report.timeline.iter().flat_map(|timed| [timed.start, timed.end]).collect();
    assert!(0.0 <= times[0] && times.is_sorted() && times[0] < times[times.len() - 1], "{times:?}");
}

/// The same in one process, micro-batch by micro-batch.
fn alone(stages: u32, micro_batches: u32, tied: bool) -> Found {
    let numbers: Vec<u32> = (0..stages).collect();
    let (models, parameters) = build(&numbers, stages, tied);
    let mut kept: Vec<Parameter> = parameters.into_values().flatten().collect();
    let mut seen = std::collections::BTreeSet::new();
    kept.retain(|parameter| seen.insert(parameter.name().to_owned()));
    let state = Local::new(kept).unwrap();
    let mut losses = BTreeMap::new();
    for micro_batch in 0..micro_batches {
        let mut value = None;
        for model in models.values() {
            value = Some(model.forward(micro_batch, value.as_ref()).unwrap());
        }
        let loss = value.unwrap().into_tensor();
        loss.backward().unwrap();
        losses.insert(micro_batch, loss.to_scalar().unwrap());
    }
    (losses, gradients(&state))
}

fn close(one: &Numbers, two: &Numbers) -> bool {
    (0..one.len()).all(|at| (one.get(at) - two.get(at)).abs() <= 1e-12 * (1.0 + one.get(at).abs()))
}

#[test]
fn every_schedule_equals_one_process() {
    for row in &SCHEDULES {
        for (ranks, micro_batches, chunks) in [(1, 3, 1), (2, 4, 1), (2, 4, 2), (4, 8, 1), (4, 8, 2)] {
            let Ok(schedule) = row.schedule(Shape::new(ranks, micro_batches).chunks(chunks)) else { continue };
            for tied in [false, true] {
                let what = format!("{} {ranks} ranks, {micro_batches} micro-batches, tied: {tied}", row.name);
                let (found, in_flight) = run(&schedule, tied);
                let want = alone(schedule.n_stages(), micro_batches, tied);
                assert_eq!(found.0, want.0, "{what}");
                assert_eq!(found.1.keys().collect::<Vec<_>>(), want.1.keys().collect::<Vec<_>>(), "{what}");
                let one_order = !tied && schedule.placement != Placement::Mirrored;
                for (name, gradient) in &want.1 {
                    assert!(close(gradient, &found.1[name]), "{what}: {name}");
                    assert!(!one_order || *gradient == found.1[name], "{what}: {name} isn't the same in all bits");
                }
                let price = price(&schedule, &Costs::even(schedule.n_stages())).unwrap();
                for (rank, most) in in_flight.iter().enumerate() {
                    assert_eq!(*most, price.ranks[rank].in_flight as usize, "{what}: rank {rank}");
                }
            }
        }
    }
}

/// Fails in its third micro-batch, by an error or a panic.
struct Failing {
    stage: Arc<dyn Stage>,
    panics: bool,
}

impl Stage for Failing {
    fn incoming(&self, micro_batch: u32) -> Result<Wire> {
        self.stage.incoming(micro_batch)
    }

    fn outgoing(&self, micro_batch: u32) -> Result<Wire> {
        self.stage.outgoing(micro_batch)
    }

    fn forward(&self, micro_batch: u32, input: Option<&Value>) -> Result<Value> {
        assert!(micro_batch != 2 || !self.panics, "no more");
        if micro_batch == 2 { Err(Error::invalid("no more")) } else { self.stage.forward(micro_batch, input) }
    }
}

#[test]
fn a_rank_that_fails_is_named_and_nobody_hangs() {
    for (name, failing, panics) in
        [("one_f_one_b", 1, false), ("one_f_one_b", 1, true), ("gpipe", 0, true), ("zbv", 3, true), ("zb_h1", 2, false)]
    {
        let schedule = crate::pipeline::schedule_row(name).unwrap().schedule(Shape::new(4, 8)).unwrap();
        std::thread::scope(|scope| {
            for comm in Communicator::in_process(4).unwrap() {
                let schedule = schedule.clone();
                scope.spawn(move || {
                    let group = Group::of(comm, Axis::Pp);
                    let rank = group.rank();
                    let (mut stages, parameters) = build(&schedule.stages_of(rank as u32), schedule.n_stages(), false);
                    if rank == failing {
                        let failing = |stage: Arc<dyn Stage>| Arc::new(Failing { stage, panics }) as Arc<dyn Stage>;
                        stages = stages.into_iter().map(|(number, stage)| (number, failing(stage))).collect();
                    }
                    let runs = std::panic::AssertUnwindSafe(move || {
                        let (ties, kept) = Ties::agree(&group, &schedule, &parameters).unwrap();
                        let state = Local::new(kept).unwrap();
                        let pipeline = Pipeline::new(schedule, group, stages).unwrap().with_ties(ties);
                        pipeline.run(&state).unwrap_err().to_string()
                    });
                    match std::panic::catch_unwind(runs) {
                        Ok(error) if rank == failing => {
                            assert!(!panics && error.contains("F2") && error.contains("no more"), "{name}: {error}");
                        }
                        Ok(error) => assert!(error.contains(&format!("rank {failing}")), "{name}: {rank}: {error}"),
                        Err(_) => assert!(rank == failing && panics, "{name}: rank {rank} panics"),
                    }
                });
            }
        });
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let schedule = crate::pipeline::schedule_row("gpipe").unwrap().schedule(Shape::new(2, 2)).unwrap();
    let alone = || Group::alone(Axis::Pp).unwrap();
    let error = Pipeline::new(schedule, alone(), BTreeMap::new()).err().unwrap().to_string();
    assert!(error.contains("for 2 ranks"), "{error}");
    let schedule = crate::pipeline::schedule_row("gpipe").unwrap().schedule(Shape::new(1, 2)).unwrap();
    let error = Pipeline::new(schedule, alone(), BTreeMap::new()).err().unwrap().to_string();
    assert!(error.contains("stages [0]"), "{error}");
}
