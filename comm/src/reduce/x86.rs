//! Halves and bfloat16 on x86-64, converted by the instructions that the machine has for it.

use std::arch::x86_64::*;

use super::bfloat::{Bf16, Bf16Pair};
use super::format::{Format, exact_inverse};
use super::narrow::{Half, Narrow};

macro_rules! halves {
    (
        $(#[$doc:meta])* $name:ident, $n:literal, $lane:ty, $wide:ty, $level:literal,
        $decode:expr, $encode:expr, $add:ident, $mul:ident, $div:ident, $splat:ident
    ) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl Format for $name {
            type Lane = [u8; 2 * $n];
            type Wide = $wide;
            type Divisor = $wide;
            type Single = Narrow<Half>;
            const ELEMENTS: usize = $n;

            #[inline(always)]
            fn decode(lane: Self::Lane) -> $wide {
                // SAFETY: only the table of the level that is named uses this format, where the machine has it.
                unsafe { $decode(lane) }
            }
            #[inline(always)]
            fn encode(wide: $wide) -> Self::Lane {
                // SAFETY: as above.
                unsafe { $encode(wide) }
            }
            #[inline(always)]
            fn add(a: $wide, b: $wide) -> $wide {
                // SAFETY: as above.
                unsafe { $add(a, b) }
            }
            #[inline(always)]
            fn mul(a: $wide, b: $wide) -> $wide {
                // SAFETY: as above.
                unsafe { $mul(a, b) }
            }
            #[inline(always)]
            fn div(a: $wide, by: $wide) -> $wide {
                // SAFETY: as above.
                unsafe { $div(a, by) }
            }
            #[inline(always)]
            fn factor(bits: u64) -> $wide {
                // SAFETY: as above.
                unsafe { $splat(Narrow::<Half>::factor(bits)) }
            }
            #[inline(always)]
            fn divisor(ranks: u32) -> $wide {
                // SAFETY: as above.
                unsafe { $splat(ranks as f32) }
            }
            #[inline(always)]
            fn inverse(ranks: u32) -> Option<$wide> {
                // SAFETY: as above.
                exact_inverse(ranks).map(|inverse| unsafe { $splat(inverse) })
            }
        }
    };
}

halves!(
    /// Eight halves, with AVX2 and F16C.
    Half8, 8, [u8; 16], __m256, "avx2",
    |lane: [u8; 16]| _mm256_cvtph_ps(_mm_loadu_si128(lane.as_ptr().cast())),
    |wide: __m256| {
        let canonical = _mm256_set1_ps(f32::NAN);
        let settled = _mm256_blendv_ps(wide, canonical, _mm256_cmp_ps::<_CMP_UNORD_Q>(wide, wide));
        let mut lane = [0; 16];
        _mm_storeu_si128(lane.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(settled));
        lane
    },
    _mm256_add_ps, _mm256_mul_ps, _mm256_div_ps, _mm256_set1_ps
);

/// Sixteen halves, with AVX-512, as two vectors of eight: conversions of sixteen are no quicker than two of eight.
///
/// Whether any of them is NaN is asked once, and mostly answered with no.
pub(super) struct Half16;

type TwoEights = (__m256, __m256);

impl Format for Half16 {
    type Lane = [u8; 32];
    type Wide = TwoEights;
    type Divisor = __m256;
    type Single = Narrow<Half>;
    const ELEMENTS: usize = 16;

