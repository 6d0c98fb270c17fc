//! Data parallel against one process: the same numbers, and no byte more than the formulas say.

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

/// Adds gradients that differ by rank through a hook, in some steps; the sums, and the bytes of all_reduces.
fn through(
    hook: impl Fn() -> Arc<dyn CommHook> + Sync,
    dtype: DType,
    n: usize,
    steps: u64,
) -> Vec<(Vec<Vec<f64>>, u64)> {
    ranks(&format!("dp={n}"), |mesh| {
        let options = ReplicatedOptions { hook: hook(), ..ReplicatedOptions::default() };
        let state = matrices(&mesh, dtype, options);
        let mut sums = Vec::new();
        state.groups().for_each(|group| group.traffic().reset());
        for step in 0..steps {
            state.last_micro_batch();
            for parameter in state.parameters() {
                give(parameter, gradient(parameter, mesh.rank(), step)).unwrap();
            }
            state.finish_gradients().unwrap();
            let mut all = vec![Vec::new(); 2];
            let each = &mut |shard: &mut Shard| {
                for segment in &shard.segments {
                    let place = usize::from(segment.parameter.name() == "vector");
                    all[place] = segment.range.clone().map(|at| shard.gradients.get(at)).collect();
                }
                Ok(())
            };
            state.visit(each).unwrap();
            sums.extend(all);
            state.publish().unwrap();
        }
        (sums, all_reduced(&state).0)
    })
}

fn matrices(mesh: &Mesh, dtype: DType, options: ReplicatedOptions) -> Replicated {
    let builder = Builder::new(ParameterOptions { dtype, seed: 0 });
    for (name, shape) in [("matrix", &[12, 10][..]), ("vector", &[7])] {
        builder.parameter(name, Part::all(shape), Spread::invariant(), Init::Ones).unwrap();
    }
    Replicated::new(builder.parameters(), mesh, options).unwrap()
}

fn gradient(parameter: &Parameter, rank: usize, step: u64) -> Tensor {
    let stream = paceline_parallel::random::Stream::new(rank as u64, parameter.name()).at(step);
    Init::Normal { std: 1.0 }.tensor(parameter.part(), stream, parameter.dtype()).unwrap()
}

/// The true sums, and the sums of magnitudes.
fn truth(dtype: DType, n: usize, step: u64) -> [(Vec<f64>, Vec<f64>); 2] {
    [("matrix", &[12, 10][..]), ("vector", &[7])].map(|(name, shape)| {
        let value = Tensor::zeros(shape, dtype, &Device::Cpu).unwrap();
        let parameter = Parameter::new(name, Part::all(shape), Spread::invariant(), &value).unwrap();
        let all: Vec<Vec<f64>> = (0..n).map(|rank| numbers(&gradient(&parameter, rank, step))).collect();
        let sum = |of: fn(f64) -> f64| (0..all[0].len()).map(|at| all.iter().map(|one| of(one[at])).sum()).collect();
        (sum(|number| number), sum(f64::abs))
    })
}

#[test]
fn rounded_gradients_keep_their_bound_and_halve_the_bytes() {
    let flags = 4 * (1 + 2 + 1);
    for (hook, unit) in [(Rounded::bf16(), 2f64.powi(-9)), (Rounded::f16(), 2f64.powi(-12))] {
        for (sums, bytes) in through(|| Arc::new(hook), DType::F32, 4, 1) {
            assert_eq!(bytes, 2 * 127 + flags);
            for (got, (want, magnitude)) in sums.iter().zip(truth(DType::F32, 4, 0)) {
                for ((got, want), magnitude) in got.iter().zip(&want).zip(&magnitude) {
                    assert!((got - want).abs() <= 5.1 * unit * magnitude, "{got} for {want}");
                }
                let off = got.iter().zip(&want).filter(|(got, want)| (*got - *want).abs() > 1e-7).count();
                assert!(off > 0, "something was rounded");
            }
        }
    }
}

/// Sums in the order of the ranks don't depend on how gradients are cut into buckets; they are exactly the tree of the ranks.
#[test]
fn ordered_sums_are_the_tree_of_the_ranks() {
    for (sums, bytes) in through(|| Arc::new(Ordered), DType::F32, 4, 2) {
        assert_eq!(bytes, 2 * 4 * (1 + 2 + 1), "nothing but the flags is all-reduced");
        for (place, got) in sums.iter().enumerate() {
            let (step, which) = (place as u64 / 2, place % 2);
            let (name, shape) = [("matrix", &[12, 10][..]), ("vector", &[7])][which];
            let value = Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
            let parameter = Parameter::new(name, Part::all(shape), Spread::invariant(), &value).unwrap();
            let g: Vec<Tensor> = (0..4).map(|rank| gradient(&parameter, rank, step)).collect();
            let want = ((&g[0] + &g[1]).unwrap() + (&g[2] + &g[3]).unwrap()).unwrap();
            assert_eq!(*got, numbers(&want));
        }
    }
}

