//! The example `train_gpt` as a user starts it: real processes, at a tiny size.

mod job;

use std::time::{Duration, Instant};

use job::{Job, Row, TINY, folder, rows, text};

/// How near losses and norms are to those of one process, in f64.
const TOLERANCE: f64 = 1e-9;

#[track_caller]
fn same(what: &str, is: &[Row], want: &[Row]) {
    let steps = |rows: &[Row]| rows.iter().map(|row| row.step).collect::<Vec<_>>();
    assert_eq!(steps(is), steps(want), "{what}");
    for (is, want) in is.iter().zip(want) {
        let near = |is: f64, want: f64| (is - want).abs() <= TOLERANCE * (1.0 + want.abs());
        let all = [(is.loss, want.loss), (is.norm, want.norm)];
        let is_near = all.into_iter().all(|(is, want)| near(is, want))
            && is.validation.is_some() == want.validation.is_some()
            && is.validation.zip(want.validation).is_none_or(|(is, want)| near(is, want));
        assert!(is_near && is.learning_rate == want.learning_rate, "{what}: {is:?}, and {want:?} in one process");
    }
}

#[test]
fn every_layout_trains_as_one_process() {
    let folder = folder();
    let train = |name: &str, words: &str| {
        let csv = folder.path().join(format!("{name}.csv"));
        let done = Job::start(&folder, &format!("{TINY} --every 3 --csv {} {words}", csv.display())).end();
        assert!(done.code == Some(0), "{words}: {done:?}");
        assert!(done.stdout.contains("validation loss") && done.stdout.contains("MFU"), "{done:?}");
        rows(&csv)
    };
    let alone = train("alone", "");
    assert_eq!(alone.iter().map(|row| row.validation.is_some()).collect::<Vec<_>>(), [false, false, true].repeat(2));
    for (name, words, sends) in [
        ("dp-tp", "--ranks 4 --dp 2 --tp 2 --sequence-parallel", true),
        ("pp-fsdp", "--pp 2 --fsdp 2 --zero 2", true),
        ("hsdp", "--dp 2 --fsdp 2 --kv-heads 2 --micro-batches 2", true),
        ("pp-tp", "--pp 2 --tp 2 --schedule interleaved --chunks 2 --recompute blocks", false),
    ] {
        let rows = train(name, words);
        same(words, &rows, &alone);
        assert!(rows.iter().all(|row| row.hidden.is_some() == sends), "{words}: {rows:?}");
    }
}

#[test]
fn schedules_and_layers_of_ones_own_are_trained_or_refused_by_name() {
    let folder = folder();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let train = |name: &str, words: &str| {
        let csv = folder.path().join(format!("{name}.csv"));
        let done = Job::start(&folder, &format!("{TINY} --every 3 --csv {} {words}", csv.display())).end();
        assert!(done.code == Some(0), "{words}: {done:?}");
        rows(&csv)
    };
    let sound = file("sound", "0F0, 0F1, 0B0, 0B1   # a warm-up of two\n1F0, 1B0, 1F1, 1B1\n");
    same("a table", &train("table", &format!("--pp 2 --schedule-file {sound} --stages Et|t*3L")), &train("alone", ""));
    let stuck = file("stuck", "0F0, 0B0, 0F1, 0B1\n1F1, 1B1, 1F0, 1B0\n");
    let short = file("short", "0F0, 0F1, 0B0\n1F0, 1B0, 1F1, 1B1\n");
    let wrong = file("wrong", "0F0, 0F1\n1F0; 1B0\n");
    for (words, said) in [
        (format!("--schedule-file {stuck}"), "stuck: rank 0, position 1, 0B0: waits for ever for 1B0"),
        (format!("--schedule-file {short}"), "short: rank 0, position 3, 0B1: 0B1 is missing"),
        (format!("--schedule-file {wrong}"), "wrong: line 2, column 4: expected ','"),
        (format!("--schedule-file {sound}.not"), "sound.not: No such file"),
        (format!("--schedule-file {sound} --micro-batches 4"), "has 2 micro-batches, and each step is to have 4"),
        (format!("--schedule-file {sound} --pp 4"), "is for 2 ranks, and there are 4 along pp"),
        (format!("--schedule-file {sound} --schedule gpipe"), "cannot be used with"),
        (format!("--schedule-file {sound} --stages Et|tt|tL"), "has 3 stages, and the schedule 2"),
        ("--stages Et|tL".to_owned(), "Et|tL must have 4 layers"),
        ("--stages Et|ttx".to_owned(), "--stages Et|ttx: line 1, column 6: expected one of E t m L"),
    ] {
        let done = Job::start(&folder, &format!("{TINY} --pp 2 {words}")).end();
        assert!(done.code.is_some_and(|code| code != 0) && done.stderr.contains(said), "{words}: {done:?}");
        assert!(!done.stderr.contains("failed first") && done.stdout.is_empty(), "{words}: {done:?}");
    }
}

