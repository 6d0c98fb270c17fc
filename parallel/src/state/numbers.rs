//! Vectors in the precision of training.

use std::ops::Range;

use candle_core::{DType, Device, Shape, Storage, Tensor, WithDType};

use crate::error::{Error, Result};
use crate::group::Elements;

/// A vector in the precision of training: f64 for parameters of f64, f32 for all others.
#[derive(Clone, PartialEq, Debug)]
pub enum Numbers {
    /// Single precision.
    F32(Vec<f32>),
    /// Double precision.
    F64(Vec<f64>),
}

impl Numbers {
    /// The type in which parameters of a type are trained.
    #[must_use]
    pub fn type_for(dtype: DType) -> DType {
        if dtype == DType::F64 { DType::F64 } else { DType::F32 }
    }

    /// Zeros, in the precision for parameters of a type.
    #[must_use]
    pub fn zeros(dtype: DType, len: usize) -> Numbers {
        match Numbers::type_for(dtype) {
            DType::F64 => Numbers::F64(vec![0.0; len]),
            _ => Numbers::F32(vec![0.0; len]),
        }
    }

    /// As many zeros of the same precision.
    #[must_use]
    pub fn zeros_alike(&self) -> Numbers {
        Numbers::zeros(self.dtype(), self.len())
    }

    /// The type of the numbers.
    #[must_use]
    pub fn dtype(&self) -> DType {
        match self {
            Numbers::F32(_) => DType::F32,
            Numbers::F64(_) => DType::F64,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Numbers::F32(numbers) => numbers.len(),
            Numbers::F64(numbers) => numbers.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype().size_in_bytes()
    }

    /// A number.
    ///
    /// # Panics
    /// If there is none at that place.
    #[must_use]
    pub fn get(&self, place: usize) -> f64 {
        match self {
            Numbers::F32(numbers) => f64::from(numbers[place]),
            Numbers::F64(numbers) => numbers[place],
        }
    }

    /// Sets all to zero.
    pub fn clear(&mut self) {
        match self {
            Numbers::F32(numbers) => numbers.fill(0.0),
            Numbers::F64(numbers) => numbers.fill(0.0),
        }
    }

    /// Multiplies all by a number.
    pub fn scale(&mut self, factor: f64) {
        match self {
            Numbers::F32(numbers) => numbers.iter_mut().for_each(|number| *number *= factor as f32),
            Numbers::F64(numbers) => numbers.iter_mut().for_each(|number| *number *= factor),
        }
    }

    /// Writes a tensor's elements, in row-major order and whatever their type, from a place on.
    ///
    /// # Errors
    /// The elements can't be read.
    ///
    /// # Panics
    /// If there is no room.
    pub fn write(&mut self, first: usize, tensor: &Tensor) -> Result<()> {
        let end = first + tensor.elem_count();
        match self {
            Numbers::F32(numbers) => meet(&mut numbers[first..end], tensor, |to, from| *to = from),
            Numbers::F64(numbers) => meet(&mut numbers[first..end], tensor, |to, from| *to = from),
        }
    }

    /// Adds a tensor's elements, in row-major order and whatever their type, from a place on.
    ///
    /// # Errors
    /// The elements can't be read.
    ///
    /// # Panics
    /// If there is no room.
    pub fn add(&mut self, first: usize, tensor: &Tensor) -> Result<()> {
        let end = first + tensor.elem_count();
        match self {
            Numbers::F32(numbers) => meet(&mut numbers[first..end], tensor, |to, from| *to += from),
            Numbers::F64(numbers) => meet(&mut numbers[first..end], tensor, |to, from| *to += from),
        }
    }

    /// Adds a stretch of others of the same type to the same stretch of these.
    pub(crate) fn add_stretch(&mut self, other: &Numbers, range: Range<usize>) {
        match (self, other) {
            (Numbers::F32(to), Numbers::F32(from)) => add_each(&mut to[range.clone()], &from[range]),
            (Numbers::F64(to), Numbers::F64(from)) => add_each(&mut to[range.clone()], &from[range]),
            _ => unreachable!("numbers of one bucket have one type"),
        }
    }

    /// Takes a stretch of others of the same type, and leaves zeros there.
    pub(crate) fn take_stretch(&mut self, other: &mut Numbers, range: Range<usize>) {
        match (self, other) {
            (Numbers::F32(to), Numbers::F32(from)) => move_each(&mut to[range.clone()], &mut from[range]),
            (Numbers::F64(to), Numbers::F64(from)) => move_each(&mut to[range.clone()], &mut from[range]),
            _ => unreachable!("numbers of one bucket have one type"),
        }
    }

    /// A tensor with a copy of some of the numbers, rounded to a type.
    ///
    /// # Errors
    /// candle refuses.
    ///
    /// # Panics
    /// If the range is not within them.
    pub fn tensor(&self, range: Range<usize>, shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        let shape = shape.into();
        let tensor = match self {
            Numbers::F32(numbers) => Tensor::from_slice(&numbers[range], shape, &Device::Cpu)?,
            Numbers::F64(numbers) => Tensor::from_slice(&numbers[range], shape, &Device::Cpu)?,
        };
        Ok(tensor.to_dtype(dtype)?)
    }

    pub(crate) fn into_elements(self) -> Elements {
        match self {
            Numbers::F32(numbers) => Elements::F32(numbers),
            Numbers::F64(numbers) => Elements::F64(numbers),
        }
    }

    pub(crate) fn from_elements(elements: Elements) -> Result<Numbers> {
        match elements {
            Elements::F32(numbers) => Ok(Numbers::F32(numbers)),
            Elements::F64(numbers) => Ok(Numbers::F64(numbers)),
            other => Err(Error::invalid(format!("elements of {:?} are no numbers of training", other.dtype()))),
        }
    }
}

fn add_each<T: Copy + std::ops::AddAssign>(to: &mut [T], from: &[T]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
}

fn move_each<T: Copy + Default>(to: &mut [T], from: &mut [T]) {
    to.copy_from_slice(from);
    from.fill(T::default());
}

/// Puts each of a tensor's elements, as numbers of this type, to its number.
fn meet<T: WithDType>(numbers: &mut [T], tensor: &Tensor, put: impl Fn(&mut T, T)) -> Result<()> {
    let tensor = tensor.detach().to_dtype(T::DTYPE)?.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else {
        return Err(Error::invalid(format!("a tensor on {:?}: only host memory can be read", tensor.device())));
    };
    let (first, end) = layout.contiguous_offsets().expect("it was made contiguous");
    numbers.iter_mut().zip(&storage.as_slice::<T>()?[first..end]).for_each(|(to, from)| put(to, *from));
    Ok(())
}
