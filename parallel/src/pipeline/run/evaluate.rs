//! Takes micro-batches forward only, without gradients.
//!
//! All of them take the way of a schedule's first micro-batch, one after another through all stages. So there may be any number
//! of them, and messages between two ranks have one order.

use std::collections::{BTreeMap, VecDeque};

use candle_core::Tensor;

use super::Pipeline;
use super::transfers::{finish_receive, finish_send, start_receive, start_send};
use crate::autograd::without_gradients;
use crate::error::{Error, Result};
use crate::group::Started;
use crate::pipeline::lower::{Payload, Transfer};
use crate::value::Value;

/// Sends that may be under way.
const MOST_SENDS: usize = 4;

impl Pipeline {
    /// What the last stage makes of each of so many micro-batches, by micro-batch, on the rank that has the last stage of the
    /// first one. Nothing is kept for a backward pass.
    ///
    /// # Errors
    /// A stage fails, or a rank is lost.
    pub fn evaluate(&self, micro_batches: u32) -> Result<BTreeMap<u32, Tensor>> {
        without_gradients(|| {
            let (mut made, mut sending) = (BTreeMap::new(), VecDeque::new());
            for micro_batch in 0..micro_batches {
                self.evaluate_one(micro_batch, &mut made, &mut sending)?;
            }
            sending.into_iter().try_for_each(finish_send)?;
            Ok(made)
        })
    }

    fn evaluate_one(
        &self,
        micro_batch: u32,
        made: &mut BTreeMap<u32, Tensor>,
        sending: &mut VecDeque<(Transfer, Started)>,
    ) -> Result<()> {
        let rank_of = |stage: u32| self.schedule.rank_of(stage, 0) as usize;
        let me = self.group.rank();
        let mut here: Option<Tensor> = None;
        for stage in (0..self.schedule.n_stages()).filter(|stage| rank_of(*stage) == me) {
            let model = &self.stages[&stage];
            let input = match stage.checked_sub(1) {
                None => None,
                Some(before) => {
                    let wire = model.incoming(micro_batch)?;
                    let (spread, given) = (wire.spread.clone(), here.take());
                    let tensor = match given.filter(|_| rank_of(before) == me) {
                        Some(tensor) => tensor,
                        None => {
                            let transfer = activation(before, micro_batch);
                            let started = start_receive(&self.group, rank_of(before), transfer, &wire)?;
                            finish_receive((transfer, wire, started))?
                        }
                    };
                    Some(Value::new(tensor, spread))
                }
            };
            let output =
                model.forward(micro_batch, input.as_ref()).map_err(|error| within(stage, micro_batch, error))?;
            let output = output.into_tensor();
            if stage + 1 == self.schedule.n_stages() {
                made.insert(micro_batch, output);
            } else if rank_of(stage + 1) == me {
                here = Some(output);
            } else {
                if sending.len() == MOST_SENDS {
                    sending.pop_front().map_or(Ok(()), finish_send)?;
                }
                let transfer = activation(stage, micro_batch);
                sending.push_back((transfer, start_send(&self.group, rank_of(stage + 1), transfer, &output)?));
            }
        }
        Ok(())
    }
}

fn activation(stage: u32, micro_batch: u32) -> Transfer {
    Transfer { payload: Payload::Activation, stage, micro_batch }
}

/// An error with the pass in which it came up.
fn within(stage: u32, micro_batch: u32, error: Error) -> Error {
    match error {
        Error::Invalid(text) => Error::Invalid(format!("evaluating {micro_batch} in stage {stage}: {text}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use candle_core::Device;

    use super::super::Wire;
    use super::*;
    use crate::autograd::is_recording;
    use crate::group::Group;
    use crate::mesh::Axis;
    use crate::pipeline::{Shape, Stage, schedule_row};

    /// Makes its micro-batch's number.
    struct Numbers;

    impl Stage for Numbers {
        fn incoming(&self, _: u32) -> Result<Wire> {
            Err(Error::invalid("nothing comes into the first stage"))
        }

        fn outgoing(&self, _: u32) -> Result<Wire> {
            Err(Error::invalid("nothing leaves the last stage"))
        }

        fn forward(&self, micro_batch: u32, input: Option<&Value>) -> Result<Value> {
            assert!(input.is_none() && !is_recording());
            Ok(Value::invariant(Tensor::new(f64::from(micro_batch), &Device::Cpu)?))
        }
    }

    #[test]
    fn nothing_is_recorded_and_any_number_goes_through() {
        let schedule = schedule_row("gpipe").unwrap().schedule(Shape::new(1, 2)).unwrap();
        let stages = BTreeMap::from([(0, Arc::new(Numbers) as Arc<dyn Stage>)]);
        let pipeline = Pipeline::new(schedule, Group::alone(Axis::Pp).unwrap(), stages).unwrap();
        let made = pipeline.evaluate(3).unwrap();
        let numbers: Vec<f64> = made.values().map(|tensor| tensor.to_scalar().unwrap()).collect();
        assert!(numbers == [0.0, 1.0, 2.0] && is_recording());
    }
}
