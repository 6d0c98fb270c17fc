//! Memory for one array: guarded on both sides, and anywhere within a pack.

use paceline_tests::seed;

const GUARD: u8 = 0xa5;

/// Where elements lie: `bytes` bytes at `offset` from an address that is a multiple of 64, guarded on both sides.
pub struct Room {
    storage: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Room {
    /// A room that holds `content`.
    #[must_use]
    pub fn new(offset: usize, content: &[u8]) -> Room {
        let mut storage = vec![GUARD; content.len() + offset + 192];
        let start = 64 + storage.as_ptr().align_offset(64) + offset;
        storage[start..start + content.len()].copy_from_slice(content);
        Room { storage, start, bytes: content.len() }
    }

    /// Where the elements begin.
    pub fn address(&mut self) -> u64 {
        self.storage[self.start..].as_mut_ptr() as u64
    }

    /// Checks that the room holds `want`, elements of `size` bytes, and that nothing beside it was written.
    ///
    /// # Panics
    ///
    /// When it isn't so: `what` says where.
    pub fn check(&self, size: usize, want: &[u8], what: &str) {
        let end = self.start + self.bytes;
        let have = &self.storage[self.start..end];
        if let Some(at) = have.iter().zip(want).position(|(have, want)| have != want) {
            let element = at / size * size..(at / size + 1) * size;
            let (have, want) = (&have[element.clone()], &want[element]);
            panic!("{what}: element {} is {have:02x?} and should be {want:02x?} (seed {})", at / size, seed());
        }
        let guards = self.storage[..self.start].iter().chain(&self.storage[end..]);
        assert!(guards.copied().all(|byte| byte == GUARD), "{what}: wrote outside the target");
    }
}
