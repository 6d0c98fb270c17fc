//! What a simulated network is made from: how many ranks, which seed, and how fast its wires are.

use std::time::Duration;

use super::Random;

/// How a simulated network is made. Start from [`SimOptions::new`] and change fields.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// How many ranks there are, numbered from zero.
    pub ranks: usize,
    /// Where all randomness comes from. The same seed and the same sequence of calls make the same run.
    pub seed: u64,
    /// How each wire behaves for which nothing else was set.
    pub link: LinkProfile,
    /// The largest frame, in bytes; a longer message is several frames.
    pub frame_bytes: usize,
    /// A frame that isn't its message's last is a multiple of this many bytes long: 1 lets frames end anywhere.
    pub grain_bytes: usize,
    /// The most bytes of a frame that arrive at one moment: a longer frame arrives in pieces, each when its last byte
    /// is over the wire.
    pub piece_bytes: usize,
    /// Whether frames and pieces are of random lengths, from a grain, or a byte, to their largest.
    pub ragged: bool,
    /// How many bytes of a directed pair may be sent and not yet known to be read before `send` answers `None`. An
    /// empty frame counts as one byte.
    pub window_bytes: usize,
    /// How long after a rank's death its peers learn of it.
    pub detection: Duration,
    /// How far the clock may run under [`super::run`] before the run is given up as endless.
    pub horizon: Duration,
    /// How many events the trace remembers; older ones are forgotten. Zero remembers none.
    pub trace_events: usize,
}

impl SimOptions {
    /// A network of `ranks` ranks whose wires take 10 us and carry 1 GB/s without jitter: frames of 64 KiB in one
    /// piece, a window of 1 MiB, deaths noticed after 1 ms, at most an hour, the last 256 events kept.
    #[must_use]
    pub fn new(ranks: usize, seed: u64) -> SimOptions {
        SimOptions {
            ranks,
            seed,
            link: LinkProfile::default(),
            frame_bytes: 64 << 10,
            grain_bytes: 1,
            piece_bytes: usize::MAX,
            ragged: false,
            window_bytes: 1 << 20,
            detection: Duration::from_millis(1),
            horizon: Duration::from_secs(3600),
            trace_events: 256,
        }
    }

    pub(super) fn validate(&self) {
        assert!(self.ranks > 0, "a network needs a rank");
        assert!(u32::try_from(self.ranks).is_ok(), "{} ranks are more than 2^32 - 1", self.ranks);
        let grain = self.grain_bytes;
        assert!(
            grain > 0 && self.frame_bytes >= grain,
            "a frame must be able to hold a grain of {grain} B, and a byte"
        );
        assert!(self.piece_bytes > 0, "a piece must be able to hold a byte");
        assert!(self.window_bytes >= grain, "a window must be able to hold a grain of {grain} B");
        self.link.validate();
    }
}

/// How one directed wire behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkProfile {
    /// From the last byte being on the wire to its arrival.
    pub latency: Duration,
    /// How fast bytes get onto the wire; `u64::MAX` is at once.
    pub bytes_per_second: u64,
    /// What is added to the latency, at random.
    pub jitter: Jitter,
    /// How many times longer everything takes on this wire; 1 is as stated above.
    pub slowdown: u32,
}

impl Default for LinkProfile {
    fn default() -> LinkProfile {
        LinkProfile {
            latency: Duration::from_micros(10),
            bytes_per_second: 1_000_000_000,
            jitter: Jitter::None,
            slowdown: 1,
        }
    }
}

impl LinkProfile {
    /// A wire that takes no time at all.
    #[must_use]
    pub fn instant() -> LinkProfile {
        LinkProfile { latency: Duration::ZERO, bytes_per_second: u64::MAX, jitter: Jitter::None, slowdown: 1 }
    }

    /// How long the wire is busy with `bytes`, rounded up to a nanosecond.
    #[must_use]
    pub fn occupancy(&self, bytes: usize) -> Duration {
        if self.bytes_per_second == u64::MAX {
            return Duration::ZERO;
        }
        let nanos = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(self.bytes_per_second));
        Duration::from_nanos(u64::try_from(nanos * u128::from(self.slowdown)).unwrap_or(u64::MAX))
    }

    /// From being on the wire to arriving, this time.
    pub(super) fn flight(&self, random: &mut Random) -> Duration {
        self.latency.saturating_add(self.jitter.sample(random)).saturating_mul(self.slowdown)
    }

    pub(super) fn validate(&self) {
        assert!(self.bytes_per_second > 0, "a wire of 0 B/s never delivers: use a partition");
        assert!(self.slowdown > 0, "a slowdown of 0 is no wire at all: 1 is the stated speed");
    }
}

/// What is added to a latency, at random. The arithmetic is on integers, so that a seed means the same everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Jitter {
    /// Nothing.
    None,
    /// Anything from nothing to this, all alike.
    Uniform(Duration),
    /// Mostly up to `usual`, and in `per_mille` of a thousand cases `spike` on top: a tail, as loss and retransmission
    /// make one.
    Spikes {
        /// The most that is added in the usual case.
        usual: Duration,
        /// How many of a thousand are late.
        per_mille: u32,
        /// How late they are.
        spike: Duration,
    },
}

impl Jitter {
    fn sample(self, random: &mut Random) -> Duration {
        let up_to = |most: Duration, random: &mut Random| {
            let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
            Duration::from_nanos(random.below(nanos.saturating_add(1)))
        };
        match self {
            Jitter::None => Duration::ZERO,
            Jitter::Uniform(most) => up_to(most, random),
            Jitter::Spikes { usual, per_mille, spike } => {
                let late = if random.chance(per_mille) { spike } else { Duration::ZERO };
                up_to(usual, random).saturating_add(late)
            }
        }
    }
}
