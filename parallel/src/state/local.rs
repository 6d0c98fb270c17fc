//! The state of one process: nothing is sent. What all others must equal.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use candle_core::Tensor;

use super::{Shard, State};
use crate::error::{Error, Result};
use crate::mesh::Axis;
use crate::parameter::{Keeper, Parameter};

/// The state of a model whose gradients are whole on this rank.
pub struct Local {
    parameters: Vec<Parameter>,
    sums: Arc<Sums>,
}

/// Where gradients are added up.
struct Sums {
    shard: Mutex<Shard>,
    /// The segment of each parameter.
    places: BTreeMap<String, usize>,
}

impl Local {
    /// Keeps these parameters from now on.
    ///
    /// # Errors
    /// A value isn't here.
    pub fn new(parameters: Vec<Parameter>) -> Result<Local> {
        let shard = Shard::of(&parameters)?;
        let places =
            parameters.iter().enumerate().map(|(place, parameter)| (parameter.name().to_owned(), place)).collect();
        let sums = Arc::new(Sums { shard: Mutex::new(shard), places });
        parameters.iter().for_each(|parameter| parameter.keep_by(&sums));
        Ok(Local { parameters, sums })
    }
}

impl Keeper for Sums {
    fn gradient(&self, parameter: &Parameter, gradient: Tensor) -> Result<()> {
        let place = self.places.get(parameter.name());
        let place = *place.ok_or_else(|| Error::invalid(format!("{} is kept elsewhere", parameter.name())))?;
        let mut shard = self.shard.lock().expect("no panic while held");
        let segment = &mut shard.segments[place];
        segment.has_gradient = true;
        let first = segment.range.start;
        shard.gradients.add(first, &gradient)
    }
}

impl State for Local {
    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn last_micro_batch(&self) {}

    fn finish_gradients(&self) -> Result<()> {
        Ok(())
    }

    fn visit(&self, each: &mut dyn FnMut(&mut Shard) -> Result<()>) -> Result<()> {
        each(&mut self.sums.shard.lock().expect("no panic while held"))
    }

    fn distinct_along(&self) -> Vec<Axis> {
        Vec::new()
    }

    fn publish(&self) -> Result<()> {
        let mut shard = self.sums.shard.lock().expect("no panic while held");
        shard.forget_gradients();
        shard.give_values()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::parameter::{Builder, Init, ParameterOptions, Part};
    use crate::state::Numbers;
    use crate::value::Spread;

    #[test]
    fn gradients_are_added_and_values_come_back() {
        let builder = Builder::new(ParameterOptions { dtype: DType::BF16, ..ParameterOptions::default() });
        for name in ["a", "b"] {
            builder.parameter(name, Part::all(&[2]), Spread::invariant(), Init::Ones).unwrap();
        }
        let state = Local::new(builder.parameters()).unwrap();
        let second = &state.parameters()[1];
        for _ in 0..3 {
            let gradient = Tensor::new(&[1f32, 2.0], &Device::Cpu).unwrap().to_dtype(DType::BF16).unwrap();
            Arc::new(second.used()).gradient(move |_| Ok(gradient)).unwrap();
        }
        let step = &mut |shard: &mut Shard| {
            assert_eq!(shard.gradients, Numbers::F32(vec![0.0, 0.0, 3.0, 6.0]));
            shard.values = Numbers::F32(vec![1.0, 2.0, 3.0, 4.0]);
            Ok(())
        };
        state.visit(step).unwrap();
        state.publish().unwrap();
        let value = second.value().unwrap();
        assert_eq!(
            (value.dtype(), value.to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap()),
            (DType::BF16, vec![3.0, 4.0])
        );
        state
            .visit(&mut |shard| {
                assert_eq!(shard.gradients.get(3), 0.0);
                Ok(())
            })
            .unwrap();
    }
}
