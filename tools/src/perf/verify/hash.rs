//! One hash for all test data: fast, well mixed, and the same on every machine.

/// Mixes a seed, an element's index and a lane (which value about the element) into 64 bits.
#[inline]
#[must_use]
pub fn of(seed: u64, index: u64, lane: u64) -> u64 {
    const INDEX: u64 = 0x9e37_79b9_7f4a_7c15;
    const LANE: u64 = 0xd1b5_4a32_d192_ed03;
    mix(seed.wrapping_add(index.wrapping_mul(INDEX)).wrapping_add(lane.wrapping_mul(LANE)))
}

/// The hash of a text.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |state, byte| mix(state.rotate_left(8) ^ u64::from(*byte)))
}

/// A number from 0 to `last`, both included, picked evenly by a hash.
#[inline]
#[must_use]
pub fn pick(hash: u64, last: u64) -> u64 {
    match last.checked_add(1) {
        Some(choices) => ((u128::from(hash) * u128::from(choices)) >> 64) as u64,
        None => hash,
    }
}

#[inline]
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
