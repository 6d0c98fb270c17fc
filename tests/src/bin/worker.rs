//! A rank of a job, for tests: does one step after the other, as its arguments say.
//!
//! ```text
//! begin              says `begun`
//! join               joins by the environment; says `joined` and by which links
//! calls              every collective, in every length, with checks
//! churn=SECONDS      calls of one communicator without end; failing is expected, and reaching the limit is not
//! splits=SECONDS     the same with nothing but splits and a call in each part
//! result             says the digest of what all ranks must hold alike
//! barrier            all come here
//! traffic=ELEMENTS   all_to_all of that many f64 for each pair
//! beside=ELEMENTS    starts an all_reduce of that many, computes until it has ended, without waiting for it, and says how
//!                    many times it looked at it
//! crossed=WHAT,BYTES says the algorithm of a call (`all_reduce`, `all_reduce/ring`) and how many bytes left the host
//! timed=WHAT,BYTES   the same with the microseconds of a call, and what they should be
//! idle=MS            sleeps, and says how much processor time that took
//! blocked=MS         all but rank 0 wait that long for a message from it, and say what that took
//! threads            says how many threads the process has
//! sleep=MS           sleeps
//! hold               says `held`, and waits until the process is ended
//! drop               drops the communicator
//! fork=HOW           forks; the child ends by `exit`, or by `drop` of the communicator first, or stays (`linger`), or
//!                    tries to `use` the communicator
//! panic, exit=CODE, kill, stop
//! ```
//!
//! `2:kill` is a step of rank 2 only. An error of the library is said as `error`, and ends the rank with code 3.

use std::process::exit;
use std::time::{Duration, Instant};

use paceline_comm::{Communicator, Environment, Error, ErrorKind, ReduceOp, Setup};
use paceline_tests::process::{
    CALLS, Call, Digest, LENGTHS, Side, cpu_time, crossed, ends_beside, fork, kind_of, say, timed,
};
use rustix::process::{Signal, getpid, kill_process};

/// No test takes longer; a worker that was forgotten ends by itself.
const LIFETIME: Duration = Duration::from_secs(300);
const FAILED: i32 = 3;
/// The call that makes other communicators.
const SPLIT: &str = "split";

struct Worker {
    rank: usize,
    comm: Option<Communicator>,
    digest: Digest,
}

fn main() {
    std::thread::spawn(|| {
        std::thread::sleep(LIFETIME);
        exit(99)
    });
    let rank = Setup::from_env(&Environment::from_process()).map_or(usize::MAX, |setup| setup.rank);
    let mut worker = Worker { rank, comm: None, digest: Digest::new() };
    for step in std::env::args().skip(1) {
        let step = match step.split_once(':') {
            Some((only, step)) if only.parse() == Ok(rank) => step.to_owned(),
            Some(_) => continue,
            None => step,
        };
        let (name, value) = step.split_once('=').unwrap_or((&step, ""));
        if let Err(error) = worker.take(name, value) {
            worker.fail(&error);
        }
    }
    drop(worker.comm.take());
    say("ended", worker.rank, "");
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(number(text))
}

impl Worker {
    fn take(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match name {
            "begin" => say("begun", self.rank, ""),
            "join" => self.join()?,
            "calls" => {
                for (_, call) in CALLS {
                    LENGTHS.into_iter().try_for_each(|len| self.call(call, len))?;
                }
            }
            "churn" => self.churn(Duration::from_secs_f64(number(value)), |name| name != SPLIT)?,
            "splits" => self.churn(Duration::from_secs_f64(number(value)), |name| name == SPLIT)?,
            "result" => say("result", self.rank, self.digest),
            "barrier" => self.comm().barrier()?,
            "traffic" => self.traffic(number(value))?,
            "beside" => {
                let looks = ends_beside(self.comm(), number(value), LIFETIME / 3)?;
                say("beside", self.rank, looks);
            }
            "crossed" => {
                let (what, bytes) = value.split_once(',').expect("a call and its bytes");
                let (chosen, left) = crossed(self.comm(), what, number(bytes))?;
                say("crossed", self.rank, format!("{chosen} {left}"));
            }
            "timed" => {
                let (what, bytes) = value.split_once(',').expect("a call and its bytes");
                let (chosen, us, predicted) = timed(self.comm(), what, number(bytes))?;
                say("timed", self.rank, format!("{chosen} {us:.2} {predicted:.2}"));
            }
            "threads" => say("threads", self.rank, threads()),
            "idle" => self.measure(|_| {
                std::thread::sleep(millis(value));
                Ok(())
            })?,
            "blocked" => self.blocked(millis(value))?,
            "sleep" => std::thread::sleep(millis(value)),
            "hold" => {
                say("held", self.rank, "");
                std::thread::sleep(LIFETIME);
            }
            "drop" => drop(self.comm.take()),
            "fork" => self.fork(value),
            "panic" => panic!("this rank was told to panic"),
            "exit" => exit(number(value)),
            "kill" => strike(Signal::KILL),
            "stop" => strike(Signal::STOP),
            _ => panic!("{name} is no step"),
        }
        Ok(())
    }

