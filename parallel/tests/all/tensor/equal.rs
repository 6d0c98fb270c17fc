//! Whatever the layout, losses and gradients are those of one rank.

use candle_core::DType;
use paceline_parallel::nn::{GptConfig, Recompute};

use super::model::{BATCH, LEN, Layout, MICRO_BATCHES, gpt2, layout, llama, run, uneven};
use crate::common::{assert_close, difference};

fn check(name: &str, config: &GptConfig, dtype: DType, tolerance: f64) {
    let of_type = |layout: Layout| Layout { dtype, ..layout };
    let want = run(config, of_type(layout(1, false)));
    assert_eq!(want.tokens as u64, MICRO_BATCHES * BATCH * (LEN as u64 - 1));
    let uniform = want.tokens as f64 * (config.vocabulary as f64).ln();
    assert!((want.loss - uniform).abs() < 0.3 * uniform, "{name}: {} for {uniform}", want.loss);
    for (ranks, sequence) in [(1, true), (2, false), (2, true), (4, false), (4, true)] {
        let is = run(config, of_type(layout(ranks, sequence)));
        let what = format!("{name}, {dtype:?}, {ranks} ranks, sequence {sequence}");
        assert!(difference(&[want.loss], &[is.loss]) <= tolerance, "{what}: {} for {}", is.loss, want.loss);
        assert_eq!(is.tokens, want.tokens, "{what}");
        assert_close(&want.gradients, &is.gradients, tolerance, &what);
    }
}

#[test]
fn as_llama_does() {
    check("llama", &llama(), DType::F64, 1e-11);
}

#[test]
fn as_gpt2_does() {
    check("gpt2", &gpt2(), DType::F64, 1e-11);
}

#[test]
fn where_nothing_can_be_cut_evenly() {
    check("uneven", &uneven(), DType::F64, 1e-11);
}

#[test]
fn in_single_precision() {
    check("llama", &llama(), DType::F32, 2e-5);
    check("gpt2", &gpt2(), DType::F32, 2e-5);
}

/// Halves round each activation: losses are near, and each gradient points the same way.
#[test]
fn in_half_precision() {
    let want = run(&gpt2(), layout(1, false));
    for (ranks, sequence) in [(1, false), (2, true)] {
        let is = run(&gpt2(), Layout { dtype: DType::BF16, ..layout(ranks, sequence) });
        assert!(difference(&[want.loss], &[is.loss]) < 2e-2, "{} for {}", is.loss, want.loss);
        for (name, want) in &want.gradients {
            let is = &is.gradients[name];
            let product = |one: &[f64], two: &[f64]| one.iter().zip(two).map(|(one, two)| one * two).sum::<f64>();
            let cosine = product(want, is) / (product(want, want) * product(is, is)).sqrt();
            // Keys' biases change nothing: what their gradients are is noise.
            assert!(cosine > 0.98 || name.ends_with("k_proj.bias"), "{name}: {cosine}");
        }
    }
}

/// To the bit, since what is computed is the same.
#[test]
fn computed_again_or_later() {
    for config in [llama(), gpt2(), uneven()] {
        for base in [layout(1, false), layout(2, false), layout(2, true), layout(4, true)] {
            let want = run(&config, base);
            for recompute in [Recompute::Nothing, Recompute::Attention, Recompute::Blocks] {
                for defers in [false, true] {
                    let varied = Layout { recompute, defers, ..base };
                    let is = run(&config, varied);
                    assert_eq!(is.loss, want.loss, "{varied:?}");
                    assert_close(&want.gradients, &is.gradients, 0.0, &format!("{varied:?}"));
                }
            }
        }
    }
}