#[test]
fn power_sgd_loses_nothing_and_sends_two_thin_factors() {
    let rank = 2;
    let hook = || PowerSgd::new(PowerSgdOptions { rank, seed: 3 });
    let steps = 5;
    let left = ranks("dp=3", |mesh| {
        let hook = hook();
        let options = ReplicatedOptions { hook: Arc::new(hook.clone()), ..ReplicatedOptions::default() };
        let state = matrices(&mesh, DType::F64, options);
        state.groups().for_each(|group| group.traffic().reset());
        let mut results = vec![0.0; 120];
        for step in 0..steps {
            state.last_micro_batch();
            for parameter in state.parameters() {
                give(parameter, gradient(parameter, mesh.rank(), step)).unwrap();
            }
            state.finish_gradients().unwrap();
            let each = &mut |shard: &mut Shard| {
                for segment in &shard.segments {
                    let got: Vec<f64> = segment.range.clone().map(|at| shard.gradients.get(at)).collect();
                    if segment.parameter.name() == "matrix" {
                        results.iter_mut().zip(&got).for_each(|(to, from)| *to += from);
                    } else {
                        close(&[got], &[truth(DType::F64, 3, step)[1].0.clone()], 1e-12);
                    }
                }
                Ok(())
            };
            state.visit(each).unwrap();
            state.publish().unwrap();
        }
        // (m + k) r numbers of the matrix, the vector whole, and the flags.
        let step_bytes = 8 * ((12 + 10) * rank + 7) + 4 * (1 + 2 + 1);
        assert_eq!(all_reduced(&state).0, steps * step_bytes as u64);
        (results, numbers(&hook.error_of("matrix").unwrap()))
    });
    // What came out plus what the ranks still hold is what went in.
    let mut want = vec![0.0; 120];
    for step in 0..steps {
        want.iter_mut().zip(&truth(DType::F64, 3, step)[0].0).for_each(|(to, from)| *to += from);
    }
    let mut got = left[0].0.clone();
    for (results, error) in &left {
        assert_eq!(results, &left[0].0, "all ranks hold equal bits");
        assert!(error.iter().any(|number| number.abs() > 0.1), "something was held back");
        got.iter_mut().zip(error).for_each(|(to, from)| *to += from);
    }
    close(&[got], &[want], 1e-12);
}

/// A matrix of the rank that is sent comes out exactly, at once; also when a step brought only zeros before.
#[test]
fn power_sgd_is_exact_for_matrices_of_low_rank() {
    ranks("dp=2", |mesh| {
        let hook = Arc::new(PowerSgd::new(PowerSgdOptions { rank: 2, seed: 3 }));
        let state = matrices(&mesh, DType::F64, ReplicatedOptions { hook, ..ReplicatedOptions::default() });
        for step in 0..3 {
            let of = |row: usize, column: usize| ((row + 1) * (column + 2) + step * row * column * column) as f64;
            let outer: Vec<f64> = (0..120).map(|at| f64::from(step > 0) * of(at / 10, at % 10)).collect();
            state.last_micro_batch();
            for parameter in state.parameters() {
                let numbers = if parameter.part().len() == 120 { outer.clone() } else { vec![1.0; 7] };
                give(parameter, Tensor::from_vec(numbers, parameter.part().shape(), &Device::Cpu).unwrap()).unwrap();
            }
            state.finish_gradients().unwrap();
            let each = &mut |shard: &mut Shard| {
                let segment = shard.segments.iter().find(|segment| segment.parameter.name() == "matrix").unwrap();
                let got: Vec<f64> = segment.range.clone().map(|at| shard.gradients.get(at)).collect();
                close(&[got], &[outer.iter().map(|number| 2.0 * number).collect()], 1e-11);
                Ok(())
            };
            state.visit(each).unwrap();
            state.publish().unwrap();
        }
    });
}

/// With the same matrix in each step, the warm start makes every step an iteration towards the best approximation: what
/// remains of a matrix with singular values 8, 4, 2, 1, ... falls to what the first two leave.
#[test]
fn power_sgd_gets_better_from_step_to_step() {
    let singular = |at: usize| 8.0 * 0.5f64.powi(at as i32);
    let off = ranks("dp=1,tp=2", |mesh| {
        // Error feedback would change the matrix: each step begins without errors, but from the last Q.
        let hook = PowerSgd::new(PowerSgdOptions { rank: 2, seed: 9 });
        let group = Group::along(&mesh, &[Axis::Tp]).unwrap();
        let state = matrices(&mesh, DType::F64, ReplicatedOptions::default());
        let mut segments = Vec::new();
        state
            .visit(&mut |shard| {
                segments.extend(shard.segments.clone());
                Ok(())
            })
            .unwrap();
        segments.retain(|segment| segment.parameter.name() == "matrix");
        segments[0].range = 0..120;
        let diagonal: Vec<f64> =
            (0..120).map(|at| if at / 10 == at % 10 { singular(at % 10) / 2.0 } else { 0.0 }).collect();
        let mut off = Vec::new();
        for _ in 0..8 {
            let held = hook.error_of("matrix").map_or(vec![0.0; 120], |error| numbers(&error));
            let given: Vec<f64> = diagonal.iter().zip(&held).map(|(number, held)| number - held).collect();
            let result = hook.start(&segments, Numbers::F64(given), &group).unwrap().finish().unwrap();
            let square = |at: usize| (result.get(at) - 2.0 * diagonal[at]).powi(2);
            off.push((0..120).map(square).sum::<f64>().sqrt());
        }
        off
    });
    let best = (2..10).map(|at| singular(at).powi(2)).sum::<f64>().sqrt();
    let off = &off[0];
    assert!(off.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-12)), "{off:?}");
    assert!(off[0] > 1.05 * best && off[7] < 1.001 * best, "{off:?} {best}");
}
