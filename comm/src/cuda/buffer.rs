//! Memory of devices as calls take it.

use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver as cudarc;
use paceline_transport::cuda::{Device, DeviceMemory, Stream};

use super::refused;
use crate::error::{Error, Result};
use crate::reduce::{Element, as_bytes, as_bytes_mut};
use crate::request::Places;

/// Elements in a device's memory that a call may read.
///
/// # Safety
///
/// What `lend` returns is the address of so many bytes of elements of `T`, which the device of the stream can read, and which
/// are there until the work is done that is put into the stream while the [`Lent`] lives.
pub unsafe trait DeviceInput<T: Element> {
    /// The elements, for work that is put into `stream` as long as the result lives.
    ///
    /// # Errors
    ///
    /// They can't be used in this stream.
    fn lend<'a>(&'a self, stream: &'a Stream) -> Result<Lent<'a>>;
}

/// Elements in a device's memory that a call may write.
///
/// # Safety
///
/// As for [`DeviceInput`], and the device can write them, too.
pub unsafe trait DeviceOutput<T: Element> {
    /// The elements, for work that is put into `stream` as long as the result lives.
    ///
    /// # Errors
    ///
    /// They can't be used in this stream.
    fn lend_mut<'a>(&'a mut self, stream: &'a Stream) -> Result<Lent<'a>>;
}

/// Memory of a device that is lent to a stream.
#[derive(Debug)]
pub struct Lent<'a> {
    pub(super) address: u64,
    pub(super) bytes: usize,
    /// Tells cudarc what the stream has been given, when it is dropped.
    _told: Option<cudarc::SyncOnDrop<'a>>,
}

impl Lent<'_> {
    /// So many bytes from this address on.
    #[must_use]
    pub fn new(address: u64, bytes: usize) -> Self {
        Lent { address, bytes, _told: None }
    }
}

/// Memory of a device, owned: `len` elements.
///
/// Who gives it to several streams orders them by events.
pub struct DeviceVec<T> {
    /// Shared with those that have it registered.
    memory: Option<Arc<DeviceMemory>>,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Element> DeviceVec<T> {
    /// `len` elements whose bits are zero.
    ///
    /// # Errors
    ///
    /// The device has too little memory, or is lost.
    pub fn zeroed(device: &Device, len: usize) -> Result<DeviceVec<T>> {
        let bytes = len.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or_else(|| Error::invalid(format!("{len} elements are more than memory can hold")))?;
        let memory = if bytes == 0 { None } else { Some(Arc::new(device.allocate(bytes).map_err(refused)?)) };
        if let Some(memory) = &memory {
            memory.zero().map_err(refused)?;
        }
        Ok(DeviceVec { memory, len, elements: PhantomData })
    }

    /// A copy of these elements.
    ///
    /// # Errors
    ///
    /// As for [`DeviceVec::zeroed`].
    pub fn of(device: &Device, elements: &[T]) -> Result<DeviceVec<T>> {
        let mut vec = DeviceVec::zeroed(device, elements.len())?;
        vec.write(elements)?;
        Ok(vec)
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first element's address on the device; 0 where there is none.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.address())
    }

    /// Overwrites the first elements with these, and waits until that is done.
    ///
    /// # Errors
    ///
    /// There are more than the vector has, or the device is lost.
    pub fn write(&mut self, elements: &[T]) -> Result<()> {
        self.write_at(0, elements)
    }

    /// Overwrites the elements from `first` on with these, and waits until that is done.
    ///
    /// # Errors
    ///
    /// As for [`DeviceVec::write`].
    pub fn write_at(&mut self, first: usize, elements: &[T]) -> Result<()> {
        self.check_len(first.saturating_add(elements.len()))?;
        match &self.memory {
            Some(memory) => memory.write(first * size_of::<T>(), as_bytes(elements)).map_err(refused),
            None => Ok(()),
        }
    }

    /// Copies the elements from `first` on to the host. Waits for no stream.
    ///
    /// # Errors
    ///
    /// As for [`DeviceVec::write`].
    pub fn read_at(&self, first: usize, elements: &mut [T]) -> Result<()> {
        self.check_len(first.saturating_add(elements.len()))?;
        match &self.memory {
            Some(memory) => memory.read(first * size_of::<T>(), as_bytes_mut(elements)).map_err(refused),
            None => Ok(()),
        }
    }

    /// A copy of the elements on the host. Waits for no stream: that of the work before must have got there.
    ///
    /// # Errors
    ///
    /// The device is lost.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::from_bits64(0); self.len];
        self.read_at(0, &mut elements)?;
        Ok(elements)
    }

