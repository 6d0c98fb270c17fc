//! A small model, spread in any way, and a state that cuts flat vectors over ranks: what optimizers and checkpoints see.
//!
//! Gradients aren't computed but are numbers that belong to logical elements, so that every layout must do the same.

#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::{Arc, Mutex};

use candle_core::{DType, Tensor};
use paceline_comm::Communicator;
use paceline_parallel::Result;
use paceline_parallel::mesh::{Axis, Mesh, MeshOptions};
use paceline_parallel::parameter::{Builder, Init, Parameter, ParameterOptions, Part};
use paceline_parallel::random::Stream;
use paceline_parallel::state::{Numbers, Segment, Shard, State};
use paceline_parallel::value::{Kind, Spread};

pub const LAYERS: usize = 4;
/// Elements of the model below, by hand: a tied embedding, and layers of a matrix, a norm, a vector, experts, few heads.
pub const ELEMENTS: usize = 7 * 4 + LAYERS * (4 * 6 + 4 + 6 + 5 * 3 + 2 * 3);

/// Layouts, and the axes along which the state is cut there: of 6 elements on 4 ranks, of rows that can't be divided, of
/// parts that are padding altogether.
pub const LAYOUTS: [(&str, &[Axis]); 10] = [
    ("", &[]),
    ("dp=3", &[]),
    ("fsdp=4", &[Axis::Fsdp]),
    ("tp=4", &[]),
    ("pp=4", &[]),
    ("dp=2,fsdp=3", &[Axis::Fsdp]),
    ("pp=2,dp=2,tp=2", &[Axis::Dp]),
    ("dp=2,ep=2,tp=2", &[Axis::Dp, Axis::Ep]),
    ("tp=2,pp=2,fsdp=2", &[Axis::Fsdp]),
    ("ep=4", &[]),
];

