//! Ranks that are processes, on devices that they share or have alone.

use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use paceline_comm::cuda::{AttachOptions, Device, DeviceCommunicator, DeviceSliceMut, DeviceVec, Priority, Stream};
use paceline_comm::{Communicator, ReduceOp};
use paceline_cuda_sim::{Machine, jobs, turn};
use paceline_tests::is_asked_for;

use super::world::device_of;

/// How long a job may take.
const LIMIT: Duration = Duration::from_secs(100);

/// Runs a test of this program as each rank of a job, and returns what they said.
pub fn job(machine: &Machine, ranks: usize, test: &str, variables: &[(&str, &str)]) -> Vec<Output> {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let start = |rank: usize| {
        let mut command = machine.test(test);
        command.env("PACELINE_RANK", rank.to_string()).env("PACELINE_SIZE", ranks.to_string());
        command.env("PACELINE_RENDEZVOUS", folder.path().join("here")).env("PACELINE_TIMEOUT", "20s");
        command.envs(variables.iter().copied()).env("PACELINE_TEST_RANK", "1");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a rank starts")
    };
    let children: Vec<Child> = (0..ranks).map(start).collect();
    let deadline = Instant::now() + LIMIT;
    let end = |mut child: Child| {
        while child.try_wait().expect("a child").is_none() {
            if Instant::now() > deadline {
                child.kill().expect("it is ours");
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait_with_output().expect("a child that has ended")
    };
    children.into_iter().map(end).collect()
}

/// What a rank said, both ways.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Whether this process is a rank of a job, rather than the one that runs all tests.
pub fn is_rank() -> bool {
    is_asked_for("PACELINE_TEST_RANK")
}

#[test]
fn a_rank() {
    if !is_rank() {
        return;
    }
    let comm = Communicator::from_env().unwrap();
    let (me, n) = (comm.rank(), comm.size());
    let device = device_of(me);
    let stream = device.stream(Priority::Normal).unwrap();
    let devices =
        comm.attach_with(Some(&device), &AttachOptions { scratch_bytes: 1 << 20, ..Default::default() }).unwrap();
    println!("direct {}", devices.is_direct());
    for len in [1, 1000, 200_003] {
        let mine: Vec<f32> = (0..len).map(|i| (i % 100) as f32 * (me + 1) as f32).collect();
        let input = DeviceVec::of(&device, &mine).unwrap();
        let mut total = DeviceVec::zeroed(&device, len).unwrap();
        let mut all = DeviceVec::<f32>::zeroed(&device, n * len).unwrap();
        devices.on(&stream).all_reduce(&input, &mut total, ReduceOp::Sum).unwrap();
        devices.on(&stream).all_gather(&input, &mut all).unwrap().wait().unwrap();
        let factor = (n * (n + 1) / 2) as f32;
        let (total, all) = (total.to_vec().unwrap(), all.to_vec().unwrap());
        assert!((0..len).all(|i| total[i] == (i % 100) as f32 * factor), "{len}");
        assert!((0..n * len).all(|i| all[i] == (i % len % 100) as f32 * (i / len + 1) as f32), "{len}");
    }
    // Messages to all from all, of lengths of their own, with those of a rank to itself.
    let (send, recv): (Vec<usize>, Vec<usize>) =
        (0..n).map(|peer| (50 * me + peer * 1000, 50 * peer + me * 1000)).unzip();
    let sent: Vec<u32> = (0..n).flat_map(|peer| vec![(100 * me + peer) as u32; send[peer]]).collect();
    let want: Vec<u32> = (0..n).flat_map(|peer| vec![(100 * peer + me) as u32; recv[peer]]).collect();
    let input = DeviceVec::of(&device, &sent).unwrap();
    let mut output = DeviceVec::<u32>::zeroed(&device, want.len()).unwrap();
    let on = devices.on(&stream);
    on.all_to_all_v(&input, &send, &mut output, &recv).unwrap().wait().unwrap();
    assert_eq!(output.to_vec().unwrap(), want);
    output.write(&vec![0; want.len()]).unwrap();
    let (mut from, mut to) = (0, 0);
    let parts: Vec<_> = (0..n)
        .map(|peer| {
            let (input, address) = (input.slice(from..from + send[peer]), output.address() + 4 * to as u64);
            (from, to) = (from + send[peer], to + recv[peer]);
            // SAFETY: parts of the output, which are apart.
            (input, unsafe { DeviceSliceMut::<u32>::from_raw(address, recv[peer]) })
        })
        .collect();
    let (sends, mut receives): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let mut group = on.group();
    for (peer, part) in sends.iter().enumerate() {
        group.send(part, peer).unwrap();
    }
    for (peer, part) in receives.iter_mut().enumerate().rev() {
        group.recv(part, peer).unwrap();
    }
    let work = group.run().unwrap();
    assert_eq!(format!("{work:?}").contains("on the device"), devices.is_direct(), "{work:?}");
    work.wait().unwrap();
    drop(receives);
    assert_eq!(output.to_vec().unwrap(), want);
    registered(&devices, &stream);
    devices.detach().unwrap();
    println!("done on {} devices", Device::count().unwrap());
}

/// Vectors of other processes are read where they lie.
fn registered(devices: &DeviceCommunicator, stream: &Stream) {
    let (me, n, len) = (devices.communicator().rank(), devices.communicator().size(), 100_003);
    let device = devices.device().unwrap();
    let mine: Vec<i64> = (0..len).map(|at| (at * (me + 1)) as i64).collect();
    let mut vector = DeviceVec::of(device, &mine).unwrap();
    let known = devices.register(&vector).unwrap();
    assert_eq!(known.is_lent(), devices.is_direct());
    assert_eq!(vector.to_vec().unwrap(), mine);
    let on = devices.on(stream);
    for turn in 0..3 {
        on.all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap().wait().unwrap();
        let factor = (n * (n + 1) / 2 * n.pow(turn)) as i64;
        let total = vector.to_vec().unwrap();
        assert!((0..len).all(|at| total[at] == at as i64 * factor), "turn {turn}");
    }
    // Otherwise detach gives it back.
    if n == 2 {
        devices.deregister(known).unwrap();
        on.all_reduce_in_place(&mut vector, ReduceOp::Max).unwrap().wait().unwrap();
    }
}

fn all_agree(machine: &Machine, ranks: usize, direct: bool) {
    for output in job(machine, ranks, "processes::a_rank", &[]) {
        let said = said(&output);
        assert!(output.status.success() && said.contains(&format!("direct {direct}")), "{said}");
    }
}

#[test]
fn processes_share_a_device() {
    if is_rank() {
        return;
    }
    let Some(machine) = Machine::with_devices(1) else { return };
    for n in jobs() {
        all_agree(&machine, *n, true);
    }
}

#[test]
fn processes_have_devices_of_their_own() {
    if is_rank() {
        return;
    }
    if let Some(machine) = Machine::with_devices(2) {
        all_agree(&machine, 2, true);
    }
}

#[test]
fn without_shared_memory_calls_pass_by_the_host() {
    if is_rank() {
        return;
    }
    if let Some(machine) = Machine::simulated("without IPC", |machine| machine.without_ipc()) {
        all_agree(&machine, 2, false);
    }
    if let Some(machine) = Machine::simulated("without access between devices", |machine| machine.without_peers()) {
        all_agree(&machine, 2, false);
    }
}

#[test]
fn one_rank_that_says_no_is_enough() {
    if is_rank() {
        return;
    }
    let Some(machine) = Machine::here() else { return };
    for output in job(&machine, 2, "processes::a_stubborn_rank", &[]) {
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn a_stubborn_rank() {
    if !is_rank() {
        return;
    }
    let comm = Communicator::from_env().unwrap();
    let device = device_of(comm.rank());
    let options = AttachOptions { peers: comm.rank() == 0, ..Default::default() };
    assert!(!comm.attach_with(Some(&device), &options).unwrap().is_direct());
}
