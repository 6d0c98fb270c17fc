//! Kernels: the loops for one element type and operator, looked up once and called many times.

use std::ptr;

use super::level::{Combine, Divide, Fold, Level, Scale};
use super::{DataType, ReduceOp};

/// The reductions for an element type and an operator.
///
/// A call costs one indirect jump. All methods take bytes, at any address; the numbers are those of the
/// [module](super).
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    data_type: DataType,
    op: ReduceOp,
    combine: Combine,
    fold: Fold,
    scale: Scale,
    finish: Divide,
    factor: u64,
}

impl Kernel {
    /// The kernel for `op` over elements of `data_type`, for this machine.
    #[inline]
    pub fn of(data_type: DataType, op: ReduceOp) -> Kernel {
        Kernel::select(Level::best(), data_type, op)
    }

    /// The kernel made of the instructions of `level`, for comparisons.
    ///
    /// # Panics
    ///
    /// When this machine does not have the level.
    pub fn at(level: Level, data_type: DataType, op: ReduceOp) -> Kernel {
        assert!(level.is_available(), "this machine does not have the instructions of level {level:?}");
        Kernel::select(level, data_type, op)
    }

    #[inline]
    fn select(level: Level, data_type: DataType, op: ReduceOp) -> Kernel {
        let row = &level.rows()[data_type as usize];
        let ((combine, fold), factor) = match op {
            ReduceOp::Sum | ReduceOp::Avg => (row.operators[0], None),
            ReduceOp::PreMulSum(factor) => (row.operators[0], Some(factor)),
            ReduceOp::Prod => (row.operators[1], None),
            ReduceOp::Min => (row.operators[2], None),
            ReduceOp::Max => (row.operators[3], None),
        };
        let copy = const { &[copy::<1>, copy::<2>, copy::<4>, copy::<8>] };
        Kernel {
            data_type,
            op,
            combine,
            fold,
            scale: if factor.is_some() { row.scale } else { copy[data_type.size().trailing_zeros() as usize] },
            finish: if op == ReduceOp::Avg { row.divide } else { nothing },
            factor: factor.unwrap_or(0),
        }
    }

    /// What the elements are.
    #[inline]
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// How they are combined.
    #[inline]
    pub fn op(&self) -> ReduceOp {
        self.op
    }

    /// target = first (op) second, for `elements` elements. For [`ReduceOp::Avg`] and [`ReduceOp::PreMulSum`] that is
    /// the sum.
    ///
    /// # Safety
    ///
    /// `first` and `second` must be valid for reads and `target` for writes of `elements` elements, and no other thread
    /// or process may write the sources or touch the target meanwhile. `target` may be exactly `first`, `second` or
    /// both; otherwise it must not overlap them.
    #[inline]
    pub unsafe fn combine(&self, target: *mut u8, first: *const u8, second: *const u8, elements: usize) {
        // SAFETY: the caller keeps what the loop asks, and the machine has the level of the row it came from.
        unsafe { (self.combine)(target, first, second, elements) }
    }

    /// target = sources\[0\] (op) sources\[1\] (op) ..., in this order and in one pass, for `elements` elements. 16- and
    /// 8-bit floats are added and multiplied in f32 and rounded once. One source is copied, bit for bit.
    ///
    /// # Safety
    ///
    /// As for [`Kernel::combine`], for each of the sources.
    ///
    /// # Panics
    ///
    /// When there is no source.
    #[inline]
    pub unsafe fn fold(&self, target: *mut u8, sources: &[*const u8], elements: usize) {
        // SAFETY: the caller keeps what the loops ask, and the machine has the level of the row they came from.
        unsafe {
            match *sources {
                [] => panic!("a fold of {} {} elements needs a source", elements, self.data_type),
                [source] => ptr::copy(source, target, elements * self.data_type.size()),
                [first, second] => (self.combine)(target, first, second, elements),
                _ => (self.fold)(target, sources, elements),
            }
        }
    }

    /// target = source * factor, for `elements` elements, with the factor of [`ReduceOp::PreMulSum`]. For the other
    /// operators target = source.
    ///
    /// # Safety
    ///
    /// `source` must be valid for reads and `target` for writes of `elements` elements, and no other thread or process
    /// may write the source or touch the target meanwhile. `target` must be exactly `source`, or not overlap it.
    #[inline]
    pub unsafe fn scale(&self, target: *mut u8, source: *const u8, elements: usize) {
        // SAFETY: the caller keeps what the loop asks, and the machine has the level of the row it came from.
        unsafe { (self.scale)(target, source, self.factor, elements) }
    }

