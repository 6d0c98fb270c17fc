//! Element types, operators, and the reductions over them.
//!
//! What the results are is part of the interface, because all ranks must hold equal bits whatever the algorithm made
//! of the operands' order:
//!
//! - Integers wrap.
//! - Floats round to the nearest, ties to even. 16- and 8-bit floats are added, multiplied and divided as f32 and then
//!   rounded; a [`fold`] rounds once. Subnormal numbers are numbers. (The floating-point environment is expected to be
//!   the default one: a thread that flushes subnormals to zero gets other bits.)
//! - Every NaN that comes out of a reduction is its type's canonical quiet NaN, without a sign, so that even NaNs are
//!   equal bits. Only a copy (a fold of one source) keeps what it is given.
//! - Minimum and maximum: NaN wins, whichever operand it is; -0 is less than +0.
//! - f16, bf16, f32 and f64 overflow to infinity. The 8-bit floats are those of the OCP specification, and saturate
//!   when they are rounded, as in NCCL: a finite result beyond the largest number (448 in E4M3, 57344 in E5M2) becomes
//!   that number. An infinity (E5M2 has them; a fold's product beyond f32 is one too) stays one, so that an overflow
//!   that somebody marked is not lost; minimum and maximum never round.
//! - An average is the sum, divided afterwards: what the sum loses by overflow is lost.
//!
//! With these rules `a op b` and `b op a` are the same bits for every operator and type. `(a op b) op c` and
//! `a op (b op c)` are not, for sums and products of floats.
//!
//! The outline: [`Kernel`] looks up loops in the tables of `level.rs`; `loops.rs` has the loops; `rule.rs` the
//! operators; `format.rs`, `narrow.rs`, `bfloat.rs`, `scaled.rs` and `x86.rs` how elements are read and written.
//! [`mod@reference`] says the same in the plainest way and shares none of it.

mod bfloat;
mod element;
mod format;
mod kernel;
mod level;
mod loops;
mod narrow;
pub mod reference;
mod rule;
mod scaled;
#[cfg(test)]
mod tests;
mod types;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use element::{Element, as_bytes, as_bytes_mut};
pub use kernel::Kernel;
pub use level::Level;
pub use types::{DataType, ReduceOp};

/// target = first (op) second: [`Kernel::combine`], looked up for this one call.
///
/// # Safety
///
/// As for [`Kernel::combine`].
pub unsafe fn combine(
    data_type: DataType,
    op: ReduceOp,
    target: *mut u8,
    first: *const u8,
    second: *const u8,
    elements: usize,
) {
    // SAFETY: passed on from the caller.
    unsafe { Kernel::of(data_type, op).combine(target, first, second, elements) }
}

/// target = sources\[0\] (op) sources\[1\] (op) ...: [`Kernel::fold`], looked up for this one call.
///
/// # Safety
///
/// As for [`Kernel::fold`].
///
/// # Panics
///
/// When there is no source.
pub unsafe fn fold(data_type: DataType, op: ReduceOp, target: *mut u8, sources: &[*const u8], elements: usize) {
    // SAFETY: passed on from the caller.
    unsafe { Kernel::of(data_type, op).fold(target, sources, elements) }
}

/// target = source times the operator's factor: [`Kernel::scale`], looked up for this one call.
///
/// # Safety
///
/// As for [`Kernel::scale`].
pub unsafe fn scale(data_type: DataType, op: ReduceOp, target: *mut u8, source: *const u8, elements: usize) {
    // SAFETY: passed on from the caller.
    unsafe { Kernel::of(data_type, op).scale(target, source, elements) }
}

/// target = target / ranks for an average: [`Kernel::finish`], looked up for this one call.
///
/// # Safety
///
/// As for [`Kernel::finish`].
///
/// # Panics
///
/// When `ranks` is 0.
pub unsafe fn finish(data_type: DataType, op: ReduceOp, ranks: u32, target: *mut u8, elements: usize) {
    // SAFETY: passed on from the caller.
    unsafe { Kernel::of(data_type, op).finish(ranks, target, elements) }
}