    fn comm(&self) -> &Communicator {
        self.comm.as_ref().expect("the rank has joined")
    }

    fn join(&mut self) -> Result<(), Error> {
        let comm = Communicator::from_env()?;
        self.rank = comm.rank();
        let links = (0..comm.size()).map(|peer| comm.link_kind(peer).map_or("self", |kind| kind.name()));
        say("joined", self.rank, links.collect::<Vec<_>>().join(","));
        self.comm = Some(comm);
        Ok(())
    }

    fn call(&mut self, call: Call, len: usize) -> Result<(), Error> {
        let comm = self.comm.as_ref().expect("the rank has joined");
        call(comm, len, &mut self.digest)
    }

    fn churn(&mut self, limit: Duration, takes: fn(&str) -> bool) -> Result<(), Error> {
        let end = Instant::now() + limit;
        let calls: Vec<Call> = CALLS.iter().filter(|(name, _)| takes(name)).map(|(_, call)| *call).collect();
        for turn in 0usize.. {
            self.call(calls[turn % calls.len()], LENGTHS[turn / calls.len() % LENGTHS.len()])?;
            if turn == 0 {
                say("churning", self.rank, "");
            }
            if end < Instant::now() {
                say("unharmed", self.rank, turn);
                exit(4);
            }
        }
        Ok(())
    }

    fn traffic(&mut self, elements: usize) -> Result<(), Error> {
        let comm = self.comm();
        let input = vec![comm.rank() as f64; elements * comm.size()];
        let mut output = vec![f64::NAN; elements * comm.size()];
        for _ in 0..3 {
            comm.all_to_all(&input, &mut output)?;
        }
        let sound = output.iter().enumerate().all(|(i, found)| *found == (i / elements) as f64);
        assert!(sound, "all_to_all of {elements}");
        let mut total = input;
        comm.all_reduce_in_place(&mut total, ReduceOp::Sum)
    }

    fn measure(&self, wait: impl FnOnce(&Communicator) -> Result<(), Error>) -> Result<(), Error> {
        let before = cpu_time();
        wait(self.comm())?;
        say("used", self.rank, (cpu_time() - before).as_millis());
        Ok(())
    }

    fn blocked(&self, time: Duration) -> Result<(), Error> {
        let comm = self.comm();
        if self.rank == 0 {
            std::thread::sleep(time);
            (1..comm.size()).try_for_each(|rank| comm.send(&[7u8], rank))
        } else {
            self.measure(|comm| comm.recv(&mut [0u8], 0))
        }
    }

    fn fork(&mut self, how: &str) {
        let child = match fork().expect("there is room for a process") {
            Side::Parent(child) => child,
            Side::Child if how == "linger" => loop {
                std::thread::sleep(LIFETIME);
            },
            Side::Child => {
                match how {
                    "drop" => drop(self.comm.take()),
                    "use" => self.misuse(),
                    _ => {}
                }
                exit(0)
            }
        };
        say("forked", self.rank, child);
        if how != "linger" {
            let status =
                rustix::process::waitpid(rustix::process::Pid::from_raw(child), rustix::process::WaitOptions::empty());
            let (_, status) = status.expect("it is a child").expect("it was waited for");
            assert_eq!(status.exit_status(), Some(0), "the child's end");
        }
    }

    /// What a forked child must be told for whatever it does, and its parent and the peers must not notice.
    fn misuse(&self) {
        let comm = self.comm();
        comm.abort("a child may not do this");
        let errors = [
            comm.barrier().unwrap_err(),
            comm.start_barrier().unwrap_err(),
            comm.split(Some(0), 0).unwrap_err(),
            comm.alloc::<u8>(100).unwrap_err(),
        ];
        for error in errors {
            assert!(error.kind() == ErrorKind::InvalidArgument && error.cause().contains("forked from it"), "{error}");
        }
    }

    fn fail(&mut self, error: &Error) -> ! {
        let peers: Vec<String> = error.peers().iter().map(usize::to_string).collect();
        let peers = if peers.is_empty() { "-".to_owned() } else { peers.join(",") };
        say("error", self.rank, format!("{} {peers} {error}", kind_of(error.kind())));
        drop(self.comm.take());
        exit(FAILED)
    }
}

/// How many threads this process has.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux lists them").count()
}

fn strike(signal: Signal) {
    kill_process(getpid(), signal).expect("a process may signal itself");
}
