//! Gradients against differences, for tests.

use candle_core::{DType, Device, Tensor, Var};

use crate::error::Result;
use crate::parameter::{Builder, ParameterOptions};
use crate::random::Stream;
use crate::value::Value;

pub(super) fn builder() -> Builder {
    Builder::new(ParameterOptions { seed: 11, dtype: DType::F64 })
}

/// Numbers around 0, the same for a seed.
pub(super) fn numbers(seed: u64, dims: &[usize]) -> Tensor {
    let stream = Stream::new(seed, "numbers");
    let numbers: Vec<f64> = (0..dims.iter().product::<usize>()).map(|at| stream.normal(at as u64)).collect();
    Tensor::from_vec(numbers, dims, &Device::Cpu).unwrap()
}

/// Holds the gradients of inputs and parameters against central differences of a weighted sum of the output.
pub(super) fn checked(builder: &Builder, inputs: &[&[usize]], run: impl Fn(&[Value]) -> Result<Value>) {
    let start: Vec<Tensor> = inputs.iter().enumerate().map(|(at, dims)| numbers(at as u64, dims)).collect();
    let sum = |inputs: &[Tensor]| {
        let values: Vec<Value> = inputs.iter().cloned().map(Value::invariant).collect();
        let output = run(&values).unwrap();
        (output.tensor() * numbers(99, output.dims())).unwrap().sum_all().unwrap()
    };
    let variables: Vec<Var> = start.iter().map(|input| Var::from_tensor(input).unwrap()).collect();
    let found = sum(&variables.iter().map(|input| input.as_tensor().clone()).collect::<Vec<_>>()).backward().unwrap();
    for (at, variable) in variables.iter().enumerate() {
        let difference = |changed: &Tensor| {
            let mut inputs = start.clone();
            inputs[at] = changed.clone();
            sum(&inputs).to_scalar::<f64>().unwrap()
        };
        compare(&format!("input {at}"), found.get(variable).unwrap(), &start[at], difference);
    }
    for parameter in builder.parameters() {
        let value = parameter.value().unwrap();
        let gradient = parameter.take_gradient().unwrap_or_else(|| panic!("{} has no gradient", parameter.name()));
        assert_eq!(parameter.open_uses(), 0);
        compare(parameter.name(), &gradient, &value, |changed| {
            parameter.set(changed).unwrap();
            sum(&start).to_scalar::<f64>().unwrap()
        });
        parameter.set(&value).unwrap();
    }
}

fn compare(what: &str, gradient: &Tensor, start: &Tensor, sum: impl Fn(&Tensor) -> f64) {
    let (gradient, numbers) = (flat(gradient), flat(start));
    let scale = gradient.iter().fold(1e-3, |max: f64, number| max.max(number.abs()));
    let step = 1e-5;
    for at in 0..numbers.len() {
        let moved = |by: f64| {
            let mut numbers = numbers.clone();
            numbers[at] += by;
            sum(&Tensor::from_vec(numbers, start.shape(), &Device::Cpu).unwrap())
        };
        let want = (moved(step) - moved(-step)) / (2.0 * step);
        let is = gradient[at];
        assert!((is - want).abs() < 1e-7 * scale.max(1.0), "{what}, element {at}: {is}, and differences say {want}");
    }
}

fn flat(tensor: &Tensor) -> Vec<f64> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}
