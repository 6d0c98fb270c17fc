//! A differentiable function whose output is computed already.

use std::cell::Cell;
use std::sync::{Mutex, OnceLock};

use candle_core::backend::BackendDevice;
use candle_core::backend::BackendStorage;
use candle_core::cpu_backend::CpuDevice;
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, DType, Device, InplaceOp1, Layout, Shape, Storage, Tensor, Var,
};

use crate::error::{Error, Result};

/// The gradients of a function's inputs, in their order; `None` where there is none. A tracked input that isn't a variable
/// must get one.
pub type Gradients = Vec<Option<Tensor>>;

/// What a function has computed.
pub enum Output {
    /// A tensor that nothing else refers to: its memory becomes the function's output.
    Fresh(Tensor),
    /// A tensor that may share its memory with others; it is copied.
    Shared(Tensor),
}

thread_local! {
    static RECORDS: Cell<bool> = const { Cell::new(true) };
}

/// Runs something without recording how its results came about: for evaluation, and for a first pass that is repeated.
pub fn without_gradients<T>(run: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            RECORDS.set(self.0);
        }
    }
    let _restore = Restore(RECORDS.replace(false));
    run()
}

/// Whether functions are recorded on this thread.
#[must_use]
pub fn is_recording() -> bool {
    RECORDS.get()
}

/// A tensor whose gradient with respect to `inputs` is what `backward` makes of its own gradient.
///
/// `backward(gradient, output)` is called once in a backward pass that reaches the output, on the thread that runs the pass.
/// What it needs of the output it must take from there: a fresh output's own memory has gone. It is called even if no input needs a gradient, so that parameters get theirs.
///
/// # Errors
/// There are more than three inputs, or the output isn't in host memory.
///
/// # Panics
/// If a fresh output shares its memory with an input.
pub fn function(
    name: &'static str,
    inputs: &[&Tensor],
    output: Output,
    backward: impl Fn(&Tensor, &Tensor) -> Result<Gradients> + Send + Sync + 'static,
) -> Result<Tensor> {
    let (Output::Fresh(tensor) | Output::Shared(tensor)) = &output;
    if !is_recording() {
        return Ok(tensor.detach());
    }
    let shape = tensor.shape().clone();
    let storage = match output {
        Output::Fresh(tensor) => taken(&tensor, inputs)?,
        Output::Shared(tensor) => taken(&tensor.detach().force_contiguous()?, inputs)?,
    };
    // The gradients of untracked inputs would be computed for nothing, and a graph needs at least one tracked end.
    let mut tracked: Vec<(usize, &Tensor)> =
        inputs.iter().copied().enumerate().filter(|(_, input)| input.track_op()).collect();
    let places: Vec<usize> = tracked.iter().map(|(place, _)| *place).collect();
    let anchor = anchor().as_tensor();
    if tracked.is_empty() {
        tracked.push((usize::MAX, anchor));
    }
    let op = Function { name, given: Mutex::new(Some((storage, shape))), places, backward: Box::new(backward) };
    Ok(match &tracked[..] {
        [(_, one)] => one.apply_op1(op)?,
        [(_, one), (_, two)] => one.apply_op2(two, op)?,
        [(_, one), (_, two), (_, three)] => one.apply_op3(two, three, op)?,
        more => return Err(Error::invalid(format!("{name} has {} tracked inputs: at most 3 can be had", more.len()))),
    })
}

type Backward = Box<dyn Fn(&Tensor, &Tensor) -> Result<Gradients> + Send + Sync>;

struct Function {
    name: &'static str,
    /// The output, until candle asks for it.
    given: Mutex<Option<(CpuStorage, Shape)>>,
    /// The tracked ones of the inputs.
    places: Vec<usize>,
    backward: Backward,
}

impl Function {
    fn output(&self) -> candle_core::Result<(CpuStorage, Shape)> {
        let given = self.given.lock().expect("no panic while held").take();
        given.ok_or_else(|| candle_core::Error::Msg(format!("{} was applied twice", self.name)))
    }

    /// The gradients of the tracked inputs.
    fn gradients<const N: usize>(
        &self,
        output: &Tensor,
        gradient: &Tensor,
    ) -> candle_core::Result<[Option<Tensor>; N]> {
        let mut all = (self.backward)(&gradient.detach(), &output.detach())?;
        let mut found = [const { None }; N];
        for (found, place) in found.iter_mut().zip(&self.places) {
            *found = all.get_mut(*place).and_then(Option::take).map(|gradient| gradient.detach());
        }
        Ok(found)
    }
}

impl CustomOp1 for Function {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        self.output()
    }

    fn bwd(&self, _: &Tensor, output: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        let [one] = self.gradients(output, gradient)?;
        Ok(one)
    }
}

impl CustomOp2 for Function {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        self.output()
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        output: &Tensor,
        gradient: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>)> {
        let [one, two] = self.gradients(output, gradient)?;
        Ok((one, two))
    }
}

impl CustomOp3 for Function {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        self.output()
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        output: &Tensor,
        gradient: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let [one, two, three] = self.gradients(output, gradient)?;
        Ok((one, two, three))
    }
}

