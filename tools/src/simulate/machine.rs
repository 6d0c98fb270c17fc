//! A cluster of hosts like one that a file in NCCL's format describes.

use std::path::Path;

use paceline_comm::topology::{Cluster, Wire};
use paceline_transport::machine::{Machine, Part};

/// What part of a link's rate is left for messages, where nobody has measured it.
const USED: f64 = 0.8;

/// A rank for each GPU, and the adapters nearest to them; what a file doesn't say is that of `h100`.
pub(super) fn cluster(file: &Path) -> Result<Cluster, String> {
    let machine = Machine::from_xml_file(file).map_err(|error| format!("{}: {error}", file.display()))?;
    of(&machine).map_err(|why| format!("{}: {why}", file.display()))
}

fn of(machine: &Machine) -> Result<Cluster, String> {
    let gpus = machine.gpus.len();
    if gpus == 0 {
        return Err("it has no GPU: describe hosts without GPUs in JSON".to_owned());
    }
    let like = Cluster::named("h100").expect("it is known");
    let between = (1..gpus).filter_map(|gpu| machine.path(Part::Gpu(0), Part::Gpu(gpu)).bytes_per_second).min();
    let near = between.map_or(like.near.bytes_per_s, |rate| rate as f64 * USED);
    let mut ports: Vec<usize> = (0..gpus).flat_map(|gpu| machine.nearest_nics(Part::Gpu(gpu))).collect();
    ports.sort_unstable();
    ports.dedup();
    let rate = |port: &usize| machine.nics[*port].bytes_per_second;
    let far = ports.iter().filter_map(rate).min().map_or(like.far.bytes_per_s, |rate| rate as f64);
    Ok(Cluster {
        hosts: 1,
        ranks_per_host: gpus as u32,
        adapters_per_host: ports.len().max(1) as u32,
        near: Wire { bytes_per_s: near, ..like.near },
        far: Wire { bytes_per_s: far, ..like.far },
        ..like
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_from_their_files() {
        let read = |text| of(&Machine::from_xml(text).unwrap());
        let dgx = read(include_str!("../../../transport/tests/topology/fixtures/dgx-a100.xml")).unwrap();
        assert_eq!((dgx.ranks_per_host, dgx.adapters_per_host, dgx.far.bytes_per_s), (8, 8, 25e9));
        assert!((150e9..=300e9).contains(&dgx.near.bytes_per_s), "{dgx:?}");
        let boxed = read(include_str!("../../../transport/tests/topology/fixtures/pcie-8-gpus.xml")).unwrap();
        assert!(boxed.near.bytes_per_s < 30e9, "{boxed:?}");
        assert!(read("<system version=\"1\"></system>").is_err());
    }
}
