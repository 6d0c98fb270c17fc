//! Values in 8 bits, numbers in files, and what ranks do that differ, leave, or ask for what cannot be.

use super::*;

/// Forward passes with values in 8 bits are off by what the rounding allows; masters stay exact.
#[test]
fn values_may_travel_in_8_bits() {
    let block = 16;
    let exact = values(&Local::new(Model::new(DType::F32).parameters()).unwrap());
    for (got, masters, bytes) in ranks("fsdp=2", |mesh| {
        let model = Model::new(DType::F32);
        let options = ShardedOptions { gather: Gather::Int8 { block }, ..ShardedOptions::default() };
        let state = sharded(&model, &mesh, options);
        let got = values(&state);
        let mut masters = Vec::new();
        let each = &mut |shard: &mut Shard| {
            masters.extend(shard.segments.iter().flat_map(|segment| {
                {
                    let name = segment.parameter.name().to_owned();
                    segment.range.clone().enumerate().map(move |(at, place)| (name.clone(), segment.first + at, place))
                }
                .map(|(name, at, place)| (name, at, shard.values.get(place)))
                .collect::<Vec<_>>()
            }));
            Ok(())
        };
        state.visit(each).unwrap();
        (got, masters, state.shard_group().traffic().of(Collective::AllGather).payload_bytes)
    }) {
        let mut off = 0;
        for (got, want) in got.iter().zip(&exact) {
            let largest = exact.iter().flatten().fold(0f64, |largest, number| largest.max(number.abs()));
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() <= largest * (1.0 / 254.0 + 1e-6));
                off += usize::from(got != want);
            }
        }
        assert!(off > 0, "something was rounded");
        let names: Vec<String> = Model::new(DType::F32).parameters().iter().map(|one| one.name().to_owned()).collect();
        for (name, at, value) in masters {
            let place = names.iter().position(|other| *other == name).unwrap();
            assert_eq!(value, exact[place][at]);
        }
        let lens = unit_lens(2);
        let want: usize = lens.iter().map(|len| len + 2 * 4 * (len / 2).div_ceil(block)).sum();
        assert_eq!(bytes, want as u64);
    }
}

