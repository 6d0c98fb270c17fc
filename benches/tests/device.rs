//! That `device` measures what it says, at tiny sizes on the software driver, and says why it measures nothing.

use std::process::{Command, Output};

use paceline_cuda_sim::Simulated;

const DEVICE: &str = env!("CARGO_BIN_EXE_device");

fn simulated() -> Option<Simulated> {
    Simulated::here().map_err(|reason| println!("skipped: {reason}")).ok()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn run(simulated: Simulated, words: &[&str]) -> (bool, String) {
    let mut command: Command = simulated.command(DEVICE);
    let output = command.args(["--small", "--rounds=2"]).args(words).output().expect("it starts");
    (output.status.success(), said(&output))
}

#[test]
fn one_device_is_measured() {
    let Some(machine) = simulated() else { return };
    let (succeeded, said) = run(machine.devices(1), &["--only=local"]);
    assert!(succeeded, "{said}");
    for what in [
        "| copy within the device | ",
        "| copy from the host | ",
        "| sum of 2 arrays of float | ",
        "| sum of 8 arrays of half | ",
    ] {
        assert!(said.contains(what), "{what} is missing in\n{said}");
    }
}

#[test]
fn ranks_are_measured_both_ways_and_written_as_json() {
    let Some(machine) = simulated() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("numbers.json");
    let written = format!("--json={}", json.display());
    let (succeeded, said) = run(machine.devices(1), &["--only=ranks", "-n=2", "--sizes=8,65536", &written]);
    assert!(succeeded, "{said}");
    for kind in ["threads", "processes"] {
        for way in ["on the devices", "by the host"] {
            for bytes in [8, 65_536] {
                let line = format!("| 2 | {kind} | {way} | {bytes} | ");
                assert!(
                    said.contains(&line) && !said.contains(&format!("{line}failed")),
                    "{line} is missing in\n{said}"
                );
            }
        }
    }
    let text = std::fs::read_to_string(json).expect("it was written");
    let lines = text.matches("\"collective\": \"all_reduce\"").count();
    assert!(lines == 8 && text.contains("\"rounds\""), "{text}");
}

#[test]
fn devices_that_do_not_reach_each_other_are_told_and_no_failure() {
    let Some(machine) = simulated() else { return };
    let machine = machine.devices(1).without_ipc();
    let (succeeded, said) = run(machine, &["--only=ranks", "-n=2", "--kinds=processes", "--sizes=8"]);
    assert!(succeeded, "{said}");
    assert!(
        said.contains("| on the devices | 8 | not measured: the devices don't reach each other's memory"),
        "{said}"
    );
}

#[test]
fn what_fails_is_told_and_is_a_failure() {
    let Some(machine) = simulated() else { return };
    let (succeeded, said) = run(machine.devices(1).with("PACELINE_TEST_CUDA_FAIL_LAUNCH", "30"), &["--only=local"]);
    assert!(!succeeded && said.contains("failed: "), "{said}");
}

#[test]
fn nccl_is_skipped_with_a_reason() {
    let Some(machine) = simulated() else { return };
    let (succeeded, said) = run(machine.devices(1), &["--only=nccl", "-n=2", "--nccl=/nowhere/libnccl.so.2"]);
    assert!(succeeded && said.contains("- skipped: "), "{said}");
}

#[test]
fn without_a_device_nothing_is_run() {
    let Some(machine) = simulated() else { return };
    let (succeeded, said) = run(machine.devices(0), &[]);
    assert!(succeeded && said.starts_with("not run: no device ("), "{said}");
}
