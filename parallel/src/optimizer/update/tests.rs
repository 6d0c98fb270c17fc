//! Rules against their formulas, element by element.

use candle_core::{DType, Device, Tensor};

use super::*;
use crate::optimizer::{AdamW, Momentum, Sgd};
use crate::parameter::Part;
use crate::random::Stream;
use crate::state::Segment;
use crate::value::Spread;

/// A matrix `w` and a vector `b`, in one shard with a hole of padding.
fn shard(dtype: DType) -> Shard {
    let parameter = |name: &str, shape: &[usize]| {
        let len: usize = shape.iter().product();
        let numbers: Vec<f64> = (0..len as u64).map(|at| Stream::new(1, name).normal(at)).collect();
        let value = Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap();
        Parameter::new(name, Part::all(shape), Spread::invariant(), &value).unwrap()
    };
    Shard::of(&[parameter("w", &[3, 2]), parameter("b", &[4])]).unwrap()
}

fn set_gradients(shard: &mut Shard, step: u64) {
    let stream = Stream::new(2, "gradients").at(step);
    let numbers: Vec<f64> = (0..shard.values.len() as u64).map(|at| stream.normal(at)).collect();
    let tensor = Tensor::from_vec(numbers, shard.values.len(), &Device::Cpu).unwrap();
    shard.gradients.clear();
    shard.gradients.add(0, &tensor).unwrap();
}

fn numbers(numbers: &Numbers) -> Vec<f64> {
    (0..numbers.len()).map(|at| numbers.get(at)).collect()
}

fn update(optimizer: &mut Optimizer, shard: &mut Shard, step: &Step, has_gradient: impl Fn(&Segment) -> bool) {
    shard.segments.iter_mut().for_each(|segment| segment.has_gradient = has_gradient(segment));
    let mut missed = BTreeSet::new();
    optimizer.update(shard, step, &mut missed).unwrap();
    missed.into_iter().for_each(|name| *optimizer.count.missed.entry(name).or_default() += 1);
    optimizer.count.steps += 1;
}

const STEP: Step = Step { learning_rate: 0.1, divisor: 4.0, clip_factor: 0.5 };

/// The textbook's formulas, from all gradients so far, with nothing kept from step to step but the values.
fn adamw_by_sums(values: &[f64], gradients: &[Vec<f64>], decay: f64) -> Vec<f64> {
    let (one, two, rate, epsilon) = (0.9f64, 0.99f64, 0.1, 1e-5);
    let mut values = values.to_vec();
    for t in 1..=gradients.len() {
        for (at, value) in values.iter_mut().enumerate() {
            let mean = |beta: f64, power: i32| {
                let terms = (1..=t).map(|k| beta.powi((t - k) as i32) * (gradients[k - 1][at] / 8.0).powi(power));
                (1.0 - beta) * terms.sum::<f64>() / (1.0 - beta.powi(t as i32))
            };
            *value -= rate * decay * *value + rate * mean(one, 1) / (mean(two, 2).sqrt() + epsilon);
        }
    }
    values
}

fn adamw() -> Optimizer {
    Optimizer::new(AdamW { beta1: 0.9, beta2: 0.99, epsilon: 1e-5, weight_decay: 0.1 }).without_decay_of_vectors()
}

#[test]
fn adamw_is_the_textbooks() {
    for (dtype, tolerance) in [(DType::F64, 1e-13), (DType::F32, 2e-6)] {
        let (mut shard, mut optimizer, mut gradients) = (shard(dtype), adamw(), Vec::new());
        let begin = numbers(&shard.values);
        for step in 0..5 {
            set_gradients(&mut shard, step);
            gradients.push(numbers(&shard.gradients));
            update(&mut optimizer, &mut shard, &STEP, |_| true);
        }
        let (decayed, not) = (adamw_by_sums(&begin, &gradients, 0.1), adamw_by_sums(&begin, &gradients, 0.0));
        for (at, value) in numbers(&shard.values).into_iter().enumerate() {
            let want = if at < 6 { decayed[at] } else { not[at] };
            assert!((value - want).abs() < tolerance, "{dtype:?} {at}: {value} instead of {want}");
        }
    }
}

