//! Data parallel against one process: the same numbers, and no byte more than the formulas say.

mod hooks;
mod waiting;

use std::sync::Arc;

use crate::mlp::{Model, TOKENS, alone, close, descend, give, numbers, ranks, values};
use candle_core::{DType, Device, Tensor};
use paceline_comm::Collective;
use paceline_parallel::data::hook::{Ordered, PowerSgd, PowerSgdOptions, Rounded};
use paceline_parallel::data::{CommHook, Progress, Replicated, ReplicatedOptions, Unused};
use paceline_parallel::mesh::{Axis, Mesh};
use paceline_parallel::parameter::{Builder, Init, Parameter, ParameterOptions, Part};
use paceline_parallel::state::{Local, Numbers, Shard, State};
use paceline_parallel::value::{Kind, Spread};
use paceline_parallel::{Error, Group};

const STEPS: usize = 4;

fn small_buckets() -> ReplicatedOptions {
    ReplicatedOptions { bucket_bytes: 1024, first_bucket_bytes: 256, ..ReplicatedOptions::default() }
}

/// This rank's samples of a global batch, in equal shares.
fn share(batch: &[usize], mesh: &Mesh) -> Vec<usize> {
    let len = batch.len() / mesh.world().size();
    batch[mesh.rank() * len..][..len].to_vec()
}

fn batches(size: usize) -> Vec<Vec<usize>> {
    (0..STEPS).map(|step| (step * size..(step + 1) * size).collect()).collect()
}

fn all_reduced(state: &Replicated) -> (u64, u64) {
    let group = state.groups().next().unwrap();
    let entry = group.traffic().of(Collective::AllReduce);
    (entry.payload_bytes, entry.wire_bytes)
}

#[test]
fn as_one_process_does_it() {
    for (n, options) in [(1, small_buckets()), (2, small_buckets()), (4, small_buckets()), (4, Default::default())] {
        let batch = 8;
        let want = alone(DType::F64, &batches(batch));
        let got = ranks(&format!("dp={n}"), |mesh| {
            let model = Model::new(DType::F64);
            let state = Replicated::new(model.parameters(), &mesh, options.clone()).unwrap();
            let elements: usize = model.parameters().iter().map(|parameter| parameter.part().len()).sum();
            for samples in batches(batch) {
                state.groups().for_each(|group| group.traffic().reset());
                let samples = share(&samples, &mesh);
                for (at, sample) in samples.iter().enumerate() {
                    if at + 1 == samples.len() {
                        // Nothing has been sent for the micro-batches before.
                        state.groups().for_each(|group| assert_eq!(group.traffic().total().calls, 0));
                        state.last_micro_batch();
                    }
                    model.loss(*sample).unwrap().backward().unwrap();
                }
                state.finish_gradients().unwrap();
                if n > 1 {
                    // The gradients, and once: how many ranks have data, how many use each parameter, which buckets are late.
                    let flags = 1 + model.parameters().len() + state.buckets().len();
                    let payload = (8 * elements + 4 * flags) as u64;
                    let (got, wire) = all_reduced(&state);
                    assert_eq!(got, payload);
                    // Rounded down for each call.
                    let exact = 2 * (n as u64 - 1) * payload / n as u64;
                    assert!(wire <= exact && exact <= wire + 1 + state.buckets().len() as u64, "{wire} {exact}");
                }
                descend(&state, (batch * TOKENS) as u64).unwrap();
            }
            (values(&state), state.buckets(), state.overlap())
        });
        for (values, buckets, overlap) in &got {
            close(values, &want, 1e-12);
            assert_eq!(*values, got[0].0, "all ranks hold equal bits");
            assert_eq!(*buckets, got[0].1);
            let sent = if n == 1 { 0 } else { overlap.started };
            assert!(n == 1 || overlap.started_early >= sent / 2, "{overlap:?}");
            assert!((0.0..=1.0).contains(&overlap.hidden_share()));
        }
    }
}

