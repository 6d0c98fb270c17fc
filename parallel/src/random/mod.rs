//! Random numbers that belong to places: the number at an index of a named stream is the same whoever asks, in whatever order.
//!
//! So initial weights and dropout masks, taken at *global* indices, don't depend on how a model is cut. The generator is
//! Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

mod philox;

use philox::philox;

/// Where numbers of one kind come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Stream {
    key: [u32; 2],
    purpose: u64,
}

impl Stream {
    /// The stream of a seed and a name, such as a parameter's.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Stream {
        Stream { key: halves(seed), purpose: hash(name) }
    }

    /// A stream within this one: of a step, a micro-batch, a sample.
    #[must_use]
    pub fn at(self, number: u64) -> Stream {
        let [a, b, c, d] = philox(self.counter(number), [self.key[0] ^ 0x5eed_5eed, self.key[1]]);
        Stream { key: self.key, purpose: join(a, b) ^ join(c, d).rotate_left(1) }
    }

    fn counter(self, index: u64) -> [u32; 4] {
        let ([a, b], [c, d]) = (halves(index), halves(self.purpose));
        [a, b, c, d]
    }

    fn words(self, index: u64) -> [u32; 4] {
        philox(self.counter(index), self.key)
    }

    /// A number evenly from [0, 1), of 53 bits.
    #[must_use]
    pub fn uniform(self, index: u64) -> f64 {
        let [a, b, ..] = self.words(index);
        unit(a, b)
    }

    /// A number with mean 0 and variance 1, normally distributed.
    #[must_use]
    pub fn normal(self, index: u64) -> f64 {
        let [a, b, c, d] = self.words(index);
        // 1 - u is in (0, 1], where the logarithm is finite.
        let (radius, angle) = ((-2.0 * (1.0 - unit(a, b)).ln()).sqrt(), std::f64::consts::TAU * unit(c, d));
        radius * angle.cos()
    }

    /// A whole number below `end`, as evenly as 64 bits allow.
    ///
    /// # Panics
    /// If `end` is 0.
    #[must_use]
    pub fn below(self, index: u64, end: u64) -> u64 {
        assert!(end > 0, "no number is below 0");
        let [a, b, ..] = self.words(index);
        ((u128::from(join(a, b)) * u128::from(end)) >> 64) as u64
    }
}

fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn unit(low: u32, high: u32) -> f64 {
    (join(low, high) >> 11) as f64 / (1u64 << 53) as f64
}

/// FNV-1a, by 64 bits: names are few and short.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_moments_they_should() {
        let stream = Stream::new(7, "weights");
        let n = 20_000;
        let mean = |numbers: &dyn Fn(u64) -> f64| (0..n).map(numbers).sum::<f64>() / n as f64;
        assert!((mean(&|at| stream.uniform(at)) - 0.5).abs() < 0.01);
        assert!(mean(&|at| stream.normal(at)).abs() < 0.03);
        assert!((mean(&|at| stream.normal(at).powi(2)) - 1.0).abs() < 0.05);
        assert!((0..n).all(|at| stream.below(at, 3) < 3 && (0.0..1.0).contains(&stream.uniform(at))));
        let threes = (0..n).filter(|at| stream.below(*at, 3) == 2).count() as f64 / n as f64;
        assert!((threes - 1.0 / 3.0).abs() < 0.02);
    }

    #[test]
    fn streams_differ_by_seed_name_and_number() {
        let of = |stream: Stream| (0..8).map(|at| stream.uniform(at).to_bits()).collect::<Vec<_>>();
        let base = Stream::new(1, "a");
        let others = [Stream::new(2, "a"), Stream::new(1, "b"), base.at(0), base.at(1), base.at(0).at(0)];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(of(base), of(*other));
            assert!(others[..at].iter().all(|earlier| of(*earlier) != of(*other)));
        }
        assert_eq!(of(base), of(Stream::new(1, "a")));
    }
}