#[test]
fn a_run_goes_on_in_another_layout() {
    let folder = folder();
    let (csv, checkpoints) = (folder.path().join("all.csv"), folder.path().join("run"));
    let words =
        format!("{TINY} --every 3 --dropout 0.1 --csv {} --checkpoint {}", csv.display(), checkpoints.display());
    let done = Job::start(&folder, &format!("{words} --dp 2 --tp 2")).end();
    assert!(done.code == Some(0) && done.stdout.contains("checkpoint-0000000002"), "{done:?}");
    let uninterrupted = rows(&csv);

    let again = Job::start(&folder, &words).end();
    assert!(again.code == Some(1) && again.stderr.contains("has checkpoints: go on from them"), "{again:?}");
    let done = Job::start(&folder, &format!("{words} --resume")).end();
    assert!(done.code == Some(0) && done.stdout.contains("6 to 6"), "nothing is left to do: {done:?}");

    std::fs::remove_dir_all(checkpoints.join("checkpoint-0000000002")).unwrap();
    // What a run that died later had written beyond its checkpoint.
    assert_eq!(rows(&csv).len(), 6);
    let other = Job::start(&folder, &format!("{words} --resume --seed 5")).end();
    assert!(other.code == Some(1) && other.stderr.contains("its seed is 0, and this one's 5"), "{other:?}");
    let done = Job::start(&folder, &format!("{words} --resume --pp 2 --fsdp 2")).end();
    assert!(done.code == Some(0) && done.stdout.contains("3 to 6"), "{done:?}");
    same("dp=2,tp=2, then pp=2,fsdp=2", &rows(&csv), &uninterrupted);
}