#[test]
fn in_single_precision() {
    let want = alone(DType::F32, &batches(4));
    let got = ranks("dp=4", |mesh| {
        let model = Model::new(DType::F32);
        let state = Replicated::new(model.parameters(), &mesh, small_buckets()).unwrap();
        for samples in batches(4) {
            state.last_micro_batch();
            model.loss(share(&samples, &mesh)[0]).unwrap().backward().unwrap();
            state.finish_gradients().unwrap();
            descend(&state, (4 * TOKENS) as u64).unwrap();
        }
        values(&state)
    });
    got.iter().for_each(|got| close(got, &want, 2e-5));
}

#[test]
fn ranks_run_out_of_data_at_different_times() {
    let has = [5usize, 4, 2];
    let first = |rank: usize| has[..rank].iter().sum::<usize>();
    // Step by step, what those ranks have that still have something.
    let steps: Vec<Vec<usize>> =
        (0..5).map(|step| (0..3).filter(|rank| step < has[*rank]).map(|rank| first(rank) + step).collect()).collect();
    let want = alone(DType::F64, &steps);
    let got = ranks("dp=3", |mesh| {
        let model = Model::new(DType::F64);
        let state = Replicated::new(model.parameters(), &mesh, small_buckets()).unwrap();
        let group = Group::along(&mesh, &[Axis::Dp]).unwrap();
        let mut mine = (first(mesh.rank())..).take(has[mesh.rank()]);
        let mut steps = 0;
        loop {
            let sample = mine.next();
            let count = sample.iter().count();
            let progress = Progress::agree(&group, count as u64, (count * TOKENS) as u64).unwrap();
            if !progress.anybody_has_data() {
                break;
            }
            steps += 1;
            state.begin_step(&progress).unwrap();
            state.last_micro_batch();
            if let Some(sample) = sample {
                model.loss(sample).unwrap().backward().unwrap();
            }
            state.finish_gradients().unwrap();
            descend(&state, progress.tokens()).unwrap();
        }
        (values(&state), steps)
    });
    for (values, steps) in got {
        assert_eq!(steps, 5);
        close(&values, &want, 1e-12);
    }
}

/// A branch that depends on the rank: layer 0 is used by rank 0 only, layer 1 by all, layer 2 by nobody.
fn branch(mesh: &Mesh, unused: Unused, steps: usize) -> Result<(Vec<Vec<f64>>, Vec<String>), Error> {
    let model = Model::new(DType::F64);
    let state = Replicated::new(model.parameters(), mesh, ReplicatedOptions { unused, ..small_buckets() })?;
    let mut untouched = Vec::new();
    for step in 0..steps {
        state.last_micro_batch();
        let rank = mesh.rank();
        model.loss_through(2 * step + rank, |layer| layer == 1 || (layer == 0 && rank == 0))?.backward()?;
        state.finish_gradients()?;
        untouched.clear();
        state.visit(&mut |shard| {
            let segments = shard.segments.iter().filter(|segment| !segment.has_gradient);
            untouched.extend(segments.map(|segment| segment.parameter.name().to_owned()));
            Ok(())
        })?;
        descend(&state, (2 * TOKENS) as u64)?;
    }
    untouched.sort();
    Ok((values(&state), untouched))
}

#[test]
fn parameters_that_only_some_ranks_use() {
    let model = Model::new(DType::F64);
    let state = Local::new(model.parameters()).unwrap();
    for step in 0..STEPS {
        for rank in 0..2 {
            let loss = model.loss_through(2 * step + rank, |layer| layer == 1 || (layer == 0 && rank == 0));
            loss.unwrap().backward().unwrap();
        }
        descend(&state, (2 * TOKENS) as u64).unwrap();
    }
    let want = values(&state);
    for (got, untouched) in ranks("dp=2", |mesh| branch(&mesh, Unused::Allowed, STEPS).unwrap()) {
        close(&got, &want, 1e-12);
        let names = ["down", "down_bias", "up", "up_bias"].map(|name| format!("layers.2.{name}"));
        assert_eq!(untouched, names);
    }
    for said in ranks("dp=2", |mesh| branch(&mesh, Unused::Refused, 1).unwrap_err().to_string()) {
        assert!(said.contains("layers.") && said.contains("of the 2 ranks that had data"), "{said}");
    }
}

