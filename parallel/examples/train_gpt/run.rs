//! What one rank does: trains, validates, saves.

use std::time::{Duration, Instant};

use paceline_comm::Communicator;
use paceline_parallel::checkpoint::{Checkpoint, Progress, Saver, SaverOptions};
use paceline_parallel::data::Overlap;
use paceline_parallel::mesh::{Axis, Mesh, MeshOptions};
use paceline_parallel::nn::GptConfig;
use paceline_parallel::optimizer::{Outcome, Schedule};
use paceline_parallel::samples::{Order, Sampler, Shuffle};
use paceline_parallel::train::Trainer;
use serde_json::json;

use crate::Failure;
use crate::curve::{self, Row, Rows};
use crate::options::Options;
use crate::plan::{Plan, optimizer};
use crate::report::{Report, number, percent, table};
use crate::speed::{Peak, operations_per_token};
use crate::text::Text;

/// The name of the counter of steps in a checkpoint.
const STEPS: &str = "steps";

/// One rank's training.
struct Run<'o> {
    options: &'o Options,
    text: Text,
    model: GptConfig,
    learning_rate: Schedule,
    trainer: Trainer,
    sampler: Sampler,
    saver: Option<Saver>,
    /// Steps that are done, those included that were skipped.
    step: u64,
    /// Samples in a micro-batch.
    samples: usize,
    /// Along the data axes, where this rank is, and how many there are.
    place: [usize; 2],
}

/// Trains as one rank of `comm`.
pub fn run(comm: Communicator, plan: Plan, options: &Options) -> Result<(), Failure> {
    let Plan { layout, trainer, text, samples, resume } = plan;
    let mesh = Mesh::new(comm, layout, MeshOptions::default())?;
    let (model, learning_rate) = (trainer.model.clone(), trainer.learning_rate.clone());
    let peak = Peak::find(options.peak_flops, trainer.parameters.dtype, &mesh)?;
    let data = [Axis::Dp, Axis::Fsdp];
    let place = [mesh.layout().place(mesh.rank(), &data), mesh.layout().size_of(&data)];
    let sampler = Sampler::new(Order::new(text.samples(), options.seed, Shuffle::EachEpoch)?, 0);
    let saver = options.checkpoint.as_ref().map(|directory| Saver::new(&mesh, directory, SaverOptions::default()));
    let saver = saver.transpose()?;
    let trainer = Trainer::new(mesh, trainer, optimizer(options))?;
    let mut run = Run { options, text, model, learning_rate, trainer, sampler, saver, step: 0, samples, place };
    if let Some(checkpoint) = &resume {
        run.resume(checkpoint)?;
    }
    run.train(&peak)
}

