//! Intel MPI, Open MPI and MPICH: one C program, compiled for each into a folder that is gone at the end.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Library, Place, Search, on, output_of, version_in};
use crate::matrix::{Cell, ElementType, Wire};
use crate::network::{INTERFACE, address, ranks_per_host};
use crate::process::Job;

const LOOP: &str = include_str!("../mpi/loop.c");

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Intel,
    Open,
    Mpich,
}

struct Mpi {
    kind: Kind,
    launcher: PathBuf,
    program: PathBuf,
    /// Where it is, if it isn't the system's.
    root: Option<PathBuf>,
    version: Option<String>,
}

/// Intel MPI at the folder that was given, or `I_MPI_ROOT`.
pub fn intel(search: &Search) -> Result<Box<dyn Library>, String> {
    let variable = || std::env::var_os("I_MPI_ROOT").map(PathBuf::from);
    let root = search.intel_mpi.clone().or_else(variable).ok_or("neither --intel-mpi nor I_MPI_ROOT is given")?;
    let (include, lib) = (root.join("include"), root.join("lib"));
    let compiler = [format!("-I{}", include.display()), format!("-L{}", lib.display())];
    found(Kind::Intel, root.join("bin/mpiexec.hydra"), Some(root), search, ("gcc", &compiler, &["-lmpi"]))
}

/// Open MPI, as Debian names its programs.
pub fn open_mpi(search: &Search) -> Result<Box<dyn Library>, String> {
    found(Kind::Open, "mpirun.openmpi".into(), None, search, ("mpicc.openmpi", &[], &[]))
}

/// MPICH, as Debian names its programs.
pub fn mpich(search: &Search) -> Result<Box<dyn Library>, String> {
    found(Kind::Mpich, "mpirun.mpich".into(), None, search, ("mpicc.mpich", &[], &[]))
}

/// Finds the launcher and compiles the loop: a compiler, and what goes before and after its source.
fn found(
    kind: Kind,
    launcher: PathBuf,
    root: Option<PathBuf>,
    search: &Search,
    (compiler, before, after): (&str, &[String], &[&str]),
) -> Result<Box<dyn Library>, String> {
    let mut mpi = Mpi { kind, launcher, program: PathBuf::new(), root, version: None };
    mpi.version = version_in(&output_of(&mpi.launcher, &["--version"], &mpi.variables(None))?);
    mpi.program = search.folder.join(mpi.name().replace(' ', "-"));
    compile(compiler, before, after, &mpi.program)?;
    Ok(Box::new(mpi))
}

fn compile(compiler: &str, before: &[String], after: &[&str], program: &Path) -> Result<(), String> {
    let source = program.with_extension("c");
    std::fs::write(&source, LOOP).map_err(|error| format!("{}: {error}", source.display()))?;
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-O2", "-march=native"]).args(before).arg("-o").arg(program).arg(source).args(after);
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{compiler} fails: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(format!("{compiler} is not here")),
        Err(error) => Err(format!("{compiler}: {error}")),
    }
}

impl Mpi {
    /// The environment of the launcher and the ranks; without a wire, what the launcher alone needs.
    fn variables(&self, wire: Option<Wire>) -> Vec<(&'static str, String)> {
        let mut variables = Vec::new();
        if let Some(root) = &self.root {
            let lib = root.join("lib").display().to_string();
            variables.push(("I_MPI_ROOT", root.display().to_string()));
            variables.extend(["FI_PROVIDER_PATH", "LD_LIBRARY_PATH"].map(|name| (name, lib.clone())));
        }
        let tcp = wire == Some(Wire::Tcp);
        let more: &[_] = match self.kind {
            Kind::Intel if tcp => &[("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "tcp")],
            Kind::Intel => &[("I_MPI_FABRICS", "shm")],
            // Which of the two communication layers it was built with isn't known here.
            Kind::Mpich if tcp => &[
                ("MPIR_CVAR_NOLOCAL", "1"),
                ("UCX_TLS", "tcp,self"),
                ("UCX_NET_DEVICES", INTERFACE),
                ("FI_PROVIDER", "tcp"),
                ("FI_TCP_IFACE", INTERFACE),
            ],
            Kind::Mpich | Kind::Open => &[],
        };
        variables.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        variables
    }

    fn arguments(&self, place: &Place) -> Vec<String> {
        let mut words: Vec<String> = match self.kind {
            Kind::Open => ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"].map(str::to_owned).into(),
            Kind::Intel | Kind::Mpich => Vec::new(),
        };
        if let Some(network) = place.network {
            let first = ranks_per_host(place.ranks);
            let (a, b, agent) = (address(0), address(1), network.agent().display().to_string());
            let hydra = |prefix: &str, exec: &str| {
                let ends = format!("{prefix} ssh {exec} {agent} -iface {INTERFACE} -hosts {a},{b} -ppn {first}");
                ends.split(' ').map(str::to_owned).collect::<Vec<_>>()
            };
            words.extend(match self.kind {
                Kind::Intel => hydra("-bootstrap", "-bootstrap-exec"),
                Kind::Mpich => hydra("-launcher", "-launcher-exec"),
                Kind::Open => {
                    let hosts = format!("{a}:{first},{b}:{}", place.ranks - first);
                    let words = format!(
                        "--host {hosts} --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include {INTERFACE} \
                         --mca oob_tcp_if_include {INTERFACE} --mca plm_rsh_agent {agent}"
                    );
                    words.split(' ').map(str::to_owned).collect()
                }
            });
        }
        words
    }
}

impl Library for Mpi {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Intel => "intel mpi",
            Kind::Open => "open mpi",
            Kind::Mpich => "mpich",
        }
    }

    fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    fn refuses(&self, cell: &Cell) -> Option<&'static str> {
        let narrow = matches!(cell.element, ElementType::F16 | ElementType::Bf16);
        narrow.then_some("MPI has no type for sums of it")
    }

    fn job(&self, place: &Place, cells: &[Cell]) -> Job {
        let mut command = on(place, 0, &self.launcher);
        command.args(self.arguments(place)).args(["-n", &place.ranks.to_string()]).arg(&self.program);
        command.args(cells.iter().map(ToString::to_string)).envs(self.variables(Some(place.wire)));
        Job { commands: vec![(format!("{}'s launcher", self.name()), command)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_compiles_without_warnings() {
        let folder = tempfile::tempdir().expect("a folder");
        let strict = ["-Wall", "-Wextra", "-Wconversion", "-Werror"].map(str::to_owned);
        for compiler in ["mpicc.openmpi", "mpicc.mpich"] {
            match compile(compiler, &strict, &[], &folder.path().join(compiler)) {
                Err(why) if why.ends_with("is not here") => eprintln!("skipped: {why}"),
                compiled => compiled.unwrap_or_else(|why| panic!("{why}")),
            }
        }
    }
}
