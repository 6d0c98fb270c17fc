//! Sharded states against one process, and their bytes against the formulas.

mod ways;

use crate::mlp::{LAYERS, Model, TOKENS, alone, close, descend, give, numbers, ranks, values};
use candle_core::{DType, Device, Tensor};
use paceline_comm::Collective;
use paceline_parallel::autograd::without_gradients;
use paceline_parallel::data::{Progress, Unused};
use paceline_parallel::mesh::{Axis, Mesh};
use paceline_parallel::parameter::{Builder, Init, Parameter, ParameterOptions, Part};
use paceline_parallel::sharded::{
    Accumulate, Gather, Offload, Precision, Reshard, Sharded, ShardedOptions, Stage, layer_of, units_by,
};
use paceline_parallel::state::{Local, Numbers, Shard, State};
use paceline_parallel::value::{Kind, Spread};
use paceline_parallel::{Error, Group};

const STAGES: [Stage; 3] = [Stage::Optimizer, Stage::Gradients, Stage::Parameters];
const STEPS: usize = 4;

fn sharded(model: &Model, mesh: &Mesh, options: ShardedOptions) -> Sharded {
    Sharded::new(units_by(&model.parameters(), layer_of), mesh, options).unwrap()
}

fn batches(size: usize) -> Vec<Vec<usize>> {
    (0..STEPS).map(|step| (step * size..(step + 1) * size).collect()).collect()
}

fn share(batch: &[usize], mesh: &Mesh) -> Vec<usize> {
    let len = batch.len() / mesh.world().size();
    batch[mesh.rank() * len..][..len].to_vec()
}

/// Trains for some steps; the parameters then.
fn train(mesh: &Mesh, options: ShardedOptions, dtype: DType, batch: usize) -> (Vec<Vec<f64>>, Sharded) {
    let model = Model::new(dtype);
    let state = sharded(&model, mesh, options);
    for samples in batches(batch) {
        let samples = share(&samples, mesh);
        for (at, sample) in samples.iter().enumerate() {
            if at + 1 == samples.len() {
                state.last_micro_batch();
            }
            model.loss(*sample).unwrap().backward().unwrap();
        }
        state.finish_gradients().unwrap();
        descend(&state, (batch * TOKENS) as u64).unwrap();
    }
    (values(&state), state)
}

/// 67 rows of 8 and odd layers: nothing divides evenly by 4. Each rank has two micro-batches.
#[test]
fn as_one_process_does_it() {
    for (layout, n) in [("fsdp=1", 1), ("fsdp=2", 2), ("fsdp=4", 4), ("dp=2,fsdp=2", 4)] {
        let batch = 2 * n;
        let want = alone(DType::F64, &batches(batch));
        for stage in STAGES {
            for accumulate in [Accumulate::InShard, Accumulate::InFull] {
                let options = ShardedOptions { stage, accumulate, ..ShardedOptions::default() };
                let all = ranks(layout, |mesh| {
                    let (values, state) = train(&mesh, options.clone(), DType::F64, batch);
                    (values, state.order(), state.most_units_here())
                });
                for (got, order, most_here) in &all {
                    close(got, &want, 1e-12);
                    assert_eq!(*got, all[0].0, "all ranks hold equal bits");
                    assert_eq!(*order, all[0].1);
                    // The embedding, whose weight is also the head's, is complete last.
                    assert_eq!(*order, [3, 2, 1, 0]);
                    let most = if stage == Stage::Parameters { 2 } else { LAYERS + 1 };
                    assert_eq!(*most_here, most);
                }
            }
        }
    }
}

#[test]
fn other_ways_come_to_the_same() {
    let want = alone(DType::F64, &batches(4));
    let directory = tempfile::tempdir().unwrap();
    let base = ShardedOptions::default();
    let files = Offload::Files(directory.path().to_owned());
    for options in [
        ShardedOptions { reshard: Reshard::AfterBackward, ..base.clone() },
        ShardedOptions { prefetch: 0, ..base.clone() },
        ShardedOptions { prefetch: 2, ..base.clone() },
        ShardedOptions { offload: files.clone(), ..base.clone() },
        ShardedOptions { offload: files, stage: Stage::Optimizer, ..base.clone() },
        ShardedOptions { gradients: Precision::OfParameters, ..base },
    ] {
        for (got, _) in ranks("fsdp=2", |mesh| train(&mesh, options.clone(), DType::F64, 4)) {
            close(&got, &want, 1e-12);
        }
    }
}