/// What a function is hung on that has no tracked input: without one, candle would not come by in a backward pass. It never
/// gets a gradient.
fn anchor() -> &'static Var {
    static ANCHOR: OnceLock<Var> = OnceLock::new();
    ANCHOR.get_or_init(|| Var::zeros((), DType::F32, &Device::Cpu).expect("one number"))
}

/// Takes a tensor's memory.
fn taken(tensor: &Tensor, inputs: &[&Tensor]) -> Result<CpuStorage> {
    let take = Take(Mutex::new(None));
    tensor.inplace_op1(&take)?;
    for input in inputs {
        let (storage, layout) = input.storage_and_layout();
        let is_taken = matches!(&*storage, Storage::Cpu(CpuStorage::U8(all)) if all.is_empty());
        assert!(!is_taken || layout.shape().elem_count() == 0, "a fresh output shares its memory with an input");
    }
    Ok(take.0.into_inner().expect("no panic while held").expect("the operation has run"))
}

/// How many elements there are, for types that are computed with.
fn elements(storage: &CpuStorage) -> Option<usize> {
    Some(match storage {
        CpuStorage::U8(all) => all.len(),
        CpuStorage::U32(all) => all.len(),
        CpuStorage::I64(all) => all.len(),
        CpuStorage::BF16(all) => all.len(),
        CpuStorage::F16(all) => all.len(),
        CpuStorage::F32(all) => all.len(),
        CpuStorage::F64(all) => all.len(),
        _ => return None,
    })
}

/// Leaves a tensor without memory.
struct Take(Mutex<Option<CpuStorage>>);

impl InplaceOp1 for Take {
    fn name(&self) -> &'static str {
        "take"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let whole = layout.is_contiguous() && layout.start_offset() == 0;
        let taken = if whole && elements(storage) == Some(layout.shape().elem_count()) {
            std::mem::replace(storage, CpuStorage::U8(Vec::new()))
        } else {
            let mut part = CpuDevice.zeros_impl(layout.shape(), storage.dtype())?;
            storage.copy_strided_src(&mut part, 0, layout)?;
            part
        };
        *self.0.lock().expect("no panic while held") = Some(taken);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn numbers(values: &[f64]) -> Tensor {
        Tensor::new(values, &Device::Cpu).unwrap()
    }

    /// Squares, and says so in the pass back.
    fn square(x: &Tensor) -> Result<Tensor> {
        let input = x.detach();
        function("square", &[x], Output::Fresh(input.sqr()?), move |gradient, _| {
            Ok(vec![Some((gradient * &input)?.affine(2.0, 0.0)?)])
        })
    }

    #[test]
    fn gradients_flow_through_own_functions() {
        let x = Var::from_tensor(&numbers(&[1.0, -2.0, 3.0])).unwrap();
        let y = (square(x.as_tensor()).unwrap() * 5.0).unwrap();
        let gradients = y.sum_all().unwrap().backward().unwrap();
        assert_eq!(gradients.get(&x).unwrap().to_vec1::<f64>().unwrap(), [10.0, -20.0, 30.0]);
    }

    #[test]
    fn a_function_without_tracked_inputs_is_asked_all_the_same() {
        let asked = std::sync::Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        let x = numbers(&[1.0, 2.0]);
        let y = function("constant", &[&x], Output::Shared(x.clone()), move |gradient, output| {
            heard.lock().unwrap().push((gradient.to_vec1::<f64>()?, output.to_vec1::<f64>()?));
            Ok(vec![None])
        });
        (y.unwrap() * 3.0).unwrap().sum_all().unwrap().backward().unwrap();
        assert_eq!(*asked.lock().unwrap(), [(vec![3.0, 3.0], vec![1.0, 2.0])]);
        assert_eq!(x.to_vec1::<f64>().unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn views_are_copied_rather_than_taken() {
        let x = Var::from_tensor(&numbers(&[1.0, 2.0, 3.0, 4.0])).unwrap();
        let view = x.as_tensor().detach().narrow(0, 2, 2).unwrap();
        for output in [Output::Fresh(view.clone()), Output::Shared(view.clone())] {
            let y = function("view", &[x.as_tensor()], output, |_, _| Ok(vec![None])).unwrap();
            assert_eq!(y.to_vec1::<f64>().unwrap(), [3.0, 4.0]);
        }
        assert_eq!(x.as_tensor().to_vec1::<f64>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    #[should_panic(expected = "shares its memory")]
    fn an_input_is_not_taken_unseen() {
        let x = numbers(&[1.0, 2.0]);
        let _ = function("identity", &[&x], Output::Fresh(x.clone()), |_, _| Ok(vec![None]));
    }

    #[test]
    fn nothing_is_recorded_where_it_is_not_wanted() {
        let x = Var::from_tensor(&numbers(&[2.0])).unwrap();
        let y = without_gradients(|| square(x.as_tensor())).unwrap();
        assert!(!y.track_op() && is_recording());
    }
}
