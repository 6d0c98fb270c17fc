//! The test data of one run: any rank's input, and the result of reducing all ranks' inputs.

use paceline_comm::{DataType, ReduceOp};

use super::super::names::Operator;
use super::format::{Family, Float, Format};
use super::hash;
use super::minmax::{self, End};
use super::{product, sum};

/// All ranks' inputs for one call, as functions of rank and index.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Data {
    format: Format,
    operator: Option<Operator>,
    n: u64,
    seed: u64,
}

impl Data {
    /// Data for `n` ranks. Without an operator the elements are any bits, NaNs included: they are only moved.
    #[must_use]
    pub fn new(data_type: DataType, operator: Option<Operator>, n: usize, seed: u64) -> Data {
        Data { format: Format::of(data_type), operator, n: n as u64, seed }
    }

    /// Bytes of one element.
    #[must_use]
    pub fn element(&self) -> usize {
        self.format.bytes
    }

    /// Writes a rank's input, from element `first` on, over all of `out`.
    pub fn input(&self, rank: usize, first: usize, out: &mut [u8]) {
        let Data { format, n, seed, .. } = *self;
        let rank = rank as u64;
        let Some(operator) = self.operator else {
            return self.write(first, out, |index| hash::of(seed, index, sum::RANKS + rank));
        };
        match (operator, format.family) {
            (Operator::Max, _) => self.write(first, out, |i| minmax::part(format, End::Max, seed, i, rank, n)),
            (Operator::Min, _) => self.write(first, out, |i| minmax::part(format, End::Min, seed, i, rank, n)),
            (Operator::Sum, Family::Integer { .. }) => {
                self.write(first, out, |i| sum::wrapping_part(seed, i, rank, n));
            }
            (Operator::MulSum, Family::Integer { .. }) => {
                let undo = product::inverse(integer_factor(rank));
                self.write(first, out, |i| sum::wrapping_part(seed, i, rank, n).wrapping_mul(undo));
            }
            (Operator::Prod, Family::Integer { .. }) => {
                self.write(first, out, |i| product::wrapping_part(seed, i, rank, n));
            }
            (Operator::Avg, Family::Integer { signed }) => {
                let most = self.integer_most(signed);
                self.write(first, out, |i| signed_bits(signed, seed, i, sum::positive_part(most, seed, i, rank, n)));
            }
            (Operator::Sum | Operator::MulSum, Family::Float(float)) => {
                let undo = if operator == Operator::MulSum { 1.0 / float_factor(rank) } else { 1.0 };
                self.write(first, out, |i| {
                    let part = sum::bounded_part(float.budget, seed, i, rank, n) as f64;
                    (float.encode)(part * sum::scale(seed, i) * undo)
                });
            }
            (Operator::Prod, Family::Float(float)) => {
                self.write(first, out, |i| (float.encode)(product::float_part(float, seed, i, rank, n)));
            }
            (Operator::Avg, Family::Float(float)) => self.write(first, out, |i| {
                let part = sum::positive_part(float.budget as u64, seed, i, rank, n);
                (float.encode)(signed_float(seed, i, part as f64))
            }),
        }
    }

    /// Writes the result of reducing all ranks' inputs, from element `first` on, over all of `out`.
    ///
    /// # Panics
    ///
    /// Without an operator.
    pub fn result(&self, first: usize, out: &mut [u8]) {
        let Data { format, n, seed, .. } = *self;
        match (self.operator.expect("a result needs an operator"), format.family) {
            (Operator::Max | Operator::Min, _) => self.write(first, out, |i| minmax::total(format, seed, i)),
            (Operator::Sum | Operator::MulSum, Family::Integer { .. }) => {
                self.write(first, out, |i| sum::wrapping_total(seed, i));
            }
            (Operator::Prod, Family::Integer { .. }) => self.write(first, out, |i| product::wrapping_total(seed, i)),
            (Operator::Avg, Family::Integer { signed }) => {
                let most = self.integer_most(signed);
                self.write(first, out, |i| signed_bits(signed, seed, i, sum::positive_total(most, seed, i) / n));
            }
            (Operator::Sum | Operator::MulSum, Family::Float(float)) => self.write(first, out, |i| {
                let total = sum::bounded_total(float.budget, seed, i) as f64;
                (float.encode)(positive_zero(total * sum::scale(seed, i)))
            }),
            (Operator::Prod, Family::Float(float)) => {
                self.write(first, out, |i| (float.encode)(product::float_total(float, seed, i)));
            }
            (Operator::Avg, Family::Float(float)) => self.write(first, out, |i| self.float_average(float, i)),
        }
    }

    /// How many units in the last place a result may be off.
    #[must_use]
    pub fn tolerance(&self) -> u64 {
        match (self.operator, self.format.family) {
            (Some(Operator::Avg), Family::Float(_)) => 2,
            _ => 0,
        }
    }

    /// The library's operator as this rank calls it.
    ///
    /// # Panics
    ///
    /// Without an operator.
    #[must_use]
    pub fn reduce_op(&self, rank: usize) -> ReduceOp {
        match self.operator.expect("a reduction needs an operator") {
            Operator::Sum => ReduceOp::Sum,
            Operator::Prod => ReduceOp::Prod,
            Operator::Max => ReduceOp::Max,
            Operator::Min => ReduceOp::Min,
            Operator::Avg => ReduceOp::Avg,
            Operator::MulSum => ReduceOp::PreMulSum(match self.format.family {
                Family::Integer { .. } => integer_factor(rank as u64),
                Family::Float(float) => (float.encode)(float_factor(rank as u64)),
            }),
        }
    }

    fn float_average(&self, float: Float, index: u64) -> u64 {
        let total = sum::positive_total(float.budget as u64, self.seed, index) as f64;
        (float.encode)(signed_float(self.seed, index, total) / self.n as f64)
    }

    fn integer_most(&self, signed: bool) -> u64 {
        if signed { self.format.mask() >> 1 } else { self.format.mask() }
    }

    fn write(&self, first: usize, out: &mut [u8], bits: impl Fn(u64) -> u64) {
        match self.format.bytes {
            1 => write_as::<1>(first, out, bits),
            2 => write_as::<2>(first, out, bits),
            4 => write_as::<4>(first, out, bits),
            _ => write_as::<8>(first, out, bits),
        }
    }
}

/// Writes each element's low bytes, in the machine's order, which is little-endian on every machine supported.
fn write_as<const BYTES: usize>(first: usize, out: &mut [u8], bits: impl Fn(u64) -> u64) {
    const { assert!(cfg!(target_endian = "little")) };
    let (elements, rest) = out.as_chunks_mut::<BYTES>();
    assert!(rest.is_empty(), "a part of an element of {BYTES} bytes");
    for (index, element) in (first as u64..).zip(elements) {
        element.copy_from_slice(&bits(index).to_le_bytes()[..BYTES]);
    }
}

fn signed_bits(signed: bool, seed: u64, index: u64, value: u64) -> u64 {
    if signed && sum::negative(seed, index) { value.wrapping_neg() } else { value }
}

fn signed_float(seed: u64, index: u64, value: f64) -> f64 {
    let scaled = value * sum::scale(seed, index);
    positive_zero(if sum::negative(seed, index) { -scaled } else { scaled })
}

/// Zero without its sign: sums of zeros of both signs are plain zero.
fn positive_zero(value: f64) -> f64 {
    value + 0.0
}

fn integer_factor(rank: u64) -> u64 {
    2 * (rank % 3) + 1
}

fn float_factor(rank: u64) -> f64 {
    [0.5, 1.0, 2.0][(rank % 3) as usize]
}
