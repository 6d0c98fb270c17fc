//! Whatever goes wrong while a checkpoint is written, the last good one is still there.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use candle_core::DType;
use paceline_parallel::checkpoint::{Checkpoint, Saver, SaverOptions};
use paceline_parallel::mesh::Axis;
use paceline_parallel::random::Stream;

use super::files::{Asked, Fault};
use super::resume::Run;
use crate::cut::on_ranks;

/// Leaves the latest committed checkpoint as it should be, and nothing else that looks like one.
fn all_are_whole(directory: &Path) -> Option<Checkpoint> {
    for path in Checkpoint::all(directory).unwrap() {
        Checkpoint::open(&path).unwrap().verify().unwrap();
    }
    Checkpoint::latest(directory).unwrap()
}

/// One rank's files fail, at each call that a save makes there in turn: all ranks are told at their next call, the last good
/// checkpoint is still the latest (or the new one, if it failed after the rename), and the save after that succeeds.
#[test]
fn a_failure_at_any_call_leaves_a_good_one() {
    for failing_rank in [0, 1] {
        let directory = tempfile::tempdir().unwrap();
        let calls = on_ranks("fsdp=2", |mesh| {
            let mut run = Run::new(mesh, DType::F32, &[Axis::Fsdp]);
            let fault = Arc::new(Fault::default());
            let asked = fault.clone();
            let options = Asked::options(move |what: &str| asked.ask(what));
            let mut saver = Saver::new(mesh, directory.path(), options).unwrap();
            run.save(&mut saver);
            let mut good = saver.wait().unwrap().unwrap();
            for call in 0.. {
                run.train(1);
                if mesh.rank() == failing_rank {
                    fault.arm(call);
                }
                run.save(&mut saver);
                let before = run.progress();
                let outcome = saver.save(&run.ownership, &run.state, &before);
                let fired = fault.disarm();
                let Err(error) = outcome else {
                    // Either the call failed after the commit, when old ones are removed, or there was none of that number.
                    good = saver.wait().unwrap().unwrap();
                    assert_eq!(good.hash, run.hash());
                    mesh.world().barrier().unwrap();
                    let mut fired = [u8::from(fired)];
                    mesh.world().broadcast(&mut fired, failing_rank).unwrap();
                    if fired == [0] {
                        return call;
                    }
                    continue;
                };
                let said = error.to_string();
                assert!(said.contains("today"), "{said}");
                assert!(mesh.rank() == failing_rank || said.contains(&format!("rank {failing_rank}")), "{said}");
                let latest = all_are_whole(directory.path()).unwrap();
                assert!([good.hash, run.hash()].contains(&latest.hash()), "call {call}");
                mesh.world().barrier().unwrap();
                run.save(&mut saver);
                good = saver.wait().unwrap().unwrap();
                // Rank 0 may be removing old ones.
                mesh.world().barrier().unwrap();
                let latest = all_are_whole(directory.path()).unwrap();
                assert_eq!((latest.path(), latest.hash(), good.hash), (&*good.path, run.hash(), run.hash()));
                mesh.world().barrier().unwrap();
            }
            unreachable!("calls are counted without end")
        });
        // Rank 1 writes and syncs its file; rank 0 does all else, too.
        assert!(calls[failing_rank] >= [12, 3][failing_rank], "{calls:?}");
    }
}

#[test]
fn so_many_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    on_ranks("dp=2", |mesh| {
        let mut run = Run::new(mesh, DType::F32, &[]);
        let options = SaverOptions { keep: 3, ..SaverOptions::default() };
        let mut saver = Saver::new(mesh, directory.path(), options).unwrap();
        for _ in 0..5 {
            run.train(1);
            run.save(&mut saver);
        }
        let last = saver.wait().unwrap().unwrap();
        mesh.world().barrier().unwrap();
        let kept = Checkpoint::all(directory.path()).unwrap();
        let steps = kept.iter().map(|path| Checkpoint::open(path).unwrap().progress().optimizer.steps);
        assert_eq!((steps.collect::<Vec<_>>(), kept.last()), (vec![3, 4, 5], Some(&last.path)));
        assert!(Saver::new(mesh, directory.path(), SaverOptions { keep: 0, ..SaverOptions::default() }).is_err());
    });
    let names: BTreeSet<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

