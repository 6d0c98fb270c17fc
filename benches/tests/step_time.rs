//! That `step_time` measures what it says, at a small size.

use std::process::Command;

const SMALL: [&str; 6] = ["--layers=4", "--width=16", "--tokens=8", "--rounds=2", "--turns=1", "--bucket-kib=1"];

fn measure(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_step_time")).args(SMALL).args(words).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn states_over_shared_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let csv = folder.path().join("numbers.csv");
    let said = measure(&["ddp-shm", "zero3", "--csv", csv.to_str().expect("a path in UTF-8")]);
    for what in ["## ddp-shm: 4 layers of 16", "| paceline | ddp |", "| paceline | zero3 |", "- ZeRO-3 / DDP: "] {
        assert!(said.contains(what), "{what} is missing in\n{said}");
    }
    let lines = std::fs::read_to_string(csv).expect("it was written");
    assert_eq!(lines.lines().count(), 1 + 10 + 12, "{lines}");
}

#[test]
fn pipelines_of_all_kinds() {
    for schedule in ["gpipe", "interleaved", "zb_h1", "dual_pipe"] {
        let said = measure(&["pipeline", "--schedule", schedule]);
        assert!(said.contains("bubble") && said.contains(schedule), "{said}");
    }
    let program = Command::new(env!("CARGO_BIN_EXE_step_time")).args(["pipeline", "--schedule=none"]).output();
    let output = program.expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && said.contains("no pipeline schedule none"), "{said}");
}

#[test]
fn over_a_link() {
    let said = measure(&["ddp-link", "--rate-mbit=500"]);
    if let Some(why) = said.lines().find(|line| line.contains("skipped: ")) {
        return eprintln!("{why}");
    }
    assert!(said.contains("500 Mbit/s") && said.contains("- share of communication that is hidden: "), "{said}");
}
