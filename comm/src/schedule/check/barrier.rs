//! A barrier moves no data; what is checked is who has heard, directly or through others, that whom has begun.

use super::fault::{CheckError, Fault};
use crate::schedule::Rank;

/// Who has heard of whom.
pub struct Heard {
    words: usize,
    /// Per rank, a set: of whom it had heard when its round began.
    before: Vec<u64>,
    /// Per rank, a set: of whom it has heard by now.
    now: Vec<u64>,
}

impl Heard {
    pub fn new(n_ranks: u32) -> Heard {
        let words = n_ranks.div_ceil(64) as usize;
        let mut before = vec![0; words * n_ranks as usize];
        for rank in 0..n_ranks as usize {
            before[rank * words + rank / 64] |= 1 << (rank % 64);
        }
        Heard { words, now: before.clone(), before }
    }

    /// A message that was sent when the sender's round began.
    pub fn transfer(&mut self, from: Rank, to: Rank) {
        let (from, to) = (from as usize * self.words, to as usize * self.words);
        for word in 0..self.words {
            self.now[to + word] |= self.before[from + word];
        }
    }

    /// The rank's round has ended.
    pub fn end(&mut self, rank: Rank) {
        let set = rank as usize * self.words..(rank as usize + 1) * self.words;
        self.before[set.clone()].copy_from_slice(&self.now[set]);
    }

    /// Checks that everyone has heard of everyone.
    pub fn check(&self, n_ranks: u32) -> Result<(), CheckError> {
        for rank in 0..n_ranks {
            let set = &self.before[rank as usize * self.words..];
            if let Some(other) = (0..n_ranks).find(|other| set[(*other / 64) as usize] >> (*other % 64) & 1 == 0) {
                return Err(CheckError { rank, at: None, fault: Fault::NotHeard(other) });
            }
        }
        Ok(())
    }
}
