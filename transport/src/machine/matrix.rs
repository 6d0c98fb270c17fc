//! The table of paths between GPUs and network ports, like that of `nvidia-smi topo -m`.

use super::{Machine, Part, Path, PathClass, lists};

/// What the letters mean, the nearest first.
const LEGEND: &str = "  X    = the device itself
  NV#  = NVLinks, so many side by side, direct or through switches for them
  PIX  = one PCI switch, or one card
  PXB  = several PCI switches, but no processor
  PHB  = host bridges of one NUMA node
  PKG  = NUMA nodes of one socket
  SYS  = the link between sockets
";

impl Machine {
    /// GPUs, then network ports, each in the order of their numbers.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Part> {
        let (mut gpus, mut nics): (Vec<_>, Vec<_>) = ((0..self.gpus.len()).collect(), (0..self.nics.len()).collect());
        gpus.sort_by_key(|gpu| self.gpus[*gpu].number);
        nics.sort_by_key(|nic| self.nics[*nic].number);
        gpus.into_iter().map(Part::Gpu).chain(nics.into_iter().map(Part::Nic)).collect()
    }

    /// What a part is called.
    ///
    /// # Panics
    ///
    /// If it isn't of this machine.
    #[must_use]
    pub fn label(&self, part: Part) -> String {
        match part {
            Part::Core(core) => format!("core {}", self.cores[core].id),
            Part::Node(node) => format!("node {}", self.nodes[node].id),
            Part::Device(device) => self.devices[device].address.to_string(),
            Part::Gpu(gpu) => format!("GPU{}", self.gpus[gpu].number),
            Part::Nic(nic) => self.nics[nic].label(),
            Part::Network => "network".to_owned(),
        }
    }

    /// The table of paths, with the processors that are near to each and what the letters mean; where there is neither a GPU
    /// nor a network port, the paths between NUMA nodes.
    #[must_use]
    pub fn matrix(&self) -> String {
        let endpoints = self.endpoints();
        let parts = if endpoints.is_empty() { (0..self.nodes.len()).map(Part::Node).collect() } else { endpoints };
        let mut rows = vec![vec![String::new()]];
        rows[0].extend(parts.iter().map(|part| self.label(*part)));
        rows[0].extend(["CPU affinity", "NUMA affinity"].map(str::to_owned));
        for part in &parts {
            let mut row = vec![self.label(*part)];
            row.extend(parts.iter().map(|other| cell(self.path(*part, *other))));
            let node = self.node_of(*part).map(|node| &self.nodes[node]);
            row.push(node.map_or("?".to_owned(), |node| lists::list_text(&node.cores)));
            row.push(node.map_or("?".to_owned(), |node| node.id.to_string()));
            rows.push(row);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        let mut text = String::new();
        for row in &rows {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        format!("{text}\n{LEGEND}")
    }
}

fn cell(path: Path) -> String {
    match path.class {
        PathClass::NvLink => format!("NV{}", path.nvlinks),
        class => class.letters().to_owned(),
    }
}
