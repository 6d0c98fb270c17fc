//! The stages of a model on one rank, with the step's micro-batches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use candle_core::DType;

use super::batch::Batch;
use super::options::TrainerOptions;
use crate::error::{Error, Result};
use crate::mesh::{Axis, Mesh};
use crate::nn::{Gpt, Stage as Layers};
use crate::parameter::{Builder, Parameter};
use crate::pipeline::partition::{Layer, Partition};
use crate::pipeline::{Stage, Wire};
use crate::tensor::TensorParallel;
use crate::value::{Kind, Value};

/// A step's micro-batches, and what their losses are multiplied by.
pub(super) struct Work {
    pub(super) batches: Vec<Batch>,
    pub(super) scale: f64,
}

/// A stage of a model.
pub(super) struct GptStage {
    model: Gpt,
    tp: TensorParallel,
    is_last: bool,
    dtype: DType,
    work: Arc<Mutex<Work>>,
}

/// Stages by number, the parameters of each, and where their work is put.
pub(super) struct Stages {
    pub(super) models: BTreeMap<u32, Arc<dyn Stage>>,
    pub(super) parameters: BTreeMap<u32, Vec<Parameter>>,
    pub(super) work: Arc<Mutex<Work>>,
}

impl Stages {
    /// Builds some stages of a partition.
    ///
    /// # Errors
    /// The model can't be cut so.
    pub(super) fn build(
        options: &TrainerOptions,
        partition: &Partition,
        numbers: &[u32],
        mesh: &Mesh,
        tp: &TensorParallel,
    ) -> Result<Stages> {
        let work = Arc::new(Mutex::new(Work { batches: Vec::new(), scale: 1.0 }));
        let root = Builder::new(options.parameters);
        let builder = if mesh.size(Axis::Pp) > 1 { root.within(Axis::Pp, Kind::Varying) } else { root };
        let (mut models, mut parameters) = (BTreeMap::<u32, Arc<dyn Stage>>::new(), BTreeMap::new());
        for number in numbers {
            let layers = layers_of(partition, *number);
            let before = builder.parameters().len();
            let model = Gpt::stage(options.model.clone(), &layers, &builder, tp)?.with_recompute(options.recompute);
            parameters.insert(*number, builder.parameters().split_off(before));
            let (tp, dtype, work, is_last) = (tp.clone(), options.parameters.dtype, work.clone(), layers.has_head);
            models.insert(*number, Arc::new(GptStage { model, tp, is_last, dtype, work }));
        }
        Ok(Stages { models, parameters, work })
    }
}

fn layers_of(partition: &Partition, number: u32) -> Layers {
    let items = &partition.stages[number as usize];
    let numbers: Vec<usize> = items
        .iter()
        .filter_map(|item| if let Layer::Transformer(layer) = item { Some(*layer as usize) } else { None })
        .collect();
    let before = partition.stages[..number as usize].iter().flatten();
    let before = before.filter(|item| matches!(item, Layer::Transformer(_))).count();
    let layers = numbers.first().map_or(before..before, |first| *first..*first + numbers.len());
    Layers { layers, has_embedding: items.contains(&Layer::Embedding), has_head: items.contains(&Layer::Loss) }
}

impl GptStage {
    fn batch(&self, micro_batch: u32) -> Result<(Batch, f64)> {
        let work = self.work.lock().expect("no panic while held");
        let batch = work.batches.get(micro_batch as usize);
        let batch = batch.ok_or_else(|| Error::invalid(format!("there is no micro-batch {micro_batch}")))?;
        Ok((batch.clone(), work.scale))
    }

    fn wire(&self, micro_batch: u32) -> Result<Wire> {
        let (samples, positions) = self.batch(micro_batch)?.0.dims();
        let dims = self.model.between_layers(samples, positions)?.to_vec();
        Ok(Wire { dims, dtype: self.dtype, spread: self.tp.between_layers() })
    }
}

impl Stage for GptStage {
    fn incoming(&self, micro_batch: u32) -> Result<Wire> {
        self.wire(micro_batch)
    }

    fn outgoing(&self, micro_batch: u32) -> Result<Wire> {
        self.wire(micro_batch)
    }

    fn forward(&self, micro_batch: u32, input: Option<&Value>) -> Result<Value> {
        let (batch, scale) = self.batch(micro_batch)?;
        let output = match input {
            Some(hidden) => self.model.forward(hidden, &batch.placement)?,
            None => self.model.forward(&Value::invariant(batch.tokens.clone()), &batch.placement)?,
        };
        if !self.is_last {
            return Ok(output);
        }
        self.model.loss(&output, &batch.targets)?.sum.scale(scale)
    }
}
