//! A parameter, its uses, and who keeps it.

use std::sync::{Arc, Mutex, RwLock, Weak};

use candle_core::{DType, Tensor};

use super::part::Part;
use crate::autograd::weight_gradient;
use crate::error::{Error, Result};
use crate::value::Spread;

/// Who has a parameter's value and wants its gradient. A keeper is told on the thread that runs the pass.
pub trait Keeper: Send + Sync {
    /// The value is about to be used: it must be there ([`Parameter::set`]) when this returns.
    ///
    /// # Errors
    /// It can't be brought.
    fn needed(&self, parameter: &Parameter) -> Result<()> {
        let _ = parameter;
        Ok(())
    }

    /// A use's gradient, of the parameter's local shape.
    ///
    /// # Errors
    /// It can't be taken.
    fn gradient(&self, parameter: &Parameter, gradient: Tensor) -> Result<()>;

    /// All uses so far have given their gradients.
    ///
    /// # Errors
    /// What begins then can't.
    fn complete(&self, parameter: &Parameter) -> Result<()> {
        let _ = parameter;
        Ok(())
    }

    /// The same where the last use was dropped without a gradient: with a graph of which a part led to no loss, or because this
    /// rank gives up in the middle of a step. It mustn't wait for other ranks, which may wait for something that this rank won't
    /// do any more.
    ///
    /// # Errors
    /// What begins then can't.
    fn given_up(&self, parameter: &Parameter) -> Result<()> {
        self.complete(parameter)
    }
}

/// A named part of a logical tensor. Copies are the same parameter.
#[derive(Clone)]
pub struct Parameter(Arc<Inner>);

struct Inner {
    name: String,
    part: Part,
    spread: Spread,
    dtype: DType,
    state: Mutex<State>,
    /// Weak, because keepers know their parameters: what a dropped state has held must go.
    keeper: RwLock<Option<Weak<dyn Keeper>>>,
}

#[derive(Default)]
struct State {
    /// `None` while it is elsewhere.
    value: Option<Tensor>,
    /// The sum of the gradients, where nobody else keeps it.
    gradient: Option<Tensor>,
    /// Uses whose gradient is due.
    open: usize,
    /// Gradients that have been handed over so far.
    given: u64,
}

impl Parameter {
    /// A parameter that keeps its value and the sum of its gradients itself, until somebody else does.
    ///
    /// `spread` says along which axes other ranks have the same part (replicated: their gradients are to be added;
    /// invariant: their gradients are the same) or another one (varying).
    ///
    /// # Errors
    /// The value has another shape than the part.
    pub fn new(name: impl Into<String>, part: Part, spread: Spread, value: &Tensor) -> Result<Parameter> {
        let name = name.into();
        if value.dims() != part.shape() {
            let (is, should) = (value.dims(), part.shape());
            return Err(Error::invalid(format!("{name} is given a value of {is:?}, and is {should:?}")));
        }
        let state = State { value: Some(value.detach()), ..State::default() };
        let (dtype, state, keeper) = (value.dtype(), Mutex::new(state), RwLock::default());
        Ok(Parameter(Arc::new(Inner { name, part, spread, dtype, state, keeper })))
    }

    /// Its name, the same however the model is cut.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Which part of the logical tensor it is.
    #[must_use]
    pub fn part(&self) -> &Part {
        &self.0.part
    }

    /// What other ranks have of it, along each axis.
    #[must_use]
    pub fn spread(&self) -> &Spread {
        &self.0.spread
    }

