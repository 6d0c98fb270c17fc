//! What computations and transfers cost.

use crate::pipeline::action::{Action, Kind, Step};

/// What one stage's computations cost, in any unit of time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StageCost {
    /// A forward.
    pub forward: f64,
    /// A whole backward.
    pub backward: f64,
    /// The gradient of the input.
    pub input: f64,
    /// The gradient of the weights.
    pub weight: f64,
}

impl StageCost {
    /// A forward and each half of the backward take 1, the whole backward 2.
    pub const UNIT: StageCost = StageCost { forward: 1.0, backward: 2.0, input: 1.0, weight: 1.0 };

    /// The same times a factor.
    #[must_use]
    pub fn times(self, factor: f64) -> StageCost {
        let StageCost { forward, backward, input, weight } = self;
        StageCost {
            forward: factor * forward,
            backward: factor * backward,
            input: factor * input,
            weight: factor * weight,
        }
    }

    fn of(&self, kind: Kind) -> f64 {
        match kind {
            Kind::Forward => self.forward,
            Kind::Backward => self.backward,
            Kind::Input => self.input,
            Kind::Weight => self.weight,
        }
    }
}

/// How long a forward and a backward take together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Overlap {
    /// As long as one after the other.
    Sum,
    /// As long as the longer of them.
    Longer,
    /// That long.
    Time(f64),
}

/// What a schedule is priced with.
#[derive(Clone, PartialEq, Debug)]
pub struct Costs {
    /// Each stage's computations.
    pub stages: Vec<StageCost>,
    /// From the end of a computation to the start of what waits for it on another rank. Ranks compute meanwhile.
    pub send: f64,
    /// Overlapped pairs.
    pub overlap: Overlap,
}

impl Costs {
    /// Stages of [`StageCost::UNIT`], sends that take no time, pairs as long as their parts.
    #[must_use]
    pub fn even(n_stages: u32) -> Costs {
        Costs { stages: vec![StageCost::UNIT; n_stages as usize], send: 0.0, overlap: Overlap::Sum }
    }

    /// The same with another cost, for every stage.
    #[must_use]
    pub fn each(self, cost: StageCost) -> Costs {
        Costs { stages: vec![cost; self.stages.len()], ..self }
    }

    /// How long a step takes.
    pub(crate) fn of(&self, step: Step) -> f64 {
        let one = |action: Action| self.stages[action.stage as usize].of(action.kind);
        match step {
            Step::One(action) => one(action),
            Step::Both { forward, backward } => match self.overlap {
                Overlap::Sum => one(forward) + one(backward),
                Overlap::Longer => one(forward).max(one(backward)),
                Overlap::Time(time) => time,
            },
        }
    }

    /// Why these can't be the costs of a model of so many stages.
    pub(super) fn fault(&self, n_stages: u32) -> Option<String> {
        if self.stages.len() != n_stages as usize {
            return Some(format!("there are costs for {} stages, but the schedule has {n_stages}", self.stages.len()));
        }
        let is_time = |time: f64| time.is_finite() && time >= 0.0;
        for (stage, cost) in self.stages.iter().enumerate() {
            if let Some(kind) = Kind::ALL.into_iter().find(|&kind| !is_time(cost.of(kind))) {
                return Some(format!("stage {stage}: {kind:?} costs {}, which is no time", cost.of(kind)));
            }
        }
        match self.overlap {
            Overlap::Time(time) if !is_time(time) => Some(format!("a pair costs {time}, which is no time")),
            _ if !is_time(self.send) => Some(format!("a send costs {}, which is no time", self.send)),
            _ => None,
        }
    }
}
