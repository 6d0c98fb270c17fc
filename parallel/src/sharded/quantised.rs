//! Values in 8 bits with a scale for each block (as ZeRO++ sends them): a quarter of the bytes of f32, half of those of bf16.

use candle_core::DType;

use crate::error::{Error, Result};
use crate::group::Elements;

/// As many bytes as [`pack`] makes of `len` values.
pub(super) fn packed_len(len: usize, block: usize) -> usize {
    len + 4 * len.div_ceil(block)
}

/// Bytes of 8-bit integers, then the blocks' scales in little-endian f32.
pub(super) fn pack(values: &Elements, block: usize) -> Result<Vec<u8>> {
    let len = values.len();
    let tensor = values.tensor_of(0..len, len)?.to_dtype(DType::F32)?;
    let Elements::F32(values) = Elements::of(&tensor)? else { unreachable!("it was made f32") };
    let (mut packed, mut scales) = (Vec::with_capacity(packed_len(len, block)), Vec::new());
    for values in values.chunks(block) {
        let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        if !largest.is_finite() {
            return Err(Error::invalid("a value that isn't finite can't be sent in 8 bits"));
        }
        let scale = largest / 127.0;
        // Of a block of zeros, or of numbers too small to divide by.
        let factor = if scale > 0.0 { 127.0 / largest } else { 0.0 };
        packed.extend(values.iter().map(|value| (value * factor).round_ties_even().clamp(-127.0, 127.0) as i8 as u8));
        scales.push(scale);
    }
    packed.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
    Ok(packed)
}

/// The values of `ranks` packed vectors of `len` values each.
pub(super) fn unpack(packed: &[u8], ranks: usize, len: usize, block: usize, dtype: DType) -> Result<Elements> {
    let mut values = Vec::with_capacity(ranks * len);
    for packed in packed.chunks(packed_len(len, block).max(1)).take(ranks) {
        let (integers, scales) = packed.split_at(len);
        for (integers, scale) in integers.chunks(block).zip(scales.chunks(4)) {
            let scale = f32::from_le_bytes(scale.try_into().expect("scales have four bytes"));
            values.extend(integers.iter().map(|integer| f32::from(*integer as i8) * scale));
        }
    }
    let len = values.len();
    Elements::of(&Elements::F32(values).into_tensor(len)?.to_dtype(dtype)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Off by at most half a step of the block, and by rounding.
        #[test]
        fn values_are_off_by_half_a_step(values in prop::collection::vec(-1e4f32..1e4, 1..200), block in 1usize..70) {
            let packed = pack(&Elements::F32(values.clone()), block).unwrap();
            prop_assert_eq!(packed.len(), packed_len(values.len(), block));
            let back = unpack(&packed, 1, values.len(), block, DType::F32).unwrap();
            let Elements::F32(back) = back else { unreachable!() };
            for (values, back) in values.chunks(block).zip(back.chunks(block)) {
                let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
                for (value, back) in values.iter().zip(back) {
                    prop_assert!((value - back).abs() <= largest * (1.0 / 254.0 + 1e-6));
                }
            }
        }
    }

    #[test]
    fn zeros_stay_and_what_is_not_finite_is_refused() {
        let packed = pack(&Elements::F32(vec![0.0; 5]), 2).unwrap();
        assert_eq!(unpack(&packed, 1, 5, 2, DType::F32).unwrap(), Elements::F32(vec![0.0; 5]));
        assert!(pack(&Elements::F32(vec![f32::NAN, f32::INFINITY]), 2).is_err());
        assert!(pack(&Elements::F32(vec![]), 2).unwrap().is_empty());
    }
}
