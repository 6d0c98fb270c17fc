//! What of a row's messages passes between hosts.

use super::Layout;
use super::path::path;
use crate::algorithm::Row;
use crate::schedule::{Program, Rank, Step};

/// What passes between hosts when a row runs; lengths in units of the whole message.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Crossing {
    /// What leaves or enters the busiest host: all its ranks' messages together.
    pub host: f64,
    /// What leaves a host in the mean.
    pub mean: f64,
    /// What leaves or enters the busiest rank.
    pub rank: f64,
    /// How many messages the busiest rank exchanges with other hosts, one way.
    pub rank_messages: f64,
    /// How many of a path's latencies are between hosts, and how many within.
    pub latencies: [f64; 2],
    /// Whether a rank waits for another host in every round while others never do: then what passes between hosts does so at
    /// the same time as what passes within.
    pub is_steady: bool,
    /// How many ranks of a host send to others at the same time, of equal length: in rows of levels all do. At least 1.
    pub lanes: f64,
    /// How many adapters a host has for each that a rank can use: 1 unless [`Crossing::over_adapters`] says otherwise.
    pub adapters: f64,
}

/// Of how many hosts programs are looked at, of more.
const SAMPLED: usize = 6;

impl Crossing {
    /// Looks at the programs of all hosts, or of some: rows treat hosts in the middle alike.
    pub(super) fn of(layout: &Layout, row: &Row) -> Crossing {
        if layout.n_hosts() < 2 {
            return Crossing::default();
        }
        let hosts = layout.hosts();
        let host_of = layout.host_of();
        let chunk = 1.0 / f64::from(layout.chunks(row));
        let mut all = Crossing { latencies: path(layout, row), ..Crossing::default() };
        let (mut n_rounds, mut most_waits, mut n_sampled) = (0, 0, 0.0);
        // A root within its host: what goes around from there comes back to the host.
        let root = hosts[0][hosts[0].len() - 1];
        for host in sampled(hosts.len()) {
            let mut of_host = [Passed::default(); 2];
            for me in &hosts[host] {
                let program = layout.program(row, *me, root);
                let (passed, waits) = passed(&program, |other| host_of[other as usize] as usize != host);
                n_rounds = n_rounds.max(program.n_rounds());
                most_waits = most_waits.max(waits);
                all.rank_messages = all.rank_messages.max(passed[0].messages).max(passed[1].messages);
                all.rank = all.rank.max(passed[0].chunks.max(passed[1].chunks) * chunk);
                for (sum, one) in of_host.iter_mut().zip(passed) {
                    sum.chunks += one.chunks;
                }
            }
            all.host = all.host.max(of_host[0].chunks.max(of_host[1].chunks) * chunk);
            (all.mean, n_sampled) = (all.mean + of_host[0].chunks * chunk, n_sampled + 1.0);
        }
        all.mean /= n_sampled;
        all.adapters = 1.0;
        all.lanes = if row.in_levels && all.rank > 0.0 { (all.host / all.rank).max(1.0) } else { 1.0 };
        let is_long = 2 * n_rounds >= layout.size() as usize;
        all.is_steady = is_long && most_waits == n_rounds && all.latencies[1] > 0.0;
        all
    }
}

impl Crossing {
    /// The same where hosts have so many adapters, each of them used by the ranks next to it: a rank that alone speaks for its
    /// host has the others idle. What leaves the host counts as much more as its busiest adapter has more than its share.
    #[must_use]
    pub fn over_adapters(self, adapters: u32, ranks_per_host: u32) -> Crossing {
        let of_rank = f64::from((adapters / ranks_per_host.max(1)).max(1));
        let adapters = f64::from(adapters) / of_rank;
        Crossing { host: self.host.max(self.rank * adapters), adapters, ..self }
    }
}

/// What leaves or enters these ranks together when a row runs, in units of the whole message.
pub(super) fn leaving(layout: &Layout, row: &Row, ranks: &[Rank], is_far: impl Fn(Rank, Rank) -> bool) -> f64 {
    let mut sum = [0.0; 2];
    for me in ranks {
        let (passed, _) = passed(&layout.program(row, *me, 0), |other| is_far(*me, other));
        sum = [sum[0] + passed[0].chunks, sum[1] + passed[1].chunks];
    }
    sum[0].max(sum[1]) / f64::from(layout.chunks(row))
}

