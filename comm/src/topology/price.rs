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
    /// What passes between hosts takes as long as a rank's messages with their latencies, one after another and as long as the
    /// busiest rank's in the mean, or as all that leaves the busiest host and a latency: the longer of the two, because one
    /// rank's messages pass while another's are on their way. What is left of the path passes within hosts, before or after. In
    /// rings around all hosts everything goes on at the same time: the longest of what passes between hosts, what passes
    /// within, and a chunk's way around counts. When slices follow each other, both go on at the same time, too.
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

        let (path, busiest) = (work.path, work.busiest);
        let mean = |sent: f64, messages: f64| if messages > 0.0 { sent / messages } else { 0.0 };
        let each = mean(path.sent, path.messages);
        let far_each = mean(self.rank, self.rank_messages);
        let (lanes, adapters) = (self.lanes.max(1.0), self.adapters.max(1.0));
        let far_s = |messages: f64, sent: f64| messages * far.message_s + sent * slice * far.byte_s;
        let near_s = |messages: f64, sent: f64| messages * near.message_s + sent * slice * near.byte_s;
        let work_s = |folded: f64, copied: f64| slice * (folded * near.fold_byte_s + copied * near.copy_byte_s);

        let (far_messages, far_sent) = if self.is_steady { (0.0, 0.0) } else { (self.rank_messages, self.rank) };
        let between = far_s(self.rank_messages, self.host);
        let within = near_s((busiest.messages - far_messages).max(0.0), (busiest.sent - far_sent).max(0.0));
        let later = if *at_once { between.max(within) } else { between + within };

        let first = if self.is_steady && *at_once {
            let around = far_latencies * (far.latency_s + far_s(1.0, each * adapters))
                + near_latencies * (near.latency_s + near_s(1.0, each));
            around.max(far.latency_s + between).max(near.latency_s + near_s(path.messages, path.sent))
        } else {
            let far_messages = far_latencies.max(self.rank_messages).min(path.messages);
            let far_sent = far_messages * far_each;
            let alone = far_latencies * far.latency_s + far_s(far_messages, far_sent * adapters);
            let together = far.latency_s + far_s(far_messages, self.host.max(far_sent * lanes.max(adapters)));
            let within = if self.is_steady {
                near_s(path.messages, path.sent)
            } else {
                near_s(path.messages - far_messages, (path.sent - far_sent).max(0.0))
            };
            near_latencies * near.latency_s + alone.max(together) + within
        };
        let first = first + work_s(path.folded, path.copied);
        first + f64::from(n_slices - 1) * (later + work_s(busiest.folded, busiest.copied))
    }
}
