//! Mistakes that are made around the library, where a step is put together by hand: each is an error, or what one process
//! finds out. None passes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use candle_core::DType;
use paceline_parallel::data::{Progress, Replicated, ReplicatedOptions};
use paceline_parallel::mesh::{Axis, Layout, Mesh, MeshOptions};
use paceline_parallel::nn::{self, Gpt, GptConfig};
use paceline_parallel::optimizer::{Clip, Ending, Norm, Optimizer, Outcome, Ownership, Sgd, end_step, gradient_norm};
use paceline_parallel::parameter::{Builder, Parameter, ParameterOptions, Part};
use paceline_parallel::pipeline::{Pipeline, Shape, Stage, Ties, Wire, schedule_row};
use paceline_parallel::precision::{LossScaler, LossScalerOptions};
use paceline_parallel::state::{Local, State};
use paceline_parallel::tensor::TensorParallel;
use paceline_parallel::train::Batch;
use paceline_parallel::value::{Kind, Spread, Value};
use paceline_parallel::{Error, Group, Result};

use crate::common::ranks;
use crate::cut::{self, Cut, on_ranks, set_gradients};
use crate::layouts::{batches, gpt2_tied, llama};

const STEPS: u64 = 3;
const MICRO_BATCHES: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mutant {
    Honest,
    /// Gradients are divided by this rank's tokens.
    OwnTokens,
    /// Gradients are divided by the tokens of all ranks, and by the ranks.
    AveragedTwice,
    /// Losses are means over each micro-batch's tokens, and gradients means of those.
    MeanOfMeans,
    /// One micro-batch's loss is not multiplied by the scaler's scale.
    ScaleDropped,
    /// The parts of a rank's sum that are other ranks' to add, along tp or dp, are left there.
    NotReduced,
    /// Nobody says that two stages have one embedding.
    TiesForgotten,
    /// The copy's gradients stay where they are.
    TiesNotGathered,
    /// The copy keeps its old values.
    TiesNotPublished,
}

struct Layers {
    gpt: Gpt,
    tp: TensorParallel,
    is_last: bool,
    work: Arc<Mutex<Vec<Batch>>>,
    scale: f64,
    mutant: Mutant,
}

impl Layers {
    fn batch(&self, micro_batch: u32) -> Batch {
        self.work.lock().unwrap()[micro_batch as usize].clone()
    }

    fn wire(&self, micro_batch: u32) -> Result<Wire> {
        let placement = self.batch(micro_batch).placement;
        let dims = self.gpt.between_layers(placement.samples.len(), placement.positions.len())?.to_vec();
        Ok(Wire { dims, dtype: DType::F64, spread: self.tp.between_layers() })
    }
}

impl Stage for Layers {
    fn incoming(&self, micro_batch: u32) -> Result<Wire> {
        self.wire(micro_batch)
    }

    fn outgoing(&self, micro_batch: u32) -> Result<Wire> {
        self.wire(micro_batch)
    }

    fn forward(&self, micro_batch: u32, input: Option<&Value>) -> Result<Value> {
        let batch = self.batch(micro_batch);
        let tokens = Value::invariant(batch.tokens.clone());
        let output = self.gpt.forward(input.unwrap_or(&tokens), &batch.placement)?;
        if !self.is_last {
            return Ok(output);
        }
        let factor = match self.mutant {
            Mutant::MeanOfMeans => self.scale / batch.valid_tokens()? as f64,
            Mutant::ScaleDropped if micro_batch + 1 == MICRO_BATCHES => 1.0,
            _ => self.scale,
        };
        self.gpt.loss(&output, &batch.targets)?.sum.scale(factor)
    }
}