#[test]
fn masters_and_moments_in_files_take_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let p: usize = unit_lens(2).iter().sum();
    ranks("fsdp=2", |mesh| {
        let model = Model::new(DType::BF16);
        let offload = Offload::Files(directory.path().to_owned());
        let state = sharded(&model, &mesh, ShardedOptions { offload, ..ShardedOptions::default() });
        remember(&state);
        let is = state.memory();
        assert_eq!((is.master, is.moments, is.in_files), (0, 0, 12 * p / 2));
        assert_eq!(is.total(), 2 * p / 2);
        let mut seen = 0;
        state
            .visit(&mut |shard| {
                seen += shard.moments["variance"].len();
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, p / 2);
        // A visit that ends early loses nothing.
        let early = state.visit(&mut |_| Err(Error::invalid("enough"))).unwrap_err();
        assert_eq!(early.to_string(), "enough");
        assert_eq!(state.memory().in_files, 12 * p / 2);
        state
            .visit(&mut |shard| {
                assert_eq!(shard.moments.len(), 2);
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn ranks_begin_with_the_values_of_rank_0() {
    for (layout, stage) in [("fsdp=3", Stage::Optimizer), ("dp=2,fsdp=2", Stage::Parameters)] {
        let all = ranks(layout, |mesh| {
            let model = Model::seeded(DType::F32, mesh.rank() as u64);
            let options = ShardedOptions { stage, ..ShardedOptions::default() };
            values(&sharded(&model, &mesh, options))
        });
        let want = values(&Local::new(Model::seeded(DType::F32, 0).parameters()).unwrap());
        assert!(all.iter().all(|values| *values == want));
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let model = |kind: Kind, dtypes: [DType; 2]| {
        let parameters = dtypes.iter().zip(["a", "b"]).map(|(dtype, name)| {
            let builder = Builder::new(ParameterOptions { dtype: *dtype, seed: 0 });
            let spread = Spread::invariant().with(Axis::Fsdp, kind);
            builder.parameter(name, Part::all(&[4]), spread, Init::Ones).unwrap()
        });
        vec![parameters.collect::<Vec<_>>()]
    };
    for (kind, dtypes, said) in [
        (Kind::Varying, [DType::F32; 2], "a is different on each rank along fsdp"),
        (Kind::Invariant, [DType::F32, DType::BF16], "a (F32) and b (BF16) are in one unit"),
    ] {
        for error in ranks("fsdp=2", |mesh| {
            Sharded::new(model(kind, dtypes), &mesh, ShardedOptions::default()).unwrap_err().to_string()
        }) {
            assert!(error.contains(said), "{error}");
        }
    }
}

/// Two layers of one size, used in different orders: without the comparison their values would be taken for each other.
#[test]
fn ranks_that_use_units_in_different_orders_are_told() {
    let errors = ranks("fsdp=2", |mesh| {
        let builder = Builder::new(ParameterOptions { dtype: DType::F64, seed: 0 });
        for name in ["a", "b"] {
            builder.parameter(name, Part::all(&[4]), Spread::invariant(), Init::Ones).unwrap();
        }
        let state =
            Sharded::new(units_by(&builder.parameters(), str::to_owned), &mesh, ShardedOptions::default()).unwrap();
        let order = if mesh.rank() == 0 { [0, 1] } else { [1, 0] };
        order.iter().for_each(|place| drop(state.parameters()[*place].value().unwrap()));
        state.finish_gradients().unwrap_err()
    });
    assert!(errors.iter().all(|error| matches!(error, Error::Differs(said) if said.contains("rank 1"))), "{errors:?}");
}

#[test]
fn a_rank_that_leaves_is_named_by_all_others() {
    for stage in STAGES {
        let errors = ranks("fsdp=4", |mesh| {
            let model = Model::new(DType::F64);
            let state = sharded(&model, &mesh, ShardedOptions { stage, ..ShardedOptions::default() });
            if mesh.rank() == 2 {
                return None;
            }
            state.last_micro_batch();
            let passed = model.loss(mesh.rank()).and_then(|loss| Ok(loss.backward()?));
            Some(passed.and_then(|_| state.finish_gradients()).unwrap_err().to_string())
        });
        for (rank, error) in errors.into_iter().enumerate().filter(|(rank, _)| *rank != 2) {
            let error = error.unwrap();
            assert!(error.contains("rank 2"), "rank {rank}, {stage:?}: {error}");
        }
    }
}

/// Clipping scales gradients in a visit of its own.
#[test]
fn what_one_visit_changes_the_next_one_sees() {
    let directory = tempfile::tempdir().unwrap();
    for gradients in [Precision::OfParameters, Precision::OfTraining] {
        for offload in [Offload::Memory, Offload::Files(directory.path().to_owned())] {
            let options = ShardedOptions { gradients, offload, ..ShardedOptions::default() };
            ranks("fsdp=2", |mesh| {
                let builder = Builder::new(ParameterOptions { dtype: DType::BF16, seed: 0 });
                builder.parameter("a", Part::all(&[6]), Spread::invariant(), Init::Ones).unwrap();
                let state = Sharded::new(vec![builder.parameters()], &mesh, options.clone()).unwrap();
                give(&state.parameters()[0], Tensor::ones(6, DType::BF16, &Device::Cpu).unwrap()).unwrap();
                state.finish_gradients().unwrap();
                let scale = &mut |shard: &mut Shard| {
                    shard.gradients.scale(0.25);
                    shard.values.scale(3.0);
                    Ok(())
                };
                state.visit(scale).unwrap();
                let check = &mut |shard: &mut Shard| {
                    assert_eq!(shard.gradients, Numbers::F32(vec![0.5; 3]));
                    assert_eq!(shard.values, Numbers::F32(vec![3.0; 3]));
                    Ok(())
                };
                state.visit(check).unwrap();
                state.publish().unwrap();
                assert_eq!(values(&state), [[3.0; 6]]);
            });
        }
    }
}

/// A moment of a shard is what one process has for the same stretch: segments say where they lie.
#[test]
fn segments_say_where_they_lie() {
    let whole = values(&Local::new(Model::new(DType::F64).parameters()).unwrap());
    let names: Vec<String> = Model::new(DType::F64).parameters().iter().map(|one| one.name().to_owned()).collect();
    let covered: usize = ranks("fsdp=4", |mesh| {
        let model = Model::new(DType::F64);
        let state = sharded(&model, &mesh, ShardedOptions::default());
        assert_eq!(state.distinct_along(), [Axis::Fsdp]);
        let mut covered = 0;
        let each = &mut |shard: &mut Shard| {
            let Numbers::F64(numbers) = &shard.values else { panic!("not f64") };
            for segment in &shard.segments {
                let place = names.iter().position(|name| *name == segment.parameter.name()).unwrap();
                assert_eq!(numbers[segment.range.clone()], whole[place][segment.first..][..segment.range.len()]);
                covered += segment.range.len();
            }
            Ok(())
        };
        state.visit(each).unwrap();
        covered
    })
    .into_iter()
    .sum();
    assert_eq!(covered, whole.iter().map(Vec::len).sum::<usize>());
}

#[test]
fn a_rank_that_panics_in_a_visit_is_named_by_all_others() {
    let errors = ranks("fsdp=3", |mesh| {
        let model = Model::new(DType::F64);
        let state = sharded(&model, &mesh, ShardedOptions { stage: Stage::Optimizer, ..ShardedOptions::default() });
        if mesh.rank() == 2 {
            let panics = std::panic::AssertUnwindSafe(move || {
                let (state, _model, _mesh) = (state, model, mesh);
                state.visit(&mut |_| panic!("planted"))
            });
            assert!(std::panic::catch_unwind(panics).is_err());
            return None;
        }
        state.visit(&mut |_| Ok(())).unwrap();
        Some(state.publish().unwrap_err().to_string())
    });
    assert!(errors.iter().flatten().all(|error| error.contains("rank 2")), "{errors:?}");
    assert_eq!(errors.iter().flatten().count(), 2);
}
