//! Narrow floats: 16 and 8 bits wide, computed with as f32.
//!
//! Everything here is integer and f32 arithmetic without branches or tables, so that the loops become vector code
//! whatever the machine has.

use std::marker::PhantomData;

use super::format::{Format, exact_inverse};

/// The layout of a narrow float that is not simply the top of an f32.
pub(super) trait Layout: 'static {
    /// The element's bytes.
    type Lane: Copy;
    /// The bits of the mantissa.
    const MANTISSA: u32;
    /// What is added to the exponent.
    const BIAS: u32;
    /// The bits without the sign.
    const MAGNITUDE: u32;
    /// The canonical quiet NaN.
    const NAN: u32;
    /// The smallest magnitude that is a NaN.
    const NAN_FIRST: u32;
    /// The infinity, where there is one.
    const INFINITY: Option<u32>;
    /// The smallest magnitude that is no number.
    const INFINITY_OR_NAN: u32 = match Self::INFINITY {
        Some(infinity) => infinity,
        None => Self::NAN_FIRST,
    };
    /// The f32 that finite numbers are cut to before they are rounded.
    const LIMIT: f32;

    fn read(lane: Self::Lane) -> u32;
    fn write(bits: u32) -> Self::Lane;
}

/// IEEE half. What rounds to more than 65504 becomes infinite: 65536 would be the next number, and its bits are those
/// of the infinity.
pub(super) struct Half;

impl Layout for Half {
    type Lane = [u8; 2];
    const MANTISSA: u32 = 10;
    const BIAS: u32 = 15;
    const MAGNITUDE: u32 = 0x7fff;
    const NAN: u32 = 0x7e00;
    const NAN_FIRST: u32 = 0x7c01;
    const INFINITY: Option<u32> = Some(0x7c00);
    const LIMIT: f32 = 65536.0;

    #[inline(always)]
    fn read(lane: [u8; 2]) -> u32 {
        u32::from(u16::from_ne_bytes(lane))
    }
    #[inline(always)]
    fn write(bits: u32) -> [u8; 2] {
        (bits as u16).to_ne_bytes()
    }
}

/// OCP E4M3: 448 is the largest number, there is no infinity, and one magnitude is NaN.
pub(super) struct E4M3;

impl Layout for E4M3 {
    type Lane = [u8; 1];
    const MANTISSA: u32 = 3;
    const BIAS: u32 = 7;
    const MAGNITUDE: u32 = 0x7f;
    const NAN: u32 = 0x7f;
    const NAN_FIRST: u32 = 0x7f;
    const INFINITY: Option<u32> = None;
    const LIMIT: f32 = 448.0;

    #[inline(always)]
    fn read(lane: [u8; 1]) -> u32 {
        u32::from(lane[0])
    }
    #[inline(always)]
    fn write(bits: u32) -> [u8; 1] {
        [bits as u8]
    }
}

/// OCP E5M2: the top byte of a half; 57344 is the largest number.
pub(super) struct E5M2;

impl Layout for E5M2 {
    type Lane = [u8; 1];
    const MANTISSA: u32 = 2;
    const BIAS: u32 = 15;
    const MAGNITUDE: u32 = 0x7f;
    const NAN: u32 = 0x7e;
    const NAN_FIRST: u32 = 0x7d;
    const INFINITY: Option<u32> = Some(0x7c);
    const LIMIT: f32 = 57344.0;

    #[inline(always)]
    fn read(lane: [u8; 1]) -> u32 {
        u32::from(lane[0])
    }
    #[inline(always)]
    fn write(bits: u32) -> [u8; 1] {
        [bits as u8]
    }
}

const F32_INFINITY: u32 = 0x7f80_0000;
const F32_NAN: u32 = 0x7fc0_0000;

/// A narrow float with the layout `L`.
pub(super) struct Narrow<L>(PhantomData<L>);

impl<L: Layout> Narrow<L> {
    const SHIFT: u32 = 23 - L::MANTISSA;
    const REBIAS: u32 = (127 - L::BIAS) << 23;
    /// The smallest number with a full mantissa.
    const NORMAL: u32 = Self::REBIAS + (1 << 23);
    /// An f32 whose last bit is worth as much as the narrow format's: adding it rounds a subnormal.
    const ROUNDER: u32 = Self::NORMAL + (Self::SHIFT << 23);

    #[inline(always)]
    fn widen(bits: u32) -> f32 {
        let magnitude = bits & L::MAGNITUDE;
        let sign = (bits & !L::MAGNITUDE) << (31 - L::MAGNITUDE.count_ones());
        let normal = (magnitude << Self::SHIFT) + Self::REBIAS;
        let subnormal = f32::from_bits((magnitude << Self::SHIFT) + Self::NORMAL) - f32::from_bits(Self::NORMAL);
        let finite = if magnitude < (1 << L::MANTISSA) { subnormal.to_bits() } else { normal };
        let wide = if L::INFINITY == Some(magnitude) { F32_INFINITY } else { finite };
        f32::from_bits(if magnitude >= L::NAN_FIRST { F32_NAN } else { wide | sign })
    }

    #[inline(always)]
    fn narrow(value: f32) -> u32 {
        let magnitude = value.to_bits() & 0x7fff_ffff;
        let sign = (value.to_bits() >> 31) << L::MAGNITUDE.count_ones();
        let cut = magnitude.min(L::LIMIT.to_bits());
        let even = (cut >> Self::SHIFT) & 1;
        let normal = cut.wrapping_sub(Self::REBIAS).wrapping_add((1 << (Self::SHIFT - 1)) - 1 + even) >> Self::SHIFT;
        let subnormal = (f32::from_bits(cut) + f32::from_bits(Self::ROUNDER)).to_bits().wrapping_sub(Self::ROUNDER);
        let finite = if cut < Self::NORMAL { subnormal } else { normal };
        let number = match L::INFINITY {
            Some(infinity) if magnitude == F32_INFINITY => infinity,
            _ => finite,
        };
        if magnitude > F32_INFINITY { L::NAN } else { number | sign }
    }
}

impl<L: Layout> Format for Narrow<L> {
    type Lane = L::Lane;
    type Wide = f32;
    type Divisor = f32;
    type Single = Self;
    const ELEMENTS: usize = 1;

    #[inline(always)]
    fn decode(lane: L::Lane) -> f32 {
        Self::widen(L::read(lane))
    }
    #[inline(always)]
    fn encode(wide: f32) -> L::Lane {
        L::write(Self::narrow(wide))
    }
    #[inline(always)]
    fn add(a: f32, b: f32) -> f32 {
        a + b
    }
    #[inline(always)]
    fn mul(a: f32, b: f32) -> f32 {
        a * b
    }
    #[inline(always)]
    fn div(a: f32, by: f32) -> f32 {
        a / by
    }
    #[inline(always)]
    fn factor(bits: u64) -> f32 {
        Self::widen(bits as u32 & (2 * L::MAGNITUDE + 1))
    }
    #[inline(always)]
    fn divisor(ranks: u32) -> f32 {
        ranks as f32
    }
    #[inline(always)]
    fn inverse(ranks: u32) -> Option<f32> {
        exact_inverse(ranks)
    }
}
