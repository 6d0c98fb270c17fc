//! What a launch says when it could not go on: read from the status record that its kernel has written.

use std::fmt;
use std::time::Duration;

/// Why a launch ended before its time, and what it waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Why.
    pub reason: Reason,
    /// The rank that was waited for.
    pub peer: usize,
    /// The block that waited.
    pub block: u32,
    /// The step that it waited for.
    pub step: u32,
    /// The last step that the peer had come to.
    pub seen_step: u32,
    /// The digest that this rank expected of the peer, and the one that the peer last said.
    pub digests: (u32, u32),
    /// How long it had waited, about.
    pub waited: Duration,
    /// What it waited with.
    pub waiting: Waiting,
}

/// What a launch waits for another rank with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// A collective, in which all ranks meet.
    Collective,
    /// A message to that rank, which has to take what was sent before. The step is the number of a chunk.
    Sending,
    /// A message from that rank, of so many bytes. The step is the number of a chunk.
    Receiving(u64),
    /// A call that streams make: for the message of this number, from that rank.
    Put(u32),
    /// The same: for that rank to take the message of this number, so that another can take its place.
    Taken(u32),
}

/// Why a launch ended before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The abort word was set.
    Aborted,
    /// The peer did not come in time.
    TimedOut,
    /// The peer called something else.
    Mismatch,
    /// The peer's message has another length, in bytes.
    OtherLength(u64),
}

impl Failure {
    /// The eight-byte words of a status record. All zeros before the first launch.
    pub const WORDS: usize = 8;

    /// Where the first word stands; the others mean something once it is not zero, if they are read after it.
    pub const VERDICT: usize = 0;

    /// What the record says: `None` while nothing has failed.
    #[must_use]
    pub fn read(words: [u64; Failure::WORDS]) -> Option<Failure> {
        let [verdict, place, expected, seen, waited_ns, digest, ..] = words;
        let length = |flag: u64| flag & ((1 << 40) - 1);
        let reason = match verdict as u32 & 0xf {
            1 => Reason::Aborted,
            2 => Reason::TimedOut,
            3 => Reason::Mismatch,
            4 => Reason::OtherLength(length(seen)),
            _ => return None,
        };
        let waiting = match verdict as u32 >> 4 {
            0 => Waiting::Collective,
            1 => Waiting::Sending,
            2 => Waiting::Receiving(length(expected)),
            3 => Waiting::Put(expected as u32),
            _ => Waiting::Taken(expected as u32),
        };
        let digests = match waiting {
            Waiting::Put(_) | Waiting::Taken(_) => (digest as u32, digest as u32),
            _ => (expected as u32, seen as u32),
        };
        Some(Failure {
            reason,
            peer: (verdict >> 32) as usize,
            block: place as u32,
            step: (place >> 32) as u32,
            seen_step: (seen >> 32) as u32,
            digests,
            waited: Duration::from_nanos(waited_ns),
            waiting,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { reason, peer, block, step, seen_step, digests: (ours, theirs), waited, waiting } = *self;
        let seconds = waited.as_secs_f64();
        let message = match waiting {
            Waiting::Sending => format!("for rank {peer} to receive a message"),
            Waiting::Receiving(bytes) => format!("for a message of {bytes} bytes from rank {peer}"),
            Waiting::Put(number) => format!("for message {number} of the call from rank {peer}"),
            Waiting::Taken(number) => format!("for rank {peer} to take message {number} of the call"),
            Waiting::Collective => String::new(),
        };
        match reason {
            Reason::Aborted if !message.is_empty() => write!(f, "aborted, while block {block} waited {message}"),
            Reason::TimedOut if !message.is_empty() => write!(f, "block {block} waited {seconds:.3} s {message}"),
            Reason::Mismatch if !message.is_empty() => {
                write!(f, "block {block} waited {message}, which does something else, of an all_to_all or a message")
            }
            Reason::OtherLength(sent) => {
                write!(f, "block {block} waited {message}, which sends one of {sent} bytes")
            }
            Reason::Aborted => write!(f, "aborted, while block {block} waited for rank {peer} in step {step}"),
            Reason::TimedOut => write!(
                f,
                "block {block} waited {seconds:.3} s for rank {peer} in step {step}; it had last come to step {seen_step}"
            ),
            Reason::Mismatch => write!(
                f,
                "rank {peer} calls something else (digest {theirs:#010x}, and {ours:#010x} here) in step {step}, seen by \
                 block {block}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_the_kernels_write_it() {
        assert_eq!(Failure::read([0; 8]), None);
        let words = [3 << 32 | 2, 7 << 32 | 5, 7 << 32 | 0xaa, 6 << 32 | 0xbb, 1_500_000_000, 0, 0, 0];
        let failure = Failure::read(words).expect("a failure");
        assert_eq!((failure.reason, failure.peer, failure.block, failure.step), (Reason::TimedOut, 3, 5, 7));
        assert_eq!((failure.seen_step, failure.digests), (6, (0xaa, 0xbb)));
        assert_eq!(failure.to_string(), "block 5 waited 1.500 s for rank 3 in step 7; it had last come to step 6");
        let mismatch = Failure { reason: Reason::Mismatch, ..failure };
        assert!(
            mismatch.to_string().starts_with("rank 3 calls something else (digest 0x000000bb, and 0x000000aa here)")
        );
        let received = Failure { waiting: Waiting::Receiving(8), ..failure };
        assert_eq!(received.to_string(), "block 5 waited 1.500 s for a message of 8 bytes from rank 3");
        let sent = Failure { waiting: Waiting::Sending, reason: Reason::Aborted, ..failure };
        assert_eq!(sent.to_string(), "aborted, while block 5 waited for rank 3 to receive a message");
        let words = [3 << 32 | 0x24, 7 << 32, 7 << 44 | 400, 7 << 44 | 396, 0, 0, 0, 0];
        let length = Failure::read(words).expect("a failure");
        assert_eq!((length.reason, length.waiting), (Reason::OtherLength(396), Waiting::Receiving(400)));
        assert!(length.to_string().ends_with("of 400 bytes from rank 3, which sends one of 396 bytes"), "{length}");
        let words = [3 << 32 | 0x42, 7 << 32, 7 << 32 | 9, 7 << 32 | 8, 500_000_000, 0xaa, 0, 0];
        let taken = Failure::read(words).expect("a failure");
        assert_eq!((taken.waiting, taken.digests.0), (Waiting::Taken(9), 0xaa));
        assert_eq!(taken.to_string(), "block 0 waited 0.500 s for rank 3 to take message 9 of the call");
        let aborted = Failure { reason: Reason::Aborted, ..failure };
        assert_eq!(aborted.to_string(), "aborted, while block 5 waited for rank 3 in step 7");
    }
}