#[test]
fn in_single_precision() {
    let want = alone(DType::F32, &batches(4));
    for stage in STAGES {
        let options = ShardedOptions { stage, ..ShardedOptions::default() };
        for (got, _) in ranks("fsdp=4", |mesh| train(&mesh, options.clone(), DType::F32, 4)) {
            close(&got, &want, 2e-5);
        }
    }
}

/// Elements of each unit, padded for so many ranks.
fn unit_lens(n: usize) -> Vec<usize> {
    let units = units_by(&Model::new(DType::BF16).parameters(), layer_of);
    let len = |unit: &[Parameter]| unit.iter().map(|parameter| parameter.part().len()).sum::<usize>();
    units.iter().map(|unit| len(unit).next_multiple_of(n)).collect()
}

/// An optimizer's two moments, so that they are there to be counted.
fn remember(state: &Sharded) {
    let each = &mut |shard: &mut Shard| {
        for name in ["mean", "variance"] {
            shard.moments.insert(name.to_owned(), shard.values.zeros_alike());
        }
        Ok(())
    };
    state.visit(each).unwrap();
    state.publish().unwrap();
}

#[test]
fn bytes_in_memory_are_those_of_the_formulas() {
    let n = 4;
    // Padded: each formula's P.
    let p: usize = unit_lens(n).iter().sum();
    let largest = unit_lens(n).into_iter().max().unwrap();
    for (stage, want, at_once) in [
        (Stage::Optimizer, 4 * p + 12 * p / n, 0),
        (Stage::Gradients, 2 * p + 14 * p / n, 4),
        (Stage::Parameters, 16 * p / n, 8),
    ] {
        for gradients in [Precision::OfParameters, Precision::OfTraining] {
            let options = ShardedOptions { stage, gradients, ..ShardedOptions::default() };
            ranks("fsdp=4", |mesh| {
                let model = Model::new(DType::BF16);
                let state = sharded(&model, &mesh, options.clone());
                remember(&state);
                model.loss(mesh.rank()).unwrap().backward().unwrap();
                if stage > Stage::Optimizer {
                    state.finish_gradients().unwrap();
                }
                // In single precision gradients take 2 bytes more, of whatever is kept of them.
                let more = match (gradients, stage) {
                    (Precision::OfParameters, _) => 0,
                    (_, Stage::Optimizer) => 2 * p,
                    _ => 2 * p / n,
                };
                let is = state.memory();
                assert_eq!(is.total(), want + more, "{stage:?} {gradients:?} {is:?}");
                assert_eq!((is.master, is.moments), (4 * p / n, 8 * p / n));
                assert_eq!(is.values, if stage == Stage::Parameters { 2 * p / n } else { 2 * p });
                if stage == Stage::Gradients && gradients == Precision::OfParameters {
                    // In between, at most a few units' gradients are whole: one that gathers and two on their way.
                    let most = state.most_memory();
                    assert!(most.total() <= want + at_once * 2 * largest, "{most:?}");
                }
            });
        }
    }
}

