//! Philox-4x32-10: a counter and a key to four words.

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

pub(super) fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut words, mut key) = (counter, key);
    for _ in 0..ROUNDS {
        let product = |place: usize| u64::from(MULTIPLIERS[place]) * u64::from(words[2 * place]);
        let (first, second) = (product(0), product(1));
        let (high, low) = (|number: u64| (number >> 32) as u32, |number: u64| number as u32);
        words = [high(second) ^ words[1] ^ key[0], low(second), high(first) ^ words[3] ^ key[1], low(first)];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    words
}

#[cfg(test)]
mod tests {
    use super::philox;

    /// The known answers that come with Random123.
    #[test]
    fn known_answers() {
        for (counter, key, want) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox(counter, key), want);
        }
    }
}
