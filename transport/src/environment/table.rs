//! The variables that mean something, by name.

/// One environment variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What holds when it is not set, in words.
    pub default: &'static str,
    /// What it sets and what it may be set to.
    pub meaning: &'static str,
}

const fn row(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable { name, default, meaning }
}

/// Paceline's own variables.
pub const VARIABLES: &[Variable] = &[
    row(
        "PACELINE_RENDEZVOUS",
        "from the launcher",
        "Where the ranks meet: `tcp://host:port` (rank 0 listens there; exactly that port), `file:///path` or a path \
         (all hosts share it; rank 0 writes its address), `local://name` (one host; nothing is left behind).",
    ),
    row("PACELINE_RANK", "from the launcher, else 0", "This process's rank, 0 to size - 1."),
    row("PACELINE_SIZE", "from the launcher, else 1", "How many ranks there are."),
    row("PACELINE_LOCAL_RANK", "from the launcher", "This process's place among the ranks of its host."),
    row("PACELINE_LOCAL_SIZE", "from the launcher", "How many ranks its host has."),
    row(
        "PACELINE_LAUNCHER",
        "whichever is found",
        "Whose variables give rank and size: `paceline`, `torchrun`, `openmpi`, `pmi`, `slurm` or `none`. Decides when \
         several contradict each other.",
    ),
    row(
        "PACELINE_JOB",
        "from the launcher, else empty",
        "A name for the job. Ranks that come to the same address with another name are turned away.",
    ),
    row(
        "PACELINE_TOKEN",
        "none",
        "A secret that every rank must know, at least 8 bytes; take 16 random ones or more. Ranks prove that they know \
         it and never send it.",
    ),
    row("PACELINE_TOKEN_FILE", "none", "A file that holds the token, so that it stands in no command line."),
    row(
        "PACELINE_TIMEOUT",
        "300s",
        "How long a collective waits for a rank: `300`, `500ms`, `2m`. A rank that died is noticed within a second all \
         the same; the limit is for one that is stopped, lost or busy, say with a checkpoint.",
    ),
    row("PACELINE_INIT_TIMEOUT", "120s", "How long the ranks wait for each other at the start."),
    row(
        "PACELINE_INTERFACE",
        "all but loopback",
        "Network interfaces to use: `eth,ib` (names that begin so), `=eth0,eth1` (exactly), `^docker,lo` (all but).",
    ),
    row("PACELINE_FAMILY", "any", "IP version: `4`, `6` or `any`."),
    row("PACELINE_PORTS", "the system chooses", "Ports to listen on: `lo-hi`, for firewalls."),
    row(
        "PACELINE_LINKS",
        "all that the build has",
        "Which kinds of link may be used: of `inproc`, `shm`, `rdma` (with the feature `rdma`) and `tcp`. Where rdma is \
         allowed and can't be had, tcp takes its place if it is allowed, too.",
    ),
    row(
        "PACELINE_TCP_STREAMS",
        "1",
        "TCP connections to each peer, 1 to 64; of two ranks that differ, the smaller number counts.",
    ),
    row(
        "PACELINE_RDMA_DEVICES",
        "all",
        "InfiniBand and RoCE devices to use: `mlx5` (names that begin so), `=mlx5_0,mlx5_2` (exactly), `^mlx4` (all but).",
    ),
    row(
        "PACELINE_RDMA_PORTS",
        "all that are nearest",
        "The most ports used at once, 1 to 8; those nearest to the rank's processor, and the fastest of these, come first.",
    ),
    row(
        "PACELINE_RDMA_QUEUE_PAIRS",
        "1",
        "Queue pairs to each peer on each port, 1 to 16; of two ranks that differ, the smaller number counts.",
    ),
    row(
        "PACELINE_RDMA_GID_INDEX",
        "found out",
        "The row of a port's table of addresses, 0 to 255. Otherwise both ends take the best that they have in common: \
         RoCE v2 before v1, IPv4 first, or IPv6 where PACELINE_FAMILY says so.",
    ),
    row("PACELINE_RDMA_PKEY_INDEX", "0", "The row of a port's table of partition keys."),
    row(
        "PACELINE_RDMA_TRAFFIC_CLASS",
        "0",
        "The traffic class of packets, 0 to 255; on RoCE v2 the upper six bits are the DSCP.",
    ),
    row("PACELINE_RDMA_SERVICE_LEVEL", "0", "The service level of packets, 0 to 15."),
    row(
        "PACELINE_RDMA_TIMEOUT",
        "17",
        "How long a packet waits for its acknowledgement, 1 to 31: 4.096 us times two to this power (17: 0.54 s).",
    ),
    row(
        "PACELINE_RDMA_RETRIES",
        "7",
        "How often a packet is sent again before the connection fails, 0 to 7; with soft-RoCE 6 at most.",
    ),
    row(
        "PACELINE_RDMA_RELAXED_ORDERING",
        "auto",
        "Whether what a device writes may become visible out of order until its completion, which is quicker on some hosts: \
         `auto` (where device and kernel allow it), `0` or `1`.",
    ),
    row(
        "PACELINE_RDMA_LEND",
        "auto",
        "Whether ordinary memory of calls from 512 KiB on is registered while they run, rather than copied: `auto` (with \
         devices that are software), `0` or `1`.",
    ),
    row(
        "PACELINE_ALGORITHM",
        "chosen by cost",
        "The algorithm, by collective: `all_reduce=ring,broadcast=binomial`. An impossible one is an error.",
    ),
    row(
        "PACELINE_PROFILE",
        "the usual place",
        "The file with this host's measured prices and choices that `paceline tune` writes: a path, which must be there and \
         sound, or `none`. The usual place is `$XDG_CACHE_HOME/paceline/profile-<hostname>.json`, where a file that is \
         missing is no fault and one that can't be used is a warning.",
    ),
    row(
        "PACELINE_CACHE",
        "the usual place",
        "The folder that keeps compiled CUDA kernels, or `none`. The usual place is `$XDG_CACHE_HOME/paceline/kernels`. Whoever \
         may write there decides what a GPU runs.",
    ),
    row(
        "PACELINE_NVRTC",
        "what the system finds",
        "CUDA's compiler: `libnvrtc.so`, or the folder that holds it, as `pip install --target FOLDER \
         nvidia-cuda-nvrtc-cu12` makes one.",
    ),
    row(
        "PACELINE_CUDA_PEERS",
        "where they can",
        "Whether calls over memory of GPUs run on the GPUs, which then reach each other's memory; with `0` on some rank they \
         pass by the host.",
    ),
    row(
        "PACELINE_CUDA_COPY_ENGINES",
        "0",
        "Whether an all_gather or all_to_all of 1 MiB and more over memory of GPUs, which names no algorithm, is left to the GPUs' \
         copy engines, so that it takes no multiprocessor; the same on all ranks.",
    ),
    row("XDG_CACHE_HOME", "`$HOME/.cache`", "Where the usual places of a profile and of compiled kernels are."),
    row("HOME", "no usual place", "The same, where `XDG_CACHE_HOME` is not set."),
    row("PACELINE_LOG", "warn", "What the tools log, as a filter of `tracing`: `info`, `paceline_transport=debug`."),
    row("PACELINE_UPDATE", "not set", "Set to 1, tests that compare a generated file rewrite it instead."),
];