#[test]
fn bytes_on_the_wire_are_those_of_the_formulas() {
    for n in [2, 4] {
        let lens = unit_lens(n);
        let p: usize = lens.iter().sum();
        // In a chain of units, the last one's values are still here when the backward pass begins, and the first is an embedding,
        // which needs none there. If it is the head as well, it is gathered once for either; then the last layer stays here
        // meanwhile, once it is known to come next, as the last but one does in the chain.
        let chain = 2 * p - lens[0] - lens[LAYERS] - lens[LAYERS - 1];
        let tied = 2 * p - lens[LAYERS];
        for (stage, reshard, chain, tied) in [
            (Stage::Optimizer, Reshard::AfterForward, p, p),
            (Stage::Gradients, Reshard::AfterForward, p, p),
            (Stage::Parameters, Reshard::AfterForward, chain, tied),
            (Stage::Parameters, Reshard::AfterBackward, p, p),
        ] {
            for (gradients, bytes) in [(Precision::OfParameters, 2), (Precision::OfTraining, 4)] {
                let options = ShardedOptions { stage, reshard, gradients, ..ShardedOptions::default() };
                ranks(&format!("fsdp={n}"), |mesh| {
                    let model = Model::new(DType::BF16);
                    let state = sharded(&model, &mesh, options.clone());
                    let traffic = state.shard_group().traffic();
                    let wire = |elements: usize, bytes: usize| (elements * bytes * (n - 1) / n) as u64;
                    for (step, is_tied) in [true, true, false, false, false].into_iter().enumerate() {
                        traffic.reset();
                        state.last_micro_batch();
                        let loss = if is_tied { model.loss(mesh.rank()) } else { model.chain_loss() };
                        loss.unwrap().backward().unwrap();
                        state.finish_gradients().unwrap();
                        descend(&state, (n * TOKENS) as u64).unwrap();
                        assert_eq!(traffic.of(Collective::ReduceScatter).wire_bytes, wire(p, bytes));
                        let gathered = traffic.of(Collective::AllGather).wire_bytes;
                        let unknown = if step == 0 && tied > p { lens[LAYERS] } else { 0 };
                        let want = wire(if is_tied { tied + unknown } else { chain }, 2);
                        // When a pass goes another way than the one before, what was gathered ahead in vain comes on top.
                        let in_vain = step == 2 && stage == Stage::Parameters && gathered > want;
                        assert!(gathered == want || in_vain, "{stage:?}, step {step}: {gathered}, {want}");
                        assert_eq!(traffic.of(Collective::AllReduce).calls, 0);
                    }
                });
            }
        }
    }
}

/// With two micro-batches the embedding comes back for the second one ahead of its turn, and not after the last.
#[test]
fn nothing_is_gathered_in_vain() {
    let lens = unit_lens(2);
    ranks("fsdp=2", |mesh| {
        let model = Model::new(DType::BF16);
        let state = sharded(&model, &mesh, ShardedOptions::default());
        let traffic = state.shard_group().traffic();
        for step in 0..3 {
            traffic.reset();
            for micro_batch in 0..2 {
                if micro_batch == 1 {
                    state.last_micro_batch();
                }
                model.loss(mesh.rank()).unwrap().backward().unwrap();
            }
            state.finish_gradients().unwrap();
            descend(&state, (4 * TOKENS) as u64).unwrap();
            // The last layer stays between the passes of a micro-batch, the first one between micro-batches.
            let want = 2 * (4 * lens[0] + 3 * lens[1] + 4 * lens[2] + 2 * lens[3]);
            let got = traffic.of(Collective::AllGather).payload_bytes;
            assert!(step == 0 || got == want as u64, "step {step}: {got}, {want}");
        }
    });
}

#[test]
fn few_units_are_here_at_a_time() {
    for prefetch in 0..3 {
        let most = ranks("fsdp=2", |mesh| {
            let model = Model::new(DType::F64);
            let state = sharded(&model, &mesh, ShardedOptions { prefetch, ..ShardedOptions::default() });
            let mut most = Vec::new();
            for _ in 0..3 {
                for _ in 0..2 {
                    let loss = model.loss(mesh.rank()).unwrap();
                    loss.backward().unwrap();
                }
                state.finish_gradients().unwrap();
                let here = state.parameters().iter().filter(|parameter| parameter.value_here().is_some()).count();
                assert_eq!(here, 0, "all values are gone when the gradients are complete");
                descend(&state, 1).unwrap();
                most.push(state.most_units_here());
            }
            let gathers = state.gather_overlap();
            assert_eq!(gathers.started_early > 0, prefetch > 0, "{gathers:?}");
            most
        });
        assert!(most.iter().all(|most| most[2] == prefetch + 1), "{prefetch}: {most:?}");
    }
}

