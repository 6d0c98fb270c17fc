//! `paceline tune` as a user starts it: what it writes is what jobs then go by.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use paceline_comm::Profile;

fn paceline(profile: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.args(words).stdin(Stdio::null()).env_remove("PACELINE_TOKEN").env("PACELINE_PROFILE", profile);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn what_is_measured_is_written_and_gone_by() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let dry = paceline(&path, &["tune", "--threads", "2", "--quick", "--dry-run"]);
    assert!(dry.status.success() && text(&dry).contains("all_reduce "), "{}", text(&dry));
    assert!(!path.exists());

    let tuned = paceline(&path, &["tune", "--threads", "2", "--quick"]);
    assert!(tuned.status.success() && text(&tuned).contains("written to "), "{}", text(&tuned));
    let profile = Profile::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let choices = profile.choices.iter().find(|choices| choices.collective == "broadcast").unwrap();
    assert_eq!((choices.among.link.as_str(), choices.among.ranks), ("inproc", 2));

    let launched = paceline(&path, &["launch", "-n", "2", "--", env!("CARGO_BIN_EXE_paceline"), "tune", "--quick"]);
    assert!(launched.status.success(), "{}", text(&launched));
    let both = Profile::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(profile.choices.iter().all(|choices| both.choices.contains(choices)), "the other link's choices stay");
    assert_eq!(both.choices.len(), 2 * profile.choices.len());
    let explain = [env!("CARGO_BIN_EXE_paceline"), "explain", "broadcast", "8"];
    let explained = paceline(&path, &[&["launch", "-n", "2", "--"], &explain[..]].concat());
    assert!(text(&explained).contains("measured to be the quickest from 0 "), "{}", text(&explained));
}

#[test]
fn what_cannot_be_done_is_said() {
    let nowhere = Path::new("none");
    let alone = paceline(nowhere, &["tune", "--dry-run"]);
    assert!(!alone.status.success() && text(&alone).contains("one rank has nothing to choose"), "{}", text(&alone));
    let unplaced = paceline(nowhere, &["tune", "--threads", "2"]);
    assert!(!unplaced.status.success() && text(&unplaced).contains("no place for a profile"), "{}", text(&unplaced));
    let missing = paceline(Path::new("/nowhere/at/all.json"), &["tune", "--threads", "2", "--check"]);
    assert!(!missing.status.success() && text(&missing).contains("can't be used"), "{}", text(&missing));
}

/// What is quick depends on the machine and who else uses it; that each choice has its line, and the end says what the
/// lines do, does not.
#[test]
fn a_check_says_of_every_choice_whether_it_is_right() {
    let words = ["launch", "-n", "2", "--", env!("CARGO_BIN_EXE_paceline"), "tune", "--check", "--quick"];
    let output = paceline(Path::new("none"), &[&words[..], &["--sizes", "4K,8"]].concat());
    let text = text(&output);
    let lines: Vec<&str> = text.lines().filter(|line| line.ends_with(" ok") || line.ends_with(" slow")).collect();
    let mut choices = Vec::new();
    for line in &lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [.., collective, bytes, chosen, us, best, least, ratio, verdict] = words[..] else { panic!("{line}") };
        let [us, least, ratio]: [f64; 3] = [us, least, ratio].map(|number| number.parse().expect(line));
        assert!(us > 0.0 && least > 0.0 && (us / least - ratio).abs() <= 0.01 + 0.1 * ratio, "{line}");
        assert!(chosen != best || (us == least && verdict == "ok"), "{line}");
        assert!(verdict == "ok" || ratio >= 1.15, "{line}");
        choices.push((collective, bytes));
    }
    let collectives =
        ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"];
    for collective in collectives {
        for bytes in ["8", "4096"] {
            assert_eq!(
                choices.iter().filter(|choice| **choice == (collective, bytes)).count(),
                1,
                "{collective}: {text}"
            );
        }
    }
    assert_eq!(choices.len(), 2 * collectives.len() + 1, "a barrier has no sizes: {text}");
    let slow = lines.iter().filter(|line| line.ends_with(" slow")).count();
    assert!(text.contains("2 ranks over shm, "), "{text}");
    let last = format!(" to a core: {slow} of {} choices are over 15 % slower", choices.len());
    assert!(text.contains(&last), "{last}: {text}");
    assert_eq!(output.status.success(), slow == 0, "{text}");
}
