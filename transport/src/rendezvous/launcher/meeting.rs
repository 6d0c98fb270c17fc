//! Where ranks that a launcher started meet, if nobody said.

use std::net::IpAddr;
use std::time::Instant;

use crate::environment::{Environment, EnvironmentError};
use crate::tcp::interface;

use super::super::credentials::name_of_job;
use super::super::{PmiDoor, PmiPlace, Rendezvous, RendezvousError, Setup, TcpPlace, pmi};
use super::nodelist::first_host;
use super::{Found, Launcher};

/// How many ports from the first one are tried.
const TRIED: u16 = 16;

/// The place, and the job's name.
pub(super) fn place(environment: &Environment, found: &Found) -> Result<(Rendezvous, String), RendezvousError> {
    match found.launcher {
        Launcher::Paceline => Err(RendezvousError::NowhereToMeet { size: found.size }),
        Launcher::Torchrun => torchrun(environment),
        Launcher::OpenMpi => open_mpi(environment, found, is_mine),
        Launcher::Pmi => process_manager(environment, found),
        Launcher::Slurm => slurm(environment, found),
    }
}

/// torchrun's own store may hold MASTER_PORT, on the host where rank 0 runs too.
fn torchrun(environment: &Environment) -> Result<(Rendezvous, String), RendezvousError> {
    let (host, port) = (environment.text("MASTER_ADDR")?, environment.count("MASTER_PORT", 1..=65535)?);
    let (Some(host), Some(port)) = (host, port) else {
        let problem = "RANK and WORLD_SIZE are set but MASTER_ADDR and MASTER_PORT are not both; set them, or \
                       PACELINE_RENDEZVOUS=tcp://<host of rank 0>:29500";
        return Err(RendezvousError::Setup(problem.to_owned()));
    };
    let run = environment.text("TORCHELASTIC_RUN_ID")?.unwrap_or("");
    let restart = environment.text("TORCHELASTIC_RESTART_COUNT")?.unwrap_or("");
    let first = port as u16;
    let ports = (first..=first.saturating_add(TRIED - 1)).collect();
    let host = host.trim_matches(['[', ']']).to_owned();
    let name = format!("torchrun {port} {run} {restart}");
    Ok((Rendezvous::Tcp(TcpPlace { hosts: vec![host], ports }), name))
}

/// On one host, a Unix socket named after the job. On several, mpirun's own host, whose addresses every process knows,
/// if rank 0 runs there.
fn open_mpi(
    environment: &Environment,
    found: &Found,
    is_mine: impl Fn(IpAddr) -> bool,
) -> Result<(Rendezvous, String), RendezvousError> {
    let line = format!(
        "mpirun -x PACELINE_RENDEZVOUS=tcp://<host of rank 0>:29500 -n {} ... (or give it to mpirun's environment and \
         add -x PACELINE_RENDEZVOUS)",
        found.size
    );
    let namespace = environment.text("PMIX_NAMESPACE")?;
    let key = environment.text("OMPI_MCA_orte_precondition_transports")?;
    if namespace.is_none() && key.is_none() {
        let problem = format!("Open MPI gave the job no name by which its ranks could meet; say where: {line}");
        return Err(RendezvousError::Setup(problem));
    }
    let name = format!("Open MPI {} {}", namespace.unwrap_or(""), key.unwrap_or(""));
    if found.local_size == Some(found.size) {
        return Ok((Rendezvous::Local(name.clone()), name));
    }
    let hosts = environment.text("OMPI_MCA_orte_hnp_uri")?.map(addresses_of_uri).unwrap_or_default();
    let here = hosts.iter().copied().any(is_mine);
    if hosts.is_empty() || (found.rank == 0 && !here) {
        let problem = format!(
            "Open MPI started {} ranks on several hosts, and rank 0 doesn't run on mpirun's, so the others don't know its \
             address; say where to meet: {line}",
            found.size
        );
        return Err(RendezvousError::Setup(problem));
    }
    let hosts = hosts.iter().map(IpAddr::to_string).collect();
    Ok((Rendezvous::Tcp(TcpPlace { hosts, ports: ports_for(environment, &name)? }), name))
}

/// `123.0;tcp://10.0.0.1,10.1.0.1:5000;tcp6://[fd00::1]:5001`, without the ports.
fn addresses_of_uri(uri: &str) -> Vec<IpAddr> {
    let lists = uri.split(';').filter_map(|part| part.split_once("://")).filter_map(|(_, rest)| rest.rsplit_once(':'));
    let texts = lists.flat_map(|(list, _)| list.split(','));
    texts
        .filter_map(|text| text.trim_matches(['[', ']']).parse().ok())
        .filter(|ip: &IpAddr| !ip.is_loopback())
        .collect()
}

fn is_mine(address: IpAddr) -> bool {
    interface::interfaces().is_ok_and(|mine| mine.iter().any(|interface| interface.addresses.contains(&address)))
}

fn process_manager(environment: &Environment, found: &Found) -> Result<(Rendezvous, String), RendezvousError> {
    let descriptor = environment.parsed("PMI_FD", "the number of an open descriptor", |text| {
        text.parse().ok().filter(|descriptor| 0 <= *descriptor)
    })?;
    let door = match (descriptor, address(environment)?) {
        (Some(descriptor), _) => PmiDoor::Descriptor(descriptor),
        (None, Some(door)) => door,
        (None, None) => {
            let problem = "PMI_RANK and PMI_SIZE are set, but neither PMI_FD nor PMI_PORT and PMI_ID say how to reach the \
                           process manager; say where to meet: PACELINE_RENDEZVOUS=tcp://<host of rank 0>:29500";
            return Err(RendezvousError::Setup(problem.to_owned()));
        }
    };
    let one_host = found.local_size == Some(found.size);
    Ok((Rendezvous::Pmi(PmiPlace { door, process: found.rank, one_host }), String::new()))
}

