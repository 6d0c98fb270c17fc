//! `paceline doctor`: what is usable of this host's InfiniBand and RoCE devices, alone or with another host.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use paceline_comm::{Communicator, LinkKind, Rendezvous, Setup};
use paceline_transport::Environment;
use paceline_transport::rdma::RdmaOptions;
use paceline_transport::rendezvous::TcpPlace;

/// Look at this host's InfiniBand and RoCE devices: which can be used, and what is wrong with the others
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// Try them with another host, where `paceline doctor --listen` runs: HOST or HOST:PORT
    #[arg(long, conflicts_with = "listen")]
    pub peer: Option<String>,
    /// Wait for another host, which tries them with this one; with a port to listen on
    #[arg(long, num_args = 0..=1, default_missing_value = PORT)]
    pub listen: Option<u16>,
    /// Seconds to wait for the other host
    #[arg(long, default_value_t = 60)]
    pub wait: u64,
}

/// Where two doctors meet if nobody says otherwise.
const PORT: &str = "29577";
/// The job's name, which keeps others away.
const JOB: &str = "paceline doctor";
const ROUND_TRIPS: usize = 500;
const BULK_BYTES: usize = 64 << 10;
const BULK_MESSAGES: usize = 200;

/// Runs the command.
#[must_use]
pub fn main(arguments: &Arguments) -> ExitCode {
    let environment = Environment::from_process();
    let options = match RdmaOptions::from_env(&environment) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("paceline doctor: {error}");
            return ExitCode::FAILURE;
        }
    };
    let alone = here(&options);
    let together = match (&arguments.peer, arguments.listen) {
        (None, None) => Ok(()),
        (peer, port) => with_peer(peer.as_deref(), port, arguments.wait, options),
    };
    if let Err(error) = &together {
        println!("peer: NOT usable\n  problem: {error}");
    }
    if alone && together.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(not(feature = "rdma"))]
fn here(_: &RdmaOptions) -> bool {
    println!("this build has no rdma links: build it with `--features rdma`");
    false
}

/// Prints what is found here; whether any port can be used.
#[cfg(feature = "rdma")]
fn here(options: &RdmaOptions) -> bool {
    use paceline_transport::rdma::doctor;
    use paceline_transport::rendezvous::Family;
    let reports = match doctor::examine(options, Family::Any) {
        Ok(reports) => reports,
        Err(error) => {
            println!("problem: {error}");
            return false;
        }
    };
    for report in &reports {
        println!("{}: {}", report.name, if report.problem.is_none() { "usable" } else { "NOT usable" });
        report.facts.iter().for_each(|fact| println!("  {fact}"));
        report.warnings.iter().for_each(|warning| println!("  warning: {warning}"));
        report.problem.iter().for_each(|problem| println!("  problem: {problem}"));
    }
    reports.iter().any(|report| report.problem.is_none())
}

fn with_peer(peer: Option<&str>, port: Option<u16>, wait: u64, options: RdmaOptions) -> Result<(), String> {
    let place = match (peer, port) {
        (None, port) => {
            let port = port.unwrap_or_else(|| PORT.parse().expect("a port"));
            println!("waiting for the other host: `paceline doctor --peer THIS-HOST:{port}` there");
            Rendezvous::Tcp(TcpPlace { hosts: vec!["0.0.0.0".to_owned()], ports: vec![port] })
        }
        (Some(peer), _) => {
            let with_port = if peer.rsplit(':').next().is_some_and(|end| end.parse::<u16>().is_ok()) {
                peer.to_owned()
            } else {
                format!("{peer}:{PORT}")
            };
            format!("tcp://{with_port}").parse().map_err(|error| format!("{error}"))?
        }
    };
    let rank = usize::from(peer.is_some());
    let setup = Setup {
        job_name: JOB.to_owned(),
        links: vec![LinkKind::Rdma],
        init_timeout: Duration::from_secs(wait.max(1)),
        timeout: Duration::from_secs(30),
        rdma: options,
        ..Setup::new(rank, 2, place)
    };
    let comm = Communicator::connect(&setup).map_err(|error| error.to_string())?;
    println!("peer: usable, {} and {} write to each other", comm.peer(0), comm.peer(1));
    measure(&comm).map_err(|error| error.to_string())
}

/// Prints how quick it is, from the connecting side.
fn measure(comm: &Communicator) -> paceline_comm::Result<()> {
    let (me, peer) = (comm.rank(), 1 - comm.rank());
    let mut word = [0u64];
    let mut begin = Instant::now();
    for turn in 0..2 * ROUND_TRIPS {
        if turn == ROUND_TRIPS {
            begin = Instant::now();
        }
        if me == 1 {
            comm.send(&word, peer)?;
            comm.recv(&mut word, peer)?;
        } else {
            comm.recv(&mut word, peer)?;
            comm.send(&word, peer)?;
        }
    }
    let latency_us = begin.elapsed().as_secs_f64() * 1e6 / ROUND_TRIPS as f64 / 2.0;
    let mut bulk = vec![0u8; BULK_BYTES];
    let begin = Instant::now();
    for _ in 0..BULK_MESSAGES {
        if me == 1 { comm.send(&bulk, peer)? } else { comm.recv(&mut bulk, peer)? }
    }
    if me == 1 {
        comm.recv(&mut word, peer)?
    } else {
        comm.send(&word, peer)?
    }
    let megabytes = (BULK_BYTES * BULK_MESSAGES) as f64 / 1e6 / begin.elapsed().as_secs_f64();
    println!("  {latency_us:.2} us for 8 bytes one way, {megabytes:.0} MB/s in messages of {BULK_BYTES} bytes");
    Ok(())
}
