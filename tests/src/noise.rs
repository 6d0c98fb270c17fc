//! Arbitrary elements: random bits, numbers of moderate size, and everything that is special.

use paceline_comm::DataType;

use crate::Random;

/// Floats that are special, by type: zeros of both signs, subnormals, ones, largest, infinities, NaNs with payloads.
fn special(data_type: DataType) -> &'static [u64] {
    match data_type {
        DataType::F16 => &[0, 0x8000, 1, 0x83ff, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0xfe2a],
        DataType::Bf16 => &[0, 0x8000, 1, 0x807f, 0x3f80, 0xbf80, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7f81, 0xffea],
        DataType::F32 => &[
            0,
            0x8000_0000,
            1,
            0x807f_ffff,
            0x3f80_0000,
            0xbf80_0000,
            0x7f7f_ffff,
            0xff7f_ffff,
            0x7f80_0000,
            0xff80_0000,
            0x7f80_0001,
            0xffc1_2345,
        ],
        DataType::F64 => &[
            0,
            1 << 63,
            1,
            0x800f_ffff_ffff_ffff,
            0x3ff0_0000_0000_0000,
            0xbff0_0000_0000_0000,
            0x7fef_ffff_ffff_ffff,
            0xffef_ffff_ffff_ffff,
            0x7ff0_0000_0000_0000,
            0xfff0_0000_0000_0000,
            0x7ff0_0000_0000_0001,
            0xfff8_0000_dead_beef,
        ],
        DataType::F8E4M3 => &[0, 0x80, 1, 0x87, 0x38, 0xb8, 0x7e, 0xfe, 0x7f, 0xff],
        DataType::F8E5M2 => &[0, 0x80, 1, 0x83, 0x3c, 0xbc, 0x7b, 0xfb, 0x7c, 0xfc, 0x7d, 0xfe, 0x7f],
        _ => &[0, 1, u64::MAX, 1 << 63 | 1 << 31 | 1 << 7, 0x7fff_ffff_7fff_ff7f],
    }
}

/// The bytes of `count` arbitrary elements.
#[must_use]
pub fn noise(data_type: DataType, random: &mut Random, count: usize) -> Vec<u8> {
    let (size, special) = (data_type.size(), special(data_type));
    let mut bytes = Vec::with_capacity(count * size);
    for _ in 0..count {
        let drawn = random.next();
        // Exponents near that of 1, whatever the width.
        let top = 8 * size - 4;
        let moderate = drawn & !(0x7 << top) | 0x3 << top;
        let bits = match random.below(8) {
            0 => drawn,
            1 => special[drawn as usize % special.len()],
            _ => moderate,
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..size]);
    }
    bytes
}