#[test]
fn sgd_is_the_textbooks() {
    for kind in [Momentum::Heavy, Momentum::Nesterov] {
        for momentum in [0.0, 0.75] {
            let (mut shard, mut gradients) = (shard(DType::F64), Vec::new());
            let mut optimizer = Optimizer::new(Sgd { momentum, kind, weight_decay: 0.0 });
            let begin = numbers(&shard.values);
            for step in 0..4 {
                set_gradients(&mut shard, step);
                gradients.push(numbers(&shard.gradients));
                update(&mut optimizer, &mut shard, &STEP, |_| true);
            }
            for (at, value) in numbers(&shard.values).into_iter().enumerate() {
                // The velocity after step t is the sum of momentum^(t-k) g_k.
                let velocity =
                    |t: usize| (0..=t).map(|k| momentum.powi((t - k) as i32) * gradients[k][at] / 8.0).sum::<f64>();
                let moved: f64 = (0..4)
                    .map(|t| match kind {
                        Momentum::Heavy => velocity(t),
                        Momentum::Nesterov => gradients[t][at] / 8.0 + momentum * velocity(t),
                    })
                    .sum();
                let want = begin[at] - 0.1 * moved;
                assert!((value - want).abs() < 1e-13, "{kind:?} {momentum} {at}: {value} instead of {want}");
            }
            assert_eq!(shard.moments.len(), usize::from(momentum != 0.0));
        }
    }
}

#[test]
fn weight_decay_of_sgd_is_a_part_of_the_gradient() {
    let mut shard = shard(DType::F64);
    let begin = numbers(&shard.values);
    let mut optimizer = Optimizer::new(Sgd { weight_decay: 0.5, ..Sgd::default() });
    update(&mut optimizer, &mut shard, &STEP, |_| true);
    for (value, begin) in numbers(&shard.values).iter().zip(begin) {
        assert!((value - 0.95 * begin).abs() < 1e-15);
    }
}

#[test]
fn a_parameter_without_gradients_stays_and_its_first_step_comes_later() {
    let (mut late, mut optimizer) = (shard(DType::F64), adamw());
    let begin = numbers(&late.values);
    for step in 0..3 {
        set_gradients(&mut late, step);
        update(&mut optimizer, &mut late, &STEP, |segment| segment.parameter.name() == "b");
    }
    assert_eq!(numbers(&late.values)[..6], begin[..6]);
    assert!(late.moments.values().all(|moment| numbers(moment)[..6] == [0.0; 6]));
    assert_eq!((optimizer.count().steps, optimizer.count().missed["w"]), (3, 3));
    set_gradients(&mut late, 3);
    update(&mut optimizer, &mut late, &STEP, |_| true);
    let (mut fresh, mut first) = (shard(DType::F64), adamw());
    set_gradients(&mut fresh, 3);
    update(&mut first, &mut fresh, &STEP, |_| true);
    assert_eq!(numbers(&late.values)[..6], numbers(&fresh.values)[..6]);
}

#[test]
fn groups_are_tried_in_order() {
    let slow = GroupOptions { learning_rate_factor: 0.0, weight_decay: 0.0 };
    let mut optimizer = Optimizer::new(Sgd::default())
        .with_group(|parameter| parameter.name() == "w", slow)
        .with_group(is_matrix, GroupOptions::default());
    let mut shard = shard(DType::F64);
    let begin = numbers(&shard.values);
    set_gradients(&mut shard, 0);
    update(&mut optimizer, &mut shard, &STEP, |_| true);
    let end = numbers(&shard.values);
    assert!(end[..6] == begin[..6] && (6..10).all(|at| end[at] != begin[at]));
}

#[test]
fn senseless_numbers_are_refused() {
    let state = crate::state::Local::new(Vec::new()).unwrap();
    for wrong in [
        Step { divisor: 0.0, ..STEP },
        Step { divisor: f64::NAN, ..STEP },
        Step { learning_rate: f64::INFINITY, ..STEP },
        Step { learning_rate: -0.1, ..STEP },
        Step { clip_factor: 1.5, ..STEP },
        Step { clip_factor: f64::NAN, ..STEP },
    ] {
        assert!(adamw().step(&state, &wrong).is_err(), "{wrong:?}");
    }
    let mut shard = shard(DType::F64);
    shard.moments.insert("first_moment".into(), Numbers::F64(vec![0.0; 3]));
    let error = adamw().update(&mut shard, &STEP, &mut BTreeSet::new()).unwrap_err().to_string();
    assert!(error.contains("first_moment has 3"), "{error}");
}