/// Norms by step: after the first one they are those of values that gradients have changed.
fn train(mesh: &Mesh, config: &GptConfig, sequence: bool, mutant: Mutant) -> Result<Vec<f64>> {
    let tp = TensorParallel { group: Group::along(mesh, &[Axis::Tp])?, sequence };
    let group = Group::along(mesh, &[Axis::Pp])?;
    let data = Group::along(mesh, &[Axis::Dp])?;
    let (stages, stage) = (group.size(), group.rank());
    let schedule = schedule_row("one_f_one_b").unwrap().schedule(Shape::new(stages as u32, MICRO_BATCHES))?;
    let root = Builder::new(ParameterOptions { seed: 11, dtype: DType::F64 });
    let builder = if stages > 1 { root.within(Axis::Pp, Kind::Varying) } else { root };
    let each = config.layers / stages;
    let (has_embedding, is_last) = (stage == 0, stage + 1 == stages);
    let layers = nn::Stage { layers: stage * each..(stage + 1) * each, has_embedding, has_head: is_last };
    let gpt = Gpt::stage(config.clone(), &layers, &builder, &tp)?;
    let parameters = builder.parameters();
    let (ties, kept) = Ties::agree(&group, &schedule, &BTreeMap::from([(stage as u32, parameters.clone())]))?;
    let kept = if mutant == Mutant::TiesForgotten { parameters } else { kept };
    let state: Box<dyn State> = match mutant {
        Mutant::NotReduced => Box::new(Local::new(kept)?),
        _ => Box::new(Replicated::new(kept, mesh, ReplicatedOptions::default())?),
    };
    let ownership = Ownership::agree(mesh, state.as_ref())?;
    let mut scaler = LossScaler::new(LossScalerOptions { initial: 64.0, ..LossScalerOptions::default() })?;
    let work = Arc::new(Mutex::new(Vec::new()));
    let model = Layers { gpt, tp, is_last, work: work.clone(), scale: scaler.scale(), mutant };
    let pipeline = Pipeline::new(schedule, group, BTreeMap::from([(stage as u32, Arc::new(model) as Arc<dyn Stage>)]))?;
    let (pipeline, apart) = match mutant {
        Mutant::TiesNotGathered => (pipeline, Some(ties)),
        _ => (pipeline.with_ties(ties), None),
    };
    let ties = apart.as_ref().or(pipeline.ties()).expect("they are somewhere");
    let mut optimizer = Optimizer::new(Sgd::default());
    let mut norms = Vec::new();
    for step in 0..STEPS {
        let (place, places) = (data.rank() as u64, data.size() as u64);
        let mine = batches(step, place, places, MICRO_BATCHES.into());
        let own = mine.iter().map(Batch::valid_tokens).sum::<Result<u64>>()?;
        let progress = Progress::agree(&data, MICRO_BATCHES.into(), own)?;
        state.begin_step(&progress)?;
        *work.lock().unwrap() = mine;
        pipeline.run(state.as_ref())?;
        let tokens = match mutant {
            Mutant::OwnTokens => own as f64,
            Mutant::AveragedTwice => progress.tokens() as f64 * places as f64,
            Mutant::MeanOfMeans => (u64::from(MICRO_BATCHES) * places) as f64,
            _ => progress.tokens() as f64,
        };
        let clip = Some(Clip { norm: Norm::L2, max: f64::INFINITY });
        let ending = Ending { learning_rate: 0.5, tokens, clip };
        let scaler = Some(&mut scaler);
        let Outcome::Updated { norm } = end_step(mesh, &ownership, state.as_ref(), &mut optimizer, scaler, &ending)?
        else {
            return Err(Error::invalid("nothing overflows"));
        };
        norms.extend(norm);
        if mutant != Mutant::TiesNotPublished {
            ties.publish()?;
        }
    }
    Ok(norms)
}

/// What each rank comes to.
fn results(layout: &str, config: &GptConfig, sequence: bool, mutant: Mutant) -> Vec<Result<Vec<f64>, String>> {
    let layout: Layout = layout.parse().unwrap();
    ranks(layout.ranks(), |comm| {
        let mesh = Mesh::new(comm, layout.clone(), MeshOptions::default()).unwrap();
        train(&mesh, config, sequence, mutant).map_err(|error| error.to_string())
    })
}

fn apart(want: &[f64], is: &[f64]) -> f64 {
    want.iter().zip(is).map(|(want, is)| (want - is).abs() / want).fold(0.0, f64::max)
}

