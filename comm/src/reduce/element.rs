//! The Rust types that elements may have.
//!
//! `f16` and `bf16` come from the crate `half`, the 8-bit floats from `float8`. Of `float8` only the types are used:
//! its conversions keep some NaN payloads, take 448 for an infinity, and know one of the three NaNs of E5M2.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use super::DataType;

mod sealed {
    pub trait Sealed {}
}

/// A type whose values may be sent and reduced.
///
/// # Safety
///
/// Every bit pattern is a value, there is no padding, and `size_of::<Self>()` is `DATA_TYPE.size()`. The trait is
/// sealed: these are the twelve types of [`DataType`].
pub unsafe trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// What the type is called in a call.
    const DATA_TYPE: DataType;

    /// The element's bits in the low bytes, zeros above.
    fn to_bits64(self) -> u64;

    /// The element whose bits are the low bytes of `bits`.
    fn from_bits64(bits: u64) -> Self;
}

macro_rules! element {
    ($type:ty, $data_type:ident, $value:ident => $to:expr, $bits:ident => $from:expr) => {
        impl sealed::Sealed for $type {}

        // SAFETY: a number (or a transparent wrapper around one) without padding; the size is checked below.
        unsafe impl Element for $type {
            const DATA_TYPE: DataType = DataType::$data_type;

            #[inline]
            fn to_bits64(self) -> u64 {
                let $value = self;
                $to
            }

            #[inline]
            fn from_bits64($bits: u64) -> Self {
                $from
            }
        }

        const _: () = assert!(size_of::<$type>() == DataType::$data_type.size());
    };
}

element!(i8, I8, x => u64::from(x as u8), bits => bits as i8);
element!(u8, U8, x => u64::from(x), bits => bits as u8);
element!(i32, I32, x => u64::from(x as u32), bits => bits as i32);
element!(u32, U32, x => u64::from(x), bits => bits as u32);
element!(i64, I64, x => x as u64, bits => bits as i64);
element!(u64, U64, x => x, bits => bits);
element!(f16, F16, x => u64::from(x.to_bits()), bits => f16::from_bits(bits as u16));
element!(f32, F32, x => u64::from(x.to_bits()), bits => f32::from_bits(bits as u32));
element!(f64, F64, x => x.to_bits(), bits => f64::from_bits(bits));
element!(bf16, Bf16, x => u64::from(x.to_bits()), bits => bf16::from_bits(bits as u16));
element!(F8E4M3, F8E4M3, x => u64::from(x.to_bits()), bits => F8E4M3::from_bits(bits as u8));
element!(F8E5M2, F8E5M2, x => u64::from(x.to_bits()), bits => F8E5M2::from_bits(bits as u8));

/// The bytes of `elements`.
#[inline]
pub fn as_bytes<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: an element has no padding, so each of its bytes is initialised, and bytes may lie anywhere.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of `elements`, to be written.
#[inline]
pub fn as_bytes_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and whatever is written is a value of the element's type.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Element>(bits: u64) {
        let element = T::from_bits64(bits);
        let low = bits & (u64::MAX >> (64 - 8 * size_of::<T>()));
        assert_eq!(element.to_bits64(), low, "{}", T::DATA_TYPE);
        let mut pair = [element, T::from_bits64(0)];
        assert_eq!(as_bytes(&pair).len(), 2 * T::DATA_TYPE.size());
        let (first, second) = as_bytes_mut(&mut pair).split_at_mut(size_of::<T>());
        second.copy_from_slice(first);
        assert_eq!(pair[1].to_bits64(), low, "{}", T::DATA_TYPE);
    }

    #[test]
    fn bits_and_bytes_are_those_of_the_element() {
        for bits in [0, 1, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, 0x7fff_ffff_ffff_ffff, u64::MAX] {
            check::<i8>(bits);
            check::<u8>(bits);
            check::<i32>(bits);
            check::<u32>(bits);
            check::<i64>(bits);
            check::<u64>(bits);
            check::<f16>(bits);
            check::<f32>(bits);
            check::<f64>(bits);
            check::<bf16>(bits);
            check::<F8E4M3>(bits);
            check::<F8E5M2>(bits);
        }
    }
}
