//! A cluster that is described: how long a row would take there, without running it.

use serde::{Deserialize, Serialize};

use super::{Layout, Spot};

/// What one kind of link does.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// From the end of sending to when a message is there, in seconds.
    pub latency_s: f64,
    /// For each message, at both ends, in seconds.
    pub message_s: f64,
    /// Bytes per second, each way.
    pub bytes_per_s: f64,
}

/// What joins the hosts beyond their adapters.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fabric {
    /// Everything any adapter can send, at any time.
    Full,
    /// A fat tree: so many hosts to a leaf switch, whose way up carries `1 / oversubscription` of what they can send.
    FatTree {
        /// Hosts of one leaf switch.
        hosts_per_leaf: u32,
        /// What they can send together over what the leaf can pass on.
        oversubscription: f64,
    },
    /// Rails: adapters of equal place on all hosts share a switch, and what goes from one rail to another takes the way up.
    Rails {
        /// What a rail's adapters can send together over what its switch can pass on to others.
        oversubscription: f64,
    },
}

/// Hosts that are all alike.
///
/// ```
/// use paceline_comm::Collective;
/// use paceline_comm::topology::{Cluster, Trouble};
///
/// let cluster = Cluster::named("h100").expect("it is known").of_hosts(16);
/// let estimates = cluster.estimate(Collective::AllReduce, 1 << 30, &Trouble::default())?;
/// assert!(estimates[0].seconds < 0.01, "{estimates:?}");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// How many hosts.
    pub hosts: u32,
    /// Ranks of each host, one to a device.
    pub ranks_per_host: u32,
    /// Network adapters of each host.
    pub adapters_per_host: u32,
    /// Between two ranks of a host; each rank sends and receives so much in all.
    pub near: Wire,
    /// One adapter.
    pub far: Wire,
    /// What joins the adapters.
    #[serde(default = "full")]
    pub fabric: Fabric,
    /// How fast a rank combines what it gets, in bytes per second.
    pub fold_bytes_per_s: f64,
    /// The most bytes of a chunk in a slice: longer messages go in several slices.
    #[serde(default = "chunk_bytes")]
    pub chunk_bytes: u64,
}

fn full() -> Fabric {
    Fabric::Full
}

fn chunk_bytes() -> u64 {
    1 << 20
}

/// What is wrong with a cluster.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trouble {
    /// How many times slower the slowest adapter is than the others.
    pub slow_adapter: f64,
    /// How many adapters of one host are dead.
    pub dead_adapters: u32,
    /// How many times slower the slowest link within a host is.
    pub slow_near: f64,
    /// How much later than all others one rank comes, in seconds.
    pub straggler_s: f64,
}

impl Default for Trouble {
    fn default() -> Trouble {
        Trouble { slow_adapter: 1.0, dead_adapters: 0, slow_near: 1.0, straggler_s: 0.0 }
    }
}

impl Cluster {
    /// A cluster of a usual kind, with data-sheet figures: `a100` (DGX A100: NVLink 3, eight 200 Gbit/s adapters), `h100` (DGX
    /// H100: NVLink 4, eight 400 Gbit/s adapters), `cpu` (16 ranks of a two-socket host, two 100 Gbit/s adapters), `cloud`
    /// (four ranks of a virtual machine, one 25 Gbit/s adapter).
    #[must_use]
    pub fn named(name: &str) -> Option<Cluster> {
        let wire = |latency_us: f64, message_us: f64, gigabytes: f64| Wire {
            latency_s: latency_us * 1e-6,
            message_s: message_us * 1e-6,
            bytes_per_s: gigabytes * 1e9,
        };
        let of = |ranks_per_host, adapters_per_host, near, far, fold_gigabytes: f64| Cluster {
            hosts: 1,
            ranks_per_host,
            adapters_per_host,
            near,
            far,
            fabric: Fabric::Full,
            fold_bytes_per_s: fold_gigabytes * 1e9,
            chunk_bytes: chunk_bytes(),
        };
        match name {
            "a100" => Some(of(8, 8, wire(2.0, 0.2, 300.0), wire(4.0, 0.4, 25.0), 1000.0)),
            "h100" => Some(of(8, 8, wire(2.0, 0.2, 450.0), wire(4.0, 0.4, 50.0), 2000.0)),
            "cpu" => Some(of(16, 2, wire(0.1, 0.05, 12.0), wire(3.0, 0.5, 12.5), 20.0)),
            "cloud" => Some(of(4, 1, wire(0.1, 0.05, 10.0), wire(25.0, 3.0, 3.125), 20.0)),
            _ => None,
        }
    }