#[test]
fn none_passes() {
    let (plain, tied) = (llama(), gpt2_tied());
    for (layout, config, sequence, mutants) in [
        ("", &plain, false, &[(Mutant::ScaleDropped, None), (Mutant::MeanOfMeans, None)][..]),
        (
            "dp=2",
            &plain,
            false,
            &[
                (Mutant::OwnTokens, None),
                (Mutant::AveragedTwice, None),
                (Mutant::MeanOfMeans, None),
                (Mutant::ScaleDropped, None),
                (Mutant::NotReduced, None),
            ],
        ),
        ("tp=2", &plain, true, &[(Mutant::NotReduced, None), (Mutant::ScaleDropped, None)]),
        (
            "pp=2",
            &tied,
            false,
            &[
                (Mutant::TiesForgotten, Some("model.embed_tokens.weight is kept by ranks 0 and 1")),
                (Mutant::TiesNotGathered, None),
                (Mutant::TiesNotPublished, None),
            ],
        ),
        (
            "pp=2,dp=2",
            &tied,
            false,
            &[(Mutant::TiesForgotten, Some("is kept by ranks 0 and 2")), (Mutant::AveragedTwice, None)],
        ),
    ] {
        let want = results("", config, false, Mutant::Honest).remove(0).unwrap();
        assert!(want.iter().all(|norm| *norm > 0.1) && want.len() == STEPS as usize, "{want:?}");
        for is in results(layout, config, sequence, Mutant::Honest) {
            let off = apart(&want, &is.unwrap());
            assert!(off < 1e-9, "{layout}: what is right is off by {off:e}");
        }
        for (mutant, said) in mutants {
            for is in results(layout, config, sequence, *mutant) {
                match (said, is) {
                    (None, Ok(is)) => {
                        let off = apart(&want, &is);
                        assert!(off > 1e-3, "{layout}: {mutant:?} passes, it is off by {off:e} only");
                    }
                    (Some(said), Err(error)) => assert!(error.contains(said), "{layout}: {mutant:?}: {error}"),
                    (_, is) => panic!("{layout}: {mutant:?} comes to {is:?}"),
                }
            }
        }
    }
}

/// Squares of all that lies on the ranks, instead of what each owns.
#[test]
fn a_norm_that_counts_duplicates_along_tp() {
    let norms = |layout: &str| {
        let both = on_ranks(layout, |mesh| {
            let state = Cut::new(mesh, cut::model(mesh, DType::F64), &[]);
            let ownership = Ownership::agree(mesh, &state).unwrap();
            set_gradients(&state, 3);
            let mut squares = 0.0;
            let each = &mut |shard: &mut paceline_parallel::state::Shard| {
                squares += (0..shard.gradients.len()).map(|at| shard.gradients.get(at).powi(2)).sum::<f64>();
                Ok(())
            };
            state.visit(each).unwrap();
            (gradient_norm(mesh, &ownership, &state, Norm::L2).unwrap(), squares)
        });
        (both[0].0, both.iter().map(|(_, squares)| squares).sum::<f64>().sqrt())
    };
    let (want, of_all) = norms("");
    assert!((of_all / want - 1.0).abs() < 1e-14);
    for layout in ["tp=2", "tp=4", "dp=2,tp=2"] {
        let (is, of_all) = norms(layout);
        assert!((is / want - 1.0).abs() < 1e-14, "{layout}: {is} instead of {want}");
        assert!(of_all / want > 1.05, "{layout}: duplicates make no difference: {of_all} for {want}");
    }
    // Who says wrongly that each rank has another one is not believed: what counts are the elements.
    on_ranks("tp=2", |mesh| {
        let spread = Spread::invariant().with(Axis::Tp, Kind::Varying);
        let value = candle_core::Tensor::ones(4, DType::F64, &candle_core::Device::Cpu).unwrap();
        let parameter = Parameter::new("norm", Part::all(&[4]), spread, &value).unwrap();
        let state = Cut::new(mesh, vec![parameter], &[]);
        let ownership = Ownership::agree(mesh, &state).unwrap();
        cut::fill_gradients(&state, 1.0);
        assert_eq!(gradient_norm(mesh, &ownership, &state, Norm::L2).unwrap(), 2.0);
    });
}
