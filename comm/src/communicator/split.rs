//! Groups of a communicator's ranks as communicators of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use paceline_transport::GroupId;

use super::Communicator;
use crate::error::Result;
use crate::select::Facts;

/// What each rank says: its color (and whether it has one), its key, and a number for the group if it is its first rank.
const WORDS: usize = 5;

impl Communicator {
    /// Splits the communicator: ranks of one `color` make a new one, ordered by `key`, then by their rank here. Every rank
    /// calls it; a rank without a color gets `None`.
    ///
    /// The new communicator has links of its own and doesn't depend on this one, which may be dropped.
    ///
    /// # Errors
    ///
    /// As any collective, and if the new links can't be made.
    pub fn split(&self, color: Option<u64>, key: i64) -> Result<Option<Communicator>> {
        let nonce = paceline_transport::endpoint::random_number();
        let (low, high) = (nonce as u64, (nonce >> 64) as u64);
        let mine = [u64::from(color.is_some()), color.unwrap_or(0), key as u64, low, high];
        let mut all = vec![0u64; WORDS * self.size()];
        self.all_gather(&mine, &mut all)?;
        let Some(color) = color else { return Ok(None) };
        let said = |rank: usize| &all[rank * WORDS..][..WORDS];
        let mut group: Vec<usize> = (0..self.size()).filter(|rank| said(*rank)[..2] == [1, color]).collect();
        group.sort_by_key(|rank| (said(*rank)[2] as i64, *rank));
        let mut id = [0u8; 16];
        id[..8].copy_from_slice(&said(group[0])[3].to_le_bytes());
        id[8..].copy_from_slice(&said(group[0])[4].to_le_bytes());
        let members: Arc<[usize]> = group.iter().map(|rank| self.inner.members[*rank]).collect();
        let patience = self.timeout().min(Duration::from_secs(1 << 30));
        let endpoint = self.inner.fabric.connect(GroupId(id), &members, Instant::now() + patience)?;
        let facts = Facts::unknown(members.len(), self.inner.facts.overrides().clone());
        let comm =
            Communicator::over(endpoint, self.inner.fabric.clone(), (GroupId(id), members), facts, self.inner.timeout);
        comm.agree(patience).map(Some)
    }
}
