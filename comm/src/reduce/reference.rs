//! The reductions once more, in the plainest way: what the fast ones are compared with.
//!
//! One element at a time, with a match where the fast code has a table. Integers are computed in 128 bits and cut; an
//! 8-bit float is rounded by looking for the nearest of all its numbers.
#![forbid(unsafe_code)]

use half::{bf16, f16};

use super::{DataType, ReduceOp};

/// sources\[0\] (op) sources\[1\] (op) ..., in this order. Narrow floats are rounded once, at the end. The sum for
/// [`ReduceOp::Avg`] and [`ReduceOp::PreMulSum`]. One source comes back as it is.
///
/// # Panics
///
/// When there is no source, their lengths differ, or a length is not whole elements.
pub fn fold(data_type: DataType, op: ReduceOp, sources: &[&[u8]]) -> Vec<u8> {
    if let [source] = sources {
        return source.to_vec();
    }
    assert!(sources.iter().all(|source| source.len() == sources[0].len()), "the sources are equally long");
    each(data_type, sources[0].len(), |at| {
        let operands = sources.iter().map(|source| read(data_type, &source[at..at + data_type.size()]));
        operands.reduce(|a, b| join(data_type, op, a, b)).expect("a fold needs a source")
    })
}

/// Each element times the factor of [`ReduceOp::PreMulSum`], rounded once. For the other operators the source itself.
///
/// # Panics
///
/// When the length is not whole elements.
pub fn scale(data_type: DataType, op: ReduceOp, source: &[u8]) -> Vec<u8> {
    let ReduceOp::PreMulSum(bits) = op else { return source.to_vec() };
    let factor = read(data_type, &write_bits(data_type, bits));
    each(data_type, source.len(), |at| {
        join(data_type, ReduceOp::Prod, read(data_type, &source[at..at + data_type.size()]), factor)
    })
}

/// Each element divided by `ranks` for [`ReduceOp::Avg`]. For the other operators the source itself.
///
/// # Panics
///
/// When `ranks` is 0, or the length is not whole elements.
pub fn finish(data_type: DataType, op: ReduceOp, ranks: u32, source: &[u8]) -> Vec<u8> {
    assert!(ranks > 0, "a reduction has at least one rank");
    if op != ReduceOp::Avg {
        return source.to_vec();
    }
    each(data_type, source.len(), |at| match read(data_type, &source[at..at + data_type.size()]) {
        Number::Integer(a) => Number::Integer(a / i128::from(ranks)),
        Number::Double(a) => Number::Double(a / f64::from(ranks)),
        Number::Single(a) => Number::Single(a / ranks as f32),
    })
}

/// An element while it is computed with.
#[derive(Clone, Copy)]
enum Number {
    Integer(i128),
    Single(f32),
    Double(f64),
}

fn each(data_type: DataType, bytes: usize, result: impl Fn(usize) -> Number) -> Vec<u8> {
    assert_eq!(bytes % data_type.size(), 0, "{bytes} bytes are not whole elements of {data_type}");
    (0..bytes).step_by(data_type.size()).flat_map(|at| write(data_type, result(at))).collect()
}

fn join(data_type: DataType, op: ReduceOp, a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Integer(a), Number::Integer(b)) => Number::Integer(match op {
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => a.wrapping_add(b),
            ReduceOp::Prod => a.wrapping_mul(b),
            ReduceOp::Min => a.min(b),
            ReduceOp::Max => a.max(b),
        }),
        (Number::Single(a), Number::Single(b)) => Number::Single(match op {
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => a + b,
            ReduceOp::Prod => a * b,
            ReduceOp::Min | ReduceOp::Max => extremum(op, f64::from(a), f64::from(b)) as f32,
        }),
        (Number::Double(a), Number::Double(b)) => Number::Double(match op {
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => a + b,
            ReduceOp::Prod => a * b,
            ReduceOp::Min | ReduceOp::Max => extremum(op, a, b),
        }),
        _ => unreachable!("both operands are {data_type}"),
    }
}

fn extremum(op: ReduceOp, a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    let a_is_less = a < b || (a == b && a.is_sign_negative());
    if a_is_less == (op == ReduceOp::Min) { a } else { b }
}

