//! The fast reductions against the reference, bit for bit.

mod combine;
mod fold;
mod inputs;
mod known;
mod pairs;

use super::{DataType, Level, ReduceOp};
use inputs::special;

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.iter().copied().filter(|level| level.is_available())
}

/// Every operator, with factors that are a moderate number, a special one and any bits.
fn operators(data_type: DataType) -> impl Iterator<Item = ReduceOp> {
    let special = special(data_type);
    let factors = [0x4242_4242_4242_4242, special[special.len() - 2], 0xc3a5_7e31_99d2_be57];
    ReduceOp::PLAIN.into_iter().chain(factors.map(ReduceOp::PreMulSum))
}

/// Where elements lie: `bytes` bytes at `offset` from an address that is a multiple of 64, guarded on both sides.
struct Room {
    storage: Vec<u8>,
    start: usize,
    bytes: usize,
}

const GUARD: u8 = 0xa5;

impl Room {
    fn new(offset: usize, content: &[u8]) -> Room {
        let mut storage = vec![GUARD; content.len() + offset + 256];
        let start = 64 + storage.as_ptr().align_offset(64) + offset;
        storage[start..start + content.len()].copy_from_slice(content);
        Room { storage, start, bytes: content.len() }
    }

    fn pointer(&mut self) -> *mut u8 {
        self.storage[self.start..].as_mut_ptr()
    }

    #[track_caller]
    fn check(&self, want: &[u8], what: impl std::fmt::Display) {
        let end = self.start + self.bytes;
        let have = &self.storage[self.start..end];
        if have != want {
            let at = have.iter().zip(want).position(|(have, want)| have != want);
            panic!("{what}: byte {at:?} of {} differs\n have {have:02x?}\n want {want:02x?}", self.bytes);
        }
        let guards = self.storage[..self.start].iter().chain(&self.storage[end..]);
        assert!(guards.copied().all(|byte| byte == GUARD), "{what}: wrote outside the target");
    }
}

/// The greatest length: past every vector and unrolled loop. (Miri interprets, and sees each path with fewer.)
const LENGTHS: usize = if cfg!(miri) { 70 } else { 257 };
