//! One rank's gradients against differences, and each parameter's uses.

use candle_core::{Device, Tensor};
use paceline_parallel::nn::{GptConfig, HeadKind, parameters_without_gradient};
use paceline_parallel::random::Stream;

use super::model::{MICRO_BATCHES, Model, gpt2, layout, llama, uneven};
use crate::common::{gradients, numbers, ranks};
use paceline_parallel::mesh::Axis;

const WEIGHTS: u64 = 20;
const STEP: f64 = 1e-4;

fn check(name: &str, config: &GptConfig) {
    ranks(1, |comm| {
        let model = Model::new(config, layout(1, false), comm);
        let ((), without) = parameters_without_gradient(&model.parameters, || model.step(false).map(|_| ())).unwrap();
        assert!(without.is_empty(), "{name}: no gradient for {without:?}");
        for parameter in &model.parameters {
            let is_tied = config.head == HeadKind::Tied && parameter.name() == "model.embed_tokens.weight";
            let uses = MICRO_BATCHES * if is_tied { 2 } else { 1 };
            assert_eq!((parameter.gradients_given(), parameter.open_uses()), (uses, 0), "{parameter:?}");
        }
        let found = gradients(&model.parameters, Axis::Tp);
        let loss =
            || -> f64 { (0..MICRO_BATCHES).map(|at| model.loss(at).unwrap().0.to_scalar::<f64>().unwrap()).sum() };
        let choice = Stream::new(8, "which weights");
        for draw in 0..WEIGHTS {
            let parameter = &model.parameters[choice.below(2 * draw, model.parameters.len() as u64) as usize];
            let (value, gradient) = (parameter.value().unwrap(), &found[parameter.name()].numbers);
            let at = choice.below(2 * draw + 1, gradient.len() as u64) as usize;
            let moved = |by: f64| {
                let mut weights = numbers(&value);
                weights[at] += by;
                parameter.set(&Tensor::from_vec(weights, value.shape(), &Device::Cpu).unwrap()).unwrap();
                loss()
            };
            // Of fourth order: what is left are roundings of the loss.
            let near = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            let far = (moved(2.0 * STEP) - moved(-2.0 * STEP)) / (4.0 * STEP);
            let want = (4.0 * near - far) / 3.0;
            parameter.set(&value).unwrap();
            let largest = gradient.iter().fold(1e-3, |max: f64, number| max.max(number.abs()));
            let apart = (gradient[at] - want).abs() / largest;
            assert!(apart < 1e-6, "{name}: {} [{at}]: {} and differences say {want}", parameter.name(), gradient[at]);
        }
    });
}

#[test]
fn gradients_are_those_of_differences_and_each_use_gives_one() {
    for (name, config) in [("llama", llama()), ("gpt2", gpt2()), ("uneven", uneven())] {
        check(name, &config);
    }
}
