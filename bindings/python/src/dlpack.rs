//! DLPack: what tensors of other libraries say of their memory, in capsules.
//!
//! The layouts are those of DLPack's `dlpack.h`, before version 1 and since. A capsule is held as it is, never consumed: when it is
//! let go, its own destructor tells its maker.

use std::ffi::{CStr, c_void};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::array::Span;
use crate::errors::What;
use crate::kinds::Kind;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
/// Devices whose memory the processor reaches: itself, and memory that CUDA or ROCm has pinned.
const REACHABLE: [i32; 3] = [1, 3, 11];
const READ_ONLY: u64 = 1;
const MAJOR: u32 = 1;

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// A tensor, as long as its capsule is held.
pub struct Tensor<'a> {
    tensor: &'a DlTensor,
    /// What its elements are.
    pub kind: Kind,
    /// Whether it must not be written.
    pub readonly: bool,
}

/// The capsule that an object exports; `None` if it can't.
pub fn export<'py>(object: &Bound<'py, PyAny>, what: What<'_>) -> PyResult<Option<Bound<'py, PyCapsule>>> {
    let py = object.py();
    let Some(method) = object.getattr_opt("__dlpack__")? else { return Ok(None) };
    let options = PyDict::new(py);
    options.set_item("max_version", (MAJOR, 1))?;
    let exported = match method.call((), Some(&options)) {
        // Made before versions were.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => method.call0(),
        exported => exported,
    };
    let capsule = exported.map_err(|error| {
        let invalid = what.invalid(py, &format!("{what} can't be lent: {}", error.value(py)));
        invalid.set_cause(py, Some(error));
        invalid
    })?;
    Ok(Some(capsule.cast_into::<PyCapsule>()?))
}

impl<'a> Tensor<'a> {
    /// What a capsule holds. `what` names it in errors.
    pub fn of(capsule: &'a Bound<'_, PyCapsule>, what: What<'_>) -> PyResult<Tensor<'a>> {
        let py = capsule.py();
        let versioned = capsule.is_valid_checked(Some(VERSIONED));
        let pointer = capsule.pointer_checked(Some(if versioned { VERSIONED } else { PLAIN }))?;
        let (tensor, flags) = if versioned {
            // SAFETY: a capsule of this name holds this layout, and is held; its head is the same in all versions.
            let versioned = unsafe { pointer.cast::<Versioned>().as_ref() };
            if versioned.major != MAJOR {
                return Err(what.invalid(py, &format!("{what} comes by DLPack {}: {MAJOR} is known", versioned.major)));
            }
            (&versioned.tensor, versioned.flags)
        } else {
            // SAFETY: a capsule of this name begins with this layout, and is held.
            (unsafe { pointer.cast::<DlTensor>().as_ref() }, 0)
        };
        if !REACHABLE.contains(&tensor.device_type) {
            let (device, id) = (tensor.device_type, tensor.device_id);
            let cause =
                format!("{what} is in the memory of device {id} of DLPack's kind {device}; pass a copy in the host's");
            return Err(what.invalid(py, &cause));
        }
        let DlTensor { code, bits, lanes, .. } = *tensor;
        let Some(kind) = Kind::from_dlpack(code, bits, lanes) else {
            let cause = format!("the elements of {what} (DLPack's code {code}, {bits} bits) don't fill bytes");
            return Err(what.invalid(py, &cause));
        };
        Ok(Tensor { tensor, kind, readonly: flags & READ_ONLY != 0 })
    }

    fn axes(&self, lengths: *const i64) -> &'a [i64] {
        let axes = self.tensor.ndim as usize;
        // SAFETY: as many numbers as there are axes lie there as long as the capsule is held.
        if axes == 0 || lengths.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(lengths, axes) } }
    }

    /// Elements along each axis.
    pub fn shape(&self) -> Vec<usize> {
        self.axes(self.tensor.shape).iter().map(|len| *len as usize).collect()
    }

    /// Whether the elements lie in a row, the last axis the closest.
    pub fn is_contiguous(&self) -> bool {
        let (shape, strides) = (self.axes(self.tensor.shape), self.axes(self.tensor.strides));
        if strides.is_empty() || shape.contains(&0) {
            return true;
        }
        let mut expected = 1;
        shape.iter().zip(strides).rev().all(|(len, stride)| {
            let fits = *len == 1 || *stride == expected;
            expected *= len;
            fits
        })
    }

    /// Where the elements are, if they lie in a row.
    pub fn span(&self) -> Span {
        let elements: i64 = self.axes(self.tensor.shape).iter().product();
        let start = self.tensor.data.cast::<u8>().wrapping_add(self.tensor.byte_offset as usize);
        Span::new(start, elements as usize * self.kind.bytes())
    }
}
