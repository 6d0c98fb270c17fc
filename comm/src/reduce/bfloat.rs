//! bfloat16, which is the top half of an f32, two at a time.
//!
//! A 32-bit lane holds two elements. Both widen and narrow where they lie, by shifts and masks, so that no shuffle is
//! needed between 16-bit and 32-bit vectors.

use super::format::{Format, exact_inverse};

/// One bfloat16.
pub(super) struct Bf16;

/// Two bfloat16 side by side.
pub(super) struct Bf16Pair;

/// `value` rounded to a bfloat16, in the upper half; what is in the lower half means nothing.
#[inline(always)]
fn rounded(value: f32) -> u32 {
    let bits = value.to_bits();
    let even = (bits >> 16) & 1;
    if value.is_nan() { 0x7fc0_0000 } else { bits.wrapping_add(0x7fff + even) }
}

impl Format for Bf16 {
    type Lane = [u8; 2];
    type Wide = f32;
    type Divisor = f32;
    type Single = Self;
    const ELEMENTS: usize = 1;

    #[inline(always)]
    fn decode(lane: [u8; 2]) -> f32 {
        f32::from_bits(u32::from(u16::from_ne_bytes(lane)) << 16)
    }
    #[inline(always)]
    fn encode(wide: f32) -> [u8; 2] {
        ((rounded(wide) >> 16) as u16).to_ne_bytes()
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
        f32::from_bits((bits as u32) << 16)
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

impl Format for Bf16Pair {
    type Lane = [u8; 4];
    type Wide = (f32, f32);
    type Divisor = f32;
    type Single = Bf16;
    const ELEMENTS: usize = 2;

    #[inline(always)]
    fn decode(lane: [u8; 4]) -> (f32, f32) {
        let both = u32::from_ne_bytes(lane);
        (f32::from_bits(both << 16), f32::from_bits(both & 0xffff_0000))
    }
    #[inline(always)]
    fn encode(wide: (f32, f32)) -> [u8; 4] {
        ((rounded(wide.0) >> 16) | (rounded(wide.1) & 0xffff_0000)).to_ne_bytes()
    }
    #[inline(always)]
    fn add(a: (f32, f32), b: (f32, f32)) -> (f32, f32) {
        (a.0 + b.0, a.1 + b.1)
    }
    #[inline(always)]
    fn mul(a: (f32, f32), b: (f32, f32)) -> (f32, f32) {
        (a.0 * b.0, a.1 * b.1)
    }
    #[inline(always)]
    fn div(a: (f32, f32), by: f32) -> (f32, f32) {
        (a.0 / by, a.1 / by)
    }
    #[inline(always)]
    fn factor(bits: u64) -> (f32, f32) {
        (Bf16::factor(bits), Bf16::factor(bits))
    }
    #[inline(always)]
    fn divisor(ranks: u32) -> f32 {
        ranks as f32
    }
    #[inline(always)]
    fn inverse(ranks: u32) -> Option<(f32, f32)> {
        exact_inverse(ranks).map(|inverse| (inverse, inverse))
    }
}
