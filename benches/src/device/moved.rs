//! What an all_reduce must move, and how long memory takes for that: the bound that times are compared with.

use super::Way;

/// What memory was measured to do, in bytes per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// Bytes read and bytes written, added, in a copy within a device.
    pub memory: f64,
    /// To pinned memory of the host.
    pub to_host: f64,
    /// From it.
    pub from_host: f64,
}

/// Up to how many bytes an all_reduce between so many ranks goes in one shot: the table of `comm/src/device/choice.rs`.
fn one_shot_bytes(ranks: usize) -> u64 {
    match ranks {
        0..=2 => u64::MAX,
        3..=4 => 512 << 10,
        5..=8 => 256 << 10,
        _ => 128 << 10,
    }
}

/// The bytes that a rank reads and writes in devices' memory for a vector of `bytes` bytes, in calls on the devices.
///
/// In one shot it reads its vector, writes it to its cells, reads the cells of all `ranks` ranks and writes the result:
/// `(ranks + 3) * bytes`. In two it reads its vector and writes it to its cells, reads its part in all ranks' cells, writes the
/// folded part twice (to its result and for the others), and reads and writes the parts of the others: `5 * bytes`, whatever the
/// number of ranks.
#[must_use]
pub fn bytes_per_rank(ranks: usize, bytes: u64) -> u64 {
    if bytes <= one_shot_bytes(ranks) { (ranks as u64 + 3) * bytes } else { 5 * bytes }
}

/// The least time of an all_reduce in microseconds, `sharing` of whose ranks share a device.
///
/// On the devices: what the ranks of one device move there. By the host: each rank's vector once to the host and once back, over
/// the one way between them. Neither counts what the ranks wait for each other, links between devices, or the host's own work.
#[must_use]
pub fn bound_us(way: Way, ranks: usize, sharing: usize, bytes: u64, rates: &Rates) -> f64 {
    let each = match way {
        Way::Direct => bytes_per_rank(ranks, bytes) as f64 / rates.memory,
        Way::Host => bytes as f64 / rates.to_host + bytes as f64 / rates.from_host,
    };
    1e6 * each * sharing as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_moved() {
        assert_eq!(bytes_per_rank(2, 1 << 30), 5 << 30);
        assert_eq!(bytes_per_rank(4, 512 << 10), 7 * (512 << 10));
        assert_eq!(bytes_per_rank(4, 1 << 20), 5 << 20);
        assert_eq!(bytes_per_rank(8, 8), 88);
    }

    #[test]
    fn bounds_are_of_the_ranks_that_share_a_device() {
        let rates = Rates { memory: 4e12, to_host: 50e9, from_host: 25e9 };
        assert!((bound_us(Way::Direct, 2, 2, 1_000_000_000, &rates) - 2500.0).abs() < 1e-6);
        assert!((bound_us(Way::Direct, 2, 1, 1_000_000_000, &rates) - 1250.0).abs() < 1e-6);
        assert!((bound_us(Way::Host, 2, 2, 1_000_000, &rates) - 120.0).abs() < 1e-6);
    }
}
