//! What rows would take on a described cluster.

use serde::Serialize;

use super::crossing::leaving;
use super::{Cluster, Fabric, Layout, Links, Trouble, Wire};
use crate::algorithm::{Row, rows_for};
use crate::collective::Collective;
use crate::schedule::Rank;
use crate::schedule::cost::Costs;

/// What a row would take.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// The row.
    pub row: &'static str,
    /// How long it would take, in seconds.
    pub seconds: f64,
    /// Of that, latencies.
    pub latency_s: f64,
    /// What leaves the busiest host, in units of the whole message.
    pub leaves_host: f64,
    /// What leaves a leaf switch or a rail, for each host or adapter that it has, in the same units.
    pub leaves_switch: f64,
    /// Bytes of the message per second.
    pub algorithm_bytes_per_s: f64,
    /// The same as nccl-tests' bus bandwidth.
    pub bus_bytes_per_s: f64,
}

impl Cluster {
    /// What each row of a collective would take for a message of `bytes` bytes (the vector, or all ranks' blocks together), the
    /// quickest first.
    ///
    /// # Errors
    ///
    /// What [`Cluster::check`] finds; that nobody can be reached; or that the collective has no rows.
    pub fn estimate(&self, collective: Collective, bytes: u64, trouble: &Trouble) -> Result<Vec<Estimate>, String> {
        self.check()?;
        if self.hosts > 1 && trouble.dead_adapters >= self.adapters_per_host {
            let (dead, all) = (trouble.dead_adapters, self.adapters_per_host);
            return Err(format!(
                "{dead} dead adapters of {all} leave a host that nobody reaches: the call would end with an error that names it"
            ));
        }
        if collective.is_message() {
            return Err(format!("{collective} is a message: it has no rows"));
        }
        let layout = self.layout();
        let rows = rows_for(collective).filter(|row| (row.fits)(self.size()));
        let mut estimates: Vec<Estimate> = rows.map(|row| self.estimate_row(&layout, row, bytes, trouble)).collect();
        estimates.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        Ok(estimates)
    }

    fn estimate_row(&self, layout: &Layout, row: &'static Row, bytes: u64, trouble: &Trouble) -> Estimate {
        let n = self.size();
        let crossing = layout.crossing(row);
        let mut crossing = crossing.over_adapters(self.adapters_per_host, self.ranks_per_host);
        let work = row.work_in(layout.groups());
        let leaves_host = layout.crossing(row).host;
        let (leaves_switch, scarcity) = self.beyond(layout, row);
        crossing.host = crossing.host.max(leaves_switch * scarcity);
        let adapters = self.adapters_per_host - if self.hosts > 1 { trouble.dead_adapters } else { 0 };
        // Lanes are of one length: the slowest adapter holds up all. A dead one's lanes go by the others.
        let host_rate = f64::from(adapters) * self.far.bytes_per_s / trouble.slow_adapter;
        let folds = 1.0 / self.fold_bytes_per_s;
        let costs = |wire: Wire, rate: f64| Costs {
            latency_s: wire.latency_s,
            message_s: wire.message_s,
            byte_s: 1.0 / rate,
            fold_byte_s: folds,
            copy_byte_s: folds,
        };
        let links = Links {
            near: costs(self.near, self.near.bytes_per_s / trouble.slow_near),
            far: costs(self.far, host_rate),
            at_once: true,
        };
        let chunks = u64::from(layout.chunks(row));
        let n_slices =
            if row.moves_runs { 1 } else { bytes.div_ceil(self.chunk_bytes * chunks).clamp(1, 1 << 20) as u32 };
        let seconds = if layout.n_hosts() > 1 {
            crossing.seconds(&work, bytes, n_slices, &links)
        } else {
            work.seconds_in_slices(bytes, n_slices, &links.near)
        };
        let [far, near] = if layout.n_hosts() > 1 { crossing.latencies } else { [0.0, work.latencies] };
        let seconds = seconds + trouble.straggler_s;
        let rate = bytes as f64 / seconds;
        Estimate {
            row: row.name,
            seconds,
            latency_s: far * self.far.latency_s + near * self.near.latency_s,
            leaves_host,
            leaves_switch,
            algorithm_bytes_per_s: rate,
            bus_bytes_per_s: rate * bus_factor(row.collective, n),
        }
    }

    /// What passes beyond a switch, for each host or adapter of it, and how many times scarcer the way there is.
    fn beyond(&self, layout: &Layout, row: &Row) -> (f64, f64) {
        let (size, per_host) = (self.size(), self.ranks_per_host);
        match self.fabric {
            Fabric::Full => (0.0, 1.0),
            Fabric::FatTree { hosts_per_leaf, oversubscription } => {
                let leaf = hosts_per_leaf.saturating_mul(per_host);
                if leaf >= size {
                    return (0.0, oversubscription);
                }
                let ranks: Vec<Rank> = (0..leaf).collect();
                let leaves = leaving(layout, row, &ranks, |_, other| other >= leaf);
                (leaves / f64::from(hosts_per_leaf), oversubscription)
            }
            Fabric::Rails { oversubscription } => {
                let rail = |rank: Rank| rank % per_host * self.adapters_per_host / per_host;
                let ranks: Vec<Rank> = (0..per_host).collect();
                let changes = |me: Rank, other: Rank| me / per_host != other / per_host && rail(me) != rail(other);
                (leaving(layout, row, &ranks, changes), oversubscription)
            }
        }
    }
}

