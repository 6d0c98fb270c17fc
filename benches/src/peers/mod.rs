//! The libraries that are compared: what is here, and how each runs cells.

mod gloo;
mod mpi;
mod paceline;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::matrix::{Cell, Wire};
use crate::network::Network;
use crate::process::Job;

pub use paceline::Paceline;

/// What paceline may be compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum PeerName {
    /// Intel MPI.
    IntelMpi,
    /// Open MPI.
    OpenMpi,
    /// MPICH.
    Mpich,
    /// gloo, by way of PyTorch.
    Gloo,
}

/// Where a job runs.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// How the ranks reach each other.
    pub wire: Wire,
    /// How many there are.
    pub ranks: usize,
    /// The two hosts, where the wire is between hosts.
    pub network: Option<&'a Network>,
}

/// A library that can run cells.
pub trait Library {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Its version, if known.
    fn version(&self) -> Option<&str>;

    /// Why it doesn't have a cell, if it is known without asking.
    fn refuses(&self, _cell: &Cell) -> Option<&'static str> {
        None
    }

    /// What a reader must know about it on a wire.
    fn note(&self, _wire: Wire) -> Option<&'static str> {
        None
    }

    /// The processes that run the cells.
    fn job(&self, place: &Place, cells: &[Cell]) -> Job;
}

/// A library that isn't here, and why.
pub struct Missing {
    /// Its name.
    pub name: &'static str,
    /// What is not there.
    pub why: String,
}

/// Where to look, and where to put what is made.
pub struct Search<'a> {
    /// Where Intel MPI is.
    pub intel_mpi: Option<PathBuf>,
    /// The Python in which to look for PyTorch.
    pub python: PathBuf,
    /// A folder for programs and files, gone at the end.
    pub folder: &'a Path,
}

/// Looks for the peers; nothing is installed.
#[must_use]
pub fn find(names: &[PeerName], search: &Search) -> (Vec<Box<dyn Library>>, Vec<Missing>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        let looked = match name {
            PeerName::IntelMpi => mpi::intel(search),
            PeerName::OpenMpi => mpi::open_mpi(search),
            PeerName::Mpich => mpi::mpich(search),
            PeerName::Gloo => gloo::gloo(search),
        };
        match looked {
            Ok(library) => found.push(library),
            Err(why) => missing.push(Missing { name: name.shown(), why }),
        }
    }
    (found, missing)
}

impl PeerName {
    /// Its name in tables.
    #[must_use]
    pub fn shown(self) -> &'static str {
        ["intel mpi", "open mpi", "mpich", "gloo"][self as usize]
    }
}

/// The first word of what a launcher says about itself that looks like a version.
fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    text.split_whitespace().find(is_version).map(str::to_owned)
}

/// What a program prints; or why it couldn't.
pub(crate) fn output_of(program: &Path, words: &[&str], variables: &[(&str, String)]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(words).envs(variables.iter().map(|(name, value)| (name, value)));
    let told = |why: &dyn std::fmt::Display| format!("{} {}: {why}", program.display(), words.join(" "));
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{} is not here", program.display()),
        _ => told(&error),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(told(&said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("failed")))
}

/// A command on a host of the place, or here.
pub(crate) fn on(place: &Place, rank: usize, program: impl AsRef<OsStr>) -> Command {
    match place.network {
        None => Command::new(program),
        Some(network) => network.on(rank / crate::network::ranks_per_host(place.ranks), program),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found() {
        let cases = [
            ("Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b4)", Some("2021.18.1")),
            ("mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs", Some("4.1.4")),
            ("HYDRA build details:\n    Version:       4.0.2\n", Some("4.0.2")),
            ("none", None),
        ];
        for (text, version) in cases {
            assert_eq!(version_in(text).as_deref(), version);
        }
    }

    #[test]
    fn a_missing_peer_has_a_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let nowhere = folder.path().join("nowhere");
        let search = Search { intel_mpi: Some(nowhere.clone()), python: nowhere, folder: folder.path() };
        let (found, missing) = find(&[PeerName::IntelMpi, PeerName::Gloo], &search);
        assert!(found.is_empty());
        assert_eq!(missing.iter().map(|missing| missing.name).collect::<Vec<_>>(), ["intel mpi", "gloo"]);
        assert!(missing.iter().all(|missing| missing.why.contains("is not here")), "{}", missing[0].why);
    }
}