    /// Some of the elements.
    ///
    /// # Panics
    ///
    /// If the range isn't within.
    #[must_use]
    pub fn slice(&self, range: std::ops::Range<usize>) -> DeviceSlice<'_, T> {
        let address = self.part(&range);
        DeviceSlice { address, len: range.len(), owner: PhantomData }
    }

    /// Some of the elements, to be written.
    ///
    /// # Panics
    ///
    /// If the range isn't within.
    #[must_use]
    pub fn slice_mut(&mut self, range: std::ops::Range<usize>) -> DeviceSliceMut<'_, T> {
        let address = self.part(&range);
        DeviceSliceMut { address, len: range.len(), owner: PhantomData }
    }

    pub(super) fn memory(&self) -> Option<&Arc<DeviceMemory>> {
        self.memory.as_ref()
    }

    fn part(&self, range: &std::ops::Range<usize>) -> u64 {
        assert!(range.start <= range.end && range.end <= self.len, "elements {range:?} of {}", self.len);
        self.address() + (range.start * size_of::<T>()) as u64
    }

    fn check_len(&self, len: usize) -> Result<()> {
        if len <= self.len {
            return Ok(());
        }
        Err(Error::invalid(format!("{len} elements don't fit into {} on the device", self.len)))
    }
}

impl<T> std::fmt::Debug for DeviceVec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceVec {{ len: {}, memory: {:?} }}", self.len, self.memory)
    }
}

/// Elements in a device's memory, borrowed.
#[derive(Debug)]
pub struct DeviceSlice<'a, T> {
    address: u64,
    len: usize,
    owner: PhantomData<&'a T>,
}

/// Elements in a device's memory, borrowed to be written.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    address: u64,
    len: usize,
    owner: PhantomData<&'a mut T>,
}

impl<T: Element> DeviceSlice<'_, T> {
    /// `len` elements from an address on.
    ///
    /// # Safety
    ///
    /// They are there, and the device of every stream they are given to can read them, until the work in these streams is done.
    #[must_use]
    pub unsafe fn from_raw(address: u64, len: usize) -> Self {
        DeviceSlice { address, len, owner: PhantomData }
    }
}

impl<T: Element> DeviceSliceMut<'_, T> {
    /// `len` elements from an address on, to be written.
    ///
    /// # Safety
    ///
    /// As for [`DeviceSlice::from_raw`], and the devices can write them, too.
    #[must_use]
    pub unsafe fn from_raw(address: u64, len: usize) -> Self {
        DeviceSliceMut { address, len, owner: PhantomData }
    }
}

// SAFETY: the memory is the vector's; freeing it waits for what its device was given before.
unsafe impl<T: Element> DeviceInput<T> for DeviceVec<T> {
    fn lend<'a>(&'a self, _: &'a Stream) -> Result<Lent<'a>> {
        Ok(Lent::new(self.address(), self.len * size_of::<T>()))
    }
}

// SAFETY: as above.
unsafe impl<T: Element> DeviceOutput<T> for DeviceVec<T> {
    fn lend_mut<'a>(&'a mut self, _: &'a Stream) -> Result<Lent<'a>> {
        Ok(Lent::new(self.address(), self.len * size_of::<T>()))
    }
}

