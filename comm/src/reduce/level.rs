//! Levels: which instructions the loops are made of, and for each level a table of every loop.

use std::sync::OnceLock;

use super::bfloat::{Bf16, Bf16Pair};
use super::format::Format;
use super::loops;
use super::narrow::{E4M3, E5M2, Half, Narrow};
use super::rule::{Max, Min, Order, Prod, Rule, Sum};
use super::scaled::ScaledSum;
#[cfg(target_arch = "x86_64")]
use super::x86::{Bf16x32, Half8, Half16};

/// The instructions that reductions use. All levels give the same bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// What every machine of the architecture has: SSE2 on x86-64, NEON on 64-bit Arm.
    Baseline,
    /// AVX2 and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// The same and AVX-512 BF16, for bfloat16.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
}

impl Level {
    /// The levels of this architecture, the highest last.
    pub const ALL: &[Level] = &[
        Level::Baseline,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Bf16,
    ];

    /// Whether this machine has the level's instructions.
    pub fn is_available(self) -> bool {
        match self {
            Level::Baseline => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16 => Level::Avx512.is_available() && is_x86_feature_detected!("avx512bf16"),
        }
    }

    /// The highest level that this machine has, found once.
    pub fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| Level::ALL.iter().copied().rfind(|level| level.is_available()).unwrap_or(Level::Baseline))
    }

    /// The loops of this level, a row for each element type's code.
    pub(super) fn rows(self) -> &'static [Row; 12] {
        match self {
            Level::Baseline => const { &rows::<Baseline, Narrow<Half>, Baseline, Bf16Pair>() },
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => const { &rows::<Avx2, Half8, Avx2, Bf16Pair>() },
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => const { &rows::<Avx512, Half16, Avx512, Bf16Pair>() },
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16 => const { &rows::<Avx512, Half16, Avx512Bf16, Bf16x32>() },
        }
    }
}

pub(super) type Combine = unsafe fn(*mut u8, *const u8, *const u8, usize);
pub(super) type Fold = unsafe fn(*mut u8, &[*const u8], usize);
pub(super) type Scale = unsafe fn(*mut u8, *const u8, u64, usize);
pub(super) type Divide = unsafe fn(*mut u8, u32, usize);

/// The loops for one element type. Beside what their own safety sections ask, the machine must have the level.
pub(super) struct Row {
    /// Sum, prod, min, max.
    pub(super) operators: [(Combine, Fold); 4],
    pub(super) scale: Scale,
    pub(super) divide: Divide,
}

/// The rows of level `L`, with the format `H` for halves, and for bfloat16 the format `B` at level `LB`.
const fn rows<L: Instantiate, H: Format, LB: Instantiate, B: Format>() -> [Row; 12] {
    [
        row::<L, i8, Sum<i8>, i8>(),
        row::<L, u8, Sum<u8>, u8>(),
        row::<L, i32, Sum<i32>, i32>(),
        row::<L, u32, Sum<u32>, u32>(),
        row::<L, i64, Sum<i64>, i64>(),
        row::<L, u64, Sum<u64>, u64>(),
        row::<L, H, Sum<H>, Narrow<Half>>(),
        row::<L, f32, Sum<f32>, f32>(),
        row::<L, f64, Sum<f64>, f64>(),
        row::<LB, B, Sum<B>, Bf16>(),
        row::<L, Narrow<E4M3>, ScaledSum<E4M3>, Narrow<E4M3>>(),
        row::<L, Narrow<E5M2>, ScaledSum<E5M2>, Narrow<E5M2>>(),
    ]
}

/// The row for the format `F`, ordered by `O`, where two elements are added by `S`.
const fn row<L: Instantiate, F: Format, S: Rule, O: Order>() -> Row {
    Row {
        operators: [
            (L::combine::<S>, L::fold::<Sum<F>>),
            (L::combine::<Prod<F>>, L::fold::<Prod<F>>),
            (L::combine::<Min<O>>, L::fold::<Min<O>>),
            (L::combine::<Max<O>>, L::fold::<Max<O>>),
        ],
        scale: L::scale::<F>,
        divide: L::divide::<F>,
    }
}

/// The loops, compiled for a level.
trait Instantiate {
    unsafe fn combine<R: Rule>(target: *mut u8, first: *const u8, second: *const u8, elements: usize);
    unsafe fn fold<R: Rule>(target: *mut u8, sources: &[*const u8], elements: usize);
    unsafe fn scale<F: Format>(target: *mut u8, source: *const u8, factor: u64, elements: usize);
    unsafe fn divide<F: Format>(target: *mut u8, ranks: u32, elements: usize);
}

macro_rules! instantiate {
    ($(#[$which:meta])* $level:ident, $(#[$features:meta])*) => {
        $(#[$which])*
        struct $level;

        $(#[$which])*
        impl Instantiate for $level {
            $(#[$features])*
            unsafe fn combine<R: Rule>(target: *mut u8, first: *const u8, second: *const u8, elements: usize) {
                // SAFETY: the caller keeps what the loop asks.
                unsafe { loops::combine::<R>(target, first, second, elements) }
            }
            $(#[$features])*
            unsafe fn fold<R: Rule>(target: *mut u8, sources: &[*const u8], elements: usize) {
                // SAFETY: the caller keeps what the loop asks.
                unsafe { loops::fold::<R>(target, sources, elements) }
            }
            $(#[$features])*
            unsafe fn scale<F: Format>(target: *mut u8, source: *const u8, factor: u64, elements: usize) {
                // SAFETY: the caller keeps what the loop asks.
                unsafe { loops::scale::<F>(target, source, factor, elements) }
            }
            $(#[$features])*
            unsafe fn divide<F: Format>(target: *mut u8, ranks: u32, elements: usize) {
                // SAFETY: the caller keeps what the loop asks.
                unsafe { loops::divide::<F>(target, ranks, elements) }
            }
        }
    };
}

instantiate!(Baseline,);
instantiate!(
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[target_feature(enable = "avx2,f16c")]
);
instantiate!(
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
);
instantiate!(
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    #[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
);
