//! The twelve element types and the operators.

use std::fmt;

use super::Element;

/// What the elements of a buffer are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum DataType {
    /// Signed 8-bit integer.
    I8 = 0,
    /// Unsigned 8-bit integer.
    U8 = 1,
    /// Signed 32-bit integer.
    I32 = 2,
    /// Unsigned 32-bit integer.
    U32 = 3,
    /// Signed 64-bit integer.
    I64 = 4,
    /// Unsigned 64-bit integer.
    U64 = 5,
    /// IEEE 754 half.
    F16 = 6,
    /// IEEE 754 single.
    F32 = 7,
    /// IEEE 754 double.
    F64 = 8,
    /// bfloat16.
    Bf16 = 9,
    /// 8-bit float, 4 exponent bits, 3 mantissa bits, no infinities.
    F8E4M3 = 10,
    /// 8-bit float, 5 exponent bits, 2 mantissa bits.
    F8E5M2 = 11,
}

/// What is known of each type, in the order of the codes: its size in bytes, its name, and what else it is called.
const ROWS: [(DataType, usize, &str, &[&str]); 12] = [
    (DataType::I8, 1, "int8", &["i8"]),
    (DataType::U8, 1, "uint8", &["u8"]),
    (DataType::I32, 4, "int32", &["i32"]),
    (DataType::U32, 4, "uint32", &["u32"]),
    (DataType::I64, 8, "int64", &["i64"]),
    (DataType::U64, 8, "uint64", &["u64"]),
    (DataType::F16, 2, "half", &["f16", "float16"]),
    (DataType::F32, 4, "float", &["f32", "float32"]),
    (DataType::F64, 8, "double", &["f64", "float64"]),
    (DataType::Bf16, 2, "bfloat16", &["bf16"]),
    (DataType::F8E4M3, 1, "f8e4m3", &["float8_e4m3fn"]),
    (DataType::F8E5M2, 1, "f8e5m2", &["float8_e5m2"]),
];

impl DataType {
    /// Every type, in the order of the codes.
    pub const ALL: [DataType; 12] = {
        let mut all = [DataType::I8; 12];
        let mut code = 0;
        while code < all.len() {
            assert!(ROWS[code].0 as usize == code, "the rows are in the order of the codes");
            all[code] = ROWS[code].0;
            code += 1;
        }
        all
    };

    /// The bytes of one element.
    pub const fn size(self) -> usize {
        ROWS[self as usize].1
    }

    /// The name that nccl-tests prints: `int8`, `half`, `float`, `bfloat16`, ...
    pub const fn name(self) -> &'static str {
        ROWS[self as usize].2
    }

    /// The type with this name: nccl-tests' (`float`), Rust's (`f32`) or torch's (`float32`).
    pub fn named(name: &str) -> Option<DataType> {
        ROWS.iter().find(|row| row.2 == name || row.3.contains(&name)).map(|row| row.0)
    }

    /// The number that stands for the type in headers.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type that `code` stands for.
    pub fn from_code(code: u8) -> Option<DataType> {
        DataType::ALL.get(usize::from(code)).copied()
    }

    /// Whether the elements are floating-point numbers, so that sums depend on their order.
    pub const fn is_float(self) -> bool {
        self as u8 >= DataType::F16 as u8
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How elements are combined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReduceOp {
    /// The sum. Integers wrap.
    Sum,
    /// The product. Integers wrap.
    Prod,
    /// The smallest; NaN wins.
    Min,
    /// The largest; NaN wins.
    Max,
    /// The sum divided by the number of ranks (integers: rounded towards zero).
    Avg,
    /// The sum of each rank's elements times that rank's factor: the low bytes hold the element's bits.
    PreMulSum(u64),
}

impl ReduceOp {
    /// The operators that need no factor, in the order of the codes.
    pub const PLAIN: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

    /// The sum of each rank's elements times that rank's `factor`.
    pub fn pre_mul_sum<T: Element>(factor: T) -> ReduceOp {
        ReduceOp::PreMulSum(factor.to_bits64())
    }

    /// The name that nccl-tests prints: `sum`, `prod`, `min`, `max`, `avg`, `mulsum`.
    pub const fn name(self) -> &'static str {
        ["sum", "prod", "min", "max", "avg", "mulsum"][self.code() as usize]
    }

    /// The operator with this name, of those that need no factor.
    pub fn named(name: &str) -> Option<ReduceOp> {
        ReduceOp::PLAIN.into_iter().find(|op| op.name() == name)
    }

    /// The number that stands for the operator in headers. A factor is each rank's own and not part of it.
    pub const fn code(self) -> u8 {
        match self {
            ReduceOp::Sum => 0,
            ReduceOp::Prod => 1,
            ReduceOp::Min => 2,
            ReduceOp::Max => 3,
            ReduceOp::Avg => 4,
            ReduceOp::PreMulSum(_) => 5,
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_found_by_each_of_its_names_and_by_its_code() {
        for (code, row) in ROWS.iter().enumerate() {
            for name in [row.2].iter().chain(row.3) {
                assert_eq!(DataType::named(name), Some(row.0), "{name}");
            }
            assert_eq!(DataType::from_code(code as u8), Some(row.0));
            assert_eq!(usize::from(row.0.code()), code);
            assert_eq!(row.0.to_string(), row.2);
        }
        for absent in ["", "Float", "int16", "f32 "] {
            assert_eq!(DataType::named(absent), None, "{absent:?}");
        }
        assert_eq!(DataType::from_code(12), None);
        assert_eq!(DataType::from_code(255), None);
    }

    #[test]
    fn an_operator_is_found_by_its_name_unless_it_needs_a_factor() {
        for (code, op) in ReduceOp::PLAIN.into_iter().enumerate() {
            assert_eq!(usize::from(op.code()), code);
            assert_eq!(ReduceOp::named(op.name()), Some(op));
        }
        assert_eq!(ReduceOp::named("mulsum"), None);
        assert_eq!(ReduceOp::pre_mul_sum(-1i8), ReduceOp::PreMulSum(0xff));
        assert_eq!(ReduceOp::pre_mul_sum(1.0f32), ReduceOp::PreMulSum(0x3f80_0000));
        assert_eq!(ReduceOp::pre_mul_sum(half::bf16::ONE).to_string(), "mulsum");
    }
}
