//! A quick hash for small integer keys that no adversary chooses.

use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by small integers.
pub type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Quick>>;

/// Multiplies and rotates, one word at a time.
#[derive(Default)]
pub struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        // The map takes its bucket from the low bits and its tag from the high ones; a product mixes upwards only.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            self.write_u64(u64::from_le_bytes(padded));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