/// Rank and size from a process manager that tells them only when asked; `None` if there is none.
pub(super) fn ask_manager(environment: &Environment) -> Result<Option<(usize, usize)>, RendezvousError> {
    let Some(door) = address(environment)? else { return Ok(None) };
    let limit = environment.duration("PACELINE_INIT_TIMEOUT")?.unwrap_or(Setup::INIT_TIMEOUT);
    pmi::rank_and_size(&door, Instant::now() + limit).map(Some)
}

fn address(environment: &Environment) -> Result<Option<PmiDoor>, EnvironmentError> {
    let (manager, id) = (environment.text("PMI_PORT")?, environment.text("PMI_ID")?);
    Ok(manager.zip(id).map(|(manager, id)| PmiDoor::Address { manager: manager.to_owned(), id: id.to_owned() }))
}

fn slurm(environment: &Environment, found: &Found) -> Result<(Rendezvous, String), RendezvousError> {
    let job = environment.text("SLURM_JOB_ID")?.unwrap_or("");
    let step = environment.text("SLURM_STEP_ID")?.unwrap_or("");
    let name = format!("Slurm {job}.{step}");
    let nodes = environment.count("SLURM_STEP_NUM_NODES", 1..=1 << 20)?;
    if nodes == Some(1) || found.local_size == Some(found.size) {
        return Ok((Rendezvous::Local(name.clone()), name));
    }
    let form = "hosts as Slurm writes them, such as n[1-4],m7";
    let Some(host) = environment.parsed("SLURM_STEP_NODELIST", form, first_host)? else {
        let problem = "Slurm's variables give rank and size, but SLURM_STEP_NODELIST is not set; say where to meet: \
                       PACELINE_RENDEZVOUS=tcp://<host of rank 0>:29500";
        return Err(RendezvousError::Setup(problem.to_owned()));
    };
    let ports = ports_for(environment, &name)?;
    Ok((Rendezvous::Tcp(TcpPlace { hosts: vec![host], ports }), name))
}

/// Ports that all ranks of a job derive from its name, below those that systems give out by themselves, or within
/// PACELINE_PORTS.
fn ports_for(environment: &Environment, name: &str) -> Result<Vec<u16>, EnvironmentError> {
    let range = environment.ports("PACELINE_PORTS")?.unwrap_or(20_000..=31_999);
    let (first, width) = (u64::from(*range.start()), range.len() as u64);
    let hash = name_of_job(name);
    let start = u64::from_le_bytes(hash[..8].try_into().expect("8 of 16 bytes"));
    let tried = width.min(TRIED.into());
    Ok((0..tried).map(|i| (first + start.wrapping_add(i) % width) as u16).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rank: usize, local_size: usize) -> Found {
        Found { launcher: Launcher::OpenMpi, rank, size: 4, local_rank: None, local_size: Some(local_size) }
    }

    #[test]
    fn open_mpi_on_several_hosts_meets_at_mpiruns_if_rank_0_is_there() {
        let uri = "1963327488.0;tcp://192.0.2.2,10.0.0.9:38891;tcp6://[fd00::2]:44335;tcp://127.0.0.1:5";
        let environment = Environment::from_pairs([("OMPI_MCA_orte_hnp_uri", uri), ("PMIX_NAMESPACE", "1963327489")]);
        let addresses = ["192.0.2.2", "10.0.0.9", "fd00::2"];
        assert_eq!(addresses_of_uri(uri).iter().map(IpAddr::to_string).collect::<Vec<_>>(), addresses);
        for (rank, mine, works) in [(0, true, true), (0, false, false), (1, false, true)] {
            match open_mpi(&environment, &found(rank, 2), |_| mine) {
                Ok((Rendezvous::Tcp(place), _)) if works => assert_eq!(place.hosts, addresses),
                Err(error) if !works => {
                    let text = error.to_string();
                    assert!(text.contains("mpirun -x PACELINE_RENDEZVOUS=tcp://<host of rank 0>:29500 -n 4"), "{text}");
                }
                other => panic!("rank {rank}, mine {mine}: {other:?}"),
            }
        }
        let local = open_mpi(&environment, &found(0, 4), |_| false).unwrap();
        assert!(matches!(local.0, Rendezvous::Local(_)));
    }

    #[test]
    fn derived_ports_stay_in_their_range() {
        for (range, count) in [(None, 16), (Some("5-7"), 3), (Some("65530-65535"), 6), (Some("9"), 1)] {
            let environment = Environment::from_pairs(range.map(|range| ("PACELINE_PORTS", range)));
            for job in 0..50 {
                let ports = ports_for(&environment, &format!("job {job}")).unwrap();
                let allowed = environment.ports("PACELINE_PORTS").unwrap().unwrap_or(20_000..=31_999);
                assert_eq!(ports.len(), count);
                assert!(ports.iter().all(|port| allowed.contains(port)), "{ports:?}");
                assert!((1..count).all(|i| !ports[..i].contains(&ports[i])), "{ports:?}");
            }
        }
    }
}
