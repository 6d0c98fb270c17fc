//! What is reduced: special numbers, and noise from a seed.

use crate::reduce::DataType;

/// Numbers that may go wrong, as bits: zeros, subnormals, ones, the largest, infinities, NaNs of all kinds.
pub(super) fn special(data_type: DataType) -> &'static [u64] {
    match data_type {
        DataType::I8 | DataType::U8 => &[0, 1, 2, 0x7e, 0x7f, 0x80, 0x81, 0xfe, 0xff, 0x55],
        DataType::I32 | DataType::U32 => &[0, 1, 2, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff_ffff, 0x1_0001],
        DataType::I64 | DataType::U64 => &[
            0,
            1,
            2,
            0x7fff_ffff_ffff_ffff,
            0x8000_0000_0000_0000,
            0x8000_0000_0000_0001,
            u64::MAX,
            0x1_0000_0001,
            0xffff_ffff,
            0xffff_ffff_0000_0000,
        ],
        DataType::F16 => &[
            0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x8400, 0x3c00, 0xbc00, 0x3c01, 0x7bff, 0xfbff, 0x7c00, 0xfc00,
            0x7c01, 0x7e00, 0xfe00, 0xffff, 0x0fff,
        ],
        DataType::Bf16 => &[
            0, 0x8000, 1, 0x8001, 0x007f, 0x0080, 0x8080, 0x3f80, 0xbf80, 0x3f81, 0x7f7f, 0xff7f, 0x7f80, 0xff80,
            0x7f81, 0x7fc0, 0xffc0, 0xffff, 0x3eff,
        ],
        DataType::F32 => &[
            0,
            0x8000_0000,
            1,
            0x8000_0001,
            0x007f_ffff,
            0x0080_0000,
            0x3f80_0000,
            0xbf80_0000,
            0x3f80_0001,
            0x7f7f_ffff,
            0xff7f_ffff,
            0x7f80_0000,
            0xff80_0000,
            0x7f80_0001,
            0x7fc0_0000,
            0xffc0_0000,
            0xffff_ffff,
        ],
        DataType::F64 => &[
            0,
            1 << 63,
            1,
            1 << 63 | 1,
            0x000f_ffff_ffff_ffff,
            0x0010_0000_0000_0000,
            0x3ff0_0000_0000_0000,
            0xbff0_0000_0000_0000,
            0x3ff0_0000_0000_0001,
            0x7fef_ffff_ffff_ffff,
            0xffef_ffff_ffff_ffff,
            0x7ff0_0000_0000_0000,
            0xfff0_0000_0000_0000,
            0x7ff0_0000_0000_0001,
            0x7ff8_0000_0000_0000,
            0xfff8_0000_0000_0000,
            u64::MAX,
        ],
        DataType::F8E4M3 => &[0, 0x80, 1, 0x81, 7, 8, 0x38, 0xb8, 0x39, 0x7e, 0xfe, 0x7f, 0xff],
        DataType::F8E5M2 => &[0, 0x80, 1, 0x81, 3, 4, 0x3c, 0xbc, 0x3d, 0x7b, 0xfb, 0x7c, 0xfc, 0x7d, 0x7e, 0x7f, 0xff],
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// `elements` elements: random bits, random numbers of moderate size, and special ones, by a draw for each run of up
/// to 40, so that there are runs without a NaN as well.
pub(super) fn noise(data_type: DataType, seed: u64, elements: usize) -> Vec<u8> {
    let state = &mut seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
    let size = data_type.size();
    let mut bytes = Vec::with_capacity(elements * size);
    while bytes.len() < elements * size {
        let kind = next(state) % 4;
        for _ in 0..=next(state) % 40 {
            let random = next(state);
            let special = special(data_type)[random as usize % special(data_type).len()];
            // Exponents near that of 1, whatever the width.
            let moderate = (random & !(0x7 << (8 * size - 4))) | 0x3 << (8 * size - 4);
            let bits = [random, moderate, moderate, special][kind as usize];
            bytes.extend_from_slice(&to_bytes(data_type, bits));
        }
    }
    bytes.truncate(elements * size);
    bytes
}

pub(super) fn to_bytes(data_type: DataType, bits: u64) -> Vec<u8> {
    let size = data_type.size();
    if cfg!(target_endian = "big") {
        bits.to_be_bytes()[8 - size..].to_vec()
    } else {
        bits.to_le_bytes()[..size].to_vec()
    }
}
