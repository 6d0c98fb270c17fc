//! Environments of every launcher, and what a setup makes of them.

use std::time::Duration;

use super::super::Family;
use super::*;
use crate::link::LinkKind;

fn setup(pairs: &[(&str, &str)]) -> Result<Setup, RendezvousError> {
    Setup::from_env(&Environment::from_pairs(pairs.iter().copied()))
}

/// Splits `A=1 B=2`.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    text.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect()
}

fn describe(setup: &Setup) -> String {
    let local = |value: Option<usize>| value.map_or("-".to_owned(), |value| value.to_string());
    let how = match &setup.how {
        Rendezvous::Alone => "alone".to_owned(),
        Rendezvous::Tcp(place) if place.ports.len() > 1 => {
            format!("{} among {}", place.hosts.join(","), place.ports.len())
        }
        Rendezvous::Tcp(place) => format!("tcp {place}"),
        Rendezvous::File(path) => format!("file {}", path.display()),
        Rendezvous::Local(name) => format!("local {name}"),
        Rendezvous::Pmi(place) => format!("pmi {:?} {} {}", place.door, place.process, place.one_host),
        Rendezvous::Hub(_) => "hub".to_owned(),
        Rendezvous::Unique(_) => "unique id".to_owned(),
    };
    let (rank, size) = (setup.rank, setup.size);
    format!("{rank}/{size} {}/{} {how}", local(setup.local_rank), local(setup.local_size))
}

const TORCHRUN: &str = "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node7 MASTER_PORT=29500";
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                        OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=77";
const MPICH: &str = "PMI_RANK=1 PMI_SIZE=2 PMI_FD=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";
const SLURM: &str = "SLURM_PROCID=5 SLURM_NTASKS=9 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_NODEID=1 \
                     SLURM_STEP_TASKS_PER_NODE=4(x2) SLURM_STEP_NODELIST=n[03-04] SLURM_STEP_NUM_NODES=2 \
                     SLURM_JOB_ID=9 SLURM_STEP_ID=0";

