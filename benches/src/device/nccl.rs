//! NCCL beside paceline: a Python program that calls its library.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Rounds, Sizes, by_cell};
use crate::process::{Interrupted, Job, Limits, Outcome, Supervisor};

const LOOP: &str = include_str!("nccl.py");

/// How NCCL is called.
pub struct Nccl {
    /// The Python that runs the loop; it needs no package.
    pub python: PathBuf,
    /// NCCL's library; otherwise the one that the Python or the system has.
    pub library: Option<PathBuf>,
}

impl Nccl {
    /// Each size's rounds, two cells for each: the device's and the host's time of a call; or why there are none.
    ///
    /// # Errors
    ///
    /// The user wants to stop.
    pub fn run(
        &self,
        folder: &Path,
        ranks: usize,
        sizes: &Sizes,
        supervisor: &Supervisor,
        limits: Limits,
    ) -> Result<Result<Vec<Rounds>, String>, Interrupted> {
        let program = folder.join("nccl.py");
        if let Err(error) = std::fs::write(&program, LOOP) {
            return Ok(Err(format!("{}: {error}", program.display())));
        }
        let vectors = sizes.vectors();
        let mut command = Command::new(&self.python);
        command.arg(&program).arg(self.library.as_deref().unwrap_or(Path::new("")));
        command.args([ranks, sizes.rounds()].map(|number| number.to_string()));
        command.arg(sizes.span().as_millis().to_string()).args(vectors.iter().map(ToString::to_string));
        let cells = 2 * vectors.len();
        let job = Job { commands: vec![("NCCL".to_owned(), command)] };
        let outcomes = supervisor.run(job, cells * sizes.rounds(), limits)?;
        if let Some(Outcome::NotOffered(reason)) = outcomes.iter().find(|it| matches!(it, Outcome::NotOffered(_))) {
            return Ok(Err(reason.clone()));
        }
        Ok(Ok(by_cell(&outcomes, cells, sizes.rounds())))
    }
}
