//! Makes the parameters of a model, in the order in which it is built, which is the same on every rank.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use candle_core::DType;

use super::{Init, Parameter, Part};
use crate::error::{Error, Result};
use crate::mesh::Axis;
use crate::random::Stream;
use crate::value::{Kind, Spread};

/// What all parameters of a model have in common.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ParameterOptions {
    /// Where initial values come from.
    pub seed: u64,
    /// The type in which they are computed with.
    pub dtype: DType,
}

impl Default for ParameterOptions {
    fn default() -> ParameterOptions {
        ParameterOptions { seed: 0, dtype: DType::F32 }
    }
}

/// A place in a model's tree of names, where parameters can be made. Copies and sub-trees share one list.
#[derive(Clone)]
pub struct Builder {
    made: Arc<Mutex<Made>>,
    options: ParameterOptions,
    path: String,
    around: Spread,
}

#[derive(Default)]
struct Made {
    names: BTreeSet<String>,
    parameters: Vec<Parameter>,
}

impl Builder {
    /// The root of a model.
    #[must_use]
    pub fn new(options: ParameterOptions) -> Builder {
        Builder { made: Arc::default(), options, path: String::new(), around: Spread::invariant() }
    }

    /// A place below this one.
    #[must_use]
    pub fn at(&self, name: impl std::fmt::Display) -> Builder {
        let path = if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) };
        Builder { path, ..self.clone() }
    }

    /// This place, where parameters are of this kind along an axis if nothing else is said of them: varying along `pp`, say, in
    /// a stage of a pipeline.
    #[must_use]
    pub fn within(&self, axis: Axis, kind: Kind) -> Builder {
        Builder { around: self.around.clone().with(axis, kind), ..self.clone() }
    }

    /// The type in which parameters are computed with.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.options.dtype
    }

    /// Random numbers for what stands at this place, such as dropout.
    #[must_use]
    pub fn stream(&self, purpose: &str) -> Stream {
        Stream::new(self.options.seed, &format!("{} {purpose}", self.path))
    }

    /// Makes a parameter.
    ///
    /// # Errors
    /// There is one of that name.
    pub fn parameter(&self, name: &str, part: Part, spread: Spread, init: Init) -> Result<Parameter> {
        let name = self.at(name).path;
        let value = init.tensor(&part, Stream::new(self.options.seed, &name), self.options.dtype)?;
        let around = self.around.iter().filter(|(axis, _)| spread.along(*axis) == Kind::Invariant).collect::<Vec<_>>();
        let spread = around.into_iter().fold(spread, |spread, (axis, kind)| spread.with(axis, kind));
        let parameter = Parameter::new(name.clone(), part, spread, &value)?;
        let mut made = self.made.lock().expect("no panic while held");
        if !made.names.insert(name.clone()) {
            return Err(Error::invalid(format!("there are two parameters called {name}")));
        }
        made.parameters.push(parameter.clone());
        Ok(parameter)
    }

    /// The parameter of that name below this place, if it has been made.
    #[must_use]
    pub fn made(&self, name: &str) -> Option<Parameter> {
        let name = self.at(name).path;
        self.parameters().into_iter().find(|parameter| parameter.name() == name)
    }

    /// All parameters that were made so far, below any place.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        self.made.lock().expect("no panic while held").parameters.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_as_the_whole_does() {
        let whole = Builder::new(ParameterOptions { seed: 3, dtype: DType::F64 });
        let normal = Init::Normal { std: 0.5 };
        let all = whole.at("a").parameter("w", Part::all(&[5, 3]), Spread::invariant(), normal).unwrap();
        let all = all.value().unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
        for piece in 0..2 {
            let cut = Builder::new(ParameterOptions { seed: 3, dtype: DType::F64 });
            let part = Part::all(&[5, 3]).piece(0, piece, 2);
            let made = cut.at("a").parameter("w", part.clone(), Spread::invariant(), normal).unwrap();
            let made = made.value().unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
            for (number, index) in made.iter().zip(part.indices()) {
                assert_eq!(*number, index.map_or(0.0, |index| all[index as usize]));
            }
        }
    }

    #[test]
    fn names_are_unique_and_the_order_is_that_of_building() {
        let root = Builder::new(ParameterOptions::default());
        for name in ["z", "a", "m"] {
            root.at("layers").at(0).parameter(name, Part::all(&[1]), Spread::invariant(), Init::Ones).unwrap();
        }
        let names: Vec<String> = root.parameters().iter().map(|parameter| parameter.name().to_owned()).collect();
        assert_eq!(names, ["layers.0.z", "layers.0.a", "layers.0.m"]);
        let again = root.at("layers.0").parameter("a", Part::all(&[1]), Spread::invariant(), Init::Ones);
        assert!(again.is_err_and(|error| error.to_string().contains("layers.0.a")));
    }
}
