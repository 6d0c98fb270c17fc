//! A small model for tests of states: an embedding whose weight is also the head's, and layers between.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use paceline_comm::Communicator;
use paceline_parallel::autograd::{Output, function};
use paceline_parallel::mesh::{Mesh, MeshOptions};
use paceline_parallel::parameter::{Builder, Init, Parameter, ParameterOptions, Part};
use paceline_parallel::state::{Numbers, Shard, State};
use paceline_parallel::value::Spread;
use paceline_parallel::{Result, random::Stream};

pub const LAYERS: usize = 3;
const ROWS: usize = 67;
const WIDTH: usize = 8;
/// Tokens of a sample.
pub const TOKENS: usize = 6;

pub struct Model {
    pub builder: Builder,
    embedding: Parameter,
    layers: Vec<[Parameter; 4]>,
}

impl Model {
    pub fn new(dtype: DType) -> Model {
        Model::seeded(dtype, 5)
    }

    pub fn seeded(dtype: DType, seed: u64) -> Model {
        let builder = Builder::new(ParameterOptions { dtype, seed });
        let make = |at: &str, name: &str, shape: &[usize], init| {
            builder.at(at).parameter(name, Part::all(shape), Spread::invariant(), init).unwrap()
        };
        let normal = Init::Normal { std: 0.4 };
        let embedding = make("embedding", "weight", &[ROWS, WIDTH], normal);
        let layers = (0..LAYERS).map(|layer| {
            let at = format!("layers.{layer}");
            let hidden = WIDTH + layer;
            [
                make(&at, "up", &[hidden, WIDTH], normal),
                make(&at, "up_bias", &[hidden], normal),
                make(&at, "down", &[WIDTH, hidden], normal),
                make(&at, "down_bias", &[WIDTH], Init::Zeros),
            ]
        });
        Model { embedding, layers: layers.collect(), builder: builder.clone() }
    }

    pub fn parameters(&self) -> Vec<Parameter> {
        self.builder.parameters()
    }

    /// The loss of a sample: a sum over its tokens.
    pub fn loss(&self, sample: usize) -> Result<Tensor> {
        self.loss_through(sample, |_| true)
    }

    /// The same through some of the layers.
    pub fn loss_through(&self, sample: usize, through: impl Fn(usize) -> bool) -> Result<Tensor> {
        let numbers = Stream::new(1, "data").at(sample as u64);
        let ids: Vec<u32> = (0..TOKENS).map(|token| numbers.below(token as u64, ROWS as u64) as u32).collect();
        let dtype = self.embedding.dtype();
        let x = self.hidden(&ids, through)?;
        let logits = linear(&x, &self.embedding, None)?;
        let target: Vec<f64> = (0..TOKENS * ROWS).map(|at| numbers.at(1).normal(at as u64)).collect();
        let target = Tensor::from_vec(target, (TOKENS, ROWS), &Device::Cpu)?.to_dtype(dtype)?;
        Ok((logits - target)?.sqr()?.sum_all()?)
    }

    /// A loss without the head, so that each parameter is used once.
    pub fn chain_loss(&self) -> Result<Tensor> {
        Ok(self.hidden(&[1, 2, 3], |_| true)?.sqr()?.sum_all()?)
    }

    fn hidden(&self, ids: &[u32], through: impl Fn(usize) -> bool) -> Result<Tensor> {
        let mut x = embed(&self.embedding, &Tensor::new(ids, &Device::Cpu)?)?;
        for (_, [up, up_bias, down, down_bias]) in self.layers.iter().enumerate().filter(|(layer, _)| through(*layer)) {
            let inner = linear(&x, up, Some(up_bias))?.tanh()?;
            x = (&x + linear(&inner, down, Some(down_bias))?)?;
        }
        Ok(x)
    }
}

