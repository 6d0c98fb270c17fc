//! Ranks that are killed, stopped, panic or leave, in joining and in collectives, at points drawn from a seed.
//!
//! Every survivor must return an error that names the victim and no one else: of a death within a second, of a stop within
//! its deadline. Nothing may be left in /tmp and /dev/shm, no process may be left over, and the next run must work.
//! `PACELINE_SEEDS=100` draws more points than the usual one of each kind; `PACELINE_SEED=17` repeats a failure.

use std::time::Duration;

use paceline_tests::process::{Job, Plan, Room, Said, Strike, agree, random, seeds};
use paceline_tests::{is_asked_for, process_links};

/// The ranks' deadlines, where one of them is what a case is about; the others are long.
const TIMEOUT: Duration = Duration::from_millis(2500);
const DEATH_IS_NOTICED: Duration = Duration::from_secs(1);

/// What a busy machine may add to any limit.
fn slack() -> Duration {
    // With emulated processors, a death among ranks over RDMA has been noticed after 3 s.
    let is_guest = is_asked_for("PACELINE_TEST_GUEST");
    Duration::from_millis(if is_guest { 5000 } else { 1500 })
}

/// When the victim is struck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Joining,
    Calling,
    /// In splits, and in calls of what they make.
    Splitting,
}

impl Phase {
    const ALL: [Phase; 3] = [Phase::Joining, Phase::Calling, Phase::Splitting];
}

#[derive(Clone, Copy, Debug)]
struct Case {
    size: usize,
    links: &'static str,
    strike: Strike,
    phase: Phase,
    seed: u64,
}

/// All sizes, links and phases with one kind of strike.
fn cases(strike: Strike) -> Vec<Case> {
    let mut cases = Vec::new();
    let sizes: &[usize] = if is_asked_for("PACELINE_TEST_FEW") { &[3] } else { &[2, 3, 4, 8] };
    for seed in seeds(1) {
        for size in sizes.iter().copied() {
            for links in process_links() {
                for phase in Phase::ALL {
                    cases.push(Case { size, links, strike, phase, seed });
                }
            }
        }
    }
    cases
}

impl Case {
    /// Strikes one rank; how long after it each survivor had its error.
    fn run(self) -> Vec<Duration> {
        let Case { size, links, strike, phase, seed } = self;
        let mut random = random(seed, &format!("{size} {links} {strike:?} {phase:?}"));
        let victim = random.below(size as u64) as usize;
        let steps = if phase == Phase::Splitting { "begin join splits=30" } else { "begin join churn=30" };
        let mut plan = Plan::new(size, steps).variable("PACELINE_LINKS", links);
        for (name, is_subject) in [
            ("PACELINE_TIMEOUT", strike == Strike::Stop),
            ("PACELINE_INIT_TIMEOUT", phase == Phase::Joining || (phase == Phase::Splitting && strike == Strike::Stop)),
        ] {
            if is_subject {
                plan = plan.variable(name, format!("{}ms", TIMEOUT.as_millis()));
            }
        }
        let mut job = plan.all();
        let (first, longest) = match phase {
            Phase::Joining => ("begun", 20_000),
            Phase::Calling | Phase::Splitting => ("churning", 100_000),
        };
        let began = job.hear_all(&[first]).iter().map(|said| said.at).max().unwrap();
        std::thread::sleep(Duration::from_micros(random.below(longest)));
        let (struck, pid) = (job.ranks[victim].strike(strike), job.ranks[victim].pid());
        let point = struck.saturating_sub(began);
        let case = format!("{self:?}: rank {victim} (pid {pid}) struck {point:?} after all had {first}");
        let mut latencies = Vec::new();
        for survivor in (0..size).filter(|rank| *rank != victim) {
            let error = job.ranks[survivor].hear(&["error", "unharmed"]);
            let took = error.at.saturating_sub(struck);
            let is_sound = error.word == "error" && self.names(&error, victim, pid) && took < self.limit(&error);
            assert!(is_sound, "{case}: rank {survivor} after {took:?}: {error:?}\n{}", job.report());
            latencies.push(took);
        }
        clean_up(job, &case);
        latencies
    }

    /// Whether an error names the victim, and no one else.
    fn names(&self, error: &Said, victim: usize, pid: u32) -> bool {
        match (self.phase, self.strike) {
            (Phase::Joining | Phase::Calling, _) => error.peers() == [victim],
            // A part numbers its ranks in its own way.
            (Phase::Splitting, Strike::Kill) => {
                error.peers().len() == 1 && error.text().contains(&format!("pid {pid})"))
            }
            // Ranks that wait for the victim in a part don't answer to the others, who can't tell them from it.
            (Phase::Splitting, Strike::Stop) => error.text().contains(&format!("pid {pid})")),
        }
    }

    /// How long after the strike the error must have come.
    fn limit(&self, error: &Said) -> Duration {
        // A rank that dies before it has met anybody is missing, and no more is known of it.
        let never_came = ["missing rank", "no answer from rank 0"].iter().any(|text| error.text().contains(text));
        slack()
            + match self.strike {
                Strike::Kill if !never_came => DEATH_IS_NOTICED,
                _ => TIMEOUT,
            }
    }
}

fn clean_up(mut job: Job, case: &str) {
    for rank in &mut job.ranks {
        rank.resume();
        rank.end();
    }
    let strays = job.strays();
    assert!(strays.is_empty(), "{case}: processes are left over: {strays:?}");
}

