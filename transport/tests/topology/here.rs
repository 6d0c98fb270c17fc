//! Detection on the machine that the tests run on, against what the kernel and other programs say.

use std::time::{Duration, Instant};

use paceline_transport::machine::{Machine, Source};

fn here() -> Machine {
    Machine::detect(&Source::here(), None)
}

#[test]
fn processors_are_those_of_proc() {
    let machine = here();
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let ids =
        text.lines().filter_map(|line| line.strip_prefix("processor")?.trim().strip_prefix(':')?.trim().parse().ok());
    let ids: Vec<u32> = ids.collect();
    if ids.is_empty() {
        eprintln!("skipped: /proc/cpuinfo numbers no processors on this architecture");
    } else {
        assert_eq!(machine.cores.iter().map(|core| core.id).collect::<Vec<_>>(), ids);
    }
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let allowance = machine.allowance.expect("/proc is there");
    let own: Vec<u32> = ids.iter().copied().filter(|id| set.is_set(*id as usize)).collect();
    assert!(allowance.cores.iter().all(|core| own.contains(core)), "{allowance:?}, {own:?}");
    assert!(1 <= allowance.at_once() && allowance.at_once() <= own.len());
    // The standard library counts quotas of version 2, and of version 1 where it finds them.
    let counted = std::thread::available_parallelism().unwrap().get();
    assert_eq!(allowance.at_once(), counted, "{allowance:?}");
}

#[test]
fn sockets_nodes_and_caches_are_those_of_lscpu() {
    let output = std::process::Command::new("lscpu").arg("-p=CPU,SOCKET,NODE").env("LC_ALL", "C").output();
    let output = match output {
        Ok(output) if output.status.success() => output,
        Ok(output) => return eprintln!("skipped: lscpu fails: {}", output.status),
        Err(error) => return eprintln!("skipped: no lscpu: {error}"),
    };
    let machine = here();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut rows = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<Option<u32>> = line.split(',').map(|field| field.parse().ok()).collect();
        let core = machine.cores.iter().find(|core| Some(core.id) == fields[0]).unwrap_or_else(|| panic!("{line}"));
        // lscpu numbers sockets from 0 in the order of its own list; the kernel may not.
        let socket = core.package.and_then(|id| machine.packages.iter().position(|package| package.id == id));
        assert_eq!(socket.map(|at| at as u32), fields[1], "{line}");
        if fields[2].is_some() {
            let node = core.node.map(|at| machine.nodes[at].id as u32);
            assert_eq!(node, fields[2], "{line}");
        }
        rows += 1;
    }
    assert_eq!(rows, machine.cores.len());
}

#[test]
fn interfaces_with_a_device_are_those_of_sysfs() {
    let machine = here();
    let Ok(entries) = std::fs::read_dir("/sys/class/net") else { return eprintln!("skipped: no /sys/class/net") };
    for entry in entries.flatten().filter(|entry| entry.path().join("device").exists()) {
        let name = entry.file_name().into_string().unwrap();
        let is_it = |nic: &&paceline_transport::machine::Nic| {
            nic.name.as_ref() == Some(&name) || nic.interface.as_ref() == Some(&name)
        };
        let nic = machine.nics.iter().find(is_it);
        let is_ethernet = std::fs::read_to_string(entry.path().join("type")).is_ok_and(|text| text.trim() == "1");
        assert_eq!(nic.is_some(), is_ethernet, "{name}");
    }
}

#[test]
fn detection_takes_less_than_fifty_milliseconds() {
    let took = |_| {
        let start = Instant::now();
        let machine = here();
        (start.elapsed(), machine.cores.len())
    };
    let times: Vec<(Duration, usize)> = (0..5).map(took).collect();
    eprintln!("detection: {:?} at first, {:?} at best", times[0].0, times.iter().min().unwrap().0);
    assert!(times.iter().any(|(time, _)| *time < Duration::from_millis(50)), "{times:?}");
}

#[cfg(feature = "nvml")]
#[test]
fn nvidias_library_is_asked_and_its_absence_is_a_reason() {
    use paceline_transport::machine::{GpuLinks, Nvml};
    match Nvml.gpus() {
        Ok(gpus) => eprintln!("NVIDIA's library knows {} GPUs", gpus.len()),
        Err(why) => assert!(why.starts_with("NVIDIA's library "), "{why}"),
    }
    let with = Machine::detect(&Source::here(), Some(&Nvml));
    assert_eq!(with.cores, here().cores);
}