#[test]
fn each_launcher_is_understood() {
    let with = |base: &str, more: &str| format!("{base} {more}");
    for (environment, want) in [
        (String::new(), "0/1 0/1 alone"),
        ("PACELINE_RANK=0 PACELINE_SIZE=1".to_owned(), "0/1 -/- alone"),
        ("PACELINE_RANK=1 PACELINE_SIZE=2 PACELINE_RENDEZVOUS=tcp://h:5".to_owned(), "1/2 -/- tcp h:5"),
        ("PACELINE_RANK=1 PACELINE_SIZE=2 PACELINE_RENDEZVOUS=/tmp/x".to_owned(), "1/2 -/- file /tmp/x"),
        (TORCHRUN.to_owned(), "3/4 1/2 node7 among 16"),
        (with(TORCHRUN, "PACELINE_RENDEZVOUS=tcp://[::1]:7"), "3/4 1/2 tcp [::1]:7"),
        (with("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a", "MASTER_PORT=65534"), "1/2 -/- a among 2"),
        ("RANK=0 WORLD_SIZE=1".to_owned(), "0/1 -/- alone"),
        (OPEN_MPI.to_owned(), "1/2 1/2 local Open MPI 77 "),
        (with(OPEN_MPI, "PACELINE_RENDEZVOUS=tcp://h:5"), "1/2 1/2 tcp h:5"),
        (MPICH.to_owned(), "1/2 1/2 pmi Descriptor(8) 1 true"),
        (
            "PMI_RANK=1 PMI_SIZE=2 PMI_PORT=h:5 PMI_ID=1".to_owned(),
            "1/2 -/- pmi Address { manager: \"h:5\", id: \"1\" } 1 false",
        ),
        (SLURM.to_owned(), "5/8 1/4 n03 among 16"),
        (SLURM.replace("NODES=2", "NODES=1"), "5/8 1/4 local Slurm 9.0"),
        // A batch script has Slurm's variables but was not started once per task.
        (SLURM.replace("SLURM_STEP_ID=0", ""), "0/1 0/1 alone"),
        // Slurm is the outer one.
        (with(SLURM, OPEN_MPI), "1/2 1/2 local Open MPI 77 "),
        // Launchers that agree.
        (with(OPEN_MPI, "PACELINE_RANK=1 PACELINE_SIZE=2"), "1/2 1/2 local Open MPI 77 "),
        (with(OPEN_MPI, "RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=65535"), "1/2 -/- tcp h:65535"),
        // The user decides.
        (with(&with(OPEN_MPI, TORCHRUN), "PACELINE_LAUNCHER=openmpi"), "1/2 1/2 local Open MPI 77 "),
        (with(&with(OPEN_MPI, TORCHRUN), "PACELINE_LAUNCHER=torchrun"), "3/4 1/2 node7 among 16"),
        (with(OPEN_MPI, "PACELINE_LAUNCHER=none"), "0/1 0/1 alone"),
        // Half of a launcher's variables beside a whole one.
        (with(OPEN_MPI, "RANK=7"), "1/2 1/2 local Open MPI 77 "),
    ] {
        let setup = setup(&pairs(&environment)).unwrap_or_else(|error| panic!("{environment}: {error}"));
        assert_eq!(describe(&setup), want, "{environment}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let with = |base: &str, more: &str| format!("{base} {more}");
    for (environment, want) in [
        (
            with(OPEN_MPI, TORCHRUN),
            "torchrun's variables say rank 3 of 4, but Open MPI's variables say rank 1 of 2; unset",
        ),
        (
            with(MPICH, "PACELINE_RANK=0 PACELINE_SIZE=2"),
            "paceline's variables say rank 0 of 2, but PMI (MPICH or Intel",
        ),
        ("PACELINE_RANK=1 PACELINE_SIZE=2".to_owned(), "no place for the 2 ranks to meet: set PACELINE_RENDEZVOUS"),
        ("PACELINE_RENDEZVOUS=tcp://h:5".to_owned(), "nothing says which rank this is; set PACELINE_RANK"),
        ("PACELINE_RENDEZVOUS=h:5".to_owned(), "did you mean tcp://h:5?"),
        ("PACELINE_RANK=1".to_owned(), "PACELINE_RANK is set but PACELINE_SIZE is not"),
        (with(OPEN_MPI, "PACELINE_SIZE=4"), "PACELINE_SIZE is set but PACELINE_RANK is not"),
        ("PACELINE_RANK=2 PACELINE_SIZE=2".to_owned(), "rank 2 of 2 doesn't exist"),
        ("PACELINE_RANK=-1 PACELINE_SIZE=2".to_owned(), "PACELINE_RANK=-1: not understood; allowed: a whole number, 0"),
        ("PACELINE_RANK=0 PACELINE_SIZE=0".to_owned(), "PACELINE_SIZE=0: not understood"),
        ("WORLD_SIZE=4".to_owned(), "WORLD_SIZE is set but RANK is not"),
        ("RANK=0 WORLD_SIZE=2".to_owned(), "MASTER_ADDR and MASTER_PORT are not both"),
        ("PMI_RANK=0 PMI_SIZE=2".to_owned(), "neither PMI_FD nor PMI_PORT and PMI_ID"),
        ("PMI_RANK=0 PMI_SIZE=2 PMI_FD=x".to_owned(), "PMI_FD=x: not understood"),
        (
            OPEN_MPI.replace("LOCAL_SIZE=2", "LOCAL_SIZE=1").replace("LOCAL_RANK=1", "LOCAL_RANK=0"),
            "mpirun -x PACELINE_R",
        ),
        (OPEN_MPI.replace("LOCAL_RANK=1", "LOCAL_RANK=2"), "local rank 2 of 2 local ranks"),
        (SLURM.replace("n[03-04]", "n[03"), "SLURM_STEP_NODELIST=n[03: not understood"),
        (SLURM.replace("4(x2)", "4(y"), "SLURM_STEP_TASKS_PER_NODE=4(y: not understood"),
        ("PACELINE_LAUNCHER=torchrun".to_owned(), "asks for the variables of torchrun, and they are not set"),
        (
            "PACELINE_LAUNCHER=lsf".to_owned(),
            "PACELINE_LAUNCHER=lsf: not understood; allowed: one of paceline, torchrun",
        ),
        ("PACELINE_FAMILY=5".to_owned(), "PACELINE_FAMILY=5: not understood; allowed: one of 4, 6, any"),
        ("PACELINE_LINKS=shm,udp".to_owned(), "PACELINE_LINKS=shm,udp: not understood"),
        (
            "PACELINE_TCP_STREAMS=0".to_owned(),
            "PACELINE_TCP_STREAMS=0: not understood; allowed: a whole number, 1 to 64",
        ),
        ("PACELINE_INTERFACE=a,^b".to_owned(), "PACELINE_INTERFACE=a,^b: not understood"),
        ("PACELINE_TIMEOUT=never".to_owned(), "PACELINE_TIMEOUT=never: not understood; allowed: seconds"),
        (
            "PACELINE_TOKEN=short".to_owned(),
            "PACELINE_TOKEN=(not shown): not understood; allowed: a secret of at least 8",
        ),
        ("PACELINE_TOKEN=".to_owned(), "an empty one would leave the job open"),
        ("PACELINE_TOKEN_FILE=/no/such".to_owned(), "token file /no/such: No such file"),
        (
            "PACELINE_TOKEN=long-enough PACELINE_TOKEN_FILE=/no/such".to_owned(),
            "contradicts itself: PACELINE_TOKEN is set",
        ),
    ] {
        let error = setup(&pairs(&environment)).map(|setup| describe(&setup)).expect_err(&environment).to_string();
        assert!(error.contains(want), "{environment}: {error}");
    }
}

#[test]
fn options() {
    let plain = setup(&[]).unwrap();
    assert_eq!((plain.timeout, plain.init_timeout), (Setup::TIMEOUT, Setup::INIT_TIMEOUT));
    assert_eq!(plain.links, Setup::LINKS);
    assert!(plain.token.is_none() && plain.ports.is_none() && plain.interface.is_none() && plain.algorithm.is_none());

    let path = std::env::temp_dir().join(format!("paceline-token-{}", std::process::id()));
    std::fs::write(&path, "from the file\n").unwrap();
    let environment = format!(
        "PACELINE_TIMEOUT=5 PACELINE_INIT_TIMEOUT=2m PACELINE_INTERFACE=^docker,lo PACELINE_FAMILY=6 PACELINE_PORTS=5-9 \
         PACELINE_LINKS=tcp PACELINE_TCP_STREAMS=4 PACELINE_ALGORITHM=all_reduce=ring PACELINE_JOB=j \
         PACELINE_TOKEN_FILE={}",
        path.display()
    );
    let full = setup(&pairs(&environment)).unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!((full.timeout, full.init_timeout), (Duration::from_secs(5), Duration::from_secs(120)));
    assert_eq!((full.family, full.ports, full.links), (Family::V6, Some(5..=9), vec![LinkKind::Tcp]));
    assert_eq!((full.tcp_streams, full.algorithm.as_deref()), (Some(4), Some("all_reduce=ring")));
    assert_eq!((full.job_name.as_str(), full.interface.as_deref()), ("j", Some("^docker,lo")));
    assert!(full.token.is_some());
}

/// Ranks of one job derive the same place, and other jobs' other ones.
#[test]
fn ranks_agree_on_where_to_meet() {
    let place = |environment: String| match setup(&pairs(&environment)).unwrap() {
        Setup { how: Rendezvous::Tcp(place), job_name, .. } => (place, job_name),
        Setup { how: Rendezvous::Local(name), job_name, .. } => panic!("local {name} {job_name}"),
        other => panic!("{other:?}"),
    };
    let first = place(SLURM.to_owned());
    let second =
        SLURM.replace("PROCID=5", "PROCID=0").replace("LOCALID=1", "LOCALID=0").replace("NODEID=1", "NODEID=0");
    assert_eq!(first, place(second));
    assert_ne!(first, place(SLURM.replace("STEP_ID=0", "STEP_ID=1")));
    let first = place(TORCHRUN.to_owned());
    assert_eq!(first, place(TORCHRUN.replace("RANK=3", "RANK=0").replace("LOCAL_RANK=1", "LOCAL_RANK=0")));
    assert_ne!(first.1, place(format!("{TORCHRUN} TORCHELASTIC_RESTART_COUNT=1")).1);
}
