//! The end of a training step, the same in every layout: norm, clipping, overflow, updates.

use crate::cut::{Cut, ELEMENTS, LAYOUTS, fill_gradients, model, on_ranks, put, set_gradients};
use candle_core::DType;
use paceline_parallel::checkpoint::logical_hash;
use paceline_parallel::mesh::{Axis, Mesh};
use paceline_parallel::optimizer::{
    AdamW, Clip, Ending, Norm, Optimizer, Outcome, Ownership, Sgd, end_step, gradient_norm,
};
use paceline_parallel::parameter::{Parameter, Part};
use paceline_parallel::precision::{LossScaler, LossScalerOptions};
use paceline_parallel::state::{Local, State};
use paceline_parallel::value::{Kind, Spread};

fn state(mesh: &Mesh, dtype: DType, along: &[Axis]) -> (Cut, Ownership) {
    let state = Cut::new(mesh, model(mesh, dtype), along);
    let ownership = Ownership::agree(mesh, &state).unwrap();
    (state, ownership)
}

fn ending(clip: Option<Clip>) -> Ending {
    Ending { learning_rate: 0.01, tokens: 32.0, clip }
}

#[test]
fn gradients_of_one_have_a_norm_that_counts_elements() {
    for (layout, along) in LAYOUTS {
        on_ranks(layout, |mesh| {
            let (state, ownership) = state(mesh, DType::F32, along);
            assert_eq!(ownership.elements(), ELEMENTS, "{layout}");
            fill_gradients(&state, -1.0);
            let norm = |norm| gradient_norm(mesh, &ownership, &state, norm).unwrap();
            assert_eq!(norm(Norm::L2), (ELEMENTS as f64).sqrt(), "{layout}");
            assert_eq!(norm(Norm::Infinity), 1.0, "{layout}");
        });
    }
}

#[test]
fn the_norm_is_that_of_one_process() {
    let norms = |layout: &str, along: &[Axis]| {
        let norms = on_ranks(layout, |mesh| {
            let (state, ownership) = state(mesh, DType::F64, along);
            set_gradients(&state, 3);
            [Norm::L2, Norm::Infinity].map(|norm| gradient_norm(mesh, &ownership, &state, norm).unwrap())
        });
        assert!(norms.iter().all(|other| *other == norms[0]), "{layout}: {norms:?}");
        norms[0]
    };
    let want = norms("", &[]);
    assert!(want[0] > 10.0 && want[1] > 2.0, "{want:?}");
    for (layout, along) in LAYOUTS {
        let got = norms(layout, along);
        assert!((got[0] / want[0] - 1.0).abs() < 1e-14 && got[1] == want[1], "{layout}: {got:?} instead of {want:?}");
    }
}

#[test]
fn a_gradient_that_is_no_number_makes_no_number_of_the_norm() {
    on_ranks("tp=2", |mesh| {
        let (state, ownership) = state(mesh, DType::F32, &[]);
        if mesh.rank() == 1 {
            fill_gradients(&state, f64::NAN);
        }
        assert!(
            [Norm::L2, Norm::Infinity].map(|norm| gradient_norm(mesh, &ownership, &state, norm).unwrap().is_nan())
                == [true; 2]
        );
        let mut optimizer = Optimizer::new(Sgd::default());
        let before = logical_hash(mesh, &ownership, &state).unwrap();
        let clip = Some(Clip { norm: Norm::L2, max: 1.0 });
        let error = end_step(mesh, &ownership, &state, &mut optimizer, None, &ending(clip)).unwrap_err().to_string();
        assert!(error.contains("NaN"), "{error}");
        assert_eq!((logical_hash(mesh, &ownership, &state).unwrap(), optimizer.count().steps), (before, 0));
    });
}

