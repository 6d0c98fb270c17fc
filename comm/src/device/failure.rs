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
}

impl Failure {
    /// The eight-byte words of a status record. All zeros before the first launch.
    pub const WORDS: usize = 8;

    /// Where the first word stands; the others mean something once it is not zero, if they are read after it.
    pub const VERDICT: usize = 0;

    /// What the record says: `None` while nothing has failed.
    #[must_use]
    pub fn read(words: [u64; Failure::WORDS]) -> Option<Failure> {
        let [verdict, place, expected, seen, waited_ns, ..] = words;
        let reason = match verdict as u32 {
            1 => Reason::Aborted,
            2 => Reason::TimedOut,
            3 => Reason::Mismatch,
            _ => return None,
        };
        Some(Failure {
            reason,
            peer: (verdict >> 32) as usize,
            block: place as u32,
            step: (place >> 32) as u32,
            seen_step: (seen >> 32) as u32,
            digests: (expected as u32, seen as u32),
            waited: Duration::from_nanos(waited_ns),
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { reason, peer, block, step, seen_step, digests: (ours, theirs), waited } = *self;
        let seconds = waited.as_secs_f64();
        match reason {
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
        let aborted = Failure { reason: Reason::Aborted, ..failure };
        assert_eq!(aborted.to_string(), "aborted, while block 5 waited for rank 3 in step 7");
    }
}
