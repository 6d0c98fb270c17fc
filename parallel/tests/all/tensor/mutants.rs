//! Faults that are easily made: each must be an error, or a gradient that the comparison finds.

use std::collections::BTreeMap;

use candle_core::{Device, Tensor, Var};
use paceline_comm::Communicator;
use paceline_parallel::mesh::Axis;
use paceline_parallel::nn::{Placement, RmsNorm, gelu};
use paceline_parallel::parameter::{Builder, Init, ParameterOptions};
use paceline_parallel::random::Stream;
use paceline_parallel::tensor::{ColumnLinear, Columns, RowLinear, Rows, TensorParallel};
use paceline_parallel::value::{Kind, Spread, Value};
use paceline_parallel::{Error, Group};

use super::model::{LEN, Model, gpt2, layout, llama, run};
use crate::common::{difference, gradients, logical, numbers, ranks, tokens};

/// A norm and a feed-forward layer. `entering` stands between them.
fn pair(size: usize, entering: impl Fn(Value, &Group) -> Value + Sync) -> BTreeMap<String, Vec<f64>> {
    let locals = ranks(size, |comm: Communicator| {
        let tp = TensorParallel { group: Group::of(comm, Axis::Tp), sequence: false };
        let options = ParameterOptions { seed: 2, dtype: candle_core::DType::F64 };
        let builder = Builder::new(options);
        let init = Init::Normal { std: 0.5 };
        let norm = RmsNorm::new(&builder.at("norm"), 8, 1e-5, &tp).unwrap();
        let columns = [Columns { name: "up", outputs: 12, used: None, init, bias: true }];
        let up = ColumnLinear::new(&builder, 8, &columns, &tp).unwrap();
        let rows = Rows { inputs: 12, outputs: 8, init, bias: true };
        let down = RowLinear::new(&builder.at("down"), &rows, &tp).unwrap();
        let stream = Stream::new(3, "input");
        let input: Vec<f64> = (0..48).map(|at| stream.normal(at)).collect();
        let input = Var::from_vec(input, (2, 3, 8), &Device::Cpu).unwrap();
        let normed = norm.forward(&Value::invariant(input.as_tensor().clone())).unwrap();
        let hidden = gelu(&up.forward(&entering(normed, &tp.group)).unwrap()).unwrap();
        let output = down.forward(&hidden).unwrap().into_tensor();
        let found = output.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let mut all = gradients(&builder.parameters(), Axis::Tp);
        let mut of_input = all["norm.weight"].clone();
        of_input.numbers = numbers(found.get(&input).unwrap());
        all.insert("input".to_owned(), of_input);
        all
    });
    logical(&locals)
}

#[test]
fn f_forgotten() {
    let want = pair(1, |normed, _| normed);
    let apart = |is: &BTreeMap<String, Vec<f64>>, name: &str| difference(&want[name], &is[name]);
    for honest in [pair(2, |normed, _| normed), pair(2, |normed, group| normed.replicate(group).unwrap())] {
        want.keys().for_each(|name| assert!(apart(&honest, name) < 1e-12, "{name}"));
    }
    // Whoever says of an invariant value that it is replicated leaves its gradients in parts, which differ among ranks.
    let mutant = std::panic::catch_unwind(|| {
        pair(2, |normed, _| Value::new(normed.into_tensor(), Spread::invariant().with(Axis::Tp, Kind::Replicated)))
    });
    assert!(mutant.is_err(), "each rank has a part of the norm's gradient, and they agree");
}

/// What a rank has of its own can't meet an invariant value unnoticed.
#[test]
fn f_forgotten_by_hand() {
    ranks(2, |comm| {
        let group = Group::of(comm, Axis::Tp);
        let one = Tensor::ones(3, candle_core::DType::F64, &Device::Cpu).unwrap();
        let (input, own) =
            (Value::invariant(one.clone()), Value::new(one, Spread::invariant().with(Axis::Tp, Kind::Varying)));
        let error = input.mul(&own).unwrap_err();
        assert!(matches!(error, Error::Spread { .. }) && error.to_string().contains("mutants.rs"), "{error}");
        assert!(input.replicate(&group).unwrap().mul(&own).is_ok());
    });
}

/// With the sequence cut, each rank has the gradients of its positions only; so has a key that ranks share those of its heads.
#[test]
fn replicated_parameters_not_summed() {
    for (sequence, names) in [
        (true, ["model.norm.weight", "model.layers.0.input_layernorm.weight", "model.embed_positions.weight"]),
        (false, ["model.layers.0.self_attn.k_proj.weight"; 3]),
    ] {
        let want = run(&gpt2(), layout(1, false));
        let is = run(&gpt2(), layout(4, sequence));
        for name in names {
            assert_eq!(is.locals[0][name].kind, Kind::Replicated, "{name}");
            assert!(difference(&want.gradients[name], &is.gradients[name]) < 1e-11, "{name}");
            let unsummed = difference(&want.gradients[name], &is.locals[0][name].numbers);
            assert!(unsummed > 1e-2, "{name}: one rank's alone differs by {unsummed:e}");
        }
    }
}

#[test]
fn gathered_logits() {
    ranks(2, |comm| {
        let model = Model::new(&llama(), layout(2, false), comm);
        let (inputs, targets) = tokens(0..1, LEN, 64);
        let logits = model.gpt.forward(&Value::invariant(inputs), &Placement::training(0, 0..1, LEN)).unwrap();
        let group = &model.tp.group;
        let gathered = [logits.all_gather(group, 2).unwrap(), logits.all_gather_invariant(group, 2).unwrap()];
        let lied = Value::new(gathered[0].tensor().clone(), logits.spread().clone());
        for wrong in gathered.iter().chain([&lied]) {
            let error = model.gpt.loss(wrong, &targets).unwrap_err();
            assert!(matches!(error, Error::Spread { .. }) && error.to_string().contains("cross_entropy"), "{error}");
        }
        assert!(model.gpt.loss(&logits, &targets).is_ok());
    });
}

/// Layers that are put together wrongly say so, with the place.
#[test]
fn layers_in_the_wrong_order() {
    ranks(2, |comm| {
        let group = Group::of(comm, Axis::Tp);
        let builder = Builder::new(ParameterOptions { dtype: candle_core::DType::F64, ..ParameterOptions::default() });
        for sequence in [false, true] {
            let tp = TensorParallel { group: group.clone(), sequence };
            let builder = builder.at(sequence);
            let init = Init::Ones;
            let columns = [Columns { name: "up", outputs: 8, used: None, init, bias: false }];
            let up = ColumnLinear::new(&builder, 8, &columns, &tp).unwrap();
            let down = RowLinear::new(&builder, &Rows { inputs: 16, outputs: 8, init, bias: false }, &tp).unwrap();
            let value = |kind| {
                let ones = Tensor::ones((1, 2, 8), candle_core::DType::F64, &Device::Cpu).unwrap();
                Value::new(ones, Spread::invariant().with(Axis::Tp, kind))
            };
            let refused = if sequence { Kind::Invariant } else { Kind::Varying };
            for result in [
                up.forward(&value(refused)),
                up.forward(&value(Kind::Partial)),
                down.forward(&value(Kind::Invariant)),
                down.forward(&value(Kind::Replicated)),
            ] {
                let error = result.unwrap_err();
                assert!(matches!(error, Error::Spread { .. }) && error.to_string().contains("mutants.rs"), "{error}");
            }
        }
    });
}
