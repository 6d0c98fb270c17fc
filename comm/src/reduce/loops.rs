//! The loops over elements: plain code, written so that it becomes vector code where it is inlined.
//!
//! Two things decide the form. Elements may lie at any address, so lanes are arrays of bytes. And the compiler only
//! makes vector code of a loop when it knows that what is written is not read later: so each way in which target and
//! sources may coincide has its own loop over slices, and a fold of many reads a block of every source before it
//! writes that block of the target.

use std::mem::MaybeUninit;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::format::Format;
use super::rule::Rule;

/// The bytes that a fold carries from one source to the next: as many as fit in registers.
const BLOCK_BYTES: usize = 256;

/// target = first (rule) second.
///
/// # Safety
///
/// `first` and `second` are readable and `target` is writable for `elements` elements, and nothing else touches them
/// meanwhile. The target is exactly a source, or overlaps none.
#[inline(always)]
pub(super) unsafe fn combine<R: Rule>(target: *mut u8, first: *const u8, second: *const u8, elements: usize) {
    let lanes = elements / R::ELEMENTS;
    // SAFETY: passed on from the caller.
    unsafe { combine_lanes::<R>(target, first, second, lanes) };
    let rest = elements % R::ELEMENTS;
    if R::ELEMENTS > 1 && rest > 0 {
        let done = lanes * size_of::<R::Lane>();
        // SAFETY: as above, for the elements that the lanes left.
        unsafe { combine_lanes::<R::Single>(target.add(done), first.add(done), second.add(done), rest) };
    }
}

#[inline(always)]
unsafe fn combine_lanes<R: Rule>(target: *mut u8, first: *const u8, second: *const u8, lanes: usize) {
    const { assert!(align_of::<R::Lane>() == 1) };
    let join = |a: R::Lane, b: R::Lane| R::lower(R::join(R::lift(a), R::lift(b)));
    let at_first = std::ptr::eq(target, first);
    let at_second = std::ptr::eq(target, second);
    // SAFETY: the caller gives the target for writing. Lanes may lie anywhere, and any bytes are a lane.
    let target = unsafe { from_raw_parts_mut(target.cast::<R::Lane>(), lanes) };
    if at_first && at_second {
        for target in target {
            *target = join(*target, *target);
        }
    } else if at_first || at_second {
        // SAFETY: the other source, given for reading, does not overlap the target.
        let other = unsafe { from_raw_parts(if at_first { second } else { first }.cast::<R::Lane>(), lanes) };
        for (target, other) in target.iter_mut().zip(other) {
            *target = join(*target, *other);
        }
    } else {
        // SAFETY: both are given for reading and do not overlap the target.
        let (first, second) = unsafe { (from_raw_parts(first.cast(), lanes), from_raw_parts(second.cast(), lanes)) };
        for ((target, first), second) in target.iter_mut().zip(first).zip(second) {
            *target = join(*first, *second);
        }
    }
}

/// target = sources\[0\] (rule) sources\[1\] (rule) ..., in this order, for two sources or more.
///
/// # Safety
///
/// As for [`combine`]: the target is exactly one or more of the sources, or overlaps none.
#[inline(always)]
pub(super) unsafe fn fold<R: Rule>(target: *mut u8, sources: &[*const u8], elements: usize) {
    let lanes = elements / R::ELEMENTS;
    // SAFETY: passed on from the caller.
    unsafe { fold_lanes::<R>(target, sources, 0, lanes) };
    let rest = elements % R::ELEMENTS;
    if R::ELEMENTS > 1 && rest > 0 {
        // SAFETY: as above, for the elements that the lanes left.
        unsafe { fold_lanes::<R::Single>(target, sources, lanes * size_of::<R::Lane>(), rest) };
    }
}

#[inline(always)]
unsafe fn fold_lanes<R: Rule>(target: *mut u8, sources: &[*const u8], start: usize, lanes: usize) {
    const { assert!(align_of::<R::Lane>() == 1 && size_of::<R::Carry>() <= BLOCK_BYTES) };
    let block = const { BLOCK_BYTES / size_of::<R::Carry>() };
    let mut lane = 0;
    while lane < lanes {
        let offset = start + lane * size_of::<R::Lane>();
        let n = lanes - lane;
        if n >= block {
            // SAFETY: the block lies within the lanes that the caller gives.
            unsafe { fold_block::<R>(target, sources, offset, block) };
            lane += block;
        } else {
            // SAFETY: as above.
            unsafe { fold_block::<R>(target, sources, offset, n) };
            lane += n;
        }
    }
}

