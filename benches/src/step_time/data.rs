//! Steps of one process, of DDP and of ZeRO-3, in turns.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_core::Tensor;
use paceline_comm::{Communicator, ReduceOp};
use paceline_parallel::data::{Overlap, Replicated, ReplicatedOptions};
use paceline_parallel::mesh::{Axis, Mesh, MeshOptions};
use paceline_parallel::optimizer::{AdamW, Optimizer, Step};
use paceline_parallel::sharded::{Reshard, Sharded, ShardedOptions, layer_of, units_by};
use paceline_parallel::state::{Local, State};
use paceline_parallel::value::Value;

use super::model::{Chain, input};
use super::{RANKS, Sizes, bind};

/// Steps before the first round: buckets are filled anew after the first one.
const WARM_UP: usize = 3;

/// Anything that goes wrong.
type Fault = Box<dyn std::error::Error>;

/// A model with a state of its own.
struct Trained {
    model: Chain,
    state: Arc<dyn State>,
    optimizer: Optimizer,
    /// What sums of gradients are divided by.
    divisor: f64,
}

/// How long the parts of a step took.
struct Took {
    forward: Duration,
    backward: Duration,
    all: Duration,
}

impl Trained {
    fn new(model: Chain, state: Arc<dyn State>, divisor: f64) -> Trained {
        Trained { model, state, optimizer: Optimizer::new(AdamW::default()), divisor }
    }

    fn step(&mut self, input: &Tensor) -> Result<Took, Fault> {
        let begun = Instant::now();
        self.state.last_micro_batch();
        let loss = self.model.forward(&Value::invariant(input.clone()))?.into_tensor();
        let forward = begun.elapsed();
        loss.backward()?;
        let backward = begun.elapsed() - forward;
        self.state.finish_gradients()?;
        let step = Step { learning_rate: 1e-5, divisor: self.divisor, clip_factor: 1.0 };
        self.optimizer.step(self.state.as_ref(), &step)?;
        self.state.publish()?;
        Ok(Took { forward, backward, all: begun.elapsed() })
    }
}

/// The same model four times, and what the ranks' gradients are made of.
struct Rank {
    mesh: Mesh,
    input: Tensor,
    alone: Trained,
    replicated: Arc<Replicated>,
    ddp: Trained,
    /// Letting values go after the forward pass, and keeping them.
    zero3: Vec<Trained>,
    /// Elements of each bucket.
    buckets: Vec<usize>,
}

/// Measures; rank 0 prints.
pub(super) fn measure(comm: Communicator, sizes: &Sizes, with_zero3: bool) -> Result<(), Fault> {
    let mut rank = Rank::new(comm, sizes, with_zero3)?;
    for _ in 0..WARM_UP {
        rank.round()?;
    }
    if sizes.bind {
        bind(rank.mesh.rank())?;
    }
    for _ in 0..sizes.rounds {
        let mut row = rank.round()?;
        rank.mesh.world().all_reduce_in_place(&mut row, ReduceOp::Max)?;
        if rank.mesh.rank() == 0 {
            row.iter().for_each(|number| println!("time {number:.4}"));
        }
    }
    rank.check()
}

impl Rank {
    fn new(comm: Communicator, sizes: &Sizes, with_zero3: bool) -> Result<Rank, Fault> {
        let mesh = Mesh::new(comm, format!("dp={RANKS}").parse()?, MeshOptions::default())?;
        let tokens = f64::from(sizes.tokens);
        let everyone = tokens * RANKS as f64;
        let model = Chain::whole(sizes)?;
        let local = Arc::new(Local::new(model.parameters().to_vec())?);
        let alone = Trained::new(model, local, tokens);
        let model = Chain::whole(sizes)?;
        let (bucket_bytes, first_bucket_bytes) = (sizes.bucket_bytes(), sizes.bucket_bytes());
        let options = ReplicatedOptions { bucket_bytes, first_bucket_bytes, ..ReplicatedOptions::default() };
        let replicated = Arc::new(Replicated::new(model.parameters().to_vec(), &mesh, options)?);
        let ddp = Trained::new(model, replicated.clone(), everyone);
        let ways = if with_zero3 { &[Reshard::AfterForward, Reshard::AfterBackward][..] } else { &[] };
        let zero3 = |reshard: &Reshard| -> Result<Trained, Fault> {
            let model = Chain::whole(sizes)?;
            let (shard_axes, replicate_axes, reshard) = (vec![Axis::Dp], Vec::new(), *reshard);
            let options = ShardedOptions { shard_axes, replicate_axes, reshard, ..ShardedOptions::default() };
            let state = Arc::new(Sharded::new(units_by(model.parameters(), layer_of), &mesh, options)?);
            Ok(Trained::new(model, state, everyone))
        };
        let zero3 = ways.iter().map(zero3).collect::<Result<_, _>>()?;
        let input = input(sizes)?;
        Ok(Rank { mesh, input, alone, replicated, ddp, zero3, buckets: Vec::new() })
    }

