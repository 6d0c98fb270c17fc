//! Stochastic gradient descent, with momentum or without.

use super::kernel::{Real, Slices, Stretched, Update};
use super::update::Rule;

/// Where the step is taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub enum Momentum {
    /// Along the velocity.
    #[default]
    Heavy,
    /// Along the velocity as it will be one step later (Nesterov).
    Nesterov,
}

/// Its constants.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Sgd {
    /// How much of the velocity is kept from step to step; 0 remembers nothing.
    pub momentum: f64,
    /// Where the step is taken from.
    pub kind: Momentum,
    /// How strongly values are drawn to zero, as a part of the gradient, where no group says otherwise.
    pub weight_decay: f64,
}

impl Rule for Sgd {
    fn moments(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["velocity"] }
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn update(&self, slices: Slices<'_>, update: &Update) {
        match slices {
            Slices::F32(stretched) => self.run(stretched, update),
            Slices::F64(stretched) => self.run(stretched, update),
        }
    }
}

impl Sgd {
    fn run<T: Real>(&self, stretched: Stretched<'_, T>, update: &Update) {
        let (factor, decay) = (T::of(update.gradient_factor), T::of(update.weight_decay));
        let (rate, keep) = (T::of(update.learning_rate), T::of(self.momentum));
        let Stretched { values, gradients, mut moments } = stretched;
        let values = values.iter_mut().zip(gradients);
        let Some(velocities) = moments.pop() else {
            values.for_each(|(value, gradient)| *value = *value - rate * (*gradient * factor + decay * *value));
            return;
        };
        for ((value, gradient), velocity) in values.zip(velocities.iter_mut()) {
            let gradient = *gradient * factor + decay * *value;
            *velocity = keep * *velocity + gradient;
            let along = match self.kind {
                Momentum::Heavy => *velocity,
                Momentum::Nesterov => gradient + keep * *velocity,
            };
            *value = *value - rate * along;
        }
    }
}