    /// target = target / ranks, for `elements` elements, for [`ReduceOp::Avg`]. For the other operators nothing.
    ///
    /// # Safety
    ///
    /// `target` must be valid for reads and writes of `elements` elements, and no other thread or process may touch it
    /// meanwhile.
    ///
    /// # Panics
    ///
    /// When `ranks` is 0.
    #[inline]
    pub unsafe fn finish(&self, ranks: u32, target: *mut u8, elements: usize) {
        assert!(ranks > 0, "a reduction has at least one rank");
        // SAFETY: the caller keeps what the loop asks, and the machine has the level of the row it came from.
        unsafe { (self.finish)(target, ranks, elements) }
    }
}

/// The scaling of operators that don't scale.
unsafe fn copy<const SIZE: usize>(target: *mut u8, source: *const u8, _factor: u64, elements: usize) {
    if !ptr::eq(target, source) {
        // SAFETY: the caller gives the source for reading and the target for writing.
        unsafe { ptr::copy(source, target, elements * SIZE) };
    }
}

/// The division of operators that don't divide.
unsafe fn nothing(_target: *mut u8, _ranks: u32, _elements: usize) {}

/// The same for slices: equally long, and so many bytes that they are whole elements.
impl Kernel {
    /// target = first (op) second.
    ///
    /// # Panics
    ///
    /// When the lengths differ or are not whole elements.
    pub fn combine_bytes(&self, target: &mut [u8], first: &[u8], second: &[u8]) {
        let elements = self.elements(target.len(), first.len());
        assert_eq!(first.len(), second.len(), "the second source is as long as the first");
        // SAFETY: the lengths are checked, and a slice to be written overlaps no other.
        unsafe { self.combine(target.as_mut_ptr(), first.as_ptr(), second.as_ptr(), elements) }
    }

    /// target = target (op) source.
    ///
    /// # Panics
    ///
    /// As [`Kernel::combine_bytes`].
    pub fn accumulate_bytes(&self, target: &mut [u8], source: &[u8]) {
        let elements = self.elements(target.len(), source.len());
        let target = target.as_mut_ptr();
        // SAFETY: the lengths are checked, and a slice to be written overlaps no other.
        unsafe { self.combine(target, target, source.as_ptr(), elements) }
    }

    /// target = sources\[0\] (op) sources\[1\] (op) ... Allocates a list of pointers.
    ///
    /// # Panics
    ///
    /// As [`Kernel::combine_bytes`], and when there is no source.
    pub fn fold_bytes(&self, target: &mut [u8], sources: &[&[u8]]) {
        let mut pointers = Vec::with_capacity(sources.len());
        for source in sources {
            self.elements(target.len(), source.len());
            pointers.push(source.as_ptr());
        }
        // SAFETY: the lengths are checked, and a slice to be written overlaps no other.
        unsafe { self.fold(target.as_mut_ptr(), &pointers, target.len() / self.data_type.size()) }
    }

    /// target = source * factor, as [`Kernel::scale`].
    ///
    /// # Panics
    ///
    /// As [`Kernel::combine_bytes`].
    pub fn scale_bytes(&self, target: &mut [u8], source: &[u8]) {
        let elements = self.elements(target.len(), source.len());
        // SAFETY: the lengths are checked, and a slice to be written overlaps no other.
        unsafe { self.scale(target.as_mut_ptr(), source.as_ptr(), elements) }
    }

    /// target = target * factor, as [`Kernel::scale`].
    ///
    /// # Panics
    ///
    /// When the length is not whole elements.
    pub fn scale_bytes_in_place(&self, target: &mut [u8]) {
        let elements = self.elements(target.len(), target.len());
        let target = target.as_mut_ptr();
        // SAFETY: the length is checked, and the source is exactly the target.
        unsafe { self.scale(target, target, elements) }
    }

    /// target = target / ranks, as [`Kernel::finish`].
    ///
    /// # Panics
    ///
    /// When `ranks` is 0, or the length is not whole elements.
    pub fn finish_bytes(&self, ranks: u32, target: &mut [u8]) {
        let elements = self.elements(target.len(), target.len());
        // SAFETY: the length is checked.
        unsafe { self.finish(ranks, target.as_mut_ptr(), elements) }
    }

    fn elements(&self, target: usize, source: usize) -> usize {
        let size = self.data_type.size();
        assert_eq!(target, source, "target and source are equally long");
        assert!(
            target.is_multiple_of(size),
            "{target} bytes are not whole elements of {size} bytes ({})",
            self.data_type
        );
        target / size
    }
}