    /// One of each, in microseconds, in the order of [`columns`](super::columns).
    fn round(&mut self) -> Result<Vec<f64>, Fault> {
        self.buckets = self.bucket_lens();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        self.mesh.world().barrier()?;
        let alone = self.alone.step(&self.input)?;
        let communication = self.communication()?;
        let copy = self.copy()?;
        self.mesh.world().barrier()?;
        let before = self.replicated.overlap();
        let ddp = self.ddp.step(&self.input)?;
        let Overlap { hidden, waited, .. } = self.replicated.overlap();
        let since = Overlap { hidden: hidden - before.hidden, waited: waited - before.waited, ..Overlap::default() };
        let exposed = 1.0 - since.hidden_share();
        let times =
            [alone.all, alone.forward, alone.backward, communication, copy, ddp.all, ddp.backward, since.waited];
        let mut row: Vec<f64> = times.into_iter().map(us).collect();
        row.extend([exposed, self.buckets.len() as f64]);
        for zero3 in &mut self.zero3 {
            self.mesh.world().barrier()?;
            row.push(us(zero3.step(&self.input)?.all));
        }
        Ok(row)
    }

    fn bucket_lens(&self) -> Vec<usize> {
        let parameters = self.ddp.model.parameters();
        let len = |name: &String| {
            parameters.iter().find(|parameter| parameter.name() == name).map_or(0, |parameter| parameter.part().len())
        };
        self.replicated.buckets().iter().map(|names| names.iter().map(len).sum()).collect()
    }

    /// The same buckets, added with nothing to compute.
    fn communication(&self) -> Result<Duration, Fault> {
        let comm = self.mesh.group(&[Axis::Dp])?;
        let buckets: Vec<Vec<f32>> = self.buckets.iter().map(|len| vec![1.0; *len]).collect();
        self.mesh.world().barrier()?;
        let begun = Instant::now();
        let started = buckets.into_iter().map(|bucket| comm.start_all_reduce(bucket, ReduceOp::Sum));
        let started = started.collect::<Result<Vec<_>, _>>()?;
        let sums = started.into_iter().map(|work| work.wait()).collect::<Result<Vec<_>, _>>()?;
        let took = begun.elapsed();
        match sums.iter().flatten().find(|sum| **sum != RANKS as f32) {
            None => Ok(took),
            Some(wrong) => Err(format!("a wrong sum: {wrong}, not {RANKS}").into()),
        }
    }

    /// The gradients' bytes, copied once by both ranks at once.
    fn copy(&self) -> Result<Duration, Fault> {
        let len = self.buckets.iter().sum();
        let (source, mut target) = (vec![1f32; len], vec![0f32; len]);
        self.mesh.world().barrier()?;
        let begun = Instant::now();
        black_box(&mut target).copy_from_slice(black_box(&source));
        Ok(begun.elapsed())
    }

    /// All ranks have had the same samples and divided by their number: every state must be what one process has.
    fn check(&self) -> Result<(), Fault> {
        for trained in std::iter::once(&self.ddp).chain(&self.zero3) {
            for (one, other) in self.alone.model.parameters().iter().zip(trained.model.parameters()) {
                let values = |tensor: Tensor| tensor.flatten_all()?.to_vec1::<f32>();
                if values(one.value()?)? != values(other.value()?)? {
                    return Err(format!("{} is not what one process has", one.name()).into());
                }
            }
        }
        Ok(())
    }
}
