//! AdamW: Adam with weight decay that is not a part of the gradient (Loshchilov & Hutter, ICLR 2019).

use super::kernel::{Real, Slices, Stretched, Update};
use super::update::Rule;

/// AdamW's constants.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct AdamW {
    /// How much of the mean gradient is kept from step to step.
    pub beta1: f64,
    /// How much of the mean squared gradient is kept.
    pub beta2: f64,
    /// Added to the root of the mean square, so that it is no division by zero.
    pub epsilon: f64,
    /// How strongly values are drawn to zero, where no group says otherwise.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> AdamW {
        AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 }
    }
}

impl Rule for AdamW {
    fn moments(&self) -> &'static [&'static str] {
        &["first_moment", "second_moment"]
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

impl AdamW {
    fn run<T: Real>(&self, stretched: Stretched<'_, T>, update: &Update) {
        let Ok([first, second]) = <[&mut [T]; 2]>::try_from(stretched.moments) else {
            unreachable!("the optimizer gives as many moments as are named")
        };
        // Powers and their differences from 1 lose too much in single precision.
        let correction = |beta: f64| 1.0 - beta.powf(update.step as f64);
        let (one, two) = (correction(self.beta1), correction(self.beta2));
        let (keep1, take1) = (T::of(self.beta1), T::of(1.0 - self.beta1));
        let (keep2, take2) = (T::of(self.beta2), T::of(1.0 - self.beta2));
        let (rate, decay) =
            (T::of(update.learning_rate / one), T::of(1.0 - update.learning_rate * update.weight_decay));
        let (root, epsilon, factor) = (T::of(1.0 / two.sqrt()), T::of(self.epsilon), T::of(update.gradient_factor));
        let moments = first.iter_mut().zip(second.iter_mut());
        for ((value, gradient), (first, second)) in stretched.values.iter_mut().zip(stretched.gradients).zip(moments) {
            let gradient = *gradient * factor;
            *first = keep1 * *first + take1 * gradient;
            *second = keep2 * *second + take2 * gradient * gradient;
            *value = decay * *value - rate * *first / (second.root() * root + epsilon);
        }
    }
}