    /// The type in which it is computed with.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Whether both are the same parameter.
    #[must_use]
    pub fn is(&self, other: &Parameter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whoever is to have its value and gradients from now on. It isn't held here: once it has been dropped, gradients are
    /// errors.
    pub fn keep_by(&self, keeper: &Arc<impl Keeper + 'static>) {
        let keeper = Arc::downgrade(keeper);
        *self.0.keeper.write().expect("no panic while held") = Some(keeper);
    }

    /// A use in a forward pass. If the pass is recorded, the use owes a gradient, until it is dropped.
    #[must_use]
    pub fn used(&self) -> Usage {
        let owes = crate::autograd::is_recording();
        if owes {
            self.state().open += 1;
        }
        Usage { parameter: self.clone(), owes: Mutex::new(owes) }
    }

    /// The value, brought here if it is elsewhere.
    ///
    /// # Errors
    /// It can't be brought.
    pub fn value(&self) -> Result<Tensor> {
        let keeper = self.keeper();
        if let Ok(Some(keeper)) = &keeper {
            keeper.needed(self)?;
        }
        match self.state().value.clone() {
            Some(value) => Ok(value),
            None => Err(match keeper {
                Ok(_) => Error::invalid(format!("{} is not here: nobody has brought it", self.name())),
                Err(gone) => gone,
            }),
        }
    }

    /// The value, if it is here.
    #[must_use]
    pub fn value_here(&self) -> Option<Tensor> {
        self.state().value.clone()
    }

    /// Gives it a value.
    ///
    /// # Errors
    /// The value has another shape or type.
    pub fn set(&self, value: &Tensor) -> Result<()> {
        if value.dims() != self.0.part.shape() || value.dtype() != self.0.dtype {
            let (is, of) = (value.dims(), value.dtype());
            let (should, be) = (self.0.part.shape(), self.0.dtype);
            let name = self.name();
            return Err(Error::invalid(format!(
                "{name} is given a value of {is:?}, {of:?}, and is {should:?}, {be:?}"
            )));
        }
        self.state().value = Some(value.detach());
        Ok(())
    }

    /// Lets the value go: it is elsewhere.
    pub fn release(&self) {
        self.state().value = None;
    }

    /// The sum of the gradients since it was last taken, where nobody else keeps it.
    #[must_use]
    pub fn take_gradient(&self) -> Option<Tensor> {
        self.state().gradient.take()
    }

    /// Uses whose gradient is due.
    #[must_use]
    pub fn open_uses(&self) -> usize {
        self.state().open
    }

    /// How many gradients have been handed over so far, whoever keeps them: one for each use.
    #[must_use]
    pub fn gradients_given(&self) -> u64 {
        self.state().given
    }

    /// Who keeps it, if it doesn't itself; an error once that has been dropped.
    fn keeper(&self) -> Result<Option<Arc<dyn Keeper>>> {
        let keeper = self.0.keeper.read().expect("no panic while held");
        let Some(keeper) = &*keeper else { return Ok(None) };
        let is_gone = || Error::invalid(format!("the state that kept {} has been dropped", self.name()));
        keeper.upgrade().map(Some).ok_or_else(is_gone)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic while held")
    }

    fn take_in(&self, gradient: Tensor) -> Result<()> {
        if gradient.dims() != self.0.part.shape() {
            let (is, should) = (gradient.dims(), self.0.part.shape());
            return Err(Error::invalid(format!("{} is given a gradient of {is:?}, and is {should:?}", self.name())));
        }
        self.state().given += 1;
        if let Some(keeper) = self.keeper()? {
            return keeper.gradient(self, gradient);
        }
        let mut state = self.state();
        state.gradient = Some(match state.gradient.take() {
            Some(sum) => (sum + gradient)?,
            None => gradient,
        });
        Ok(())
    }

    /// One use has given its gradient, or never will; whom that must be told.
    fn close(&self) -> Option<Arc<dyn Keeper>> {
        let open = {
            let mut state = self.state();
            state.open -= 1;
            state.open
        };
        self.keeper().ok().flatten().filter(|_| open == 0)
    }
}

impl std::fmt::Debug for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} of {:?}", self.0.name, self.0.part.shape(), self.0.part.whole())
    }
}

/// A use of a parameter in a forward pass.
pub struct Usage {
    parameter: Parameter,
    owes: Mutex<bool>,
}

impl Usage {
    /// The parameter.
    #[must_use]
    pub fn parameter(&self) -> &Parameter {
        &self.parameter
    }

    /// The value, as of now. Don't keep it longer than the computation that needs it.
    ///
    /// # Errors
    /// It can't be brought.
    pub fn value(&self) -> Result<Tensor> {
        self.parameter.value()
    }

