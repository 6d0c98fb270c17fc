//! Pipelines: what ranks did when, against what the schedule costs by what its computations took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use candle_core::Tensor;
use paceline_comm::{Communicator, ReduceOp};
use paceline_parallel::Group;
use paceline_parallel::mesh::{Axis, Mesh, MeshOptions};
use paceline_parallel::parameter::{Builder, ParameterOptions};
use paceline_parallel::pipeline::price::{Costs, Price, Timed, price};
use paceline_parallel::pipeline::{Pipeline, Report, Schedule, Shape, Stage, Step, Ties, schedule_row};
use paceline_parallel::state::{Local, State};
use paceline_parallel::value::Kind;

use super::model::{Chain, ChainStage, input};
use super::{RANKS, Sizes, bind};

/// Runs before the first round.
const WARM_UP: usize = 2;
/// Messages there and back, whose median counts.
const MESSAGES: usize = 5;

type Fault = Box<dyn std::error::Error>;

/// Measures; rank 0 prints.
pub(super) fn measure(comm: Communicator, sizes: &Sizes) -> Result<(), Fault> {
    let schedule = schedule(sizes)?;
    let mesh = Mesh::new(comm, format!("pp={RANKS}").parse()?, MeshOptions::default())?;
    let group = Group::along(&mesh, &[Axis::Pp])?;
    let input = input(sizes)?;
    let (mut stages, mut parameters) = (BTreeMap::<u32, Arc<dyn Stage>>::new(), BTreeMap::new());
    let builder = Builder::new(ParameterOptions::default()).within(Axis::Pp, Kind::Varying);
    let each = sizes.layers / schedule.n_stages();
    for number in schedule.stages_of(group.rank() as u32) {
        let chain = Chain::part(sizes, number * each..(number + 1) * each, &builder)?;
        parameters.insert(number, chain.parameters().to_vec());
        stages.insert(number, Arc::new(ChainStage { chain, input: input.clone() }));
    }
    let (ties, kept) = Ties::agree(&group, &schedule, &parameters)?;
    let state = Local::new(kept)?;
    ties.publish()?;
    let pipeline = Pipeline::new(schedule.clone(), group, stages)?.with_ties(ties);
    for round in 0..WARM_UP + sizes.rounds as usize {
        if round == WARM_UP && sizes.bind {
            bind(mesh.rank())?;
        }
        let transfer_s = transfer(&mesh, &input)?;
        mesh.world().barrier()?;
        let report = pipeline.run(&state)?;
        check(&report)?;
        state.publish()?;
        let timelines = everyones(&mesh, &schedule, &report.timeline)?;
        if WARM_UP <= round && mesh.rank() == 0 {
            let measured = Price::measured(timelines);
            let costs = Costs::measured(schedule.n_stages(), &measured.timelines);
            let priced = price(&schedule, &Costs { send: transfer_s, ..costs })?;
            let replayed = Price::replayed(&schedule, &measured.timelines, transfer_s)?;
            let busy = |price: &Price| price.ranks.iter().map(|rank| rank.busy).sum::<f64>() / RANKS as f64;
            for price in [&measured, &priced, &replayed] {
                println!("time {:.1}\ntime {:.1}", 1e6 * price.makespan, 1e6 * busy(price));
            }
            println!("time {:.1}", 1e6 * transfer_s);
        }
    }
    Ok(())
}

/// How long an activation takes to the other rank with nothing to compute, in seconds: half of there and back.
fn transfer(mesh: &Mesh, activation: &Tensor) -> Result<f64, Fault> {
    let (comm, other) = (mesh.world(), 1 - mesh.rank());
    let numbers = activation.flatten_all()?.to_vec1::<f32>()?;
    let send = || comm.start_send(numbers.clone(), other)?.wait().map(drop);
    let mut times = Vec::new();
    for _ in 0..MESSAGES {
        let coming = comm.start_recv(vec![0f32; numbers.len()], other)?;
        comm.barrier()?;
        let begun = Instant::now();
        if mesh.rank() == 0 {
            send()?;
            coming.wait()?;
        } else {
            coming.wait()?;
            send()?;
        }
        times.push(begun.elapsed().as_secs_f64() / 2.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[MESSAGES / 2])
}

/// The schedule, if the model's layers can be divided evenly among its stages.
fn schedule(sizes: &Sizes) -> Result<Schedule, Fault> {
    let name = &sizes.schedule;
    let row = schedule_row(name).ok_or_else(|| format!("there is no pipeline schedule {name}"))?;
    let chunks = if name == "interleaved" { 2 } else { 1 };
    let schedule = row.schedule(Shape::new(RANKS as u32, sizes.micro_batches).chunks(chunks))?;
    let (layers, stages) = (sizes.layers, schedule.n_stages());
    if !layers.is_multiple_of(stages) {
        return Err(format!("{layers} layers can't be divided evenly among {stages} stages").into());
    }
    Ok(schedule)
}

/// What all ranks did when. Each begins its clock right after a barrier.
fn everyones(mesh: &Mesh, schedule: &Schedule, mine: &[Timed]) -> Result<Vec<Vec<Timed>>, Fault> {
    let steps: Vec<Vec<_>> =
        schedule.ranks.iter().map(|list| list.iter().flat_map(|step| step.actions()).collect()).collect();
    let most = steps.iter().map(Vec::len).max().unwrap_or(0);
    let mut times = vec![0f64; 2 * most * steps.len()];
    for (place, timed) in mine.iter().enumerate() {
        let first = 2 * (mesh.rank() * most + place);
        times[first..first + 2].copy_from_slice(&[timed.start, timed.end]);
    }
    mesh.world().all_reduce_in_place(&mut times, ReduceOp::Sum)?;
    let timeline = |(actions, times): (Vec<_>, &[f64])| {
        let timed = |(action, times): (_, &[f64])| Timed { step: action, start: times[0], end: times[1] };
        actions.into_iter().map(Step::One).zip(times.chunks(2)).map(timed).collect()
    };
    Ok(steps.into_iter().zip(times.chunks(2 * most)).map(timeline).collect())
}

fn check(report: &Report) -> Result<(), Fault> {
    let is_finite = |loss: &Tensor| loss.to_scalar::<f32>().is_ok_and(f32::is_finite);
    match report.losses.iter().find(|(_, loss)| !is_finite(loss)) {
        None => Ok(()),
        Some((micro_batch, loss)) => Err(format!("the loss of micro-batch {micro_batch} is {loss}").into()),
    }
}
