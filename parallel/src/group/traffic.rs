//! What a group's collectives have moved, by kind: to hold against the formulas.

use std::collections::BTreeMap;
use std::sync::Mutex;

use paceline_comm::Collective;

/// Calls of one kind, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrafficEntry {
    /// How many calls there were.
    pub calls: u64,
    /// Bytes of the whole vectors: of all ranks' blocks together, where there are blocks.
    pub payload_bytes: u64,
    /// Bytes that this rank sent at least, with a bandwidth-optimal algorithm: of a vector of S bytes 2(n-1)/n S for an
    /// all_reduce, (n-1)/n S for a reduce_scatter, all_gather or all_to_all, S for a message. A padded vector counts padded.
    pub wire_bytes: u64,
}

/// The account of a group.
#[derive(Debug, Default)]
pub struct Traffic {
    entries: Mutex<BTreeMap<Collective, TrafficEntry>>,
}

impl Traffic {
    pub(crate) fn count(&self, collective: Collective, ranks: usize, payload_bytes: usize) {
        let (ranks, payload) = (ranks as u64, payload_bytes as u64);
        let wire = match collective {
            _ if ranks <= 1 => 0,
            Collective::AllReduce => 2 * (ranks - 1) * payload / ranks,
            Collective::ReduceScatter | Collective::AllGather | Collective::AllToAll => (ranks - 1) * payload / ranks,
            Collective::Barrier | Collective::Recv => 0,
            _ => payload,
        };
        let mut entries = self.entries.lock().expect("no panic while held");
        let entry = entries.entry(collective).or_default();
        entry.calls += 1;
        entry.payload_bytes += payload;
        entry.wire_bytes += wire;
    }

    /// What calls of a kind have moved since the last [`Traffic::reset`].
    #[must_use]
    pub fn of(&self, collective: Collective) -> TrafficEntry {
        self.entries.lock().expect("no panic while held").get(&collective).copied().unwrap_or_default()
    }

    /// What all calls have moved.
    #[must_use]
    pub fn total(&self) -> TrafficEntry {
        let entries = self.entries.lock().expect("no panic while held");
        entries.values().fold(TrafficEntry::default(), |sum, entry| TrafficEntry {
            calls: sum.calls + entry.calls,
            payload_bytes: sum.payload_bytes + entry.payload_bytes,
            wire_bytes: sum.wire_bytes + entry.wire_bytes,
        })
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.entries.lock().expect("no panic while held").clear();
    }
}