/// Runs ranks as threads; what each gives.
pub fn on_ranks<T: Send>(layout: &str, run: impl Fn(&Mesh) -> T + Sync) -> Vec<T> {
    let layout: paceline_parallel::mesh::Layout = layout.parse().unwrap();
    let comms = Communicator::in_process(layout.ranks()).unwrap();
    std::thread::scope(|scope| {
        let start = |comm| {
            let (layout, run) = (layout.clone(), &run);
            scope.spawn(move || run(&Mesh::new(comm, layout, MeshOptions::default()).unwrap()))
        };
        let threads: Vec<_> = comms.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// This rank's parameters.
pub fn model(mesh: &Mesh, dtype: DType) -> Vec<Parameter> {
    let (tp, t) = (mesh.size(Axis::Tp), mesh.coordinate(Axis::Tp));
    let (ep, e) = (mesh.size(Axis::Ep), mesh.coordinate(Axis::Ep));
    let (pp, p) = (mesh.size(Axis::Pp), mesh.coordinate(Axis::Pp));
    let root = Builder::new(ParameterOptions { seed: 5, dtype });
    let normal = Init::Normal { std: 1.0 };
    let cut = Spread::invariant().with(Axis::Tp, Kind::Varying);
    if p == 0 || p == pp - 1 {
        let tied = cut.clone().with(Axis::Pp, Kind::Replicated);
        root.parameter("embedding", Part::all(&[7, 4]).piece(0, t, tp), tied, normal).unwrap();
    }
    for layer in (0..LAYERS).filter(|layer| layer * pp / LAYERS == p) {
        let place = root.at("layers").at(layer).within(Axis::Pp, Kind::Varying);
        place.parameter("up", Part::all(&[4, 6]).piece(1, t, tp), cut.clone(), normal).unwrap();
        let replicated = Spread::invariant().with(Axis::Tp, Kind::Replicated);
        place.parameter("norm", Part::all(&[4]), replicated, normal).unwrap();
        place.parameter("small", Part::all(&[6]), Spread::invariant(), normal).unwrap();
        let of_expert = Spread::invariant().with(Axis::Ep, Kind::Varying);
        place.parameter("experts", Part::all(&[5, 3]).piece(0, e, ep), of_expert, normal).unwrap();
        // Two heads on up to four ranks: several have the same one.
        let pieces = tp.min(2);
        let heads = Part::all(&[2, 3]).piece(0, t * pieces / tp, pieces);
        place.parameter("heads", heads, cut.clone(), normal).unwrap();
    }
    root.parameters()
}

/// A state of flat vectors, each cut evenly over the ranks along some axes, on which the parameters in it don't vary anyway.
pub struct Cut {
    parameters: Vec<Parameter>,
    along: Vec<Axis>,
    buckets: Vec<Bucket>,
}

struct Bucket {
    group: Arc<Communicator>,
    /// The parameters, and where each begins in the vector.
    places: Vec<(Parameter, usize)>,
    shard: Mutex<Shard>,
}

impl Cut {
    pub fn new(mesh: &Mesh, parameters: Vec<Parameter>, along: &[Axis]) -> Cut {
        let bucket = |(parameters, along): (&[Parameter], &[Axis])| {
            let group = mesh.group(along).unwrap();
            let whole = Shard::of(parameters).unwrap();
            let places =
                whole.segments.iter().map(|segment| (segment.parameter.clone(), segment.range.start)).collect();
            let len = whole.values.len().div_ceil(group.size());
            let (begin, end) = (group.rank() * len, (group.rank() + 1) * len);
            let mut values = whole.values.zeros_alike();
            values = resized(&values, len);
            for at in begin..end.min(whole.values.len()) {
                put(&mut values, at - begin, whole.values.get(at));
            }
            let segment = |segment: &Segment| {
                let range = segment.range.start.max(begin)..segment.range.end.min(end);
                (range.start < range.end).then(|| Segment {
                    first: range.start - segment.range.start,
                    range: range.start - begin..range.end - begin,
                    ..segment.clone()
                })
            };
            let segments = whole.segments.iter().filter_map(segment).collect();
            let gradients = values.zeros_alike();
            Bucket {
                group,
                places,
                shard: Mutex::new(Shard { segments, values, gradients, moments: Default::default() }),
            }
        };
        let axes_of = |parameter: &Parameter| -> Vec<Axis> {
            along.iter().copied().filter(|axis| parameter.spread().along(*axis) != Kind::Varying).collect()
        };
        let (experts, others): (Vec<_>, Vec<_>) =
            parameters.iter().cloned().partition(|parameter| axes_of(parameter).len() < along.len());
        // Buckets of several sizes, so that cuts fall anywhere, and elsewhere in a tensor that two stages have.
        let (head, tail) = others.split_at(others.len().min(3 - mesh.coordinate(Axis::Pp) % 2));
        let of_experts: Vec<Axis> = along.iter().copied().filter(|axis| *axis != Axis::Ep).collect();
        let buckets = [(head, along), (tail, along), (&experts, &of_experts)];
        let buckets = buckets.into_iter().filter(|(some, _)| !some.is_empty()).map(bucket).collect();
        Cut { buckets, parameters, along: along.to_vec() }
    }
}

impl State for Cut {
    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn last_micro_batch(&self) {}

    fn finish_gradients(&self) -> Result<()> {
        Ok(())
    }

    fn visit(&self, each: &mut dyn FnMut(&mut Shard) -> Result<()>) -> Result<()> {
        self.buckets.iter().try_for_each(|bucket| each(&mut bucket.shard.lock().unwrap()))
    }

    fn distinct_along(&self) -> Vec<Axis> {
        self.along.clone()
    }

    fn publish(&self) -> Result<()> {
        for bucket in &self.buckets {
            let mut shard = bucket.shard.lock().unwrap();
            shard.forget_gradients();
            let mine: Vec<f64> = (0..shard.values.len()).map(|at| shard.values.get(at)).collect();
            let mut all = vec![0.0; mine.len() * bucket.group.size()];
            bucket.group.all_gather(&mine, &mut all).unwrap();
            for (parameter, begin) in &bucket.places {
                let numbers = all[*begin..begin + parameter.part().len()].to_vec();
                let value = Tensor::from_vec(numbers, parameter.part().shape(), &candle_core::Device::Cpu)?;
                parameter.set(&value.to_dtype(parameter.dtype())?)?;
            }
        }
        Ok(())
    }
}

fn resized(numbers: &Numbers, len: usize) -> Numbers {
    Numbers::zeros(numbers.dtype(), len)
}

pub fn put(numbers: &mut Numbers, at: usize, number: f64) {
    match numbers {
        Numbers::F32(numbers) => numbers[at] = number as f32,
        Numbers::F64(numbers) => numbers[at] = number,
    }
}

/// Gives each logical element its gradient of a step; padding has none.
pub fn set_gradients(state: &dyn State, step: u64) {
    let set = &mut |shard: &mut Shard| {
        for segment in &mut shard.segments {
            segment.has_gradient = true;
            let (parameter, first) = (&segment.parameter, segment.first);
            let stream = Stream::new(9, parameter.name()).at(step);
            for (place, at) in segment.range.clone().enumerate() {
                let number = parameter.part().index(first + place).map_or(0.0, |index| stream.normal(index));
                put(&mut shard.gradients, at, number);
            }
        }
        Ok(())
    };
    state.visit(set).unwrap();
}

/// Gives all gradients one value: padding within parameters, and between them, too.
pub fn fill_gradients(state: &dyn State, number: f64) {
    let set = &mut |shard: &mut Shard| {
        (0..shard.gradients.len()).for_each(|at| put(&mut shard.gradients, at, number));
        Ok(())
    };
    state.visit(set).unwrap();
}