fn embed(weight: &Parameter, ids: &Tensor) -> Result<Tensor> {
    let usage = Arc::new(weight.used());
    let output = Output::Fresh(usage.value()?.index_select(ids, 0)?);
    let ids = ids.clone();
    function("embed", &[], output, move |gradient, _| {
        let (ids, gradient) = (ids.clone(), gradient.contiguous()?);
        usage.gradient(move |usage| {
            let shape = usage.parameter().part().shape();
            let zeros = Tensor::zeros(shape, gradient.dtype(), &Device::Cpu)?;
            Ok(zeros.index_add(&ids, &gradient, 0)?)
        })?;
        Ok(vec![])
    })
}

fn linear(x: &Tensor, weight: &Parameter, bias: Option<&Parameter>) -> Result<Tensor> {
    let usage = Arc::new(weight.used());
    let bias = bias.map(|bias| Arc::new(bias.used()));
    let mut y = x.detach().matmul(&usage.value()?.t()?)?;
    if let Some(bias) = &bias {
        y = y.broadcast_add(&bias.value()?)?;
    }
    let input = x.detach();
    function("linear", &[x], Output::Fresh(y), move |gradient, _| {
        let (input, dy) = (input.clone(), gradient.contiguous()?);
        usage.gradient(move |_| Ok(dy.t()?.matmul(&input)?))?;
        if let Some(bias) = &bias {
            let dy = gradient.clone();
            bias.gradient(move |_| Ok(dy.sum(0)?))?;
        }
        Ok(vec![Some(gradient.contiguous()?.matmul(&usage.value()?)?)])
    })
}

/// Runs a rank in a thread each, with a deep stack; what they return, in their order.
pub fn ranks<T: Send>(layout: &str, body: impl Fn(Mesh) -> T + Sync) -> Vec<T> {
    let layout: paceline_parallel::mesh::Layout = layout.parse().unwrap();
    let comms = Communicator::in_process(layout.ranks()).unwrap();
    std::thread::scope(|scope| {
        let threads: Vec<_> = comms
            .into_iter()
            .map(|comm| {
                let (layout, body) = (layout.clone(), &body);
                let run = move || body(Mesh::new(comm, layout, MeshOptions::default()).unwrap());
                std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, run).unwrap()
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A step of gradient descent on what the state's gradients are the sum over.
pub fn descend(state: &dyn State, tokens: u64) -> Result<()> {
    state.visit(&mut |shard: &mut Shard| {
        for segment in shard.segments.clone().into_iter().filter(|segment| segment.has_gradient) {
            for place in segment.range {
                let step = 0.001 * shard.gradients.get(place) / tokens as f64;
                match &mut shard.values {
                    Numbers::F32(values) => values[place] -= step as f32,
                    Numbers::F64(values) => values[place] -= step,
                }
            }
        }
        Ok(())
    })?;
    state.publish()
}

/// Numbers in single and double precision alike.
pub fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// All parameters' values.
pub fn values(state: &dyn State) -> Vec<Vec<f64>> {
    state.parameters().iter().map(|parameter| numbers(&parameter.value().unwrap())).collect()
}

/// Checks that numbers differ by at most `tolerance`, relative to the largest.
#[track_caller]
pub fn close(got: &[Vec<f64>], want: &[Vec<f64>], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (place, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got.len(), want.len());
        let largest = want.iter().fold(1e-300f64, |largest, number| largest.max(number.abs()));
        let worst = got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f64::max);
        assert!(worst <= tolerance * largest, "parameter {place}: off by {worst:e} of {largest:e}");
    }
}

/// Gives a parameter a gradient, as if it had been used once.
pub fn give(parameter: &Parameter, gradient: Tensor) -> Result<()> {
    Arc::new(parameter.used()).gradient(move |_| Ok(gradient))
}

/// What one process comes to: `steps` steps, in each of which these samples are taken through all layers.
pub fn alone(dtype: DType, steps: &[Vec<usize>]) -> Vec<Vec<f64>> {
    let model = Model::new(dtype);
    let state = paceline_parallel::state::Local::new(model.parameters()).unwrap();
    for samples in steps {
        for sample in samples {
            model.loss(*sample).unwrap().backward().unwrap();
        }
        state.finish_gradients().unwrap();
        descend(&state, (samples.len() * TOKENS) as u64).unwrap();
    }
    values(&state)
}
