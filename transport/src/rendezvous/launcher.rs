//! Who this process is and where the ranks meet, from the variables of whichever launcher started it.
//!
//! Several launchers' variables can be there at once: `srun` around `mpirun`, a batch script around `torchrun`, leftovers
//! of a shell. Slurm's give way to any other's, because it is nearly always the outer one. If others disagree the process
//! can't know which counts, and says so.

mod meeting;
mod nodelist;

use crate::environment::Environment;

use super::{Rendezvous, RendezvousError, Setup};

/// Who starts processes and tells them their rank by environment variables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Launcher {
    /// Paceline's own variables.
    Paceline,
    /// torchrun, or anything that sets the same variables.
    Torchrun,
    /// Open MPI's mpirun.
    OpenMpi,
    /// The process manager of MPICH and Intel MPI.
    Pmi,
    /// Slurm's srun.
    Slurm,
}

impl Launcher {
    /// The name, in texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Launcher::Paceline => "paceline",
            Launcher::Torchrun => "torchrun",
            Launcher::OpenMpi => "Open MPI",
            Launcher::Pmi => "PMI (MPICH or Intel MPI)",
            Launcher::Slurm => "Slurm",
        }
    }
}

/// What a launcher calls things. Of several names, the first that is set counts.
struct Row {
    launcher: Launcher,
    rank: &'static str,
    size: &'static [&'static str],
    local_rank: &'static str,
    local_size: Option<&'static str>,
    /// The variables mean nothing unless this one is set too.
    witness: Option<&'static str>,
}

const ROWS: [Row; 5] = [
    Row {
        launcher: Launcher::Paceline,
        rank: "PACELINE_RANK",
        size: &["PACELINE_SIZE"],
        local_rank: "PACELINE_LOCAL_RANK",
        local_size: Some("PACELINE_LOCAL_SIZE"),
        witness: None,
    },
    Row {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        size: &["WORLD_SIZE"],
        local_rank: "LOCAL_RANK",
        local_size: Some("LOCAL_WORLD_SIZE"),
        witness: None,
    },
    Row {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
        witness: None,
    },
    Row {
        launcher: Launcher::Pmi,
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        local_rank: "MPI_LOCALRANKID",
        local_size: Some("MPI_LOCALNRANKS"),
        witness: None,
    },
    Row {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: "SLURM_LOCALID",
        local_size: None,
        witness: Some("SLURM_STEP_ID"),
    },
];

/// What one launcher says.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Found {
    launcher: Launcher,
    rank: usize,
    size: usize,
    local_rank: Option<usize>,
    local_size: Option<usize>,
}

impl Found {
    fn says(&self) -> String {
        format!("{}'s variables say rank {} of {}", self.launcher.name(), self.rank, self.size)
    }
}

/// Rank, size and meeting place; everything else as where nothing is set.
pub(super) fn who_and_where(environment: &Environment) -> Result<Setup, RendezvousError> {
    let place = environment.text("PACELINE_RENDEZVOUS")?.map(str::parse::<Rendezvous>).transpose()?;
    let Some(found) = choose(environment)? else {
        return match place {
            None => Ok(Setup::alone()),
            Some(_) => Err(RendezvousError::Setup(
                "PACELINE_RENDEZVOUS is set but nothing says which rank this is; set PACELINE_RANK and PACELINE_SIZE, or \
                 use a launcher"
                    .to_owned(),
            )),
        };
    };
    if found.size <= found.rank {
        return Err(RendezvousError::RankOutOfRange { rank: found.rank, size: found.size });
    }
    let mut setup = Setup::new(found.rank, found.size, Rendezvous::Alone);
    (setup.local_rank, setup.local_size) = (found.local_rank, found.local_size);
    match place {
        Some(place) => setup.how = place,
        None if found.size == 1 => {}
        None => (setup.how, setup.job_name) = meeting::place(environment, &found)?,
    }
    Ok(setup)
}

fn choose(environment: &Environment) -> Result<Option<Found>, RendezvousError> {
    let words = [
        ("paceline", Some(Launcher::Paceline)),
        ("torchrun", Some(Launcher::Torchrun)),
        ("openmpi", Some(Launcher::OpenMpi)),
        ("pmi", Some(Launcher::Pmi)),
        ("slurm", Some(Launcher::Slurm)),
        ("none", None),
    ];
    let wanted = environment.one_of("PACELINE_LAUNCHER", &words)?;
    if wanted == Some(None) {
        return Ok(None);
    }
    let mut all = Vec::new();
    let mut halves = Vec::new();
    for row in ROWS.iter().filter(|row| wanted.is_none_or(|wanted| wanted == Some(row.launcher))) {
        match read(environment, row)? {
            Statement::Whole(found) => all.push(found),
            Statement::Half(half) => halves.push(half),
            Statement::Nothing => {}
        }
    }
    // Half of paceline's own variables is a mistake whatever else is there; half of another's only if nothing else is.
    if let Some(half) = halves.into_iter().find(|half| all.is_empty() || half.contains("PACELINE_")) {
        return Err(RendezvousError::Setup(half));
    }
    if let (Some(Some(launcher)), true) = (wanted, all.is_empty()) {
        let problem = format!("PACELINE_LAUNCHER asks for the variables of {}, and they are not set", launcher.name());
        return Err(RendezvousError::Setup(problem));
    }
    if all.len() > 1 {
        all.retain(|found| found.launcher != Launcher::Slurm);
    }
    let Some(first) = all.first() else { return Ok(None) };
    if let Some(other) = all.iter().find(|other| (other.rank, other.size) != (first.rank, first.size)) {
        return Err(RendezvousError::Contradiction { first: first.says(), second: other.says() });
    }
    let mut first = first.clone();
    if first.launcher == Launcher::Paceline {
        // Paceline's variables name a rank; a launcher that agrees can know the host's part and a place to meet.
        if let Some(other) = all.get(1) {
            first = Found {
                local_rank: first.local_rank.or(other.local_rank),
                local_size: first.local_size.or(other.local_size),
                ..other.clone()
            };
        }
    }
    Ok(Some(first))
}

/// What one launcher's variables amount to.
enum Statement {
    Whole(Found),
    /// Rank without size or size without rank, in words.
    Half(String),
    Nothing,
}

fn read(environment: &Environment, row: &Row) -> Result<Statement, RendezvousError> {
    let most = Setup::MOST_RANKS;
    if row.witness.is_some_and(|witness| !environment.is_present(witness)) {
        return Ok(Statement::Nothing);
    }
    let rank = environment.count(row.rank, 0..=most - 1)?;
    let mut size = None;
    for name in row.size {
        size = size.or(environment.count(name, 1..=most)?);
    }
    let told = match (row.launcher, rank, size) {
        (Launcher::Pmi, None, None) => meeting::ask_manager(environment)?,
        _ => rank.zip(size),
    };
    if let Some((rank, size)) = told {
        let local_rank = environment.count(row.local_rank, 0..=most - 1)?;
        let local_size = match row.local_size {
            Some(name) => environment.count(name, 1..=most)?,
            None => nodelist::tasks_of_this_node(environment)?,
        };
        return Ok(Statement::Whole(Found { launcher: row.launcher, rank, size, local_rank, local_size }));
    }
    let half = |set, unset| Ok(Statement::Half(format!("{set} is set but {unset} is not")));
    match (rank.is_some(), size.is_some()) {
        (true, false) => half(row.rank, row.size[0]),
        (false, true) => half(row.size[0], row.rank),
        _ => Ok(Statement::Nothing),
    }
}

#[cfg(test)]
mod tests;
