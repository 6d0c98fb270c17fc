//! Halves on x86-64, converted by the instructions that the machine has for it.

use std::arch::x86_64::*;

use super::format::Format;
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

halves!(
    /// Sixteen halves, with AVX-512.
    Half16, 16, [u8; 32], __m512, "avx512",
    |lane: [u8; 32]| _mm512_cvtph_ps(_mm256_loadu_si256(lane.as_ptr().cast())),
    |wide: __m512| {
        let canonical = _mm512_set1_ps(f32::NAN);
        let settled = _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(wide, wide), wide, canonical);
        let mut lane = [0; 32];
        _mm256_storeu_si256(lane.as_mut_ptr().cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(settled));
        lane
    },
    _mm512_add_ps, _mm512_mul_ps, _mm512_div_ps, _mm512_set1_ps
);