/// Variables of launchers, read where paceline's own are not set.
pub const LAUNCHER_VARIABLES: &[Variable] = &[
    row("RANK", "torchrun", "Rank."),
    row("WORLD_SIZE", "torchrun", "Size."),
    row("LOCAL_RANK", "torchrun", "Local rank."),
    row("LOCAL_WORLD_SIZE", "torchrun", "Local size."),
    row("MASTER_ADDR", "torchrun", "Host of rank 0."),
    row("MASTER_PORT", "torchrun", "First of 16 ports that rank 0 tries; torchrun's own store may hold the first."),
    row("TORCHELASTIC_RUN_ID", "torchrun", "Part of the job's name."),
    row("TORCHELASTIC_RESTART_COUNT", "torchrun", "Part of the job's name."),
    row("OMPI_COMM_WORLD_RANK", "Open MPI", "Rank."),
    row("OMPI_COMM_WORLD_SIZE", "Open MPI", "Size."),
    row("OMPI_COMM_WORLD_LOCAL_RANK", "Open MPI", "Local rank."),
    row("OMPI_COMM_WORLD_LOCAL_SIZE", "Open MPI", "Local size; equal to the size on one host."),
    row("OMPI_MCA_orte_hnp_uri", "Open MPI", "Addresses of mpirun's host, where rank 0 mostly runs."),
    row("OMPI_MCA_orte_precondition_transports", "Open MPI", "Part of the job's name."),
    row("PMIX_NAMESPACE", "Open MPI", "Part of the job's name."),
    row("PMI_RANK", "MPICH, Intel MPI", "Rank."),
    row("PMI_SIZE", "MPICH, Intel MPI", "Size."),
    row("MPI_LOCALRANKID", "MPICH, Intel MPI", "Local rank."),
    row("MPI_LOCALNRANKS", "MPICH, Intel MPI", "Local size; equal to the size on one host."),
    row("PMI_FD", "MPICH, Intel MPI", "Descriptor of the connection to the process manager."),
    row("PMI_PORT", "MPICH, Intel MPI", "Address of the process manager, where there is no descriptor."),
    row("PMI_ID", "MPICH, Intel MPI", "This process's name at that address."),
    row("SLURM_PROCID", "Slurm", "Rank."),
    row("SLURM_STEP_NUM_TASKS", "Slurm", "Size."),
    row("SLURM_NTASKS", "Slurm", "Size, where the step's is not set."),
    row("SLURM_LOCALID", "Slurm", "Local rank."),
    row("SLURM_STEP_TASKS_PER_NODE", "Slurm", "Local size, with SLURM_NODEID."),
    row("SLURM_NODEID", "Slurm", "Which node of the step this is."),
    row("SLURM_STEP_NODELIST", "Slurm", "The step's nodes; the first has rank 0."),
    row("SLURM_STEP_NUM_NODES", "Slurm", "How many nodes the step has."),
    row("SLURM_JOB_ID", "Slurm", "Part of the job's name; chooses the port."),
    row("SLURM_STEP_ID", "Slurm", "The same; tells a step of srun from a batch script."),
];

pub(super) fn is_known(name: &str) -> bool {
    VARIABLES.iter().chain(LAUNCHER_VARIABLES).any(|row| row.name == name)
}