#[test]
fn evaluation_needs_no_gradients() {
    let want: Vec<f64> = (0..2).flat_map(|sample| numbers(&Model::new(DType::F64).loss(sample).unwrap())).collect();
    let losses = ranks("fsdp=2", |mesh| {
        let model = Model::new(DType::F64);
        let _state = sharded(&model, &mesh, ShardedOptions::default());
        (0..2).flat_map(|sample| numbers(&without_gradients(|| model.loss(sample)).unwrap())).collect::<Vec<_>>()
    });
    assert!(losses.iter().all(|losses| *losses == want));
}

/// 5, 4 and 2 micro-batches in one step, and 5, 4 and 2 batches of one micro-batch.
#[test]
fn ranks_run_out_of_data_at_different_times() {
    let has = [5usize, 4, 2];
    let first = |rank: usize| has[..rank].iter().sum::<usize>();
    let all: Vec<usize> = (0..11).collect();
    let mut steps: Vec<Vec<usize>> = vec![all.clone(), all];
    steps.extend(
        (0..5).map(|step| (0..3).filter(|rank| step < has[*rank]).map(|rank| first(rank) + step).collect::<Vec<_>>()),
    );
    let want = alone(DType::F64, &steps);
    for stage in STAGES {
        for accumulate in [Accumulate::InShard, Accumulate::InFull] {
            let options = ShardedOptions { stage, accumulate, ..ShardedOptions::default() };
            let got = ranks("fsdp=3", |mesh| {
                let model = Model::new(DType::F64);
                let state = sharded(&model, &mesh, options.clone());
                let group = Group::along(&mesh, &[Axis::Fsdp]).unwrap();
                let own: Vec<usize> = (first(mesh.rank())..).take(has[mesh.rank()]).collect();
                let mut mine = vec![own.clone(), own.clone()];
                mine.extend((0..5).map(|step| own.get(step).copied().into_iter().collect()));
                for samples in mine {
                    let (count, tokens) = (samples.len() as u64, (samples.len() * TOKENS) as u64);
                    let progress = Progress::agree(&group, count, tokens).unwrap();
                    state.begin_step(&progress).unwrap();
                    for (at, sample) in samples.iter().enumerate() {
                        if at + 1 == samples.len() {
                            state.last_micro_batch();
                        }
                        model.loss(*sample).unwrap().backward().unwrap();
                    }
                    state.finish_gradients().unwrap();
                    descend(&state, progress.tokens()).unwrap();
                }
                values(&state)
            });
            got.iter().for_each(|got| close(got, &want, 1e-12));
        }
    }
}

/// Layer 0 is used by rank 0 only and layer 2 by nobody, in stages that allow ranks to differ.
#[test]
fn parameters_that_only_some_ranks_use() {
    let through = |rank: usize| move |layer: usize| layer == 1 || (layer == 0 && rank == 0);
    let model = Model::new(DType::F64);
    let alone = Local::new(model.parameters()).unwrap();
    for step in 0..STEPS {
        for (rank, sample) in [(0, 4 * step), (0, 4 * step + 1), (1, 4 * step + 2), (1, 4 * step + 3)] {
            model.loss_through(sample, through(rank)).unwrap().backward().unwrap();
        }
        descend(&alone, (4 * TOKENS) as u64).unwrap();
    }
    let want = values(&alone);
    for stage in [Stage::Optimizer, Stage::Gradients] {
        for unused in [Unused::Allowed, Unused::Refused] {
            let got = ranks("fsdp=2", |mesh| {
                let model = Model::new(DType::F64);
                let state = sharded(&model, &mesh, ShardedOptions { stage, unused, ..ShardedOptions::default() });
                for step in 0..STEPS {
                    for at in 0..2 {
                        if at == 1 {
                            state.last_micro_batch();
                        }
                        let sample = 4 * step + 2 * mesh.rank() + at;
                        model.loss_through(sample, through(mesh.rank()))?.backward()?;
                    }
                    state.finish_gradients()?;
                    descend(&state, (4 * TOKENS) as u64)?;
                }
                Ok::<_, Error>(values(&state))
            });
            for got in got {
                match (unused, got) {
                    (Unused::Allowed, got) => close(&got.unwrap(), &want, 1e-12),
                    (Unused::Refused, got) => {
                        let error = got.unwrap_err().to_string();
                        assert!(error.contains("layers.0.up was used by 1 of the 2 ranks"), "{error}");
                    }
                }
            }
        }
    }
}

