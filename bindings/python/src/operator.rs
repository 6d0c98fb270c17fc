//! Operators as Python names them.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use paceline_comm::{DataType, ReduceOp};
use pyo3::prelude::*;

use crate::errors;

/// The sum of each rank's elements times that rank's factor.
#[pyclass(frozen, module = "paceline")]
pub struct PreMulSum {
    factor: Py<PyAny>,
}

#[pymethods]
impl PreMulSum {
    #[new]
    fn new(factor: Py<PyAny>) -> PreMulSum {
        PreMulSum { factor }
    }

    /// What this rank's elements are multiplied with.
    #[getter]
    fn factor(&self, py: Python<'_>) -> Py<PyAny> {
        self.factor.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("PreMulSum({})", self.factor.bind(py).repr()?))
    }
}

/// The operator for elements of a type; the sum where none is given.
pub fn of(op: Option<&Bound<'_, PyAny>>, data_type: DataType) -> PyResult<ReduceOp> {
    let Some(op) = op else { return Ok(ReduceOp::Sum) };
    if let Ok(scaled) = op.cast::<PreMulSum>() {
        return pre_mul_sum(scaled.get().factor.bind(op.py()), data_type);
    }
    let known = op.extract::<&str>().ok().and_then(ReduceOp::named);
    known.ok_or_else(|| {
        let given = op.repr().map_or_else(|_| String::from("it"), |repr| repr.to_string());
        let cause = format!("{given} is no operator; take sum, prod, min, max, avg or PreMulSum(factor)");
        errors::invalid(op.py(), &cause)
    })
}

fn pre_mul_sum(factor: &Bound<'_, PyAny>, data_type: DataType) -> PyResult<ReduceOp> {
    Ok(match data_type {
        DataType::I8 => ReduceOp::pre_mul_sum(factor.extract::<i8>()?),
        DataType::U8 => ReduceOp::pre_mul_sum(factor.extract::<u8>()?),
        DataType::I32 => ReduceOp::pre_mul_sum(factor.extract::<i32>()?),
        DataType::U32 => ReduceOp::pre_mul_sum(factor.extract::<u32>()?),
        DataType::I64 => ReduceOp::pre_mul_sum(factor.extract::<i64>()?),
        DataType::U64 => ReduceOp::pre_mul_sum(factor.extract::<u64>()?),
        DataType::F64 => ReduceOp::pre_mul_sum(factor.extract::<f64>()?),
        DataType::F32 => ReduceOp::pre_mul_sum(factor.extract::<f32>()?),
        DataType::F16 => ReduceOp::pre_mul_sum(f16::from_f64(factor.extract()?)),
        DataType::Bf16 => ReduceOp::pre_mul_sum(bf16::from_f64(factor.extract()?)),
        DataType::F8E4M3 => ReduceOp::pre_mul_sum(F8E4M3::from_f32(factor.extract()?)),
        DataType::F8E5M2 => ReduceOp::pre_mul_sum(F8E5M2::from_f32(factor.extract()?)),
    })
}
