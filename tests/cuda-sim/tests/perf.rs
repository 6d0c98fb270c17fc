//! The `*_perf` tools over memory of devices, on the software driver or on GPUs (as `collectives`): tables, checks, flags, several processes.

use std::path::PathBuf;
use std::process::Output;

use paceline_cuda_sim::{Machine, turn};
use paceline_tests::process::tool;

fn run(machine: &Machine, tool_name: &str, line: &str) -> Output {
    let program: PathBuf = tool(tool_name);
    let _turn = turn();
    machine.command(program).args(line.split_whitespace()).env("PACELINE_TIMEOUT", "60s").output().expect("it starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    rows.map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn tables_say_which_devices_and_that_all_is_right() {
    let Some(machine) = Machine::here() else { return };
    let second = format!("device  {}", 1 % machine.devices());
    for (name, line) in [
        ("all_reduce_perf", "-g 2 -b 4 -e 1M -f 16 -n 3"),
        ("all_reduce_perf", "-g 3 -b 64K -e 64K -n 2 -m 3 -u 1 -d bfloat16"),
        ("all_reduce_perf", "-g 2 -b 1K -e 64K -f 8 -n 4 -G 3"),
        ("all_reduce_perf", "-g 2 -b 1K -e 1K -n 4 -z 1 -C 1"),
        ("all_reduce_perf", "-g 2 -b 1K -e 1K -n 4 -z 2"),
        ("all_reduce_perf", "-g 2 -b 1K -e 1K -n 4 -z 3 -R 1"),
        ("all_reduce_perf", "-g 3 -b 1K -e 256K -f 16 -n 3 -R 2"),
        ("all_gather_perf", "-g 2 -b 256K -e 256K -n 2 -R 2 -u 1"),
        ("alltoall_perf", "-g 2 -b 256K -e 256K -n 2 -R 1"),
        ("all_gather_perf", "-g 3 -b 1K -e 256K -f 16 -n 2 -x 2"),
        ("alltoall_perf", "-g 2 -b 64K -e 256K -n 2 -x 2 -R 2"),
        ("sendrecv_perf", "-g 2 -b 256K -e 256K -n 2 -m 3"),
        ("all_gather_perf", "-g 2 -b 1K -e 64K -f 8 -n 2"),
        ("alltoall_perf", "-g 3 -b 1K -e 64K -f 8 -n 2"),
        ("sendrecv_perf", "-g 2 -b 1K -e 64K -f 8 -n 2"),
        ("hypercube_perf", "-g 4 -b 1K -e 1K -n 2"),
    ] {
        let output = run(&machine, name, line);
        let text = text(&output);
        assert!(output.status.success(), "{name} {line}: {text}");
        assert!(text.contains("Out of bounds values : 0 OK"), "{name} {line}: {text}");
        assert!(text.lines().any(|line| line.contains("Rank  1") && line.contains(&second)), "{name} {line}: {text}");
        assert!(rows(&text).iter().all(|row| row[8] == "0" && row[12] == "0"), "{name} {line}: {text}");
    }
}

#[test]
fn processes_take_devices_by_turns() {
    let Some(machine) = Machine::here() else { return };
    let paceline = tool("paceline");
    let _turn = turn();
    let output = machine
        .command(paceline)
        .args(["launch", "-n", "2", "--"])
        .arg(tool("all_reduce_perf"))
        .args(["-b", "8", "-e", "256K", "-f", "32", "-n", "2", "--device", "cuda"])
        .output()
        .expect("it starts");
    let text = text(&output);
    assert!(output.status.success() && text.contains("Out of bounds values : 0 OK"), "{text}");
    assert!(text.contains("[cuda]"), "ranks reach each other's devices: {text}");
}

#[test]
fn a_machine_without_devices_says_so() {
    let Some(machine) = Machine::with_devices(0) else { return };
    let output = run(&machine, "all_reduce_perf", "-g 2 -b 8 -e 8 -n 1 --device cuda");
    assert!(!output.status.success() && text(&output).to_lowercase().contains("device"), "{}", text(&output));
    let output = run(&machine, "all_reduce_perf", "-g 2 -b 8 -e 8 -n 1");
    assert!(output.status.success(), "the host's memory is taken instead: {}", text(&output));
    let output = run(&machine, "all_reduce_perf", "-g 2 -b 8 -e 8 -n 1 -G 2");
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
    let output = run(&machine, "all_gather_perf", "-g 2 -b 8 -e 8 -n 1 -x 2");
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
    let output = run(&machine, "all_reduce_perf", "-g 2 -b 8 -e 8 -n 1 -R 2");
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
}