#[test]
fn gradients_that_come_late_count_all_the_same() {
    for (stage, accumulate) in [
        (Stage::Optimizer, Accumulate::InFull),
        (Stage::Gradients, Accumulate::InShard),
        (Stage::Parameters, Accumulate::InFull),
    ] {
        ranks("fsdp=3", |mesh| {
            let builder = Builder::new(ParameterOptions { dtype: DType::F64, seed: 0 });
            for name in ["a", "b"] {
                builder.parameter(name, Part::all(&[4]), Spread::invariant(), Init::Ones).unwrap();
            }
            let options = ShardedOptions { stage, accumulate, ..ShardedOptions::default() };
            let state = Sharded::new(units_by(&builder.parameters(), str::to_owned), &mesh, options).unwrap();
            for step in 0..3 {
                state.last_micro_batch();
                for (parameter, times) in state.parameters().iter().zip([1, 2]) {
                    for _ in 0..times {
                        give(parameter, Tensor::ones(4, DType::F64, &Device::Cpu).unwrap()).unwrap();
                    }
                }
                state.finish_gradients().unwrap();
                let each = &mut |shard: &mut Shard| {
                    for segment in &shard.segments {
                        let want = if segment.parameter.name() == "a" { 3.0 } else { 6.0 };
                        let mut got = segment.range.clone().map(|at| shard.gradients.get(at));
                        assert!(got.all(|got| got == want), "step {step}, {stage:?}");
                    }
                    Ok(())
                };
                state.visit(each).unwrap();
                state.publish().unwrap();
            }
        });
    }
}

#[test]
fn what_is_replicated_along_another_axis_is_added_there_too() {
    let sums = ranks("dp=2,fsdp=2,tp=2", |mesh| {
        let builder = Builder::new(ParameterOptions { dtype: DType::F64, seed: 0 });
        for (name, kind) in [("norm", Kind::Replicated), ("cut", Kind::Varying), ("same", Kind::Invariant)] {
            builder.parameter(name, Part::all(&[3]), Spread::invariant().with(Axis::Tp, kind), Init::Ones).unwrap();
        }
        let state = Sharded::new(vec![builder.parameters()], &mesh, ShardedOptions::default()).unwrap();
        state.last_micro_batch();
        let gradient = Tensor::full(f64::from(1u32 << (4 * mesh.rank())), 3, &Device::Cpu).unwrap();
        state.parameters().iter().for_each(|parameter| give(parameter, gradient.clone()).unwrap());
        state.finish_gradients().unwrap();
        let mut sums = Vec::new();
        let each = &mut |shard: &mut Shard| {
            for segment in &shard.segments {
                let all = segment.range.clone().map(|at| shard.gradients.get(at) as u64);
                sums.extend(all.map(|sum| (segment.parameter.name().to_owned(), sum)));
            }
            Ok(())
        };
        state.visit(each).unwrap();
        sums
    });
    for (rank, sums) in sums.iter().enumerate() {
        // 9 elements and one of padding: 5 on each rank along fsdp.
        assert_eq!(sums.len(), if rank / 2 % 2 == 0 { 5 } else { 4 });
        for (name, sum) in sums {
            let along_data = if rank % 2 == 0 { 0x0101_0101 } else { 0x1010_1010 };
            assert_eq!(*sum, if name == "norm" { 0x1111_1111 } else { along_data }, "{name} on rank {rank}");
        }
    }
}