    /// The names that [`Cluster::named`] knows.
    pub const NAMES: [&'static str; 4] = ["a100", "h100", "cpu", "cloud"];

    /// The same with so many hosts.
    #[must_use]
    pub fn of_hosts(self, hosts: u32) -> Cluster {
        Cluster { hosts, ..self }
    }

    /// Why this can't be a cluster.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        let Cluster { hosts, ranks_per_host, adapters_per_host, near, far, .. } = self;
        for (name, n) in
            [("hosts", hosts), ("ranks_per_host", ranks_per_host), ("adapters_per_host", adapters_per_host)]
        {
            if *n == 0 {
                return Err(format!("{name} must be at least 1"));
            }
        }
        if u64::from(*hosts) * u64::from(*ranks_per_host) > Cluster::RANKS_MAX {
            return Err(format!("{hosts} hosts of {ranks_per_host} ranks are more than {} ranks", Cluster::RANKS_MAX));
        }
        let positive = |name: &str, value: f64| match value > 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(format!("{name} must be a number above 0, and is {value}")),
        };
        for (name, wire) in [("near", near), ("far", far)] {
            positive(&format!("{name}.bytes_per_s"), wire.bytes_per_s)?;
            let costs = [("latency_s", wire.latency_s), ("message_s", wire.message_s)];
            if let Some((what, value)) = costs.into_iter().find(|(_, value)| !(0.0..=10.0).contains(value)) {
                return Err(format!("{name}.{what} must be from 0 to 10 seconds, and is {value}"));
            }
        }
        positive("fold_bytes_per_s", self.fold_bytes_per_s)?;
        match self.fabric {
            Fabric::Full => {}
            Fabric::FatTree { hosts_per_leaf: 0, .. } => return Err("hosts_per_leaf must be at least 1".to_owned()),
            Fabric::FatTree { oversubscription, .. } | Fabric::Rails { oversubscription } => {
                positive("oversubscription", oversubscription)?;
            }
        }
        if self.chunk_bytes == 0 { Err("chunk_bytes must be at least 1".to_owned()) } else { Ok(()) }
    }

    /// The most ranks of which rows are priced.
    pub const RANKS_MAX: u64 = 1 << 20;

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.hosts * self.ranks_per_host
    }

    /// Where its ranks are, host by host.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let adapter = |rank: u32| u64::from(rank) * u64::from(self.adapters_per_host) / u64::from(self.ranks_per_host);
        let spot =
            |host| (0..self.ranks_per_host).map(move |rank| Spot { host, domain: 0, adapter: adapter(rank) as u16 });
        Layout::of(&(0..self.hosts).flat_map(spot).collect::<Vec<_>>())
    }

    /// The group of every `stride`-th rank, as one of `stride` groups that all make the same call at the same time: of
    /// data-parallel ranks, where `stride` neighbours are tensor-parallel.
    ///
    /// # Errors
    ///
    /// If `stride` doesn't divide the number of ranks, or is neither a divisor nor a multiple of a host's.
    pub fn strided(&self, stride: u32) -> Result<Cluster, String> {
        let (ranks, adapters) = (self.ranks_per_host, self.adapters_per_host);
        if stride == 0 || !self.size().is_multiple_of(stride) {
            return Err(format!("groups of every {stride}th rank don't divide {} ranks", self.size()));
        }
        if ranks.is_multiple_of(stride) {
            // The groups share their hosts' adapters.
            let (own, share) = (adapters / stride, f64::from(adapters) / f64::from(stride));
            let far = Wire { bytes_per_s: self.far.bytes_per_s * share / f64::from(own.max(1)), ..self.far };
            return Ok(Cluster { ranks_per_host: ranks / stride, adapters_per_host: own.max(1), far, ..self.clone() });
        }
        if stride.is_multiple_of(ranks) {
            let share = f64::from(adapters) / f64::from(ranks);
            let far = Wire { bytes_per_s: self.far.bytes_per_s * share, ..self.far };
            let hosts = self.hosts / (stride / ranks);
            return Ok(Cluster { hosts, ranks_per_host: 1, adapters_per_host: 1, far, ..self.clone() });
        }
        Err(format!("a stride of {stride} neither divides the {ranks} ranks of a host nor is a multiple of them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_across_tensor_parallel_ranks_share_the_adapters() {
        let cluster = Cluster::named("h100").unwrap().of_hosts(128);
        let group = cluster.strided(8).unwrap();
        assert_eq!((group.hosts, group.ranks_per_host, group.adapters_per_host), (128, 1, 1));
        let pairs = cluster.strided(2).unwrap();
        assert_eq!((pairs.ranks_per_host, pairs.adapters_per_host, pairs.far.bytes_per_s), (4, 4, 50e9));
        let stages = cluster.strided(64).unwrap();
        assert_eq!((stages.hosts, stages.ranks_per_host), (16, 1));
        for wrong in [0, 3, 12] {
            assert!(cluster.strided(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_can_be_no_cluster_is_said() {
        let good = Cluster::named("cloud").unwrap();
        for (bad, why) in [
            (Cluster { hosts: 0, ..good.clone() }, "hosts must"),
            (Cluster { hosts: 1 << 20, ..good.clone() }, "more than"),
            (Cluster { far: Wire { bytes_per_s: 0.0, ..good.far }, ..good.clone() }, "far.bytes_per_s"),
            (Cluster { near: Wire { latency_s: f64::NAN, ..good.near }, ..good.clone() }, "near.latency_s"),
            (Cluster { fabric: Fabric::Rails { oversubscription: -1.0 }, ..good }, "oversubscription"),
        ] {
            assert!(bad.check().unwrap_err().contains(why), "{why}");
        }
    }
}