#[test]
fn a_rank_that_is_killed_ends_all_and_the_run_can_go_on() {
    let folder = folder();
    let (csv, checkpoints) = (folder.path().join("killed.csv"), folder.path().join("run"));
    let files = format!("--csv {} --checkpoint {}", csv.display(), checkpoints.display());
    let words = format!("{TINY} --steps 100000 --every 5 {files}");
    let job = Job::start(&folder, &format!("{words} --dp 2 --tp 2"));
    job.until("ten steps", || csv.exists() && rows(&csv).len() >= 10);
    let ranks = job.ranks();
    assert_eq!(ranks.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
    job::kill(ranks[&2]);
    let killed = Instant::now();
    let done = job.end();
    assert_eq!(done.code, Some(128 + 9), "{done:?}");
    assert!(killed.elapsed() < Duration::from_secs(10), "it took {:?}", killed.elapsed());
    let said = format!("rank 2 (pid {}) failed first: killed by signal 9", ranks[&2]);
    assert!(done.stderr.contains(&said), "{done:?}");
    assert!(done.stderr.contains("train_gpt: rank 0: ") && done.stderr.contains("rank 2"), "{done:?}");
    assert!(ranks.values().all(|pid| !job::is_alive(*pid)), "{ranks:?}");

    let saved = rows(&csv).len() as u64 / 5 * 5;
    let job = Job::start(&folder, &format!("{words} --resume --fsdp 2"));
    job.until("five more steps", || rows(&csv).last().is_some_and(|row| row.step >= saved + 5));
    let steps: Vec<u64> = rows(&csv).iter().map(|row| row.step).collect();
    assert_eq!(steps, (1..=steps.len() as u64).collect::<Vec<_>>(), "each step is there once");
    // The ranks of a launcher that dies die with it.
    let ranks = job.ranks();
    assert_eq!(ranks.len(), 2);
    job::kill(job.pid());
    job.until("the ranks' end", || ranks.values().all(|pid| !job::is_alive(*pid)));
}

#[test]
fn what_cannot_be_is_refused_before_anything_starts() {
    let folder = folder();
    let missing = folder.path().join("missing");
    for (words, said) in [
        ("--ranks 4 --dp 2".to_owned(), "--ranks 4: --dp 2 times --fsdp 1 times --tp 1 times --pp 1 is 2"),
        ("--dp 0".to_owned(), "--dp 0: the least is 1"),
        ("--pp 8 --batch 16".to_owned(), "has 8 stages, and each must have a layer"),
        ("--pp 2 --schedule zbv --layers 3".to_owned(), "has 4 stages"),
        (
            "--dp 2 --zero 3".to_owned(),
            "--zero 3 cuts the state among the ranks along --fsdp, and there is 1: --fsdp 2",
        ),
        ("--fsdp 2 --zero 4".to_owned(), "4 is not in 1..=3"),
        ("--pp 2 --schedule fastest".to_owned(), "[possible values: gpipe, one_f_one_b"),
        ("--pp 2 --schedule dual_pipe --micro-batches 3".to_owned(), "dual_pipe does not fit 2 ranks, 3 micro-batches"),
        ("--pp 2 --chunks 2".to_owned(), "the number of chunks can be chosen for interleaved only"),
        ("--dp 3".to_owned(), "--batch 8 can't be cut into 3 equal micro-batches"),
        ("--tp 3".to_owned(), "--heads 2 and --kv-heads 2 can't be cut among --tp 3"),
        ("--kv-heads 3".to_owned(), "--heads 2 can't be shared out among --kv-heads 3"),
        ("--width 18 --heads 4".to_owned(), "--width 18 can't be cut into --heads 4"),
        ("--sequence-parallel".to_owned(), "the ranks along --tp, and there is 1"),
        ("--tp 2 --sequence-parallel --length 15".to_owned(), "--length 15 can't be cut into 2"),
        ("--dropout 1".to_owned(), "--dropout 1: it must be below 1"),
        ("--learning-rate nan".to_owned(), "--learning-rate NaN: the least is 0"),
        ("--warm-up 7".to_owned(), "--warm-up 7: there are 6 steps"),
        ("--every 0".to_owned(), "--every 0: the least is 1"),
        ("--resume".to_owned(), "--resume needs --checkpoint"),
        (format!("--resume --checkpoint {}", missing.display()), "there is no checkpoint in"),
        (format!("--text {}", missing.display()), "missing: No such file"),
        ("--length 5000".to_owned(), "has no samples of that in its last tenth"),
        (format!("--svg loss.svg --compare {}", missing.display()), "--compare"),
    ] {
        let done = Job::start(&folder, &format!("{TINY} {words}")).end();
        assert!(done.code.is_some_and(|code| code != 0) && done.stderr.contains(said), "{words}: {done:?}");
        assert!(!done.stderr.contains("failed first") && done.stdout.is_empty(), "{words}: {done:?}");
    }
}

#[test]
fn ranks_that_somebody_else_starts_join() {
    let folder = folder();
    let place = format!("local://train_gpt-test-{}", std::process::id());
    let rank = |rank: usize, words: &str| {
        let (rank, words) = (rank.to_string(), format!("{TINY} {words}"));
        let variables = [("PACELINE_RANK", &rank[..]), ("PACELINE_SIZE", "2"), ("PACELINE_RENDEZVOUS", &place[..])];
        Job::start_with(&folder, &words, &variables)
    };
    let csv = folder.path().join("joined.csv");
    let words = format!("--dp 2 --quiet --csv {}", csv.display());
    let ranks = [0, 1].map(|number| rank(number, &words));
    let [first, second] = ranks.map(Job::end);
    assert!(first.code == Some(0) && second.code == Some(0), "{first:?} {second:?}");
    assert!(first.stdout.contains("dp=2\n") && second.stdout.is_empty(), "{first:?} {second:?}");
    assert_eq!((rows(&csv).len(), &first.stderr[..]), (6, ""));
    let done = rank(1, "--dp 4").end();
    assert!(done.code == Some(1) && done.stderr.contains("rank 1: the options make 4 ranks (dp=4), and 2"), "{done:?}");
}

#[test]
fn every_precision_learns_and_losses_are_drawn() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).display().to_string();
    for (name, words) in [
        ("f32", "--precision f32 --dp 2 --recompute attention"),
        ("bf16", "--precision bf16 --fsdp 2"),
        ("f16", "--precision f16 --tp 2 --sequence-parallel"),
    ] {
        let csv = at(&format!("{name}.csv"));
        let done = Job::start(&folder, &format!("{TINY} --steps 30 --learning-rate 0.01 {words} --csv {csv}")).end();
        assert_eq!(done.code, Some(0), "{words}: {done:?}");
        assert!(done.stderr.contains("step    30: loss"), "{words}: {done:?}");
        let rows = rows(csv.as_ref());
        let (first, last) = (&rows[0], rows.last().unwrap());
        assert!(last.loss < first.loss - 1.0 && last.validation.is_some_and(|loss| loss < 5.0), "{words}: {last:?}");
    }
    let words = format!("{TINY} --svg {} --compare {} --compare {}", at("loss.svg"), at("f32.csv"), at("bf16.csv"));
    let done = Job::start(&folder, &words).end();
    assert_eq!(done.code, Some(0), "{done:?}");
    let svg = std::fs::read_to_string(at("loss.svg")).unwrap();
    for part in ["<polyline", "one rank", "f32", "bf16", "circle", "step"] {
        assert!(svg.contains(part), "{part} in {svg}");
    }
}

#[test]
fn without_options_it_trains_on_what_the_repository_ships() {
    let folder = folder();
    // `text` is what all others train on.
    assert!(text(&folder).exists());
    let done =
        Job::start(&folder, "--steps 2 --warm-up 0 --batch 2 --length 512 --width 16 --layers 1 --every 2").end();
    assert!(done.code == Some(0) && done.stdout.contains("products of F32 matrices"), "{done:?}");
}
