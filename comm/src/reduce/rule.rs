//! Rules: an operator applied to a format.
//!
//! Every rule gives the same bits whichever operand comes first. Sums and products leave that to [`Format::encode`],
//! which makes every NaN the canonical one; minima and maxima order -0 before +0 and let NaN win.

use std::marker::PhantomData;

use super::bfloat::Bf16;
use super::format::Format;
use super::narrow::{E4M3, E5M2, Half, Narrow};

/// How lanes are folded into one.
pub(super) trait Rule: 'static {
    /// What is read and written at once.
    type Lane: Copy;
    /// What is carried from one operand to the next.
    type Carry: Copy;
    /// The rule for the elements that don't fill a lane.
    type Single: Rule;
    /// The elements in a lane.
    const ELEMENTS: usize;

    fn lift(lane: Self::Lane) -> Self::Carry;
    fn join(a: Self::Carry, b: Self::Carry) -> Self::Carry;
    fn lower(carry: Self::Carry) -> Self::Lane;
}

pub(super) struct Sum<F>(PhantomData<F>);
pub(super) struct Prod<F>(PhantomData<F>);
pub(super) struct Min<F>(PhantomData<F>);
pub(super) struct Max<F>(PhantomData<F>);

macro_rules! arithmetic {
    ($($rule:ident, $method:ident;)*) => { $(
        impl<F: Format> Rule for $rule<F> {
            type Lane = F::Lane;
            type Carry = F::Wide;
            type Single = $rule<F::Single>;
            const ELEMENTS: usize = F::ELEMENTS;

            #[inline(always)]
            fn lift(lane: F::Lane) -> F::Wide {
                F::decode(lane)
            }
            #[inline(always)]
            fn join(a: F::Wide, b: F::Wide) -> F::Wide {
                F::$method(a, b)
            }
            #[inline(always)]
            fn lower(carry: F::Wide) -> F::Lane {
                F::encode(carry)
            }
        }
    )* };
}

arithmetic! {
    Sum, add;
    Prod, mul;
}

/// A type with a smallest and a largest of two.
pub(super) trait Order: 'static {
    /// The element's bytes.
    type Lane: Copy;
    /// What is compared.
    type Key: Copy;

    fn key(lane: Self::Lane) -> Self::Key;
    fn lane(key: Self::Key) -> Self::Lane;
    fn min(a: Self::Key, b: Self::Key) -> Self::Key;
    fn max(a: Self::Key, b: Self::Key) -> Self::Key;
}

macro_rules! extremum {
    ($($rule:ident, $method:ident;)*) => { $(
        impl<O: Order> Rule for $rule<O> {
            type Lane = O::Lane;
            type Carry = O::Key;
            type Single = Self;
            const ELEMENTS: usize = 1;

            #[inline(always)]
            fn lift(lane: O::Lane) -> O::Key {
                O::key(lane)
            }
            #[inline(always)]
            fn join(a: O::Key, b: O::Key) -> O::Key {
                O::$method(a, b)
            }
            #[inline(always)]
            fn lower(carry: O::Key) -> O::Lane {
                O::lane(carry)
            }
        }
    )* };
}

extremum! {
    Min, min;
    Max, max;
}

macro_rules! order {
    ($format:ty, $key:ident, $min:expr, $max:expr) => {
        impl Order for $format {
            type Lane = [u8; size_of::<$key>()];
            type Key = $key;

            #[inline(always)]
            fn key(lane: Self::Lane) -> $key {
                <$key>::from_ne_bytes(lane)
            }
            #[inline(always)]
            fn lane(key: $key) -> Self::Lane {
                key.to_ne_bytes()
            }
            #[inline(always)]
            fn min(a: $key, b: $key) -> $key {
                $min(a, b)
            }
            #[inline(always)]
            fn max(a: $key, b: $key) -> $key {
                $max(a, b)
            }
        }
    };
}

macro_rules! integer {
    ($($type:ident)*) => { $( order!($type, $type, |a: $type, b: $type| a.min(b), |a: $type, b: $type| a.max(b)); )* };
}

integer!(i8 u8 i32 u32 i64 u64);

// The comparison is made both ways round: equal numbers differ at most in the sign of a zero, and each way round
// returns another of the two. For the minimum any sign will do it, for the maximum it takes both.
macro_rules! float {
    ($($type:ident, $canonical:literal;)*) => { $(
        order!(
            $type,
            $type,
            |a: $type, b: $type| {
                let (one, other) = (if a < b { a } else { b }, if b < a { b } else { a });
                let least = <$type>::from_bits(one.to_bits() | other.to_bits());
                if a.is_nan() | b.is_nan() { <$type>::from_bits($canonical) } else { least }
            },
            |a: $type, b: $type| {
                let (one, other) = (if a > b { a } else { b }, if b > a { b } else { a });
                let greatest = <$type>::from_bits(one.to_bits() & other.to_bits());
                if a.is_nan() | b.is_nan() { <$type>::from_bits($canonical) } else { greatest }
            }
        );
    )* };
}

float! {
    f32, 0x7fc0_0000;
    f64, 0x7ff8_0000_0000_0000;
}

// Narrow floats are compared by their bits, a sign and a magnitude. Of two negative numbers the greater is the one
// with the smaller bits; in all other cases signed integers have the same order.
macro_rules! narrow {
    ($($format:ty, $key:ident, $canonical:literal, $infinity:literal;)*) => { $(
        order!(
            $format,
            $key,
            |a: $key, b: $key| {
                let least = if a & b < 0 { a.max(b) } else { a.min(b) };
                if (a & $key::MAX).max(b & $key::MAX) > $infinity { $canonical } else { least }
            },
            |a: $key, b: $key| {
                let greatest = if a & b < 0 { a.min(b) } else { a.max(b) };
                if (a & $key::MAX).max(b & $key::MAX) > $infinity { $canonical } else { greatest }
            }
        );
    )* };
}

narrow! {
    Narrow<Half>, i16, 0x7e00, 0x7c00;
    Bf16, i16, 0x7fc0, 0x7f80;
    Narrow<E4M3>, i8, 0x7f, 0x7e;
    Narrow<E5M2>, i8, 0x7e, 0x7c;
}
