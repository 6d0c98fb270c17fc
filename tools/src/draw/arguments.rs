//! The command line of `paceline draw`.

use std::path::PathBuf;

use paceline_comm::Collective;
use paceline_comm::schedule::Rank;

use crate::rows::collective;

/// Draw an algorithm: what each rank sends, receives, folds and copies in each round
///
/// As text unless --picture names a file. docs/schedules.md says how to read it.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// The collective, such as all_reduce
    #[arg(value_parser = collective, required_unless_present = "list")]
    pub collective: Option<Collective>,
    /// The algorithm, such as ring
    pub row: Option<String>,
    /// How many ranks; as many as the hosts have, or 4
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub n: Option<u32>,
    /// The root, where there is one
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub root: Rank,
    /// How many ranks each host has: 3+5, or 2x4 for two hosts of four
    #[arg(long, value_name = "SIZES", value_parser = hosts)]
    pub hosts: Option<Hosts>,
    /// The ranks in the order in which they are near each other: 0,2,1,3
    #[arg(long, value_name = "RANKS", value_delimiter = ',')]
    pub order: Vec<Rank>,
    /// Draws a picture into this file, which ends in .svg or .png
    #[arg(long, visible_alias = "svg", value_name = "FILE", value_parser = crate::picture::file)]
    pub picture: Option<PathBuf>,
    /// Says which collectives and rows there are
    #[arg(long, exclusive = true)]
    pub list: bool,
}

/// How many ranks each host has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts(Vec<u32>);

/// The most hosts that are understood; far more than are drawn.
const HOSTS_MAX: u32 = 1 << 16;

fn hosts(text: &str) -> Result<Hosts, String> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| (1..=HOSTS_MAX).contains(number));
    let sizes = match text.split_once('x') {
        Some((n, size)) => number(n).zip(number(size)).map(|(n, size)| vec![size; n as usize]),
        None => text.split('+').map(number).collect(),
    };
    sizes.map(Hosts).ok_or_else(|| "sizes of hosts are 3+5, or 2x4 for two hosts of four ranks".to_owned())
}

impl Arguments {
    /// How many ranks there are.
    pub(super) fn n(&self) -> Result<u32, String> {
        let Some(Hosts(sizes)) = &self.hosts else { return Ok(self.n.unwrap_or(4)) };
        let sum: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
        match self.n {
            Some(n) if u64::from(n) != sum => Err(format!("-n {n}, but the hosts have {sum} ranks")),
            _ => u32::try_from(sum).map_err(|_| format!("hosts of {sum} ranks are too many")),
        }
    }

    pub(super) fn host_sizes(&self, n: u32) -> Vec<u32> {
        self.hosts.as_ref().map_or_else(|| vec![n], |Hosts(sizes)| sizes.clone())
    }

    /// The rank at each place.
    pub(super) fn order(&self, n: u32) -> Result<Vec<Rank>, String> {
        let whole: Vec<Rank> = (0..n).collect();
        if self.order.is_empty() {
            return Ok(whole);
        }
        let mut sorted = self.order.clone();
        sorted.sort_unstable();
        if sorted == whole {
            Ok(self.order.clone())
        } else {
            Err(format!("--order must name each of the {n} ranks once"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_sizes_or_so_many_of_a_size() {
        for (text, want) in [("3+5", &[3, 5][..]), ("2x4", &[4, 4]), ("7", &[7]), ("1+1+1", &[1, 1, 1])] {
            assert_eq!(hosts(text), Ok(Hosts(want.to_vec())), "{text}");
        }
        for text in ["", "0", "3+", "2x", "x4", "2x4+1", "-1", "0x4", "99999999x1", "a"] {
            assert!(hosts(text).unwrap_err().contains("3+5"), "{text}");
        }
    }
}
