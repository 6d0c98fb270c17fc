//! What test data has to know of an element type: its width, and how far exactness reaches.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use paceline_comm::DataType;

/// An element type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Format {
    /// Bytes of one element.
    pub bytes: usize,
    /// Whether it is an integer or a float.
    pub family: Family,
}

/// The kinds of number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Family {
    /// Two's complement, or unsigned.
    Integer {
        /// Whether there are negative numbers.
        signed: bool,
    },
    /// Sign, exponent, mantissa.
    Float(Float),
}

/// A float type's limits.
#[derive(Clone, Copy, Debug)]
pub struct Float {
    /// Every whole number up to this is exact. At most 2 to the precision; never below 8.
    pub budget: i64,
    /// Products may move this many powers of two up or down without leaving the normal range.
    pub exponents: u64,
    /// The bits of the largest finite number.
    pub largest: u64,
    /// The nearest number's bits.
    pub encode: fn(f64) -> u64,
}

impl PartialEq for Float {
    fn eq(&self, other: &Float) -> bool {
        (self.budget, self.largest) == (other.budget, other.largest)
    }
}

impl Format {
    /// The format of a type.
    #[must_use]
    pub fn of(data_type: DataType) -> Format {
        let integer = |bytes, signed| Format { bytes, family: Family::Integer { signed } };
        let float = |bytes, precision: u32, exponents, largest, encode: fn(f64) -> u64| Format {
            bytes,
            family: Family::Float(Float { budget: 1i64 << precision, exponents, largest, encode }),
        };
        match data_type {
            DataType::I8 => integer(1, true),
            DataType::U8 => integer(1, false),
            DataType::I32 => integer(4, true),
            DataType::U32 => integer(4, false),
            DataType::I64 => integer(8, true),
            DataType::U64 => integer(8, false),
            DataType::F16 => float(2, 11, 8, 0x7bff, |v| f16::from_f64(v).to_bits().into()),
            DataType::Bf16 => float(2, 8, 32, 0x7f7f, |v| bf16::from_f64(v).to_bits().into()),
            DataType::F32 => float(4, 24, 32, 0x7f7f_ffff, |v| (v as f32).to_bits().into()),
            DataType::F64 => float(8, 53, 32, 0x7fef_ffff_ffff_ffff, f64::to_bits),
            DataType::F8E4M3 => float(1, 4, 4, 0x7e, |v| F8E4M3::from_f32(v as f32).to_bits().into()),
            DataType::F8E5M2 => float(1, 3, 8, 0x7b, |v| F8E5M2::from_f32(v as f32).to_bits().into()),
        }
    }

    /// The bits that an element has.
    #[must_use]
    pub fn mask(&self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes)
    }

    /// The top bit: the sign, where there is one.
    #[must_use]
    pub fn sign(&self) -> u64 {
        1 << (8 * self.bytes - 1)
    }
}
