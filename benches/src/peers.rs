//! The MPI libraries that are on this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Work;

/// An MPI library, or why there is none.
pub enum Peer {
    /// It can be run.
    Found(Mpi),
    /// It can't.
    Missing {
        /// Its name.
        name: &'static str,
        /// What is not there.
        why: String,
    },
}

/// An MPI library and the loop compiled for it.
pub struct Mpi {
    /// Its name.
    pub name: &'static str,
    launcher: PathBuf,
    program: PathBuf,
    arguments: Vec<&'static str>,
    environment: Vec<(&'static str, String)>,
}

impl Mpi {
    /// Runs the loop with `ranks` processes; what rank 0 printed.
    ///
    /// # Panics
    ///
    /// If the launcher can't be started or fails.
    #[must_use]
    pub fn run(&self, ranks: usize, list: &[Work]) -> String {
        let mut command = Command::new(&self.launcher);
        command.args(&self.arguments).arg("-n").arg(ranks.to_string()).arg(&self.program);
        command.args(list.iter().flat_map(|work| [work.bytes.to_string(), work.iterations.to_string()]));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let output = command.output().expect("starting the launcher");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        text
    }
}

/// Looks for Intel MPI, Open MPI and MPICH, and compiles the loop for each that is here.
#[must_use]
pub fn find_peers(intel: Option<&Path>) -> Vec<Peer> {
    let root = intel.map(Path::to_path_buf).or_else(|| std::env::var_os("I_MPI_ROOT").map(PathBuf::from));
    let intel = match root {
        None => Peer::Missing { name: "intel mpi", why: "neither --intel-mpi nor I_MPI_ROOT is given".into() },
        Some(root) => found(
            Mpi {
                name: "intel mpi",
                launcher: root.join("bin/mpiexec.hydra"),
                program: PathBuf::new(),
                arguments: vec![],
                environment: vec![
                    ("I_MPI_ROOT", root.display().to_string()),
                    ("I_MPI_FABRICS", "shm".into()),
                    ("FI_PROVIDER_PATH", root.join("lib").display().to_string()),
                    ("LD_LIBRARY_PATH", root.join("lib").display().to_string()),
                ],
            },
            "gcc",
            &[format!("-I{}", root.join("include").display()), format!("-L{}", root.join("lib").display())],
            &["-lmpi"],
        ),
    };
    let mpi = |name, launcher: &str, arguments| Mpi {
        name,
        launcher: launcher.into(),
        program: PathBuf::new(),
        arguments,
        environment: vec![],
    };
    let open_mpi_arguments = vec!["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"];
    vec![
        intel,
        found(mpi("open mpi", "mpirun.openmpi", open_mpi_arguments), "mpicc.openmpi", &[], &[]),
        found(mpi("mpich", "mpirun.mpich", vec![]), "mpicc.mpich", &[], &[]),
    ]
}

/// Compiles the loop; the library is missing if that, or finding its launcher, fails.
fn found(mut mpi: Mpi, compiler: &str, before: &[String], after: &[&str]) -> Peer {
    let missing = |name, why| Peer::Missing { name, why };
    if Command::new(&mpi.launcher).arg("--version").output().is_err() {
        return missing(mpi.name, format!("{} is not here", mpi.launcher.display()));
    }
    let folder = std::env::temp_dir().join(format!("paceline-side-by-side-{}", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/mpi/all_reduce.c");
    mpi.program = folder.join(mpi.name.replace(' ', "-"));
    if let Err(error) = std::fs::create_dir_all(&folder) {
        return missing(mpi.name, format!("no folder for its program: {error}"));
    }
    let mut command = Command::new(compiler);
    command.args(["-O2", "-march=native", "-o"]).arg(&mpi.program).args(before).arg(source).args(after);
    match command.output() {
        Ok(output) if output.status.success() => Peer::Found(mpi),
        Ok(output) => {
            missing(mpi.name, format!("{compiler} fails: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
        Err(error) => missing(mpi.name, format!("{compiler}: {error}")),
    }
}
