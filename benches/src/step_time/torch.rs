//! PyTorch's DDP over gloo, with the same model: a Python program for each rank, meeting at a file.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Sizes, samples};
use crate::network::INTERFACE;
use crate::peers::{Place, on, output_of};
use crate::process::Job;

const PROGRAM: &str = include_str!("ddp.py");

/// A Python that has PyTorch with gloo.
pub struct Torch {
    python: PathBuf,
    program: PathBuf,
    folder: PathBuf,
    version: String,
    jobs: AtomicUsize,
}

impl Torch {
    /// PyTorch, if this Python has it; its program is put into `folder`.
    ///
    /// # Errors
    ///
    /// Why it can't be had.
    pub fn find(python: &Path, folder: &Path) -> Result<Torch, String> {
        let asked = "import torch, torch.distributed as d; assert d.is_gloo_available(); print(torch.__version__)";
        let said = output_of(python, &["-c", asked], &[])?;
        let program = folder.join("ddp.py");
        std::fs::write(&program, PROGRAM).map_err(|error| format!("{}: {error}", program.display()))?;
        let (python, folder) = (python.to_owned(), folder.to_owned());
        Ok(Torch { python, program, folder, version: format!("torch {}", said.trim()), jobs: AtomicUsize::new(0) })
    }

    /// What it is, and which.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The names of the numbers that it prints in each round.
    #[must_use]
    pub fn columns(&self) -> Vec<&'static str> {
        samples::peer_columns()
    }

    /// Its processes.
    #[must_use]
    pub fn job(&self, place: &Place, sizes: &Sizes) -> Job {
        let meeting = self.folder.join(format!("torch-{}", self.jobs.fetch_add(1, Ordering::Relaxed)));
        let interface = if place.network.is_some() { INTERFACE } else { "lo" };
        let command = |rank: usize| {
            let mut command = on(place, rank, &self.python);
            command.arg(&self.program).arg(&meeting);
            let numbers = [sizes.layers, sizes.width, sizes.tokens, sizes.bucket_kib, sizes.rounds];
            command.args(numbers.map(|number| number.to_string())).arg(if sizes.bind { "bind" } else { "free" });
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", place.ranks.to_string());
            command.env("GLOO_SOCKET_IFNAME", interface).env("OMP_NUM_THREADS", "1");
            (format!("PyTorch's rank {rank}"), command)
        };
        Job { commands: (0..place.ranks).map(command).collect() }
    }
}
