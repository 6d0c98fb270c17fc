//! How long a row takes between hosts: what passes within and between them is charged by different links.

use super::Crossing;
use crate::schedule::cost::{Costs, Work};

/// What the links charge.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Links {
    /// Within a host, where each rank has links of its own.
    pub near: Costs,
    /// Between hosts. A byte is charged for the host as a whole, whose ranks share its adapters.
    pub far: Costs,
    /// Whether a rank uses both at once. Who shares a core with others does one thing at a time.
    pub at_once: bool,
}

impl Crossing {
    /// How long work takes of which this much passes between hosts, when the message is cut into so many slices.
    ///
    /// Latencies of both kinds add up along the path. What passes between hosts takes as long as the path's messages or all that
    /// leaves the busiest host, whichever is longer. In rings around all hosts both go on at the same time, and so they do when
    /// slices follow each other; otherwise, and in the first slice, one goes after the other.
    ///
    /// # Panics
    ///
    /// When there are no slices.
    #[must_use]
    pub fn seconds(&self, work: &Work, bytes: u64, n_slices: u32, links: &Links) -> f64 {
        assert!(n_slices > 0, "a message has at least one slice");
        let Links { near, far, at_once } = links;
        let slice = bytes.div_ceil(u64::from(n_slices)) as f64;
        let [far_latencies, near_latencies] = self.latencies;
        let latency_s = far_latencies * far.latency_s + near_latencies * near.latency_s;

        let path = work.path;
        let each = if path.messages > 0.0 { path.sent / path.messages } else { 0.0 };
        let far_messages = if self.is_steady { self.rank_messages } else { far_latencies.max(self.rank_messages) };
        let far_messages = far_messages.min(path.messages);
        let far_sent = (far_messages * each).max(self.rank).min(path.sent.max(self.rank));
        let pass = |sent: f64, messages: f64, far_sent: f64, far_messages: f64, beside: bool| {
            let far_s = far_messages * far.message_s + far_sent.max(self.host) * slice * far.byte_s;
            let near_sent = if self.is_steady { sent } else { (sent - far_sent).max(0.0) };
            let near_messages = if self.is_steady { messages } else { (messages - far_messages).max(0.0) };
            let near_s = near_messages * near.message_s + near_sent * slice * near.byte_s;
            if *at_once && (self.is_steady || beside) { far_s.max(near_s) } else { far_s + near_s }
        };
        let work_s = |folded: f64, copied: f64| slice * (folded * near.fold_byte_s + copied * near.copy_byte_s);
        let first = pass(path.sent, path.messages, far_sent, far_messages, false) + work_s(path.folded, path.copied);
        let busiest = work.busiest;
        let later = pass(busiest.sent, busiest.messages, self.rank, self.rank_messages, true)
            + work_s(busiest.folded, busiest.copied);
        latency_s + first + f64::from(n_slices - 1) * later
    }
}