/// A saver that goes away has written what it began.
#[test]
fn dropping_waits() {
    let directory = tempfile::tempdir().unwrap();
    on_ranks("dp=2", |mesh| {
        let run = Run::new(mesh, DType::F32, &[]);
        let mut saver = Saver::new(mesh, directory.path(), SaverOptions::default()).unwrap();
        run.save(&mut saver);
        drop(saver);
        assert_eq!(Checkpoint::latest(directory.path()).unwrap().unwrap().hash(), run.hash());
    });
}

const DIRECTORY: &str = "PACELINE_TEST_SAVES_TO";

/// What the killed process does: two ranks train on from the latest checkpoint and save after each step, and tell each call
/// on files before they make it.
#[test]
fn saves_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    on_ranks("fsdp=2", |mesh| {
        let mut run = Run::new(mesh, DType::F32, &[Axis::Fsdp]);
        if Checkpoint::latest(directory).unwrap().is_some() {
            run.load(directory);
        }
        let tell = |what: &str| writeln!(std::io::stdout(), "call {what}");
        let mut saver = Saver::new(mesh, directory, Asked::options(tell)).unwrap();
        loop {
            run.train(1);
            run.save(&mut saver);
            let saved = saver.wait().unwrap().unwrap();
            if mesh.rank() == 0 {
                let steps = run.optimizer.count().steps;
                writeln!(std::io::stdout(), "saved {steps} {}", saved.hash).unwrap();
            }
        }
    });
}

/// Kills the process above, each time after another number of calls, and looks at what it leaves.
#[test]
fn kill_9_leaves_the_last_good_one() {
    let directory = tempfile::tempdir().unwrap();
    let kills = if std::env::var_os("PACELINE_FULL").is_some() { 200 } else { 25 };
    let seed = std::env::var("PACELINE_SEED").map_or(4, |seed| seed.parse().unwrap());
    let mut steps = 0;
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "checkpoint::crash::saves_until_it_is_killed", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A save makes about twenty calls; two are begun at least once in a while.
        let mut calls = Stream::new(seed, "kills").below(kill, 50);
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut saved = None;
        for line in told.by_ref() {
            if let Some(rest) = line.strip_prefix("saved ") {
                let (steps, hash) = rest.split_once(' ').unwrap();
                saved = Some((steps.parse::<u64>().unwrap(), hash.to_owned()));
            }
            if line.starts_with("call ") {
                if calls == 0 {
                    break;
                }
                calls -= 1;
            }
        }
        child.kill().unwrap();
        // What it said before it died, and had not been read yet.
        for line in told {
            if let Some((steps, hash)) = line.strip_prefix("saved ").and_then(|rest| rest.split_once(' ')) {
                saved = steps.parse().ok().map(|steps| (steps, hash.to_owned()));
            }
        }
        let status = child.wait_with_output().unwrap();
        assert!(calls == 0, "it ended by itself: {}", String::from_utf8_lossy(&status.stderr));
        let latest = all_are_whole(directory.path());
        let found = latest.as_ref().map_or(0, |latest| latest.progress().optimizer.steps);
        assert!(steps <= found, "kill {kill} of seed {seed}: after {steps} steps were saved, {found} are");
        if let Some((said, hash)) = saved {
            assert!(said <= found, "kill {kill} of seed {seed}: {said} steps were said to be saved, {found} are");
            let latest = latest.as_ref().unwrap();
            assert!(said < found || latest.hash().to_string() == hash, "kill {kill} of seed {seed}");
        }
        steps = found;
    }
    // It went on from each, as one that was never killed.
    assert!(steps > 0, "nothing was ever saved");
    on_ranks("", |mesh| {
        let mut run = Run::new(mesh, DType::F32, &[]);
        run.train(steps);
        assert_eq!(all_are_whole(directory.path()).unwrap().hash(), run.hash());
    });
}