#[derive(Clone, Copy, Default)]
struct Passed {
    messages: f64,
    chunks: f64,
}

/// What a rank sends to and receives from ranks that are far, and in how many rounds it receives such.
fn passed(program: &Program, is_far: impl Fn(Rank) -> bool) -> ([Passed; 2], usize) {
    let mut passed = [Passed::default(); 2];
    let mut waits = 0;
    for round in program.rounds() {
        let before = passed[1].messages;
        for step in round {
            let (direction, other) = match *step {
                Step::Send { to, .. } => (0, to),
                Step::Recv { from, .. } | Step::RecvReduce { from, .. } => (1, from),
                Step::Copy { .. } | Step::Reduce { .. } => continue,
            };
            if is_far(other) {
                passed[direction].messages += 1.0;
                passed[direction].chunks += f64::from(step.count());
            }
        }
        waits += usize::from(passed[1].messages > before);
    }
    (passed, waits)
}

fn sampled(n: usize) -> Vec<usize> {
    if n <= SAMPLED {
        return (0..n).collect();
    }
    vec![0, 1, n / 3, n / 2, n - 2, n - 1]
}

#[cfg(test)]
mod tests {
    use super::super::Spot;
    use super::*;
    use crate::algorithm::row;
    use crate::collective::Collective;

    fn layout(hosts: &[u32]) -> Layout {
        let spots = hosts.iter().zip(0..).flat_map(|(n, host)| (0..*n).map(move |_| Spot { host, ..Spot::default() }));
        Layout::of(&spots.collect::<Vec<_>>())
    }

    fn crossing(hosts: &[u32], collective: Collective, name: &str) -> Crossing {
        layout(hosts).crossing(row(collective, name).expect("there is such a row"))
    }

    fn is(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn two_levels_let_pass_what_has_to() {
        for hosts in [&[4, 4][..], &[7, 8], &[1, 3], &[8, 8, 8, 8], &[3, 5, 6, 7]] {
            let k = hosts.len() as f64;
            let n = f64::from(hosts.iter().sum::<u32>());
            let least = f64::from(*hosts.iter().min().unwrap());
            let reduced = crossing(hosts, Collective::AllReduce, "two_level");
            assert!(is(reduced.host, 2.0 * (k - 1.0) / k), "{hosts:?}: {reduced:?}");
            assert!(is(reduced.latencies[0], 2.0 * (k - 1.0)), "{hosts:?}: {reduced:?}");
            // What enters: the blocks of all others, once.
            let gathered = crossing(hosts, Collective::AllGather, "two_level");
            assert!(
                is(gathered.host, f64::max((n - least) / n, (k - 1.0) * hosts_most(hosts) / n)),
                "{hosts:?}: {gathered:?}"
            );
            let scattered = crossing(hosts, Collective::ReduceScatter, "two_level");
            assert!(is(scattered.host, gathered.host), "{hosts:?}: {scattered:?}");
            let told = crossing(hosts, Collective::Broadcast, "two_level");
            assert!(is(told.host, 1.0), "{hosts:?}: {told:?}");
        }
    }

    fn hosts_most(hosts: &[u32]) -> f64 {
        f64::from(*hosts.iter().max().unwrap())
    }

    #[test]
    fn a_ring_waits_for_other_hosts_in_turn() {
        let ring = crossing(&[4, 4, 4], Collective::AllReduce, "ring");
        assert!(ring.is_steady && is(ring.host, 22.0 / 12.0), "{ring:?}");
        assert!((5.0..=6.0).contains(&ring.latencies[0]) && is(ring.latencies.iter().sum(), 22.0), "{ring:?}");
        let direct = crossing(&[4, 4, 4], Collective::AllReduce, "direct");
        assert!(is(direct.host, 32.0) && is(direct.latencies[0], 1.0) && !direct.is_steady, "{direct:?}");
        let doubling = crossing(&[4, 4], Collective::AllReduce, "recursive_doubling");
        assert!(is(doubling.host, 4.0) && doubling.latencies == [1.0, 2.0], "{doubling:?}");
    }

    #[test]
    fn one_host_has_nothing_to_pass() {
        assert_eq!(crossing(&[5], Collective::AllReduce, "ring"), Crossing::default());
    }
}
