//! Stages of a model, one after another, are the whole.

use std::collections::BTreeMap;

use candle_core::{DType, Var};
use paceline_comm::Communicator;
use paceline_parallel::Group;
use paceline_parallel::autograd::{backward_from, gradient_of};
use paceline_parallel::mesh::Axis;
use paceline_parallel::nn::{Gpt, GptConfig, HeadKind, Placement, Stage};
use paceline_parallel::parameter::{Builder, ParameterOptions};
use paceline_parallel::tensor::TensorParallel;
use paceline_parallel::value::Value;

use super::model::{BATCH, LEN, MICRO_BATCHES, gpt2, layout, llama, run};
use crate::common::{Local, assert_close, gradients, logical, ranks, stir, tokens};

/// Each stage's gradients, and the loss.
fn staged(config: &GptConfig, sequence: bool, comm: Communicator) -> (f64, Vec<BTreeMap<String, Local>>) {
    let tp = TensorParallel { group: Group::of(comm, Axis::Tp), sequence };
    let stages = [
        Stage { layers: 0..1, has_embedding: true, has_head: false },
        Stage { layers: 1..3, has_embedding: false, has_head: false },
        Stage { layers: 3..4, has_embedding: false, has_head: true },
    ];
    let built: Vec<(Gpt, Builder)> = stages
        .iter()
        .map(|stage| {
            let builder = Builder::new(ParameterOptions { seed: 1, dtype: DType::F64 });
            let gpt = Gpt::stage(config.clone(), stage, &builder, &tp).unwrap();
            stir(&builder.parameters());
            (gpt, builder)
        })
        .collect();
    let mut sum = 0.0;
    for micro_batch in 0..MICRO_BATCHES {
        let samples = micro_batch * BATCH..(micro_batch + 1) * BATCH;
        let (inputs, targets) = tokens(samples.clone(), LEN, config.vocabulary);
        let placement = Placement::training(3, samples, LEN);
        let mut passed: Vec<(Option<Var>, Value)> = Vec::new();
        for (gpt, _) in &built {
            let (variable, input) = match passed.last() {
                None => (None, Value::invariant(inputs.clone())),
                Some((_, output)) => {
                    assert_eq!(output.dims(), gpt.between_layers(BATCH as usize, LEN).unwrap());
                    assert_eq!(*output.spread(), tp.between_layers());
                    let variable = Var::from_tensor(&output.tensor().detach()).unwrap();
                    let input = Value::new(variable.as_tensor().clone(), tp.between_layers());
                    (Some(variable), input)
                }
            };
            let output = gpt.forward(&input, &placement).unwrap();
            passed.push((variable, output));
        }
        let loss = built[2].0.loss(&passed[2].1, &targets).unwrap().sum.into_tensor();
        sum += loss.to_scalar::<f64>().unwrap();
        let mut found = loss.backward().unwrap();
        for at in (0..2).rev() {
            let gradient = gradient_of(&found, passed[at + 1].0.as_ref().unwrap()).unwrap();
            found = backward_from(&[(passed[at].1.tensor(), &gradient)]).unwrap();
        }
    }
    (sum, built.iter().map(|(_, builder)| gradients(&builder.parameters(), Axis::Tp)).collect())
}

#[test]
fn stages_are_the_whole() {
    for config in [llama(), gpt2()] {
        for (size, sequence) in [(1, false), (2, false), (2, true)] {
            let want = run(&config, layout(size, sequence));
            let results = ranks(size, |comm| staged(&config, sequence, comm));
            assert_eq!(results[0].0, want.loss);
            let mut all = BTreeMap::<String, Vec<f64>>::new();
            for stage in 0..3 {
                let locals: Vec<_> = results.iter().map(|(_, stages)| stages[stage].clone()).collect();
                for (name, numbers) in logical(&locals) {
                    let sum = all.entry(name).or_insert_with(|| vec![0.0; numbers.len()]);
                    sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
                }
            }
            // The two copies of a tied embedding are added in another order.
            let tolerance = if config.head == HeadKind::Tied { 1e-13 } else { 0.0 };
            assert_close(&want.gradients, &all, tolerance, &format!("{size} ranks, sequence {sequence}"));
        }
    }
}

#[test]
fn a_tied_head_takes_the_embedding_of_its_builder_or_a_copy() {
    let tp = TensorParallel::alone().unwrap();
    let (first, last) = (
        Stage { layers: 0..1, has_embedding: true, has_head: false },
        Stage { layers: 3..4, has_embedding: false, has_head: true },
    );
    let tables = |stages: &[&Stage]| {
        let builder = Builder::new(ParameterOptions::default());
        stages.iter().for_each(|stage| drop(Gpt::stage(gpt2(), stage, &builder, &tp).unwrap()));
        let parameters = builder.parameters();
        let named = parameters.iter().filter(|parameter| parameter.name() == "model.embed_tokens.weight");
        named
            .map(|parameter| parameter.value().unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap())
            .collect::<Vec<_>>()
    };
    let (one, other, both) = (tables(&[&first]), tables(&[&last]), tables(&[&first, &last]));
    assert_eq!((one.len(), both.len()), (1, 1));
    assert_eq!(one, other);
    assert_eq!(one, both);
}
