//! The twelve element types and the operators.

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
