//! What tests of several ranks share: ranks as threads, made-up data, and logical tensors put together from the ranks' parts.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor};
use paceline_comm::Communicator;
use paceline_parallel::mesh::Axis;
use paceline_parallel::parameter::{Parameter, Part};
use paceline_parallel::random::Stream;
use paceline_parallel::value::Kind;

/// Deep graphs are walked by recursion.
const STACK_BYTES: usize = 64 << 20;

/// Runs the same on ranks that are threads; their results in rank order.
pub fn ranks<T: Send>(ranks: usize, run: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    let comms = Communicator::in_process(ranks).expect("ranks in one process");
    std::thread::scope(|scope| {
        let run = &run;
        let start = |comm| {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, move || run(comm)).expect("a thread")
        };
        let threads: Vec<_> = comms.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank fails")).collect()
    })
}

/// Tokens of some samples, and those that come next: the last position's has none.
pub fn tokens(samples: std::ops::Range<u64>, len: usize, vocabulary: usize) -> (Tensor, Tensor) {
    let token = |sample: u64, at: usize| Stream::new(5, "tokens").at(sample).below(at as u64, vocabulary as u64) as i64;
    let shape = (samples.clone().count(), len);
    let all = |next: &dyn Fn(u64, usize) -> i64| {
        let all: Vec<i64> = samples.clone().flat_map(|sample| (0..len).map(move |at| next(sample, at))).collect();
        Tensor::from_vec(all, shape, &Device::Cpu).expect("as many as the shape says")
    };
    let next = |sample, at| if at + 1 == len { -100 } else { token(sample, at + 1) };
    (all(&token), all(&next))
}

/// Moves parameters a little, the same for a logical element: a bias that is zero hides where it is added.
pub fn stir(parameters: &[Parameter]) {
    for parameter in parameters {
        let stream = Stream::new(6, parameter.name());
        let by = |index: Option<u64>| index.map_or(0.0, |index| 0.05 * stream.normal(index));
        let by: Vec<f64> = parameter.part().indices().map(by).collect();
        let by = Tensor::from_vec(by, parameter.part().shape(), &Device::Cpu).expect("as many as the part has");
        let by = by.to_dtype(parameter.dtype()).expect("a type of numbers");
        let moved = (parameter.value().expect("it is here") + by).expect("the same shape");
        parameter.set(&moved).expect("the same shape");
    }
}

/// A parameter's gradient on one rank.
#[derive(Clone, Debug)]
pub struct Local {
    pub part: Part,
    pub kind: Kind,
    pub numbers: Vec<f64>,
}

/// Takes the gradients that parameters have kept themselves.
pub fn gradients(parameters: &[Parameter], axis: Axis) -> BTreeMap<String, Local> {
    let local = |parameter: &Parameter| {
        let name = parameter.name().to_owned();
        let gradient = parameter.take_gradient().unwrap_or_else(|| panic!("{name} has no gradient"));
        let (part, kind) = (parameter.part().clone(), parameter.spread().along(axis));
        (name, Local { part, kind, numbers: numbers(&gradient) })
    };
    parameters.iter().map(local).collect()
}

pub fn numbers(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.flatten_all().and_then(|flat| flat.to_dtype(DType::F64)).expect("numbers");
    flat.to_vec1().expect("a vector")
}

/// The gradients of logical tensors: parts put together, parts of sums added. What should be the same on all ranks must be,
/// to the bit; padding must have none.
pub fn logical(locals: &[BTreeMap<String, Local>]) -> BTreeMap<String, Vec<f64>> {
    locals[0].keys().map(|name| (name.clone(), whole(name, locals))).collect()
}

fn whole(name: &str, locals: &[BTreeMap<String, Local>]) -> Vec<f64> {
    let parts: Vec<&Local> = locals.iter().map(|local| &local[name]).collect();
    match parts[0].kind {
        Kind::Invariant => {
            assert!(parts.iter().all(|part| part.numbers == parts[0].numbers), "{name} differs among ranks");
            parts[0].numbers.clone()
        }
        Kind::Replicated => {
            let add = |mut sum: Vec<f64>, part: &&Local| {
                sum.iter_mut().zip(&part.numbers).for_each(|(sum, number)| *sum += number);
                sum
            };
            parts.iter().fold(vec![0.0; parts[0].numbers.len()], add)
        }
        Kind::Varying => {
            let mut all = vec![None; parts[0].part.whole().iter().product()];
            for part in &parts {
                for (index, number) in part.part.indices().zip(&part.numbers) {
                    match index {
                        Some(index) => assert!(all[index as usize].replace(*number).is_none(), "{name} is there twice"),
                        None => assert_eq!(*number, 0.0, "padding of {name} has a gradient"),
                    }
                }
            }
            all.into_iter().map(|number| number.unwrap_or_else(|| panic!("some of {name} is missing"))).collect()
        }
        Kind::Partial => panic!("{name} is a partial parameter"),
    }
}

/// The largest difference of two vectors, relative to the largest number of the first.
pub fn difference(want: &[f64], is: &[f64]) -> f64 {
    apart(want, is) / largest(want)
}

fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0f64, |max, number| max.max(number.abs()))
}

fn apart(want: &[f64], is: &[f64]) -> f64 {
    assert_eq!(want.len(), is.len());
    assert!(want.iter().chain(is).all(|number| number.is_finite()), "numbers that aren't");
    want.iter().zip(is).fold(0f64, |max, (want, is)| max.max((want - is).abs()))
}

/// Holds logical tensors against those that they should equal.
#[track_caller]
pub fn assert_close(want: &BTreeMap<String, Vec<f64>>, is: &BTreeMap<String, Vec<f64>>, tolerance: f64, what: &str) {
    assert!(want.keys().eq(is.keys()), "{what}: {:?} and {:?}", want.keys(), is.keys());
    for (name, numbers) in want {
        let scale = largest(numbers).max(scale_of_weight(name, want));
        let apart = apart(numbers, &is[name]);
        assert!(apart <= tolerance * scale, "{what}: {name} differs by {apart:e} of {scale:e}");
    }
}

/// The scale of what a bias is added to. Softmax doesn't see what all keys have in common: without rotation the gradient of
/// their bias is zero but for roundings, which have no scale of their own.
fn scale_of_weight(name: &str, all: &BTreeMap<String, Vec<f64>>) -> f64 {
    let weight = name.strip_suffix("k_proj.bias").map(|layer| format!("{layer}k_proj.weight"));
    weight.map_or(0.0, |weight| largest(&all[&weight]))
}