/// A stage's parameters that say nothing of the pipeline, parts of a matrix that are called the same, or of different shapes.
#[test]
fn what_is_said_wrongly_of_a_parameter_is_an_error_before_the_first_step() {
    let varying = |axis| Spread::invariant().with(axis, Kind::Varying);
    let whole = Part::all(&[4, 2]);
    let cut = |mesh: &Mesh, axis| whole.clone().piece(0, mesh.coordinate(axis), mesh.size(axis));
    type Makes<'m> = &'m (dyn Fn(&Mesh) -> (String, Part, Spread) + Sync);
    let cases: [(&str, &[Axis], Makes, Option<&str>); 8] = [
        ("pp=2", &[], &|mesh| ("w".into(), cut(mesh, Axis::Pp), varying(Axis::Pp)), None),
        ("tp=2", &[], &|mesh| ("w".into(), cut(mesh, Axis::Tp), varying(Axis::Tp)), None),
        ("tp=2", &[], &|mesh| ("w".into(), cut(mesh, Axis::Tp), Spread::invariant()), Some("w has 8 elements")),
        ("pp=2", &[], &|mesh| (format!("w{}", mesh.rank()), whole.clone(), varying(Axis::Pp)), None),
        ("pp=2", &[], &|mesh| ("w".into(), cut(mesh, Axis::Pp), varying(Axis::Tp)), Some("own some own 4 together")),
        ("fsdp=2", &[], &|_| ("w".into(), whole.clone(), Spread::invariant()), None),
        ("tp=2", &[], &|mesh| ("w".into(), Part::all(&[2 + mesh.rank()]), varying(Axis::Tp)), Some("on rank 1")),
        (
            "tp=2",
            &[],
            &|mesh| {
                let kind = if mesh.rank() == 0 { Kind::Varying } else { Kind::Replicated };
                ("w".into(), cut(mesh, Axis::Tp), Spread::invariant().with(Axis::Tp, kind))
            },
            Some("replicated along tp"),
        ),
    ];
    for (layout, along, makes, said) in cases {
        on_ranks(layout, |mesh| {
            let (name, part, spread) = makes(mesh);
            let value = candle_core::Tensor::ones(part.shape(), DType::F32, &candle_core::Device::Cpu).unwrap();
            let parameter = Parameter::new(name, part, spread, &value).unwrap();
            let agreed = Ownership::agree(mesh, &Cut::new(mesh, vec![parameter], along));
            match said {
                None => assert_eq!(agreed.unwrap().elements() % 8, 0),
                Some(said) => {
                    let error = agreed.unwrap_err().to_string();
                    assert!(error.contains(said), "{layout}: {error}");
                }
            }
        });
    }
}

/// A parameter's name, the logical indices of its elements, and its elements.
type Value = (String, Vec<Option<u64>>, Vec<f64>);