/// What nccl-tests multiplies the rate of the message by.
fn bus_factor(collective: Collective, n: u32) -> f64 {
    let n = f64::from(n);
    match collective {
        Collective::AllReduce => 2.0 * (n - 1.0) / n,
        Collective::AllGather
        | Collective::ReduceScatter
        | Collective::AllToAll
        | Collective::Gather
        | Collective::Scatter => (n - 1.0) / n,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quickest(cluster: &Cluster, bytes: u64, trouble: &Trouble) -> Estimate {
        cluster.estimate(Collective::AllReduce, bytes, trouble).unwrap().remove(0)
    }

    fn of<'a>(estimates: &'a [Estimate], row: &str) -> &'a Estimate {
        estimates.iter().find(|estimate| estimate.row == row).expect("there is such a row")
    }

    /// Ranks on hosts of their own, and no latency but the link's: the formulas that textbooks have.
    #[test]
    fn published_formulas_hold() {
        let (alpha, rate) = (5e-6, 1e10);
        let far = Wire { latency_s: alpha, message_s: 0.0, bytes_per_s: rate };
        let cluster = Cluster {
            ranks_per_host: 1,
            adapters_per_host: 1,
            far,
            fold_bytes_per_s: 1e30,
            ..Cluster::named("cpu").unwrap()
        };
        for n in [2, 8, 16, 64, 1024] {
            let bytes = u64::from(n) << 16;
            let estimates =
                cluster.clone().of_hosts(n).estimate(Collective::AllReduce, bytes, &Trouble::default()).unwrap();
            let (n, size) = (f64::from(n), bytes as f64);
            let close = |row: &str, want: f64| {
                let got = of(&estimates, row).seconds;
                assert!((got / want - 1.0).abs() < 1e-9, "{row}, n = {n}: {got} is not {want}");
            };
            close("ring", 2.0 * (n - 1.0) * (size / n / rate + alpha));
            close("halving_doubling", 2.0 * n.log2() * alpha + 2.0 * (n - 1.0) / n * size / rate);
            close("recursive_doubling", n.log2() * (size / rate + alpha));
        }
    }

    #[test]
    fn two_levels_use_all_adapters_and_the_slowest_holds_up_all() {
        let cluster = Cluster::named("h100").unwrap().of_hosts(64);
        let bytes = 1 << 30;
        let whole = quickest(&cluster, bytes, &Trouble::default());
        let least = 2.0 * 63.0 / 64.0 * bytes as f64 / (8.0 * 50e9);
        assert!(whole.seconds > least && whole.seconds < 1.7 * least, "{whole:?}, {least}");
        let slow = quickest(&cluster, bytes, &Trouble { slow_adapter: 2.0, ..Trouble::default() });
        assert!((1.5..=2.0).contains(&(slow.seconds / whole.seconds)), "{slow:?}, {whole:?}");
        let dead = quickest(&cluster, bytes, &Trouble { dead_adapters: 4, ..Trouble::default() });
        assert!((1.5..=2.0).contains(&(dead.seconds / whole.seconds)), "{dead:?}, {whole:?}");
        let late = quickest(&cluster, bytes, &Trouble { straggler_s: 1.0, ..Trouble::default() });
        assert!((late.seconds - whole.seconds - 1.0).abs() < 1e-9);
        let error = cluster.estimate(Collective::AllReduce, 8, &Trouble { dead_adapters: 8, ..Trouble::default() });
        assert!(error.unwrap_err().contains("nobody reaches"));
    }

    #[test]
    fn a_leaf_that_passes_on_less_is_what_takes_long() {
        let fabric = Fabric::FatTree { hosts_per_leaf: 8, oversubscription: 4.0 };
        let full = Cluster::named("h100").unwrap().of_hosts(32);
        let scarce = Cluster { fabric, ..full.clone() };
        let all = |cluster: &Cluster| cluster.estimate(Collective::AllToAll, 1 << 30, &Trouble::default()).unwrap();
        let (full_s, scarce_s) = (of(&all(&full), "pairwise").seconds, of(&all(&scarce), "pairwise").seconds);
        assert!((2.0..=4.0).contains(&(scarce_s / full_s)), "{scarce_s} {full_s}");
        // A ring over hosts in order leaves a leaf once.
        let all = |cluster: &Cluster| cluster.estimate(Collective::AllReduce, 1 << 30, &Trouble::default()).unwrap();
        assert!((of(&all(&full), "two_level").seconds - of(&all(&scarce), "two_level").seconds).abs() < 1e-6);
    }

    #[test]
    fn rails_carry_lanes_without_leaving_them() {
        let cluster =
            Cluster { fabric: Fabric::Rails { oversubscription: 7.0 }, ..Cluster::named("h100").unwrap().of_hosts(16) };
        let estimates = cluster.estimate(Collective::AllReduce, 1 << 28, &Trouble::default()).unwrap();
        assert_eq!(of(&estimates, "two_level").leaves_switch, 0.0);
        assert!(of(&estimates, "ring").leaves_switch > 1.0, "from the last rank of a host to the first of the next");
    }
}
