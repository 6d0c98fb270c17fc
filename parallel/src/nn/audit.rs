//! Whether a backward pass comes by each parameter.

use crate::error::Result;
use crate::parameter::Parameter;

/// Runs a forward and backward pass and names the parameters, in their order, that got no gradient in it: a layer that cuts
/// the gradient off is found by what lies below. Worth a call at a model's first step.
///
/// # Errors
/// Those of the pass.
pub fn parameters_without_gradient<T>(
    parameters: &[Parameter],
    pass: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<String>)> {
    let before: Vec<u64> = parameters.iter().map(Parameter::gradients_given).collect();
    let result = pass()?;
    let without = parameters.iter().zip(before).filter(|(parameter, before)| parameter.gradients_given() == *before);
    Ok((result, without.map(|(parameter, _)| parameter.name().to_owned()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::RmsNorm;
    use crate::nn::testing::{builder, numbers};
    use crate::tensor::TensorParallel;
    use crate::value::Value;

    #[test]
    fn what_lies_below_a_cut_is_named() {
        let builder = builder();
        let alone = TensorParallel::alone().unwrap();
        let norm = |name: &str| RmsNorm::new(&builder.at(name), 4, 1e-5, &alone).unwrap();
        let (below, above) = (norm("below"), norm("above"));
        for (cuts, want) in [(false, vec![]), (true, vec!["below.weight"])] {
            let pass = || {
                let hidden = below.forward(&Value::invariant(numbers(1, &[2, 4])))?;
                let hidden = if cuts { hidden.detach() } else { hidden };
                above.forward(&hidden)?.tensor().sum_all()?.backward()?;
                Ok(())
            };
            assert_eq!(parameters_without_gradient(&builder.parameters(), pass).unwrap().1, want);
        }
    }
}
