//! Arrays of Python as memory: by the buffer protocol, or by DLPack. Nothing is copied.

use std::ffi::CStr;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyMemoryView};

use crate::dlpack;
use crate::errors::What;
use crate::kinds::Kind;

/// Where an array's elements are. Whoever has it alone says nothing about how long.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first byte; dangling if there is none.
    pub start: *mut u8,
    /// How many.
    pub bytes: usize,
}

// SAFETY: an address and a length. What is there is read and written only by calls, whose makers keep it (`call.rs`).
unsafe impl Send for Span {}
// SAFETY: the same.
unsafe impl Sync for Span {}

impl Span {
    /// Nothing, nowhere.
    pub const NONE: Span = Span { start: std::ptr::dangling_mut(), bytes: 0 };

    /// From what C says; nothing may lie at null.
    pub fn new(start: *mut u8, bytes: usize) -> Span {
        if bytes == 0 { Span::NONE } else { Span { start, bytes } }
    }

    /// Whether this is the part of `whole` that begins there.
    pub fn is_at(self, whole: Span, offset: usize) -> bool {
        self.bytes > 0 && self.start.addr() == whole.start.addr().wrapping_add(offset)
    }
}

/// An array whose elements lie in a row in this host's memory. They stay there while this lives.
pub struct Array<'a, 'py> {
    pub span: Span,
    pub kind: Kind,
    pub readonly: bool,
    object: Bound<'py, PyAny>,
    what: What<'a>,
    held: Held<'py>,
}

/// What holds an array's elements in their place.
enum Held<'py> {
    Buffer(BufferView),
    Capsule(Bound<'py, PyCapsule>),
}

/// What the buffer protocol said. Boxed, since it may point into itself.
struct BufferView(Box<ffi::Py_buffer>);

impl Drop for BufferView {
    fn drop(&mut self) {
        // SAFETY: it was filled by `PyObject_GetBuffer`, once, and is released once; it lives in an `Array`, whose lifetime is
        // that of the attachment to the interpreter.
        unsafe { ffi::PyBuffer_Release(&mut *self.0) };
    }
}

impl BufferView {
    /// Asks an object, for reading.
    fn of(object: &Bound<'_, PyAny>) -> PyResult<BufferView> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object is alive, the interpreter is attached to, and `view` is there to be filled.
        let failed = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &mut *view, ffi::PyBUF_RECORDS_RO) } != 0;
        if failed { Err(PyErr::fetch(object.py())) } else { Ok(BufferView(view)) }
    }

    fn is_contiguous(&self) -> bool {
        // SAFETY: it was filled by `PyObject_GetBuffer`.
        unsafe { ffi::PyBuffer_IsContiguous(&*self.0, b'C' as std::ffi::c_char) != 0 }
    }

    fn format(&self) -> &str {
        if self.0.format.is_null() {
            return "B";
        }
        // SAFETY: a text that ends with 0 and lives as long as the view.
        unsafe { CStr::from_ptr(self.0.format) }.to_str().unwrap_or("O")
    }

    fn shape(&self) -> Vec<usize> {
        if self.0.shape.is_null() {
            return vec![self.0.len as usize / (self.0.itemsize as usize).max(1)];
        }
        // SAFETY: `ndim` lengths lie there as long as the view lives.
        let shape = unsafe { std::slice::from_raw_parts(self.0.shape, self.0.ndim as usize) };
        shape.iter().map(|len| *len as usize).collect()
    }
}

impl<'a, 'py> Array<'a, 'py> {
    /// The memory of an object. `what` names it in errors.
    ///
    /// # Errors
    ///
    /// It has none, its elements don't lie in a row, they mean something only in this process, or they are on a device.
    pub fn of(object: &Bound<'py, PyAny>, what: What<'a>) -> PyResult<Self> {
        // SAFETY: the object is alive, and the interpreter is attached to.
        if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 0 {
            return Array::by_dlpack(object, what);
        }
        match BufferView::of(object) {
            Ok(view) => Array::by_buffer(object, view, None, what),
            // Types that numpy doesn't know itself have no format.
            Err(error) => Array::by_name(object, what).unwrap_or(Err(error)),
        }
    }