fn read(data_type: DataType, bytes: &[u8]) -> Number {
    let mut low = [0; 8];
    low[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(if cfg!(target_endian = "big") { reversed(low, bytes.len()) } else { low });
    match data_type {
        DataType::I8 => Number::Integer((bits as i8).into()),
        DataType::U8 => Number::Integer((bits as u8).into()),
        DataType::I32 => Number::Integer((bits as i32).into()),
        DataType::U32 => Number::Integer((bits as u32).into()),
        DataType::I64 => Number::Integer((bits as i64).into()),
        DataType::U64 => Number::Integer(bits.into()),
        DataType::F16 => Number::Single(f16::from_bits(bits as u16).to_f32_const()),
        DataType::F32 => Number::Single(f32::from_bits(bits as u32)),
        DataType::F64 => Number::Double(f64::from_bits(bits)),
        DataType::Bf16 => Number::Single(bf16::from_bits(bits as u16).to_f32_const()),
        DataType::F8E4M3 => Number::Single(E4M3.value(bits as u8)),
        DataType::F8E5M2 => Number::Single(E5M2.value(bits as u8)),
    }
}

fn write(data_type: DataType, number: Number) -> Vec<u8> {
    let bits = match (data_type, number) {
        (_, Number::Integer(a)) => a as u64,
        (DataType::F64, Number::Double(a)) if a.is_nan() => 0x7ff8_0000_0000_0000,
        (DataType::F64, Number::Double(a)) => a.to_bits(),
        (DataType::F16, Number::Single(a)) if a.is_nan() => 0x7e00,
        (DataType::F16, Number::Single(a)) => f16::from_f32_const(a).to_bits().into(),
        (DataType::F32, Number::Single(a)) if a.is_nan() => 0x7fc0_0000,
        (DataType::F32, Number::Single(a)) => a.to_bits().into(),
        (DataType::Bf16, Number::Single(a)) if a.is_nan() => 0x7fc0,
        (DataType::Bf16, Number::Single(a)) => bf16::from_f32_const(a).to_bits().into(),
        (DataType::F8E4M3, Number::Single(a)) => E4M3.nearest(a).into(),
        (DataType::F8E5M2, Number::Single(a)) => E5M2.nearest(a).into(),
        _ => unreachable!("no {data_type} is computed in this width"),
    };
    write_bits(data_type, bits)
}

fn write_bits(data_type: DataType, bits: u64) -> Vec<u8> {
    let low = &bits.to_le_bytes()[..data_type.size()];
    if cfg!(target_endian = "big") { low.iter().rev().copied().collect() } else { low.to_vec() }
}

fn reversed(low: [u8; 8], size: usize) -> [u8; 8] {
    let mut bytes = low;
    bytes[..size].reverse();
    bytes
}

/// An 8-bit float: a sign, an exponent, a mantissa.
struct Minifloat {
    mantissa_bits: i32,
    bias: i32,
    infinity: Option<u8>,
    largest: u8,
    nan: u8,
}

const E4M3: Minifloat = Minifloat { mantissa_bits: 3, bias: 7, infinity: None, largest: 0x7e, nan: 0x7f };
const E5M2: Minifloat = Minifloat { mantissa_bits: 2, bias: 15, infinity: Some(0x7c), largest: 0x7b, nan: 0x7e };

impl Minifloat {
    fn value(&self, bits: u8) -> f32 {
        let magnitude = bits & 0x7f;
        let exponent = i32::from(magnitude >> self.mantissa_bits);
        let mantissa = f32::from(magnitude & ((1 << self.mantissa_bits) - 1));
        let whole = power_of_two(self.mantissa_bits);
        let absolute = match exponent {
            _ if Some(magnitude) == self.infinity => f32::INFINITY,
            _ if magnitude > self.largest => f32::NAN,
            0 => mantissa / whole * power_of_two(1 - self.bias),
            _ => (1.0 + mantissa / whole) * power_of_two(exponent - self.bias),
        };
        if bits < 0x80 { absolute } else { -absolute }
    }

    fn nearest(&self, value: f32) -> u8 {
        if value.is_nan() {
            return self.nan;
        }
        let magnitude = match self.infinity {
            Some(infinity) if value.is_infinite() => infinity,
            _ => {
                let cut = value.abs().min(self.value(self.largest));
                let distance = |bits: u8| (f64::from(self.value(bits)) - f64::from(cut)).abs();
                let rank = |bits: &u8| (distance(*bits), bits & 1);
                (0..=self.largest).min_by(|a, b| rank(a).partial_cmp(&rank(b)).expect("no NaN")).expect("not empty")
            }
        };
        if value.is_sign_negative() { magnitude | 0x80 } else { magnitude }
    }
}

/// 2^exponent, exactly (which `powi` does not promise), for normal numbers.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_8_bit_floats_have_the_numbers_of_the_ocp_specification() {
        let cases = [
            (E4M3.value(0x7e), 448.0),
            (E4M3.value(0x08), power_of_two(-6)),
            (E4M3.value(0x07), 0.875 * power_of_two(-6)),
            (E4M3.value(0x01), power_of_two(-9)),
            (E4M3.value(0xb8), -1.0),
            (E5M2.value(0x7b), 57344.0),
            (E5M2.value(0x7c), f32::INFINITY),
            (E5M2.value(0x04), power_of_two(-14)),
            (E5M2.value(0x03), 0.75 * power_of_two(-14)),
            (E5M2.value(0x01), power_of_two(-16)),
            (E5M2.value(0xbc), -1.0),
        ];
        for (i, (have, want)) in cases.into_iter().enumerate() {
            assert_eq!(have, want, "case {i}");
        }
        assert_eq!([E4M3.nearest(465.0), E4M3.nearest(-1e30), E4M3.nearest(f32::INFINITY)], [0x7e, 0xfe, 0x7e]);
        assert_eq!([E5M2.nearest(65536.0), E5M2.nearest(-1e30), E5M2.nearest(f32::INFINITY)], [0x7b, 0xfb, 0x7c]);
        assert!(E4M3.value(0x7f).is_nan() && E4M3.value(0xff).is_nan());
        assert!((0x7d..=0x7f).chain(0xfd..=0xff).all(|bits| E5M2.value(bits).is_nan()));
    }
}
