//! gloo, by way of PyTorch: a Python program for each rank, meeting at a file.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Library, Place, Search, on, output_of};
use crate::matrix::{Cell, Wire};
use crate::network::INTERFACE;
use crate::process::Job;

const LOOP: &str = include_str!("../gloo/loop.py");

struct Gloo {
    python: PathBuf,
    program: PathBuf,
    folder: PathBuf,
    version: String,
    jobs: AtomicUsize,
}

/// gloo, if the Python has PyTorch with it.
pub fn gloo(search: &Search) -> Result<Box<dyn Library>, String> {
    let asked = "import torch, torch.distributed as d; assert d.is_gloo_available(); print(torch.__version__)";
    let said = output_of(&search.python, &["-c", asked], &[])?;
    let program = search.folder.join("loop.py");
    std::fs::write(&program, LOOP).map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(Box::new(Gloo {
        python: search.python.clone(),
        program,
        folder: search.folder.to_owned(),
        version: format!("torch {}", said.trim()),
        jobs: AtomicUsize::new(0),
    }))
}

impl Library for Gloo {
    fn name(&self) -> &'static str {
        "gloo"
    }

    fn version(&self) -> Option<&str> {
        Some(&self.version)
    }

    fn note(&self, wire: Wire) -> Option<&'static str> {
        Some(match wire {
            Wire::Tcp => "gloo is called from Python, and reduces in place only",
            Wire::Shm | Wire::Threads => {
                "gloo is called from Python, reduces in place only, and uses TCP over loopback: it has no shared memory"
            }
        })
    }

    fn job(&self, place: &Place, cells: &[Cell]) -> Job {
        let meeting = self.folder.join(format!("gloo-{}", self.jobs.fetch_add(1, Ordering::Relaxed)));
        let interface = if place.network.is_some() { INTERFACE } else { "lo" };
        let command = |rank: usize| {
            let mut command = on(place, rank, &self.python);
            command.arg(&self.program).arg(&meeting).args(cells.iter().map(ToString::to_string));
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", place.ranks.to_string());
            command.env("GLOO_SOCKET_IFNAME", interface);
            (format!("gloo's rank {rank}"), command)
        };
        Job { commands: (0..place.ranks).map(command).collect() }
    }
}