/// The middle and the longest of some latencies, in milliseconds.
fn summary(mut latencies: Vec<Duration>) -> String {
    latencies.sort_unstable();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let (middle, last) = (latencies[latencies.len() / 2], latencies[latencies.len() - 1]);
    format!("{:.1} ms, at most {:.1} ms, of {}", millis(middle), millis(last), latencies.len())
}

/// Runs all cases, some at the same time.
fn strike_all(strike: Strike, phases: &[Phase], at_once: usize) {
    let room = Room::enter();
    for phase in phases.iter().copied() {
        for links in process_links() {
            let cases = cases(strike).into_iter().filter(|case| case.phase == phase && case.links == links);
            let cases: Vec<Case> = cases.collect();
            let mut latencies = Vec::new();
            for some in cases.chunks(at_once) {
                std::thread::scope(|scope| {
                    let running: Vec<_> = some.iter().map(|case| scope.spawn(|| case.run())).collect();
                    for case in running {
                        latencies.extend(case.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                    }
                });
            }
            println!("{strike:?} while {phase:?} on {links}: noticed after {}", summary(latencies));
        }
    }
    agree(4, &Plan::new(4, "join calls result").all().succeed());
    assert_eq!(room.contents(), Vec::<String>::new(), "left behind");
}

#[test]
fn a_rank_that_is_killed_in_joining_is_named() {
    strike_all(Strike::Kill, &[Phase::Joining], 1);
}

#[test]
fn a_rank_that_is_killed_in_calls_is_named() {
    strike_all(Strike::Kill, &[Phase::Calling, Phase::Splitting], 1);
}

#[test]
fn a_rank_that_is_stopped_is_named_at_the_deadline() {
    // They wait for their deadlines, mostly.
    strike_all(Strike::Stop, &Phase::ALL, 8);
}

/// What a rank may do instead of its part, and the kind of error that the others get.
#[test]
fn a_rank_that_ends_by_itself_is_named() {
    let endings = [
        ("panic", "peer-left"),
        ("exit=0", "peer-died"),
        ("exit=1", "peer-died"),
        ("drop", "peer-left"),
        ("kill", "peer-died"),
    ];
    for (links, size) in process_links().into_iter().flat_map(|links| [(links, 2), (links, 4)]) {
        for (ending, kind) in endings {
            let victim = size - 1;
            let steps = format!("join calls {victim}:{ending} {victim}:exit=0 churn=30");
            let mut job = Plan::new(size, &steps).variable("PACELINE_LINKS", links).all();
            for survivor in 0..victim {
                let error = job.ranks[survivor].hear(&["error", "unharmed"]);
                let case = format!("rank {victim} of {size} on {links}: {ending}; rank {survivor}");
                assert_eq!((error.kind(), error.peers()), (kind, vec![victim]), "{case} says {}", error.text());
            }
        }
    }
}

/// Late is not lost: a rank may take its time, as long as it is less than the timeout.
#[test]
fn a_rank_that_is_late_is_no_error() {
    for links in process_links() {
        let steps = "join calls 1:sleep=1200 calls 0:sleep=1200 barrier 2:sleep=1200 calls result";
        let plan = Plan::new(3, steps).variable("PACELINE_LINKS", links).variable("PACELINE_TIMEOUT", "2500ms");
        agree(3, &plan.all().succeed());
    }
}

/// A stopped rank that is let go on in time is merely late; one that comes too late learns what the others found.
#[test]
fn a_rank_that_was_stopped_and_goes_on() {
    let plan = |timeout: &str| Plan::new(3, "join churn=3").variable("PACELINE_TIMEOUT", timeout);
    let mut job = plan("30").all();
    job.hear_all(&["churning"]);
    job.ranks[1].strike(Strike::Stop);
    std::thread::sleep(Duration::from_millis(700));
    job.ranks[1].resume();
    for said in job.hear_all(&["error", "unharmed"]) {
        // The ranks' ways part where the first has reached its limit.
        assert!(said.word == "unharmed" || said.kind() == "peer-died", "{said:?}");
    }
    let mut job = plan("1").all();
    job.hear_all(&["churning"]);
    job.ranks[1].strike(Strike::Stop);
    let others: Vec<Said> = [0, 2].map(|rank| job.ranks[rank].hear(&["error"])).into();
    job.ranks[1].resume();
    let late = job.ranks[1].hear(&["error"]);
    assert!(others.iter().all(|error| error.peers() == [1]), "{others:?}");
    assert_eq!(late.peers(), [1], "the stopped rank learns that it was the one: {}", late.text());
}

/// A child that outlives its parent holds copies of the parent's sockets, whose end then doesn't show.
#[test]
fn a_death_shows_though_a_forked_child_lives_on() {
    let mut job = Plan::new(3, "join calls 1:fork=linger churn=30").variable("PACELINE_LINKS", "shm").all();
    let child = job.ranks[1].hear(&["forked"]).rest.clone();
    job.ranks[0].hear(&["churning"]);
    let struck = job.ranks[1].strike(Strike::Kill);
    for survivor in [0, 2] {
        let error = job.ranks[survivor].hear(&["error", "unharmed"]);
        let took = error.at.saturating_sub(struck);
        assert_eq!((error.kind(), error.peers()), ("peer-died", vec![1]), "{}", error.text());
        assert!(took < DEATH_IS_NOTICED + slack(), "{took:?}");
    }
    let child = rustix::process::Pid::from_raw(child.parse().unwrap()).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}
