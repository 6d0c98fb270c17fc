//! Processes that are killed or stopped while ranks meet: the others are told, in time, by name.
//!
//! The test starts this binary again, once per rank, to run the one test that is a rank. Signals strike at chosen points
//! of the meeting or at random ones; either way the survivors must fail within the limit and name the right rank.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use paceline_transport::rendezvous::{Setup, exchange};
use paceline_transport::{Environment, RendezvousError};
use rustix::process::{Pid, Signal, kill_process};

const ROLE: &str = "PACELINE_TEST_ROLE";
const LIMIT: Duration = Duration::from_millis(2000);

/// Not a test by itself: what each started process runs. It says when it begins, then what came of it.
#[test]
fn as_a_rank() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let setup = Setup::from_env(&Environment::from_process()).unwrap();
    println!("\nBEGUN");
    let started = Instant::now();
    let outcome = exchange(&setup, &[setup.rank as u8], started + setup.init_timeout);
    let verdict = match &outcome {
        Ok(exchanged) => format!("met {}", exchanged.entries.len()),
        Err(RendezvousError::LostRank { lost, .. }) => format!("lost {}", lost.rank),
        Err(RendezvousError::LostRoot { .. }) => "lost 0".to_owned(),
        Err(RendezvousError::Incomplete { missing, .. }) => format!("missing {missing:?}"),
        Err(RendezvousError::NoAnswer { .. }) => "silent 0".to_owned(),
        Err(other) => other.to_string(),
    };
    println!("\nRESULT {} after {} ms", verdict, started.elapsed().as_millis());
}

/// A started rank. Ended when dropped, so that a failing test leaves nothing behind.
struct Rank {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Rank {
    fn start(variables: &[(&str, String)]) -> Rank {
        Rank::start_by(Command::new(std::env::current_exe().unwrap()), variables)
    }

    /// Starts it by a command that takes the arguments of this binary.
    fn start_by(mut command: Command, variables: &[(&str, String)]) -> Rank {
        let mut child = command
            .args(["--exact", "as_a_rank", "--nocapture", "--test-threads=1"])
            .env(ROLE, "rank")
            .env("PACELINE_INIT_TIMEOUT", format!("{}ms", LIMIT.as_millis()))
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Rank { child, lines }
    }

