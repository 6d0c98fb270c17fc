//! What a user may set of links over InfiniBand and RoCE; everything is found out where nothing is set.

use std::time::Duration;

use crate::environment::{Environment, EnvironmentError};
use crate::tcp::interface::Filter;

/// What is set of such links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RdmaOptions {
    /// Which devices to use.
    pub devices: Filter,
    /// The most ports used at once for a peer; with `None`, all that are nearest to the rank's processor.
    pub ports_max: Option<usize>,
    /// Queue pairs to each peer on each port.
    pub queue_pairs: usize,
    /// The place of the address to use in a port's table.
    pub gid_index: Option<u8>,
    /// The place of the partition key in a port's table.
    pub pkey_index: u16,
    /// The traffic class that packets carry, whose upper six bits are the DSCP on RoCE v2.
    pub traffic_class: u8,
    /// The service level.
    pub service_level: u8,
    /// How long a packet waits for its acknowledgement, as verbs count it: 4.096 us times two to this power.
    pub timeout: u8,
    /// How often a packet is sent again.
    pub retries: u8,
    /// Whether writes may become visible out of order; with `None`, where the device and the kernel allow it.
    pub relaxed_ordering: Option<bool>,
    /// Whether ordinary memory of large calls is registered for their length; with `None`, if the device is a program of the
    /// kernel's.
    pub lend: Option<bool>,
}

/// The most ports and queue pairs that a link may have.
pub const PORTS_MAX: usize = 8;
/// See [`PORTS_MAX`].
pub const QUEUE_PAIRS_MAX: usize = 16;

impl Default for RdmaOptions {
    fn default() -> RdmaOptions {
        RdmaOptions {
            devices: Filter::default(),
            ports_max: None,
            queue_pairs: 1,
            gid_index: None,
            pkey_index: 0,
            traffic_class: 0,
            service_level: 0,
            timeout: 17,
            retries: 7,
            relaxed_ordering: None,
            lend: None,
        }
    }
}

impl RdmaOptions {
    /// What the environment says.
    ///
    /// # Errors
    /// A value can't be used.
    pub fn from_env(environment: &Environment) -> Result<RdmaOptions, EnvironmentError> {
        let usual = RdmaOptions::default();
        let form = "mlx5,rxe (beginnings of names), =mlx5_0,mlx5_2 (exactly these), ^mlx4 (all but these)";
        const CHOICE: [(&str, Option<bool>); 3] = [("auto", None), ("0", Some(false)), ("1", Some(true))];
        let small = |name, most| environment.count(name, 0..=most).map(|count| count.map(|count| count as u8));
        Ok(RdmaOptions {
            devices: environment.parsed("PACELINE_RDMA_DEVICES", form, |text| text.parse().ok())?.unwrap_or_default(),
            ports_max: environment.count("PACELINE_RDMA_PORTS", 1..=PORTS_MAX)?,
            queue_pairs: environment
                .count("PACELINE_RDMA_QUEUE_PAIRS", 1..=QUEUE_PAIRS_MAX)?
                .unwrap_or(usual.queue_pairs),
            gid_index: small("PACELINE_RDMA_GID_INDEX", 255)?,
            pkey_index: environment.count("PACELINE_RDMA_PKEY_INDEX", 0..=65535)?.unwrap_or(0) as u16,
            traffic_class: small("PACELINE_RDMA_TRAFFIC_CLASS", 255)?.unwrap_or(usual.traffic_class),
            service_level: small("PACELINE_RDMA_SERVICE_LEVEL", 15)?.unwrap_or(usual.service_level),
            timeout: small("PACELINE_RDMA_TIMEOUT", 31)?.map_or(usual.timeout, |set| set.max(1)),
            retries: small("PACELINE_RDMA_RETRIES", 7)?.unwrap_or(usual.retries),
            relaxed_ordering: environment.one_of("PACELINE_RDMA_RELAXED_ORDERING", &CHOICE)?.flatten(),
            lend: environment.one_of("PACELINE_RDMA_LEND", &CHOICE)?.flatten(),
        })
    }

    /// The longest that a write is tried before the connection fails, as far as verbs promise it.
    #[must_use]
    pub fn patience(&self) -> Duration {
        Duration::from_nanos(4096u64 << self.timeout) * (u32::from(self.retries) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read_and_the_rest_is_usual() {
        let none: [(&str, &str); 0] = [];
        assert_eq!(RdmaOptions::from_env(&Environment::from_pairs(none)), Ok(RdmaOptions::default()));
        let set = Environment::from_pairs([
            ("PACELINE_RDMA_DEVICES", "^mlx4"),
            ("PACELINE_RDMA_GID_INDEX", "3"),
            ("PACELINE_RDMA_QUEUE_PAIRS", "4"),
            ("PACELINE_RDMA_RELAXED_ORDERING", "0"),
            ("PACELINE_RDMA_LEND", "auto"),
        ]);
        let options = RdmaOptions::from_env(&set).unwrap();
        assert!(options.devices.matches("mlx5_0") && !options.devices.matches("mlx4_0"));
        assert_eq!((options.gid_index, options.queue_pairs), (Some(3), 4));
        assert_eq!((options.relaxed_ordering, options.lend), (Some(false), None));
        for (name, value) in [("PACELINE_RDMA_QUEUE_PAIRS", "0"), ("PACELINE_RDMA_RETRIES", "8")] {
            let error = RdmaOptions::from_env(&Environment::from_pairs([(name, value)])).unwrap_err();
            assert_eq!(error.variable, name);
        }
    }

    #[test]
    fn patience_is_what_the_device_does() {
        assert_eq!(RdmaOptions::default().patience().as_secs(), 4);
    }
}
