//! What a launch of a reduction is given, laid out as the kernels read it.

/// The one argument of every kernel; `Arguments` in `kernels/fold.cuh` is the same.
///
/// The kernels write `target[i] = sources[0][i] (op) sources[1][i] (op) ...`, in this order. All pointers are multiples
/// of the element's size. The target may be exactly one of the sources, and otherwise overlaps none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Arguments {
    target: u64,
    sources: [u64; Arguments::SOURCES_MAX],
    factors: [u64; Arguments::SOURCES_MAX],
    elements: u64,
    n_sources: u32,
    ranks: u32,
    scaled: u32,
    reserved: u32,
}

const _: () = assert!(size_of::<Arguments>() == 288, "the kernels' text asserts the same");

impl Arguments {
    /// The most sources that a launch folds.
    pub const SOURCES_MAX: usize = 16;

    /// Folds `elements` elements of `sources` into `target`: addresses on the device.
    ///
    /// # Panics
    ///
    /// When there is no source, or more than [`Arguments::SOURCES_MAX`].
    #[must_use]
    pub fn new(target: u64, sources: &[u64], elements: u64) -> Arguments {
        let n_sources = sources.len();
        assert!((1..=Arguments::SOURCES_MAX).contains(&n_sources), "{n_sources} sources; a launch folds 1 to 16");
        let mut arguments = Arguments {
            target,
            sources: [0; Arguments::SOURCES_MAX],
            factors: [0; Arguments::SOURCES_MAX],
            elements,
            n_sources: n_sources as u32,
            ranks: 0,
            scaled: 0,
            reserved: 0,
        };
        arguments.sources[..n_sources].copy_from_slice(sources);
        arguments
    }

    /// The same, with each element of source `source` times the element whose bits are the low bytes of `factor`, and
    /// rounded, before it is added. Only the kernels of [`ReduceOp::PreMulSum`](crate::ReduceOp::PreMulSum) do that.
    ///
    /// # Panics
    ///
    /// When there is no such source.
    #[must_use]
    pub fn scaling(mut self, source: usize, factor: u64) -> Arguments {
        assert!(source < self.n_sources as usize, "source {source} of {}", self.n_sources);
        self.factors[source] = factor;
        self.scaled |= 1 << source;
        self
    }

    /// The same, with the rounded sum divided by `ranks`. Only the kernels of
    /// [`ReduceOp::Avg`](crate::ReduceOp::Avg) do that.
    ///
    /// # Panics
    ///
    /// When `ranks` is 0.
    #[must_use]
    pub fn dividing(mut self, ranks: u32) -> Arguments {
        assert!(ranks > 0, "a reduction has at least one rank");
        self.ranks = ranks;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_hold_what_they_are_given() {
        let arguments = Arguments::new(64, &[128, 256, 512], 7).scaling(2, 9).dividing(3);
        assert_eq!((arguments.target, arguments.elements, arguments.n_sources), (64, 7, 3));
        assert_eq!(arguments.sources[..4], [128, 256, 512, 0]);
        assert_eq!((arguments.scaled, arguments.factors[2], arguments.ranks), (0b100, 9, 3));
    }

    #[test]
    fn what_no_launch_can_do_is_refused() {
        type Make = fn() -> Arguments;
        let refused: [(&str, Make); 4] = [
            ("no source", || Arguments::new(0, &[], 1)),
            ("17 sources", || Arguments::new(0, &[0; 17], 1)),
            ("a second of one", || Arguments::new(0, &[0], 1).scaling(1, 1)),
            ("0 ranks", || Arguments::new(0, &[0], 1).dividing(0)),
        ];
        for (what, make) in refused {
            assert!(std::panic::catch_unwind(make).is_err(), "{what}");
        }
    }
}