    fn by_buffer(object: &Bound<'py, PyAny>, view: BufferView, kind: Option<Kind>, what: What<'a>) -> PyResult<Self> {
        let py = object.py();
        if !view.is_contiguous() {
            return Err(scattered(py, what));
        }
        let format = view.format();
        let Some(kind) = kind.or_else(|| Kind::from_format(format, view.0.itemsize as usize)) else {
            let cause = format!("the elements of {what}, of format {format:?}, mean something only in this process");
            return Err(what.invalid(py, &cause));
        };
        let span = Span::new(view.0.buf.cast(), view.0.len as usize);
        let readonly = view.0.readonly != 0;
        Ok(Array { span, kind, readonly, object: object.clone(), what, held: Held::Buffer(view) })
    }

    /// An array of numpy's whose type comes from elsewhere: its bytes as whole numbers, and the type by name.
    fn by_name(object: &Bound<'py, PyAny>, what: What<'a>) -> Option<PyResult<Self>> {
        let dtype = object.getattr("dtype").ok()?;
        let name: String = dtype.getattr("name").ok()?.extract().ok()?;
        let bytes: usize = dtype.getattr("itemsize").ok()?.extract().ok()?;
        if dtype.getattr("hasobject").ok()?.extract::<bool>().ok()? {
            return None;
        }
        let plain = object.call_method1("view", (format!("V{bytes}"),)).ok()?;
        let view = BufferView::of(&plain).ok()?;
        Some(Array::by_buffer(object, view, Some(Kind::from_name(&name, bytes)), what))
    }

    fn by_dlpack(object: &Bound<'py, PyAny>, what: What<'a>) -> PyResult<Self> {
        let py = object.py();
        let Some(capsule) = dlpack::export(object, what)? else {
            let name = object.get_type().name()?;
            let cause = format!("{what} is a {name}, which has neither a buffer nor __dlpack__: pass an array");
            return Err(PyTypeError::new_err(cause));
        };
        let tensor = dlpack::Tensor::of(&capsule, what)?;
        if !tensor.is_contiguous() {
            return Err(scattered(py, what));
        }
        let (span, kind, readonly) = (tensor.span(), tensor.kind, tensor.readonly);
        Ok(Array { span, kind, readonly, object: object.clone(), what, held: Held::Capsule(capsule) })
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.span.bytes / self.kind.bytes().max(1)
    }

    /// Elements along each axis.
    pub fn shape(&self) -> PyResult<Vec<usize>> {
        match &self.held {
            Held::Buffer(view) => Ok(view.shape()),
            Held::Capsule(capsule) => Ok(dlpack::Tensor::of(capsule, self.what)?.shape()),
        }
    }

    /// The array itself.
    pub fn object(&self) -> &Bound<'py, PyAny> {
        &self.object
    }

    /// Something that holds the elements in their place as long as it lives, beyond this.
    pub fn keep(&self) -> PyResult<Py<PyAny>> {
        match &self.held {
            Held::Buffer(view) => {
                // SAFETY: the view's owner is alive as long as the view is; where its type has none, the object itself is.
                let owner = unsafe { Bound::from_borrowed_ptr_or_opt(self.object.py(), view.0.obj) };
                let owner = owner.unwrap_or_else(|| self.object.clone());
                Ok(PyMemoryView::from(&owner)?.into_any().unbind())
            }
            Held::Capsule(capsule) => Ok(capsule.clone().into_any().unbind()),
        }
    }
}

fn scattered(py: Python<'_>, what: What<'_>) -> PyErr {
    let cause = format!(
        "the elements of {what} don't lie in a row (C-contiguous); pass a copy, as of numpy.ascontiguousarray or \
         tensor.contiguous()"
    );
    what.invalid(py, &cause)
}