    #[inline(always)]
    fn decode(lane: [u8; 32]) -> TwoEights {
        // SAFETY: here and below, only the tables of the levels with these instructions use this format.
        unsafe {
            let eight = |first: usize| _mm256_cvtph_ps(_mm_loadu_si128(lane[first..].as_ptr().cast()));
            (eight(0), eight(16))
        }
    }
    #[inline(always)]
    fn encode((mut low, mut high): TwoEights) -> [u8; 32] {
        let mut lane = [0; 32];
        // SAFETY: as above.
        unsafe {
            if _mm256_cmp_ps_mask::<_CMP_UNORD_Q>(low, high) != 0 {
                let canonical = _mm256_set1_ps(f32::NAN);
                let settled =
                    |wide| _mm256_mask_blend_ps(_mm256_cmp_ps_mask::<_CMP_UNORD_Q>(wide, wide), wide, canonical);
                (low, high) = (settled(low), settled(high));
            }
            let eight = |wide| _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
            _mm256_storeu_si256(lane.as_mut_ptr().cast(), _mm256_set_m128i(eight(high), eight(low)));
        }
        lane
    }
    #[inline(always)]
    fn add(a: TwoEights, b: TwoEights) -> TwoEights {
        // SAFETY: as above.
        unsafe { (_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn mul(a: TwoEights, b: TwoEights) -> TwoEights {
        // SAFETY: as above.
        unsafe { (_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn div(a: TwoEights, by: __m256) -> TwoEights {
        // SAFETY: as above.
        unsafe { (_mm256_div_ps(a.0, by), _mm256_div_ps(a.1, by)) }
    }
    #[inline(always)]
    fn factor(bits: u64) -> TwoEights {
        // SAFETY: as above.
        let factor = unsafe { _mm256_set1_ps(Narrow::<Half>::factor(bits)) };
        (factor, factor)
    }
    #[inline(always)]
    fn divisor(ranks: u32) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_set1_ps(ranks as f32) }
    }
    #[inline(always)]
    fn inverse(ranks: u32) -> Option<TwoEights> {
        // SAFETY: as above.
        exact_inverse(ranks).map(|inverse| unsafe { (_mm256_set1_ps(inverse), _mm256_set1_ps(inverse)) })
    }
}

/// Thirty-two bfloat16, with AVX-512 and its BF16 extension.
///
/// They are computed with as the even ones and the odd ones. The instruction that rounds takes subnormal numbers for
/// zero and keeps what a NaN holds, so lanes with one of those are rounded by [`Bf16Pair`].
pub(super) struct Bf16x32;

impl Format for Bf16x32 {
    type Lane = [u8; 64];
    type Wide = (__m512, __m512);
    type Divisor = __m512;
    type Single = Bf16;
    const ELEMENTS: usize = 32;

    #[inline(always)]
    fn decode(lane: [u8; 64]) -> (__m512, __m512) {
        // SAFETY: here and below, only the table of the level with these instructions uses this format.
        unsafe {
            let both = _mm512_loadu_si512(lane.as_ptr().cast());
            let even = _mm512_slli_epi32::<16>(both);
            let odd = _mm512_and_si512(both, _mm512_set1_epi32(0xffff_0000u32 as i32));
            (_mm512_castsi512_ps(even), _mm512_castsi512_ps(odd))
        }
    }

    #[inline(always)]
    fn encode((even, odd): (__m512, __m512)) -> [u8; 64] {
        /// Quiet and signalling NaN, and subnormal.
        const AWKWARD: i32 = 0x01 | 0x80 | 0x20;
        /// For each place, the even ones from the lower half and the odd ones from the upper.
        const ALTERNATE: [u16; 32] = {
            let mut places = [0; 32];
            let mut place = 0;
            while place < places.len() {
                places[place] = (place / 2 + place % 2 * 16) as u16;
                place += 1;
            }
            places
        };
        let mut lane = [0; 64];
        // SAFETY: as above.
        unsafe {
            let awkward = _mm512_fpclass_ps_mask::<AWKWARD>(even) | _mm512_fpclass_ps_mask::<AWKWARD>(odd);
            let both = if awkward == 0 {
                let halves: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(odd, even));
                _mm512_permutexvar_epi16(_mm512_loadu_si512(ALTERNATE.as_ptr().cast()), halves)
            } else {
                let (mut evens, mut odds, mut pairs) = ([0.0; 16], [0.0; 16], [[0; 4]; 16]);
                _mm512_storeu_ps(evens.as_mut_ptr(), even);
                _mm512_storeu_ps(odds.as_mut_ptr(), odd);
                for ((pair, even), odd) in pairs.iter_mut().zip(evens).zip(odds) {
                    *pair = Bf16Pair::encode((even, odd));
                }
                _mm512_loadu_si512(pairs.as_ptr().cast())
            };
            _mm512_storeu_si512(lane.as_mut_ptr().cast(), both);
        }
        lane
    }

    #[inline(always)]
    fn add(a: (__m512, __m512), b: (__m512, __m512)) -> (__m512, __m512) {
        // SAFETY: as above.
        unsafe { (_mm512_add_ps(a.0, b.0), _mm512_add_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn mul(a: (__m512, __m512), b: (__m512, __m512)) -> (__m512, __m512) {
        // SAFETY: as above.
        unsafe { (_mm512_mul_ps(a.0, b.0), _mm512_mul_ps(a.1, b.1)) }
    }

    #[inline(always)]
    fn div(a: (__m512, __m512), by: __m512) -> (__m512, __m512) {
        // SAFETY: as above.
        unsafe { (_mm512_div_ps(a.0, by), _mm512_div_ps(a.1, by)) }
    }

    #[inline(always)]
    fn factor(bits: u64) -> (__m512, __m512) {
        // SAFETY: as above.
        let factor = unsafe { _mm512_set1_ps(Bf16::factor(bits)) };
        (factor, factor)
    }

    #[inline(always)]
    fn divisor(ranks: u32) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_set1_ps(ranks as f32) }
    }

    #[inline(always)]
    fn inverse(ranks: u32) -> Option<(__m512, __m512)> {
        // SAFETY: as above.
        exact_inverse(ranks).map(|inverse| unsafe { (_mm512_set1_ps(inverse), _mm512_set1_ps(inverse)) })
    }
}