#[inline(always)]
unsafe fn fold_block<R: Rule>(target: *mut u8, sources: &[*const u8], offset: usize, lanes: usize) {
    let mut carry = [const { MaybeUninit::<R::Carry>::uninit() }; BLOCK_BYTES];
    let carry = &mut carry[..lanes];
    let (opening, others) = sources.split_at(2);
    // SAFETY: the caller gives the sources for reading, and the target is not written before they are read.
    let source = |pointer: &*const u8| unsafe { from_raw_parts(pointer.add(offset).cast::<R::Lane>(), lanes) };
    for ((carry, first), second) in carry.iter_mut().zip(source(&opening[0])).zip(source(&opening[1])) {
        carry.write(R::join(R::lift(*first), R::lift(*second)));
    }
    for other in others {
        for (carry, other) in carry.iter_mut().zip(source(other)) {
            // SAFETY: the first loop has written as many.
            carry.write(R::join(unsafe { carry.assume_init_read() }, R::lift(*other)));
        }
    }
    // SAFETY: the caller gives the target for writing, and no slice of a source is used any more.
    let target = unsafe { from_raw_parts_mut(target.add(offset).cast::<R::Lane>(), lanes) };
    for (target, carry) in target.iter_mut().zip(carry) {
        // SAFETY: as above.
        *target = R::lower(unsafe { carry.assume_init_read() });
    }
}

/// target = source * factor.
///
/// # Safety
///
/// `source` is readable and `target` is writable for `elements` elements, and nothing else touches them meanwhile.
/// They are exactly the same, or don't overlap.
#[inline(always)]
pub(super) unsafe fn scale<F: Format>(target: *mut u8, source: *const u8, factor: u64, elements: usize) {
    let lanes = elements / F::ELEMENTS;
    // SAFETY: passed on from the caller.
    unsafe { scale_lanes::<F>(target, source, factor, lanes) };
    let rest = elements % F::ELEMENTS;
    if F::ELEMENTS > 1 && rest > 0 {
        let done = lanes * size_of::<F::Lane>();
        // SAFETY: as above, for the elements that the lanes left.
        unsafe { scale_lanes::<F::Single>(target.add(done), source.add(done), factor, rest) };
    }
}

#[inline(always)]
unsafe fn scale_lanes<F: Format>(target: *mut u8, source: *const u8, factor: u64, lanes: usize) {
    const { assert!(align_of::<F::Lane>() == 1) };
    let factor = F::factor(factor);
    let scaled = |lane: F::Lane| F::encode(F::mul(F::decode(lane), factor));
    let in_place = std::ptr::eq(target, source);
    // SAFETY: the caller gives the target for writing. Lanes may lie anywhere, and any bytes are a lane.
    let target = unsafe { from_raw_parts_mut(target.cast::<F::Lane>(), lanes) };
    if in_place {
        for target in target {
            *target = scaled(*target);
        }
    } else {
        // SAFETY: the source, given for reading, does not overlap the target.
        let source = unsafe { from_raw_parts(source.cast::<F::Lane>(), lanes) };
        for (target, source) in target.iter_mut().zip(source) {
            *target = scaled(*source);
        }
    }
}

/// target = target / ranks.
///
/// # Safety
///
/// `target` is readable and writable for `elements` elements, and nothing else touches it meanwhile. `ranks` is not 0.
#[inline(always)]
pub(super) unsafe fn divide<F: Format>(target: *mut u8, ranks: u32, elements: usize) {
    let lanes = elements / F::ELEMENTS;
    // SAFETY: passed on from the caller.
    unsafe { divide_lanes::<F>(target, ranks, lanes) };
    let rest = elements % F::ELEMENTS;
    if F::ELEMENTS > 1 && rest > 0 {
        // SAFETY: as above, for the elements that the lanes left.
        unsafe { divide_lanes::<F::Single>(target.add(lanes * size_of::<F::Lane>()), ranks, rest) };
    }
}

#[inline(always)]
unsafe fn divide_lanes<F: Format>(target: *mut u8, ranks: u32, lanes: usize) {
    const { assert!(align_of::<F::Lane>() == 1) };
    // SAFETY: the caller gives the target. Lanes may lie anywhere, and any bytes are a lane.
    let target = unsafe { from_raw_parts_mut(target.cast::<F::Lane>(), lanes) };
    // Powers of two have an exact inverse, and multiplying is much faster.
    if let Some(inverse) = F::inverse(ranks) {
        for target in target {
            *target = F::encode(F::mul(F::decode(*target), inverse));
        }
    } else {
        let divisor = F::divisor(ranks);
        for target in target {
            *target = F::encode(F::div(F::decode(*target), divisor));
        }
    }
}