    fn wait_until_begun(&mut self) {
        let mut line = String::new();
        while !line.starts_with("BEGUN") {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the rank ended before it began");
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The verdict and the time it took.
    fn result(&mut self) -> (String, Duration) {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("RESULT ")).unwrap_or_else(|| panic!("{text}"));
        let (verdict, millis) = line.strip_suffix(" ms").unwrap().split_once(" after ").unwrap();
        (verdict.to_owned(), Duration::from_millis(millis.parse().unwrap()))
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn paceline(rank: usize, size: usize, place: &str) -> Vec<(&'static str, String)> {
    vec![
        ("PACELINE_RANK", rank.to_string()),
        ("PACELINE_SIZE", size.to_string()),
        ("PACELINE_RENDEZVOUS", place.to_owned()),
    ]
}

/// Ranks 0 to 2 of 4 meet, so that the meeting can't end well; one is struck.
fn strike(victim: usize, signal: Signal, pause: Duration, place: &str) -> Vec<(String, Duration)> {
    let mut ranks: Vec<_> = (0..3).map(|rank| Rank::start(&paceline(rank, 4, place))).collect();
    ranks.iter_mut().for_each(Rank::wait_until_begun);
    std::thread::park_timeout(pause);
    ranks[victim].signal(signal);
    let mut results = Vec::new();
    for (rank, started) in ranks.iter_mut().enumerate() {
        if rank != victim {
            results.push(started.result());
        }
    }
    results
}

#[test]
fn signals_at_any_point() {
    let seed = u64::from(std::process::id());
    let mut state = seed;
    let mut cases = Vec::new();
    for victim in [0, 2] {
        for signal in [Signal::KILL, Signal::STOP] {
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                cases.push((victim, signal, Duration::from_micros(state >> 33 & 0x3fff)));
            }
        }
    }
    std::thread::scope(|scope| {
        for (i, (victim, signal, pause)) in cases.into_iter().enumerate() {
            let place = match i % 2 {
                0 => format!("tcp://127.0.0.1:{}", free_port()),
                _ => format!("local://deaths-{seed}-{i}"),
            };
            scope.spawn(move || {
                for (verdict, took) in strike(victim, signal, pause, &place) {
                    let told = match (victim, signal) {
                        (0, Signal::KILL) => &["lost 0", "silent 0"][..],
                        (0, _) => &["silent 0"],
                        (_, Signal::KILL) => &["lost 2", "missing [2, 3]"],
                        _ => &["missing [3]", "missing [2, 3]"],
                    };
                    let case = format!("seed {seed}: rank {victim}, {signal:?} after {pause:?} at {place}");
                    assert!(told.contains(&verdict.as_str()), "{case}: {verdict}");
                    assert!(took < LIMIT + Duration::from_millis(500), "{case}: {took:?}");
                }
            });
        }
    });
}

/// The place is free again after ranks were killed there, whatever they left.
#[test]
fn the_next_run_works() {
    let path = std::env::temp_dir().join(format!("paceline-deaths-{}", std::process::id()));
    for place in [
        format!("tcp://127.0.0.1:{}", free_port()),
        format!("local://next-{}", std::process::id()),
        path.display().to_string(),
    ] {
        let mut ranks: Vec<_> = (0..2).map(|rank| Rank::start(&paceline(rank, 3, &place))).collect();
        ranks.iter_mut().for_each(Rank::wait_until_begun);
        if place == path.display().to_string() {
            while !path.exists() {
                std::thread::yield_now();
            }
        }
        ranks.iter().for_each(|rank| rank.signal(Signal::KILL));
        let mut ranks: Vec<_> = (0..3).map(|rank| Rank::start(&paceline(rank, 3, &place))).collect();
        for rank in &mut ranks {
            assert_eq!(rank.result().0, "met 3", "{place}");
        }
    }
    assert!(!path.exists());
}

/// Rank 0 may open so few files that it can't serve the 60 others, which this process plays.
#[test]
fn too_few_descriptors_are_told_to_all_that_are_there() {
    let place = format!("tcp://127.0.0.1:{}", free_port());
    let mut root = Command::new("sh");
    root.args(["-c", "ulimit -n 40; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let mut root = Rank::start_by(root, &paceline(0, 61, &place));
    root.wait_until_begun();
    let members: Vec<_> = (1..61)
        .map(|rank| {
            let setup = Setup::new(rank, 61, place.parse().unwrap());
            std::thread::spawn(move || exchange(&setup, b"", Instant::now() + LIMIT))
        })
        .collect();
    let told =
        |text: &str| text.contains("rank 0 preparing for connections of 60 ranks: ") && text.contains("(ulimit -n)");
    let verdict = root.result().0;
    assert!(told(&verdict), "{verdict}");
    let errors: Vec<_> = members.into_iter().map(|member| member.join().unwrap().unwrap_err()).collect();
    let informed = errors.iter().filter(|error| told(&error.to_string())).count();
    assert!(20 < informed, "{informed} were told: {errors:#?}");
}

/// As torchrun starts them, its own store on MASTER_PORT.
#[test]
fn variables_of_torchrun() {
    let store = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = store.local_addr().unwrap().port();
    std::thread::spawn(move || while store.accept().is_ok() {});
    let variables = |rank: usize| {
        let numbers = [("RANK", rank), ("WORLD_SIZE", 3), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", 3)];
        let mut variables: Vec<_> = numbers.map(|(name, value)| (name, value.to_string())).into();
        variables.extend([("MASTER_ADDR", "localhost".to_owned()), ("MASTER_PORT", port.to_string())]);
        variables
    };
    let mut ranks: Vec<_> = (0..3).map(|rank| Rank::start(&variables(rank))).collect();
    for rank in &mut ranks {
        assert_eq!(rank.result().0, "met 3");
    }
}
