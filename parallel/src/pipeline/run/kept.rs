//! What forward passes leave for their backward passes.

use std::collections::BTreeMap;

use candle_core::{Tensor, Var};

use super::stage::Stage;
use crate::autograd::{WeightWork, backward_from, defer_weight_gradients, gradient_of};
use crate::error::{Error, Result};
use crate::value::Value;

/// A stage and a micro-batch.
type Place = (u32, u32);

/// Passes that aren't finished.
#[derive(Default)]
pub(super) struct Kept {
    forwards: BTreeMap<Place, Forward>,
    weights: BTreeMap<Place, WeightWork>,
    most: usize,
}

struct Forward {
    /// What came in; nothing at the first stage.
    input: Option<Var>,
    output: Tensor,
}

impl Kept {
    /// How many there were at most at one time.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Runs a forward pass; its output without the graph.
    pub(super) fn forward(&mut self, stage: &dyn Stage, place: Place, input: Option<Tensor>) -> Result<Tensor> {
        let input = match input {
            Some(tensor) => Some((Var::from_tensor(&tensor)?, stage.incoming(place.1)?.spread)),
            None => None,
        };
        let value = input.as_ref().map(|(var, spread)| Value::new(var.as_tensor().clone(), spread.clone()));
        let output = stage.forward(place.1, value.as_ref())?.into_tensor();
        let handed_on = output.detach();
        self.forwards.insert(place, Forward { input: input.map(|(var, _)| var), output });
        self.most = self.most.max(self.forwards.len() + self.weights.len());
        Ok(handed_on)
    }

    /// Runs a backward pass from the output's gradient, or from 1; the input's gradient, if there was an input.
    pub(super) fn backward(
        &mut self,
        place: Place,
        gradient: Option<Tensor>,
        weights_later: bool,
    ) -> Result<Option<Tensor>> {
        let forward = self.forwards.remove(&place);
        let Forward { input, output } = forward.ok_or_else(|| Error::invalid("there was no forward pass"))?;
        let gradient = match gradient {
            Some(gradient) => gradient,
            None => output.ones_like()?,
        };
        let found = if weights_later {
            let (found, work) = defer_weight_gradients(|| backward_from(&[(&output, &gradient)]));
            self.weights.insert(place, work);
            found?
        } else {
            backward_from(&[(&output, &gradient)])?
        };
        input.map(|input| gradient_of(&found, input.as_tensor())).transpose()
    }

    /// Computes the gradients of weights that were kept back.
    pub(super) fn weights(&mut self, place: Place) -> Result<()> {
        let work = self.weights.remove(&place).ok_or_else(|| Error::invalid("there was no backward pass"))?;
        work.run()
    }
}