fn vectors(mesh: &Mesh, names: &[&str], spread: &Spread, options: ReplicatedOptions) -> Replicated {
    let builder = Builder::new(ParameterOptions { dtype: DType::F64, seed: mesh.rank() as u64 });
    for name in names {
        builder.parameter(name, Part::all(&[4]), spread.clone(), Init::Normal { std: 1.0 }).unwrap();
    }
    Replicated::new(builder.parameters(), mesh, options).unwrap()
}

fn filled(number: f64) -> Tensor {
    Tensor::full(number, 4, &Device::Cpu).unwrap()
}

/// What a state's gradients are, by name.
fn gradients(state: &dyn State) -> Vec<(String, f64)> {
    let mut found = Vec::new();
    let each = &mut |shard: &mut Shard| {
        found.extend(
            shard
                .segments
                .iter()
                .map(|segment| (segment.parameter.name().to_owned(), shard.gradients.get(segment.range.start))),
        );
        Ok(())
    };
    state.visit(each).unwrap();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

#[test]
fn buckets_are_filled_anew_in_the_order_of_rank_0() {
    let one_each = ReplicatedOptions { bucket_bytes: 1, first_bucket_bytes: 1, ..ReplicatedOptions::default() };
    let orders = [["b", "d", "a", "c"], ["a", "b", "c", "d"]];
    let seen = ranks("dp=2", |mesh| {
        let state = vectors(&mesh, &["a", "b", "c", "d"], &Spread::invariant(), one_each.clone());
        let of = |name: &str| state.parameters().iter().find(|parameter| parameter.name() == name).unwrap().clone();
        let step = |order: &[&str]| {
            state.last_micro_batch();
            order.iter().for_each(|name| give(&of(name), filled(1.0)).unwrap());
            state.finish_gradients().unwrap();
            assert!(gradients(&state).iter().all(|(_, sum)| *sum == 2.0));
        };
        let before = state.buckets();
        step(&orders[mesh.rank()]);
        state
            .visit(&mut |shard| {
                let name = shard.segments[0].parameter.name().as_bytes()[0];
                shard.moments.insert("moment".to_owned(), Numbers::F64(vec![f64::from(name); 4]));
                Ok(())
            })
            .unwrap();
        state.publish().unwrap();
        let after = state.buckets();
        state
            .visit(&mut |shard| {
                let name = shard.segments[0].parameter.name().as_bytes()[0];
                assert_eq!(shard.moments["moment"], Numbers::F64(vec![f64::from(name); 4]));
                Ok(())
            })
            .unwrap();
        let early = state.overlap().started_early;
        // Gradients that come in another order than the buckets leave wait for their turn, on each rank alike.
        step(&["c", "a", "d", "b"]);
        assert_eq!(state.overlap().started_early - early, 4);
        (before, after)
    });
    for (before, after) in seen {
        assert_eq!(before.concat(), ["d", "c", "b", "a"]);
        assert_eq!(after.concat(), orders[0]);
    }
}

/// Two recomputed segments that share a parameter complete it twice: the second gradient comes after the first has left.
#[test]
fn gradients_that_come_late_count_all_the_same() {
    ranks("dp=3", |mesh| {
        let state = vectors(&mesh, &["a", "b"], &Spread::invariant(), ReplicatedOptions::default());
        for step in 0..3 {
            state.last_micro_batch();
            for (parameter, times) in state.parameters().iter().zip([1, 2]) {
                // Only rank 0 has more to say of b than others.
                for _ in 0..if mesh.rank() == 0 { times } else { 1 } {
                    give(parameter, filled(1.0)).unwrap();
                }
            }
            state.finish_gradients().unwrap();
            assert_eq!(gradients(&state), [("a".to_owned(), 3.0), ("b".to_owned(), 4.0)], "step {step}");
            state.groups().for_each(|group| {
                let calls = group.traffic().of(Collective::AllReduce).calls;
                assert_eq!(calls, if step == 0 { 3 } else { 2 }, "from the second step on nothing is late");
                group.traffic().reset();
            });
            state.publish().unwrap();
        }
    });
}

#[test]
fn ranks_begin_with_the_values_of_rank_0() {
    let all =
        ranks("dp=3", |mesh| values(&vectors(&mesh, &["a", "b"], &Spread::invariant(), ReplicatedOptions::default())));
    assert!(all.iter().all(|values| *values == all[0]));
}

#[test]
fn what_is_replicated_along_another_axis_is_added_there_too() {
    let sums = ranks("dp=2,tp=2", |mesh| {
        let builder = Builder::new(ParameterOptions { dtype: DType::F64, seed: 0 });
        for (name, kind) in [("norm", Kind::Replicated), ("cut", Kind::Varying), ("same", Kind::Invariant)] {
            builder.parameter(name, Part::all(&[4]), Spread::invariant().with(Axis::Tp, kind), Init::Ones).unwrap();
        }
        let state = Replicated::new(builder.parameters(), &mesh, ReplicatedOptions::default()).unwrap();
        state.last_micro_batch();
        let gradient = filled([1.0, 10.0, 100.0, 1000.0][mesh.rank()]);
        state.parameters().iter().for_each(|parameter| give(parameter, gradient.clone()).unwrap());
        state.finish_gradients().unwrap();
        gradients(&state).into_iter().map(|(_, sum)| sum).collect::<Vec<_>>()
    });
    // In the order cut, norm, same; ranks of equal parity share their place along tp.
    assert_eq!(sums, [101.0, 1010.0, 101.0, 1010.0].map(|along_dp| vec![along_dp, 1111.0, along_dp]));
}

#[test]
fn models_that_differ_are_told_apart() {
    for (wrong, said) in [("b2", "b2 [4]"), ("nothing", "nothing")] {
        let errors = ranks("dp=3", |mesh| {
            let builder = Builder::new(ParameterOptions { dtype: DType::F64, seed: 0 });
            let names = if mesh.rank() == 2 { ["a", wrong] } else { ["a", "b"] };
            for name in names.into_iter().filter(|name| *name != "nothing") {
                builder.parameter(name, Part::all(&[4]), Spread::invariant(), Init::Ones).unwrap();
            }
            Replicated::new(builder.parameters(), &mesh, ReplicatedOptions::default()).unwrap_err()
        });
        for error in errors {
            assert!(matches!(error, Error::Differs(_)));
            let error = error.to_string();
            assert!(error.contains(&format!("rank 2's parameter #1 is {said}")), "{error}");
            assert!(error.contains("rank 0's is b [4]"), "{error}");
        }
    }
}

#[test]
fn a_rank_that_leaves_is_named_by_all_others() {
    let errors = ranks("dp=4", |mesh| {
        let model = Model::new(DType::F64);
        let state = Replicated::new(model.parameters(), &mesh, small_buckets()).unwrap();
        if mesh.rank() == 2 {
            return None;
        }
        state.last_micro_batch();
        let passed = model.loss(mesh.rank()).and_then(|loss| Ok(loss.backward()?));
        Some(passed.and_then(|_| state.finish_gradients()).unwrap_err().to_string())
    });
    for (rank, error) in errors.into_iter().enumerate().filter(|(rank, _)| *rank != 2) {
        let error = error.unwrap();
        assert!(error.contains("rank 2"), "rank {rank}: {error}");
    }
}
