//! What programs cost: in advance, from what a row says of itself, and exactly, from a clock over its programs.
//!
//! Both charge the same: latencies, messages, bytes sent, folded and copied. [`clock`] says how they add up.

mod clock;

pub use clock::{Clocked, clock};

/// What a machine charges. All in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// From the end of sending to when the message is there.
    pub latency_s: f64,
    /// For each message, at the sender and at the receiver, whatever its length.
    pub message_s: f64,
    /// For each byte sent or received.
    pub byte_s: f64,
    /// For each byte of a contribution folded into another.
    pub fold_byte_s: f64,
    /// For each byte copied within a rank.
    pub copy_byte_s: f64,
}

/// How much of everything is done: messages, and lengths in units of the whole message.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// How many messages.
    pub messages: f64,
    /// How much is sent (or received: the port that has more to do counts).
    pub sent: f64,
    /// How much is folded into something else.
    pub folded: f64,
    /// How much is copied.
    pub copied: f64,
}

/// What a row costs for some number of ranks, without its programs.
///
/// The whole message is the vector, or all ranks' blocks together.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// How many latencies the last rank to end has waited for, one after another.
    pub latencies: f64,
    /// What lies on the longest path, one after another.
    pub path: Load,
    /// What the busiest rank does. More than the path where ranks take turns in a pipeline of slices, and less where
    /// ranks wait for each other.
    pub busiest: Load,
}

impl Load {
    /// The load of messages that carry `sent` together.
    #[must_use]
    pub const fn messages(messages: f64, sent: f64) -> Load {
        Load { messages, sent, folded: 0.0, copied: 0.0 }
    }

    /// The same load with that much folded.
    #[must_use]
    pub const fn folding(self, folded: f64) -> Load {
        Load { folded, ..self }
    }

    /// The same load with that much copied.
    #[must_use]
    pub const fn copying(self, copied: f64) -> Load {
        Load { copied, ..self }
    }

    /// How long it takes for a message of `bytes` bytes.
    #[must_use]
    pub fn seconds(&self, bytes: u64, costs: &Costs) -> f64 {
        let bytes = bytes as f64;
        self.messages * costs.message_s
            + self.sent * bytes * costs.byte_s
            + self.folded * bytes * costs.fold_byte_s
            + self.copied * bytes * costs.copy_byte_s
    }
}

impl Work {
    /// Work in which the path is what the busiest rank does, but for its copies: they are done while messages move.
    #[must_use]
    pub const fn steady(latencies: f64, busiest: Load) -> Work {
        Work { latencies, path: busiest.copying(0.0), busiest }
    }

    /// Work that is this and then that.
    #[must_use]
    pub fn then(self, next: Work) -> Work {
        let sum = |one: Load, other: Load| Load {
            messages: one.messages + other.messages,
            sent: one.sent + other.sent,
            folded: one.folded + other.folded,
            copied: one.copied + other.copied,
        };
        let latencies = self.latencies + next.latencies;
        Work { latencies, path: sum(self.path, next.path), busiest: sum(self.busiest, next.busiest) }
    }

    /// How long the work takes when the message goes in one piece.
    #[must_use]
    pub fn seconds(&self, bytes: u64, costs: &Costs) -> f64 {
        self.latencies * costs.latency_s + self.path.seconds(bytes, costs)
    }

    /// How long the work takes when the message is cut into slices which each run the whole schedule, one behind the
    /// other: the first takes its path, and each later one ends as soon after as the busiest rank allows.
    ///
    /// # Panics
    ///
    /// When there are no slices.
    #[must_use]
    pub fn seconds_in_slices(&self, bytes: u64, n_slices: u32, costs: &Costs) -> f64 {
        assert!(n_slices > 0, "a message has at least one slice");
        let slice = bytes.div_ceil(u64::from(n_slices));
        self.seconds(slice, costs) + f64::from(n_slices - 1) * self.busiest.seconds(slice, costs)
    }
}
