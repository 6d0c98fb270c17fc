//! A chain of linear layers with rectifiers between; the loss is the sum of the last one's squares.

use candle_core::{DType, Device, Tensor};
use paceline_parallel::Result;
use paceline_parallel::parameter::{Builder, Init, Parameter, ParameterOptions};
use paceline_parallel::pipeline::{Stage, Wire};
use paceline_parallel::random::Stream;
use paceline_parallel::tensor::{ColumnLinear, Columns, TensorParallel};
use paceline_parallel::value::{Spread, Value};

use super::Sizes;

/// Some layers of the chain.
pub(super) struct Chain {
    layers: Vec<ColumnLinear>,
    parameters: Vec<Parameter>,
    has_loss: bool,
}

impl Chain {
    /// The whole of it.
    pub(super) fn whole(sizes: &Sizes) -> Result<Chain> {
        Chain::part(sizes, 0..sizes.layers, &Builder::new(ParameterOptions::default()))
    }

    /// Some layers, whose parameters are made here.
    pub(super) fn part(sizes: &Sizes, numbers: std::ops::Range<u32>, builder: &Builder) -> Result<Chain> {
        let (width, tp) = (sizes.width as usize, TensorParallel::alone()?);
        let init = Init::Normal { std: (2.0 / width as f64).sqrt() };
        let columns = [Columns { name: "linear", outputs: width, used: None, init, bias: true }];
        let has_loss = numbers.end == sizes.layers;
        let before = builder.parameters().len();
        let layer = |number| ColumnLinear::new(&builder.at("layers").at(number), width, &columns, &tp);
        let layers = numbers.map(layer).collect::<Result<_>>()?;
        Ok(Chain { layers, parameters: builder.parameters().split_off(before), has_loss })
    }

    /// Its parameters, in order.
    pub(super) fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// What the layers make of an input; the loss, if they are the last ones.
    pub(super) fn forward(&self, input: &Value) -> Result<Value> {
        let mut hidden = input.clone();
        for (place, layer) in self.layers.iter().enumerate() {
            let output = layer.forward(&hidden)?;
            let is_last = self.has_loss && place + 1 == self.layers.len();
            hidden = if is_last { output } else { output.map("relu", |output| Ok(output.relu()?))? };
        }
        if self.has_loss { hidden.map("a sum of squares", |output| Ok(output.sqr()?.sum_all()?)) } else { Ok(hidden) }
    }
}

/// The input of every step.
pub(super) fn input(sizes: &Sizes) -> Result<Tensor> {
    let stream = Stream::new(1, "input");
    let (tokens, width) = (sizes.tokens as usize, sizes.width as usize);
    let numbers: Vec<f32> = (0..(tokens * width) as u64).map(|at| stream.normal(at) as f32).collect();
    Ok(Tensor::from_vec(numbers, (tokens, width), &Device::Cpu)?)
}

/// Some layers as a stage of a pipeline, which has the input if they are the first ones.
pub(super) struct ChainStage {
    pub(super) chain: Chain,
    pub(super) input: Tensor,
}

impl ChainStage {
    fn wire(&self) -> Wire {
        Wire { dims: self.input.dims().to_vec(), dtype: DType::F32, spread: Spread::invariant() }
    }
}

impl Stage for ChainStage {
    fn incoming(&self, _: u32) -> Result<Wire> {
        Ok(self.wire())
    }

    fn outgoing(&self, _: u32) -> Result<Wire> {
        Ok(self.wire())
    }

    fn forward(&self, _: u32, input: Option<&Value>) -> Result<Value> {
        match input {
            Some(input) => self.chain.forward(input),
            None => self.chain.forward(&Value::invariant(self.input.clone())),
        }
    }
}