// SAFETY: a part of a vector's, or as promised to `from_raw`.
unsafe impl<T: Element> DeviceInput<T> for DeviceSlice<'_, T> {
    fn lend<'a>(&'a self, _: &'a Stream) -> Result<Lent<'a>> {
        Ok(Lent::new(self.address, self.len * size_of::<T>()))
    }
}

// SAFETY: as above.
unsafe impl<T: Element> DeviceInput<T> for DeviceSliceMut<'_, T> {
    fn lend<'a>(&'a self, _: &'a Stream) -> Result<Lent<'a>> {
        Ok(Lent::new(self.address, self.len * size_of::<T>()))
    }
}

// SAFETY: as above.
unsafe impl<T: Element> DeviceOutput<T> for DeviceSliceMut<'_, T> {
    fn lend_mut<'a>(&'a mut self, _: &'a Stream) -> Result<Lent<'a>> {
        Ok(Lent::new(self.address, self.len * size_of::<T>()))
    }
}

/// The stream as cudarc knows it, which keeps books of what its slices are used for.
fn known_to_cudarc(stream: &Stream) -> Result<&Arc<cudarc::CudaStream>> {
    stream.cudarc().ok_or_else(|| {
        Error::invalid(
            "a slice of cudarc's is given to a stream that cudarc doesn't know, and would be freed too early",
        )
        .hint("make the calls on the slice's own stream: Stream::from_cudarc(slice.stream())")
    })
}

macro_rules! of_cudarc {
    ($($type:ty),*) => {$(
        // SAFETY: cudarc frees what it has lent to a stream after the work that the stream has then, and orders its streams.
        unsafe impl<T: Element> DeviceInput<T> for $type {
            fn lend<'a>(&'a self, stream: &'a Stream) -> Result<Lent<'a>> {
                let (address, told) = cudarc::DevicePtr::device_ptr(self, known_to_cudarc(stream)?);
                Ok(Lent { address, bytes: cudarc::DeviceSlice::num_bytes(self), _told: Some(told) })
            }
        }
    )*};
    (mut $($type:ty),*) => {$(
        // SAFETY: as above.
        unsafe impl<T: Element> DeviceOutput<T> for $type {
            fn lend_mut<'a>(&'a mut self, stream: &'a Stream) -> Result<Lent<'a>> {
                let bytes = cudarc::DeviceSlice::num_bytes(self);
                let (address, told) = cudarc::DevicePtrMut::device_ptr_mut(self, known_to_cudarc(stream)?);
                Ok(Lent { address, bytes, _told: Some(told) })
            }
        }
    )*};
}

of_cudarc!(cudarc::CudaSlice<T>, cudarc::CudaView<'_, T>, cudarc::CudaViewMut<'_, T>);
of_cudarc!(mut cudarc::CudaSlice<T>, cudarc::CudaViewMut<'_, T>);

/// Where the elements of a call are on a device, as addresses.
#[derive(Clone, Copy, Debug)]
pub enum DeviceBuffers {
    /// Input and output apart.
    Separate {
        /// What this rank brings: address and bytes. Of no length where it brings nothing.
        input: (u64, usize),
        /// Where the result goes. Of no length where there is none.
        output: (u64, usize),
    },
    /// One buffer for both, as large as the larger. The smaller lies in its place inside: this rank's block.
    InPlace((u64, usize)),
}

impl DeviceBuffers {
    pub(super) fn places(self) -> Places {
        let of = |(address, bytes): (u64, usize)| (std::ptr::without_provenance_mut::<u8>(address as usize), bytes);
        match self {
            DeviceBuffers::Separate { input, output } => {
                Places::Separate { input: (of(input).0.cast_const(), input.1), output: of(output) }
            }
            DeviceBuffers::InPlace(buffer) => Places::InPlace(of(buffer)),
        }
    }
}