impl Run<'_> {
    fn resume(&mut self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let place = checkpoint.path().display().to_string();
        let (saved, same) = (&checkpoint.progress().user, self.identity());
        for what in ["text", "model", "seed"] {
            if saved[what] != same[what] {
                let (is, was) = (&same[what], &saved[what]);
                return Err(format!("{place} is of another run: its {what} is {was}, and this one's {is}").into());
            }
        }
        let progress = self.trainer.load(checkpoint)?;
        let sampler = progress.sampler.filter(|sampler| sampler.order() == self.sampler.order());
        self.sampler = sampler.ok_or_else(|| format!("{place} has another order of samples (--length)"))?;
        self.step = progress.counters.get(STEPS).copied().unwrap_or(progress.schedule_step);
        Ok(())
    }

    /// What must be the same in a run that goes on.
    fn identity(&self) -> serde_json::Value {
        json!({ "text": self.text.fingerprint(), "model": self.model, "seed": self.options.seed })
    }

    fn save(&mut self) -> Result<(), Failure> {
        let user = self.identity();
        let Some(saver) = &mut self.saver else { return Ok(()) };
        let counters = [(STEPS.to_owned(), self.step)].into();
        let progress = Progress { sampler: Some(self.sampler), counters, user, ..self.trainer.progress() };
        Ok(saver.save(self.trainer.ownership(), self.trainer.state(), &progress)?)
    }

    fn train(&mut self, peak: &Peak) -> Result<(), Failure> {
        let Options { steps, length, every, .. } = *self.options;
        let is_first = self.trainer.mesh().rank() == 0;
        let operations = operations_per_token(&self.model, self.trainer.ownership().elements(), length);
        let report = Report::new(is_first && !self.options.quiet, self.step, steps);
        let file = self.options.csv.as_deref().filter(|_| is_first);
        let mut rows = Rows::new(file, self.step)?;
        let (begun_at, mut busy, mut tokens) = (self.step, Duration::ZERO, 0);
        let sent_before = self.sent();
        while self.step < steps {
            let (sent, learning_rate) = (self.sent(), self.learning_rate.at(self.trainer.steps()));
            let begun = Instant::now();
            let done = self.one_step()?;
            let took = begun.elapsed();
            (busy, tokens) = (busy + took, tokens + done.tokens);
            let is_last = self.step == steps;
            let is_due = is_last || self.step.is_multiple_of(every);
            let validation = if is_due { Some(self.validate()?) } else { None };
            let per_second = done.tokens as f64 / took.as_secs_f64();
            let row = Row {
                step: self.step,
                loss: done.loss,
                norm: done.norm,
                learning_rate,
                tokens_per_second: per_second,
                mfu: per_second * operations / peak.flops,
                hidden: self.hidden_since(&sent),
                validation,
            };
            if is_first {
                report.step(&row, is_last);
                rows.push(row)?;
            }
            if is_due {
                self.save()?;
            }
        }
        let saved = self.saver.as_mut().map(Saver::wait).transpose()?.flatten();
        report.finish();
        if !is_first {
            return Ok(());
        }
        let per_second = tokens as f64 / busy.as_secs_f64().max(f64::MIN_POSITIVE);
        let last = rows.rows.last();
        let loss = |loss: Option<f64>| loss.map_or("-".to_owned(), |loss| format!("{loss:.4} nats per byte"));
        let hidden = self.hidden_since(&sent_before);
        let mut summary = vec![
            ("layout", self.trainer.mesh().layout().to_string()),
            ("ranks", self.trainer.mesh().world().size().to_string()),
            ("parameters", self.trainer.ownership().elements().to_string()),
            ("steps", format!("{begun_at} to {}, of {}", self.step, self.options.batch * length) + " tokens"),
            ("loss", loss(last.map(|row| row.loss))),
            ("validation loss", loss(last.and_then(|row| row.validation))),
            ("training", format!("{:.1} s, {} tokens/s", busy.as_secs_f64(), number(per_second))),
            ("MFU", format!("{} of {}FLOP/s", percent(Some(per_second * operations / peak.flops)), number(peak.flops))),
            ("peak", peak.source.clone()),
            ("sending hidden", percent(hidden)),
        ];
        if let Some(saved) = saved {
            summary.push(("checkpoint", saved.path.display().to_string()));
        }
        if let Some(file) = &self.options.svg {
            let mut runs = vec![(self.trainer.mesh().layout().to_string(), rows.rows)];
            for other in &self.options.compare {
                let name = other.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
                runs.push((name, curve::read(other)?));
            }
            curve::draw(file, &runs).map_err(|error| format!("--svg {}: {error}", file.display()))?;
            summary.push(("losses", file.display().to_string()));
        }
        table(&summary);
        Ok(())
    }

    fn one_step(&mut self) -> Result<Done, Failure> {
        let [place, places] = self.place;
        let batch = self.sampler.next_batch(self.options.batch as u64);
        let micro_batches = batch.micro_batches(place, places, self.samples)?;
        let batches = micro_batches.iter().map(|samples| self.text.batch(self.step, samples));
        let report = self.trainer.step(batches.collect::<Result<_, _>>()?)?;
        self.step += 1;
        let norm = match report.outcome {
            Outcome::Updated { norm } => norm,
            Outcome::Skipped => None,
        };
        Ok(Done { loss: report.loss, tokens: report.tokens, norm })
    }

    fn validate(&self) -> Result<f64, Failure> {
        let [place, places] = self.place;
        Ok(self.trainer.evaluate(self.text.validation(place, places, self.samples)?)?.loss)
    }

    fn sent(&self) -> Overlap {
        self.trainer.state().sending().unwrap_or_default()
    }

    /// The share of what was sent since then during which this rank computed; none if nothing was.
    fn hidden_since(&self, earlier: &Overlap) -> Option<f64> {
        let sent = self.sent().since(earlier);
        (sent.started > 0).then(|| sent.hidden_share())
    }
}

/// What a step came to.
struct Done {
    loss: f64,
    tokens: u64,
    norm: Option<f64>,
}
