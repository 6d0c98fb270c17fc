//! What has arrived on one stream and hasn't been read: one piece of memory, used again and again from its front.

#![forbid(unsafe_code)]

/// Bytes of a buffer. Half of a small L2 cache, so that what is received is still there when it is reduced.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Buffer {
    memory: Box<[u8]>,
    first: usize,
    end: usize,
}

impl Buffer {
    /// An empty buffer. Its pages cost nothing until bytes arrive.
    pub fn new() -> Buffer {
        Buffer { memory: vec![0; BUFFER_BYTES].into_boxed_slice(), first: 0, end: 0 }
    }

    /// The bytes not yet read, oldest first.
    pub fn unread(&self) -> &[u8] {
        &self.memory[self.first..self.end]
    }

    /// Counts the oldest `bytes` as read.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.first, "{bytes} bytes read of {}", self.end - self.first);
        self.first += bytes;
        if self.first == self.end {
            self.first = 0;
            self.end = 0;
        }
    }

    /// Room for up to `limit` bytes more. Never empty as long as less than a whole buffer is unread.
    pub fn room(&mut self, limit: usize) -> &mut [u8] {
        if self.first > 0 && self.memory.len() - self.end < limit {
            self.memory.copy_within(self.first..self.end, 0);
            self.end -= self.first;
            self.first = 0;
        }
        let end = self.memory.len().min(self.end + limit);
        &mut self.memory[self.end..end]
    }

    /// Counts the first `bytes` of the room as arrived.
    pub fn fill(&mut self, bytes: usize) {
        assert!(bytes <= self.memory.len() - self.end);
        self.end += bytes;
    }
}
