//! Sums of two 8-bit floats, four sums at a time, without the cost of widening and rounding them properly.
//!
//! Shifted so that its exponent lies where that of an f32 is, an 8-bit float is an f32 that is too small by a power of
//! two (2^120 for E4M3, 2^112 for E5M2); its subnormals are then subnormals as well. Sums of such numbers are the sums
//! of the true ones, equally scaled: down there f32 still has bits enough for the last bit of the 8-bit float. And
//! rounding is one and the same for normal and subnormal numbers: so many bits are cut off.
//!
//! NaN and infinity are numbers like others on this way. They are found and put in again in the bytes, four in a word:
//! the uppermost bit of a byte of a mask says that it holds for that byte.

use std::marker::PhantomData;

use super::narrow::{Layout, Narrow};
use super::rule::{Rule, Sum};

/// The sum of 8-bit floats with the layout `L`.
pub(super) struct ScaledSum<L>(PhantomData<L>);

/// Four scaled numbers, and the masks of the bytes that have been NaN, and infinite with either sign.
#[derive(Clone, Copy)]
pub(super) struct Four {
    numbers: [f32; 4],
    nan: u32,
    plus: u32,
    minus: u32,
}

const SIGNS: u32 = 0x8080_8080;

/// `byte` in each of the four places.
const fn each(byte: u32) -> u32 {
    byte * 0x0101_0101
}

/// All bits but the sign, in the bytes of the mask.
#[inline(always)]
fn magnitudes(mask: u32) -> u32 {
    mask - (mask >> 7)
}

impl<L: Layout> ScaledSum<L> {
    /// The bits of an f32's mantissa that the 8-bit float has not.
    const CUT: u32 = 23 - L::MANTISSA;
    /// The largest number, scaled.
    const LARGEST: f32 = f32::from_bits((L::INFINITY_OR_NAN - 1) << Self::CUT);

    /// The scaled number whose 8-bit float is the uppermost byte.
    #[inline(always)]
    fn widen(uppermost: u32) -> f32 {
        let shifted = (uppermost as i32 >> (24 - Self::CUT)) as u32;
        f32::from_bits(shifted & (0x8000_0000 | 0x7f << Self::CUT))
    }

    /// A scaled number rounded, all its bits still in place.
    #[inline(always)]
    fn round(value: f32) -> u32 {
        let below = if value < Self::LARGEST { value } else { Self::LARGEST };
        let number = if below > -Self::LARGEST { below } else { -Self::LARGEST }.to_bits();
        number + ((1 << (Self::CUT - 1)) - 1) + ((number >> Self::CUT) & 1)
    }

    /// The 8-bit float of a rounded number, in byte `place`.
    #[inline(always)]
    fn byte(rounded: u32, place: u32) -> u32 {
        let to = 8 * place;
        let magnitude = if to > Self::CUT { rounded << (to - Self::CUT) } else { rounded >> (Self::CUT - to) };
        (magnitude & (0x7f << to)) | ((rounded >> (24 - to)) & (0x80 << to))
    }
}

impl<L: Layout> Rule for ScaledSum<L> {
    type Lane = [u8; 4];
    type Carry = Four;
    type Single = Sum<Narrow<L>>;
    const ELEMENTS: usize = 4;

    #[inline(always)]
    fn lift(lane: [u8; 4]) -> Four {
        let four = u32::from_le_bytes(lane);
        let magnitude = four & !SIGNS;
        let nan = magnitude + const { each(0x80 - L::NAN_FIRST) };
        let endless = if L::INFINITY.is_some() { magnitude + const { each(0x80 - L::INFINITY_OR_NAN) } } else { 0 };
        let numbers = [Self::widen(four << 24), Self::widen(four << 16), Self::widen(four << 8), Self::widen(four)];
        Four { numbers, nan, plus: endless & !four, minus: endless & four }
    }

    #[inline(always)]
    fn join(a: Four, b: Four) -> Four {
        let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (a.numbers, b.numbers);
        let numbers = [a0 + b0, a1 + b1, a2 + b2, a3 + b3];
        Four { numbers, nan: a.nan | b.nan, plus: a.plus | b.plus, minus: a.minus | b.minus }
    }

    #[inline(always)]
    fn lower(carry: Four) -> [u8; 4] {
        let [a, b, c, d] = carry.numbers;
        let (a, b) = (Self::byte(Self::round(a), 0), Self::byte(Self::round(b), 1));
        let (c, d) = (Self::byte(Self::round(c), 2), Self::byte(Self::round(d), 3));
        let mut four = a | b | c | d;
        if let Some(infinity) = L::INFINITY {
            let endless = (carry.plus | carry.minus) & SIGNS;
            let magnitude = magnitudes(endless);
            let infinite = (magnitude & each(infinity)) | (carry.minus & SIGNS);
            four = (four & !(endless | magnitude)) | infinite;
        }
        let nan = (carry.nan | (carry.plus & carry.minus)) & SIGNS;
        let magnitude = magnitudes(nan);
        ((four & !(nan | magnitude)) | (magnitude & each(L::NAN))).to_le_bytes()
    }
}
