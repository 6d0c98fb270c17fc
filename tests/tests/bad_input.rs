//! Senseless environments and poor machines: whole communicators either work or say at once, on every rank, what is wrong.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use paceline_tests::process::{Job, Plan, Process, Said, agree, found, is_root, sockets};

const ALL: &str = "join calls result";
const SHORT: &str = "1500ms";

/// What ranks say who don't come together: an error each.
fn errors(ranks: &mut [Process]) -> Vec<Said> {
    ranks.iter_mut().map(|rank| rank.hear(&["error", "ended"])).inspect(|said| assert_eq!(said.word, "error")).collect()
}

/// Checks that every error has all parts.
fn check(errors: &[Said], parts: &[&str]) {
    for error in errors {
        for part in parts {
            assert!(error.text().contains(part), "{part:?} in {error:#?}");
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_rank_that_is_given_twice() {
    let plan = Plan::new(3, ALL);
    let mut ranks = [0, 1, 1].map(|rank| plan.rank(rank));
    let errors = errors(&mut ranks);
    check(&errors, &["rank 1 came twice: as 1 (host ", "give every process a rank of its own"]);
    assert!(errors.iter().all(|error| error.peers() == [1]), "{errors:#?}");
}

#[test]
fn sizes_that_differ() {
    let plan = Plan::new(3, ALL);
    let mut ranks = [(0, 3), (1, 4)]
        .map(|(rank, size)| plan.with_numbers(rank, [("PACELINE_RANK", rank), ("PACELINE_SIZE", size)]));
    let errors = errors(&mut ranks);
    check(&errors, &["says that there are 3 ranks, rank 1 (host ", "says 4; start all with the same size"]);
    assert!(errors.iter().all(|error| error.peers() == [0, 1]), "{errors:#?}");
}

#[test]
fn a_rank_that_never_comes() {
    let plan = Plan::new(4, ALL).variable("PACELINE_INIT_TIMEOUT", SHORT);
    let mut ranks = [0, 1, 3].map(|rank| plan.rank(rank));
    let errors = errors(&mut ranks);
    check(&errors, &["3 of 4 ranks arrived within 1.5 s, missing rank 2 (arrived: 0 (host "]);
    assert!(errors.iter().all(|error| error.peers() == [2]), "{errors:#?}");
}

#[test]
fn a_port_that_is_in_use() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("tcp://{}", other.local_addr().unwrap());
    let plan = Plan::new(2, "begin join").variable("PACELINE_RENDEZVOUS", &place);
    let mut job = plan.variable("PACELINE_INIT_TIMEOUT", "3").all();
    let begun = job.ranks[0].hear(&["begun"]);
    let error = job.ranks[0].hear(&["error"]);
    check(std::slice::from_ref(&error), &["the port is in use by another program", "choose another port"]);
    assert!(error.at - begun.at < Duration::from_millis(2500), "{:?}", error.at - begun.at);
    let error = job.ranks[1].hear(&["error"]);
    check(std::slice::from_ref(&error), &["no answer from rank 0 at", "is rank 0 started?"]);
    assert_eq!(error.peers(), [0]);
}

/// What one rank is given differently from the other, and what both then say.
#[test]
fn settings_that_differ() {
    let tcp = format!("tcp://127.0.0.1:{}", free_port());
    let cases: [(&str, [&str; 2], &str, [&str; 2]); 3] = [
        ("PACELINE_LINKS", ["shm", "tcp"], "", ["no allowed kind of link joins the two", "PACELINE_LINKS"]),
        ("PACELINE_TOKEN", ["one secret", "another one"], &tcp, ["", ""]),
        (
            "PACELINE_ALGORITHM",
            ["all_reduce=ring", "all_reduce=direct"],
            "",
            ["is not the same on this rank", "set it alike"],
        ),
    ];
    for (variable, values, place, parts) in cases {
        let mut plan = Plan::new(2, "begin join").variable("PACELINE_INIT_TIMEOUT", SHORT);
        if !place.is_empty() {
            plan = plan.variable("PACELINE_RENDEZVOUS", place);
        }
        let start = |(rank, value)| {
            let words = vec!["env".to_owned(), format!("{variable}={value}")];
            (rank, words)
        };
        let prefixes: Vec<(usize, Vec<String>)> = values.into_iter().enumerate().map(start).collect();
        let mut job = plan.behind(move |rank| prefixes[rank].1.clone()).all();
        let begun = job.hear_all(&["begun"]);
        let errors = errors(&mut job.ranks);
        check(&errors[1..], &parts);
        assert!(errors[0].at - begun[0].at < Duration::from_secs(4), "{variable}: {errors:#?}");
    }
}

/// Ranks that start long after the others are waited for.
#[test]
fn ranks_that_come_late() {
    agree(3, &Plan::new(3, "0:sleep=900 2:sleep=400 join calls result").all().succeed());
}

/// Starts every rank behind a shell command.
fn in_shell(size: usize, steps: &str, command: &str) -> Plan {
    let words: Vec<String> =
        ["unshare", "-m", "sh", "-c", &format!("{command} && exec \"$@\""), "sh"].map(str::to_owned).into();
    Plan::new(size, steps).behind(move |_| words.clone())
}

#[test]
fn a_small_or_missing_dev_shm() {
    if !found("unshare") || !is_root("mounting over /dev/shm") {
        return;
    }
    for mount in [
        "mount -t tmpfs -o size=1m tmpfs /dev/shm",
        "mount -t tmpfs -o ro tmpfs /dev/shm",
        "mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp",
        "umount -l /dev/shm",
    ] {
        let said = in_shell(4, ALL, mount).variable("PACELINE_LINKS", "shm").all().succeed();
        agree(4, &said);
    }
}

/// No memory needs to be locked.
#[test]
fn no_locked_memory() {
    let words = ["sh", "-c", "ulimit -l 0 && exec \"$@\"", "sh"].map(str::to_owned);
    agree(2, &Plan::new(2, ALL).behind(move |_| words.clone().into()).all().succeed());
}

/// How a job fares whose rank `poor` may open few files: well, or with an error on all ranks. The poor rank's says what
/// to raise.
fn with_few_files(poor: usize, limit: usize, links: &str) -> bool {
    // The last of the calls is a split, in which a rank that fails holds up only its own part; so all meet after it.
    let plan = Plan::new(6, "join calls barrier result").variable("PACELINE_LINKS", links);
    let plan = plan.variable("PACELINE_INIT_TIMEOUT", "3").variable("PACELINE_TIMEOUT", "3");
    let plan = plan.behind(move |rank| match rank == poor {
        true => ["sh", "-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh"].map(str::to_owned).into(),
        false => Vec::new(),
    });
    let mut job: Job = plan.all();
    let said = job.hear_all(&["error", "result"]);
    if said.iter().all(|said| said.word == "result") {
        return true;
    }
    let report = job.report();
    let case = format!("rank {poor} with {limit} files on {links}");
    assert!(said.iter().all(|said| said.word == "error"), "{case}: some ranks end well:\n{report}");
    assert!(said[poor].text().contains("ulimit -n"), "{case} says {:?}\n{report}", said[poor].text());
    for (rank, error) in said.iter().enumerate().filter(|(rank, _)| *rank != poor) {
        let is_named = error.peers() == [poor] || error.text().contains("ulimit -n");
        assert!(is_named, "{case}: rank {rank} says {:?}\n{report}", error.text());
    }
    false
}

#[test]
fn too_few_files() {
    for links in ["shm", "tcp"] {
        for poor in [0, 5] {
            let limits = [10, 14, 18, 26, 40, 100];
            let fares: Vec<bool> = limits.iter().map(|limit| with_few_files(poor, *limit, links)).collect();
            let first = fares.iter().position(|well| *well).expect("100 files are enough for 6 ranks");
            println!("6 ranks on {links}: rank {poor} needs between {} and {} files", limits[first - 1], limits[first]);
            assert!(fares[first..].iter().all(|well| *well), "more files are worse: {fares:?} of {limits:?}");
        }
    }
}

/// Whoever knocks at the ports of a running job and says nothing, or nonsense, disturbs nobody.
#[test]
fn strangers_at_the_ports_of_a_running_job() {
    let mut job = Plan::new(3, "join calls sleep=700 calls result").variable("PACELINE_LINKS", "tcp").all();
    let said = job.hear_all(&["joined"]);
    let pid = job.ranks[0].pid();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert!(open > 3, "{said:?}");
    let mut strangers = Vec::new();
    for socket in sockets(pid).iter().filter(|socket| socket.listens) {
        let address = match socket.local.ip().is_unspecified() {
            true => SocketAddr::from(([127, 0, 0, 1], socket.local.port())),
            false => socket.local,
        };
        for nonsense in [&b""[..], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", &[0xff; 4096]] {
            if let Ok(mut stranger) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
                let _ = stranger.write_all(nonsense);
                strangers.push(stranger);
            }
        }
    }
    agree(3, &job.succeed());
}
