//! What comm hooks promise: bounds, bytes, order, and errors that are fed back.

use super::*;

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
