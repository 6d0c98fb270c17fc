//! Formats: how the elements of a type are read, computed with, and written back.
//!
//! Elements are read and written as arrays of bytes, so that they may lie at any address and the loops stay safe code
//! that the compiler can turn into vector code. Narrow formats are in `narrow.rs`.

/// One way to compute with the elements of a type.
pub(super) trait Format: 'static {
    /// What is read and written at once: an array of bytes, one element or several.
    type Lane: Copy;
    /// What is computed with.
    type Wide: Copy;
    /// What a sum is divided by.
    type Divisor: Copy;
    /// The format for the elements that don't fill a lane.
    type Single: Format;
    /// The elements in a lane.
    const ELEMENTS: usize;

    fn decode(lane: Self::Lane) -> Self::Wide;
    /// Rounds to the nearest, ties to even. Any NaN becomes the type's canonical quiet NaN.
    fn encode(wide: Self::Wide) -> Self::Lane;
    fn add(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn mul(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn div(a: Self::Wide, by: Self::Divisor) -> Self::Wide;
    /// The factor whose bits are the low bytes of `bits`.
    fn factor(bits: u64) -> Self::Wide;
    fn divisor(ranks: u32) -> Self::Divisor;
    /// 1 / ranks, if that is exact.
    fn inverse(ranks: u32) -> Option<Self::Wide>;
}

/// 1 / ranks, if that is exact.
#[inline(always)]
pub(super) fn exact_inverse(ranks: u32) -> Option<f32> {
    ranks.is_power_of_two().then(|| 1.0 / ranks as f32)
}

// Narrow integers are divided as floats, which vectors can do. The quotient, cut towards zero, is exact: unless it is
// whole it lies at least 1/|a| of itself away from a whole number, far more than the float's rounding. (A divisor too
// long for f32 is over 2^24, and any 8-bit number divided by it is cut to 0.)
macro_rules! cut {
    (i64, $quotient:expr) => {
        $quotient
    };
    (u64, $quotient:expr) => {
        $quotient
    };
    ($float:ident, $quotient:expr) => {{
        let quotient: $float = $quotient;
        // SAFETY: a sum is divided by 1 or more, so the quotient is no further from 0 than the sum is.
        unsafe { quotient.to_int_unchecked() }
    }};
}

macro_rules! integer {
    ($($type:ident, $divisor:ident;)*) => { $(
        impl Format for $type {
            type Lane = [u8; size_of::<$type>()];
            type Wide = $type;
            type Divisor = $divisor;
            type Single = Self;
            const ELEMENTS: usize = 1;

            #[inline(always)]
            fn decode(lane: Self::Lane) -> $type {
                <$type>::from_ne_bytes(lane)
            }
            #[inline(always)]
            fn encode(wide: $type) -> Self::Lane {
                wide.to_ne_bytes()
            }
            #[inline(always)]
            fn add(a: $type, b: $type) -> $type {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn mul(a: $type, b: $type) -> $type {
                a.wrapping_mul(b)
            }
            #[inline(always)]
            fn div(a: $type, by: $divisor) -> $type {
                cut!($divisor, a as $divisor / by)
            }
            #[inline(always)]
            fn factor(bits: u64) -> $type {
                bits as $type
            }
            #[inline(always)]
            fn divisor(ranks: u32) -> $divisor {
                ranks as $divisor
            }
            #[inline(always)]
            fn inverse(_ranks: u32) -> Option<$type> {
                None
            }
        }
    )* };
}

integer! {
    i8, f32;
    u8, f32;
    i32, f64;
    u32, f64;
    i64, i64;
    u64, u64;
}

macro_rules! float {
    ($($type:ident, $bits:ident, $canonical:literal;)*) => { $(
        impl Format for $type {
            type Lane = [u8; size_of::<$type>()];
            type Wide = $type;
            type Divisor = $type;
            type Single = Self;
            const ELEMENTS: usize = 1;

            #[inline(always)]
            fn decode(lane: Self::Lane) -> $type {
                <$type>::from_ne_bytes(lane)
            }
            #[inline(always)]
            fn encode(wide: $type) -> Self::Lane {
                if wide.is_nan() { <$type>::from_bits($canonical) } else { wide }.to_ne_bytes()
            }
            #[inline(always)]
            fn add(a: $type, b: $type) -> $type {
                a + b
            }
            #[inline(always)]
            fn mul(a: $type, b: $type) -> $type {
                a * b
            }
            #[inline(always)]
            fn div(a: $type, by: $type) -> $type {
                a / by
            }
            #[inline(always)]
            fn factor(bits: u64) -> $type {
                <$type>::from_bits(bits as $bits)
            }
            #[inline(always)]
            fn divisor(ranks: u32) -> $type {
                ranks as $type
            }
            #[inline(always)]
            fn inverse(ranks: u32) -> Option<$type> {
                exact_inverse(ranks).map($type::from)
            }
        }
    )* };
}

float! {
    f32, u32, 0x7fc0_0000;
    f64, u64, 0x7ff8_0000_0000_0000;
}