    /// The gradient of this use, computed now or when the schedule comes to it.
    ///
    /// # Errors
    /// It has been given already, can't be computed, or can't be taken.
    pub fn gradient(self: &Arc<Usage>, compute: impl FnOnce(&Usage) -> Result<Tensor> + Send + 'static) -> Result<()> {
        let usage = self.clone();
        weight_gradient(move || {
            if !std::mem::replace(&mut *usage.owes.lock().expect("no panic while held"), false) {
                let name = usage.parameter.name();
                return Err(Error::invalid(format!(
                    "{name} is given a gradient twice for one use: was `backward` run twice?"
                )));
            }
            let given = compute(&usage).and_then(|gradient| usage.parameter.take_in(gradient.detach()));
            let closed = usage.parameter.close().map_or(Ok(()), |keeper| keeper.complete(&usage.parameter));
            given.and(closed)
        })
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        // A rank that panics takes part in nothing more; what it was doing in its state may be half done.
        if *self.owes.lock().expect("no panic while held")
            && let Some(keeper) = self.parameter.close()
            && !std::thread::panicking()
            && let Err(error) = keeper.given_up(&self.parameter)
        {
            tracing::error!("{}: {error}", self.parameter.name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::without_gradients;
    use candle_core::Device;

    fn parameter() -> Parameter {
        let value = Tensor::new(&[1f64, 2.0], &Device::Cpu).unwrap();
        Parameter::new("weight", Part::all(&[2]), Spread::invariant(), &value).unwrap()
    }

    #[derive(Default)]
    struct Log(Mutex<Vec<String>>);

    impl Keeper for Log {
        fn gradient(&self, parameter: &Parameter, gradient: Tensor) -> Result<()> {
            self.0.lock().unwrap().push(format!("{} {:?}", parameter.name(), gradient.to_vec1::<f64>()?));
            Ok(())
        }

        fn complete(&self, parameter: &Parameter) -> Result<()> {
            self.0.lock().unwrap().push(format!("{} complete", parameter.name()));
            Ok(())
        }
    }

    #[test]
    fn the_keeper_hears_of_each_gradient_and_of_the_last() {
        let (parameter, log) = (parameter(), Arc::new(Log::default()));
        parameter.keep_by(&log);
        let uses = [Arc::new(parameter.used()), Arc::new(parameter.used())];
        assert_eq!(parameter.open_uses(), 2);
        uses[1].gradient(|usage| usage.value()).unwrap();
        let twice = uses[1].gradient(|usage| usage.value()).unwrap_err().to_string();
        assert!(twice.contains("twice"), "{twice}");
        uses[0].gradient(|usage| Ok((usage.value()? * 2.0)?)).unwrap();
        assert_eq!(*log.0.lock().unwrap(), ["weight [1.0, 2.0]", "weight [2.0, 4.0]", "weight complete"]);
    }

    #[test]
    fn a_use_that_is_given_up_owes_nothing() {
        let (parameter, log) = (parameter(), Arc::new(Log::default()));
        parameter.keep_by(&log);
        drop(parameter.used());
        drop(without_gradients(|| parameter.used()));
        assert_eq!(parameter.open_uses(), 0);
        assert_eq!(*log.0.lock().unwrap(), ["weight complete"]);
    }

    #[test]
    fn shapes_are_checked() {
        let parameter = parameter();
        let wrong = Tensor::new(&[1f64], &Device::Cpu).unwrap();
        assert!(parameter.set(&wrong).is_err());
        assert!(Arc::new(parameter.used()).gradient(move |_| Ok(wrong)).is_err());
        parameter.release();
        assert!(parameter.value().is_err_and(|error| error.to_string().contains("weight is not here")));
    }

    #[test]
    fn a_keeper_that_is_dropped_is_missed() {
        let parameter = parameter();
        parameter.keep_by(&Arc::new(Log::default()));
        assert_eq!(parameter.value().unwrap().to_vec1::<f64>().unwrap(), [1.0, 2.0]);
        let given = Arc::new(parameter.used()).gradient(|usage| usage.value());
        assert!(given.is_err_and(|error| error.to_string().contains("kept weight has been dropped")));
        parameter.release();
        assert!(parameter.value().is_err_and(|error| error.to_string().contains("kept weight has been dropped")));
    }
}
