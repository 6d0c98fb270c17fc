//! The cores that a process may use, and how many several processes of one host may use together.

use rustix::thread::{CpuSet, sched_getaffinity};

/// Where one process may run.
///
/// A launcher may bind each rank to a core of its own. That the rank has one core doesn't mean then that it shares it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Cores {
    /// A bit for each core that its affinity allows; empty if the kernel doesn't say.
    allowed: Vec<u64>,
    /// How many of them it may use at a time, by a quota too.
    at_once: u32,
}

impl Cores {
    /// Of this process, as its calling thread is bound now.
    pub(crate) fn mine() -> Cores {
        let at_once = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        let allowed = match sched_getaffinity(None) {
            Ok(set) => words(&set),
            Err(error) => {
                tracing::debug!("the kernel doesn't say on which cores this process may run: {error}");
                Vec::new()
            }
        };
        Cores { allowed, at_once }
    }

    fn count(&self) -> u32 {
        self.allowed.iter().map(|word| word.count_ones()).sum()
    }

    /// How many cores processes of one host may use together, one at least. Where a quota limits some, it is taken to be one
    /// quota for all: that of a container that they share.
    pub(crate) fn together<'a>(all: impl Iterator<Item = &'a Cores> + Clone) -> usize {
        let mut union = Cores { allowed: Vec::new(), at_once: 0 };
        for cores in all.clone() {
            union.allowed.resize(union.allowed.len().max(cores.allowed.len()), 0);
            union.allowed.iter_mut().zip(&cores.allowed).for_each(|(all, one)| *all |= one);
        }
        let most_at_once = all.clone().map(|cores| cores.at_once).max().unwrap_or(1);
        let by_quota = all.into_iter().any(|cores| cores.at_once < cores.count());
        let together = match union.count() {
            0 => most_at_once,
            count if by_quota => count.min(most_at_once),
            count => count,
        };
        together.max(1) as usize
    }
}

fn words(set: &CpuSet) -> Vec<u64> {
    let mut words = vec![0u64; CpuSet::MAX_CPU.div_ceil(64)];
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).for_each(|core| words[core / 64] |= 1 << (core % 64));
    let used = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
    words.truncate(used);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn together(all: &[(&[u64], u32)]) -> usize {
        let all: Vec<Cores> =
            all.iter().map(|(allowed, at_once)| Cores { allowed: allowed.to_vec(), at_once: *at_once }).collect();
        Cores::together(all.iter())
    }

    #[test]
    fn bound_ranks_have_what_all_are_bound_to() {
        assert_eq!(together(&[(&[0b01], 1), (&[0b10], 1)]), 2, "a core each");
        assert_eq!(together(&[(&[0b11], 2), (&[0b11], 2)]), 2, "the same two");
        assert_eq!(together(&[(&[0b01], 1), (&[0b01], 1)]), 1, "the same one");
        assert_eq!(together(&[(&[1], 1), (&[0, 1], 1)]), 2, "far apart");
    }

    #[test]
    fn a_quota_counts_once() {
        assert_eq!(together(&[(&[0xff], 2), (&[0xff], 2)]), 2);
        assert_eq!(together(&[(&[], 4), (&[], 4)]), 4, "the kernel doesn't say more");
        assert_eq!(together(&[]), 1);
    }

    #[test]
    fn this_process_runs_somewhere() {
        let mine = Cores::mine();
        assert_eq!(Cores::together([&mine].into_iter()), std::thread::available_parallelism().unwrap().get());
    }
}