#[test]
fn five_steps_are_those_of_one_process() {
    let train = |layout: &str, along: &[Axis], clip: Option<Clip>| {
        on_ranks(layout, |mesh| {
            let (state, ownership) = state(mesh, DType::F64, along);
            let mut optimizer = Optimizer::new(AdamW::default()).without_decay_of_vectors();
            for step in 0..5 {
                set_gradients(&state, step);
                let outcome = end_step(mesh, &ownership, &state, &mut optimizer, None, &ending(clip)).unwrap();
                assert!(matches!(outcome, Outcome::Updated { norm } if norm.is_some() == clip.is_some()));
            }
            let values: Vec<Value> = state
                .parameters()
                .iter()
                .map(|parameter| {
                    let value = parameter.value().unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
                    (parameter.name().to_owned(), parameter.part().indices().collect(), value)
                })
                .collect();
            (logical_hash(mesh, &ownership, &state).unwrap(), values)
        })
    };
    let by_name = |values: &[Value]| {
        values
            .iter()
            .map(|(name, _, value)| (name.clone(), value.clone()))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    let clip = Clip { norm: Norm::L2, max: 0.1 };
    let (plain, clipped) = (train("", &[], None).remove(0), train("", &[], Some(clip)).remove(0));
    let clipped = by_name(&clipped.1);
    assert_ne!(by_name(&plain.1), clipped);
    for (layout, along) in LAYOUTS {
        for (hash, _) in train(layout, along, None) {
            assert_eq!(hash, plain.0, "{layout}");
        }
        // The norm's last bits depend on the layout.
        for (name, indices, values) in train(layout, along, Some(clip)).into_iter().flat_map(|(_, values)| values) {
            for (index, value) in indices.into_iter().zip(values) {
                let want = index.map_or(0.0, |index| clipped[&name][index as usize]);
                assert!((value - want).abs() <= 1e-9 * want.abs().max(1.0), "{layout} {name}: {value} and not {want}");
            }
        }
    }
}

#[test]
fn clipped_gradients_are_as_long_as_they_may_be() {
    on_ranks("pp=2,dp=2,tp=2", |mesh| {
        for norm in [Norm::L2, Norm::Infinity] {
            let (state, ownership) = state(mesh, DType::F64, &[Axis::Dp]);
            let before = values(&state);
            set_gradients(&state, 0);
            let mut optimizer = Optimizer::new(Sgd::default());
            let clip = Some(Clip { norm, max: 0.03 });
            let ending = Ending { learning_rate: 1.0, tokens: 8.0, clip };
            end_step(mesh, &ownership, &state, &mut optimizer, None, &ending).unwrap();
            // With a rate of 1 the values have moved by the clipped gradient.
            let after = values(&state);
            let mut at = 0;
            let moved = &mut |shard: &mut paceline_parallel::state::Shard| {
                for place in 0..shard.values.len() {
                    put(&mut shard.gradients, place, after[at] - before[at]);
                    at += 1;
                }
                Ok(())
            };
            state.visit(moved).unwrap();
            let moved = gradient_norm(mesh, &ownership, &state, norm).unwrap();
            assert!((moved - 0.03).abs() < 1e-14, "{norm:?}: {moved}");
        }
    });
}

fn values(state: &dyn State) -> Vec<f64> {
    let mut values = Vec::new();
    let read = &mut |shard: &mut paceline_parallel::state::Shard| {
        values.extend((0..shard.values.len()).map(|at| shard.values.get(at)));
        Ok(())
    };
    state.visit(read).unwrap();
    values
}

#[test]
fn an_infinity_on_one_rank_skips_the_step_on_all() {
    for (layout, along) in [("tp=2,pp=2", &[][..]), ("dp=2,fsdp=2", &[Axis::Fsdp]), ("", &[])] {
        let ranks = layout.parse::<paceline_parallel::mesh::Layout>().unwrap().ranks();
        for (hit, number) in (0..ranks).zip([f64::INFINITY, f64::NEG_INFINITY, f64::NAN].into_iter().cycle()) {
            let scalers = on_ranks(layout, |mesh| {
                let (state, ownership) = state(mesh, DType::F32, along);
                let mut optimizer = Optimizer::new(AdamW::default());
                let mut scaler = LossScaler::new(LossScalerOptions { interval: 2, ..Default::default() }).unwrap();
                let mut step = |step: u64, infinite: bool| {
                    set_gradients(&state, step);
                    if infinite && mesh.rank() == hit {
                        state
                            .visit(&mut |shard| {
                                put(&mut shard.gradients, 0, number);
                                Ok(())
                            })
                            .unwrap();
                    }
                    let clip = Some(Clip { norm: Norm::L2, max: 1.0 });
                    let outcome = end_step(mesh, &ownership, &state, &mut optimizer, Some(&mut scaler), &ending(clip));
                    let hash = logical_hash(mesh, &ownership, &state).unwrap();
                    (outcome.unwrap(), hash, scaler.scale(), optimizer.count().steps)
                };
                let first = step(0, false);
                assert!(matches!(first, (Outcome::Updated { .. }, _, 65536.0, 1)), "{first:?}");
                let skipped = step(1, true);
                assert_eq!(skipped, (Outcome::Skipped, first.1, 32768.0, 1));
                let after = step(2, false);
                assert!(matches!(after, (Outcome::Updated { .. }, _, 32768.0, 2)), "{after:?}");
                assert_ne!(after.1, first.1);
                assert!(matches!(step(3, false), (Outcome::Updated { .. }, _, 65536.0, 3)));
                scaler
            });
            assert!(scalers.iter().all(|scaler| *scaler == scalers[0] && scaler.skipped() == 1));
        }
    }
}

/// Gradients of a scaled loss are divided by the scale, exactly.
#[test]
fn the_scale_leaves_no_trace() {
    let hash = |scaled: bool| {
        on_ranks("", |mesh| {
            let (state, ownership) = state(mesh, DType::F32, &[]);
            let mut scaler = LossScaler::new(LossScalerOptions::default()).unwrap();
            let mut optimizer = Optimizer::new(AdamW::default());
            for step in 0..3 {
                set_gradients(&state, step);
                let factor = if scaled { scaler.scale() } else { 1.0 };
                state
                    .visit(&mut |shard| {
                        shard.gradients.scale(factor);
                        Ok(())
                    })
                    .unwrap();
                let scaler = scaled.then_some(&mut scaler);
                let clip = Some(Clip { norm: Norm::L2, max: 0.1 });
                end_step(mesh, &ownership, &state, &mut optimizer, scaler, &ending(clip)).unwrap();
            }
            logical_hash(mesh, &ownership, &state).unwrap()
        })
    };
    assert_eq!(hash(true), hash(false));
}

#[test]
fn a_state_of_one_process_is_stepped_alike() {
    let [one, other] = [0, 1].map(|local| {
        on_ranks("", |mesh| {
            let parameters = model(mesh, DType::F32);
            let state: Box<dyn State> = match local {
                0 => Box::new(Local::new(parameters).unwrap()),
                _ => Box::new(Cut::new(mesh, parameters, &[])),
            };
            let ownership = Ownership::agree(mesh, &*state).unwrap();
            set_gradients(&*state, 0);
            end_step(mesh, &ownership, &*state, &mut Optimizer::new(AdamW::default()), None, &ending(None)).unwrap();
            logical_hash(mesh, &ownership, &*state).unwrap()
        })
    });
    assert_eq!(one, other);
}
