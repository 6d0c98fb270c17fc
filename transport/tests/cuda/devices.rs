//! Devices: what they say of themselves, and their contexts.

use std::collections::BTreeSet;
use std::ptr;

use cudarc::driver::sys as ffi;
use paceline_transport::cuda::{CudaError, Device, Event, Priority};

use crate::peer::{Peer, say};
use crate::{all_devices, device, pattern, soon};

#[test]
fn devices_say_what_they_are() {
    let devices = all_devices();
    for device in &devices {
        let (major, minor) = device.architecture();
        assert!(!device.name().is_empty() && 5 <= major && minor < 10, "{device:?}: sm_{major}{minor}");
        assert!(device.pci_bus_id().contains(':'), "{device:?}");
        assert!(device.multiprocessors() > 0 && device.total_memory() > 1 << 20, "{device:?}");
        let free = device.free_memory().expect("a number");
        assert!(0 < free && free <= device.total_memory(), "{free} of {} bytes", device.total_memory());
        assert_eq!(Device::open(device.ordinal()).as_ref(), Ok(device), "it is opened once");
        assert_eq!(device.can_access(device), Ok(true));
        assert_eq!(device.enable_peer(device), Ok(()));
    }
    let uuids: BTreeSet<_> = devices.iter().map(Device::uuid).collect();
    assert!(uuids.len() == devices.len() && !uuids.contains(&[0; 16]), "{uuids:?}");
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let Some(device) = device() else { return };
    let count = Device::count().expect("there is one");
    for ordinal in [count, usize::MAX] {
        let error = Device::open(ordinal).expect_err("there are fewer");
        assert!(error.to_string().contains(&format!("sees {count} devices")), "{error}");
        assert!(error.to_string().contains("CUDA_VISIBLE_DEVICES") && !error.is_fatal(), "{error}");
    }
    assert!(Device::driver_version().expect("a number") >= 11_000);
    assert!(device.free_memory().is_ok(), "the context is as it was");
}

fn current() -> ffi::CUcontext {
    let mut context = ptr::null_mut();
    // SAFETY: the driver is there and initialized, and writes one pointer.
    unsafe { ffi::cuCtxGetCurrent(&raw mut context) }.result().expect("the driver says");
    context
}

#[test]
fn a_thread_keeps_its_current_context() {
    let devices = all_devices();
    let Some(first) = devices.first() else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(current().is_null(), "a new thread has none");
            drop(first.allocate(16).expect("memory"));
            drop(Event::new(first).expect("an event"));
            first.stream(Priority::High).expect("a stream").synchronize(soon()).expect("it has nothing to do");
            assert!(current().is_null(), "calls leave none");
            let outer = first.make_current().expect("a context");
            let firsts = current();
            assert!(!firsts.is_null());
            if let Some(second) = devices.get(1) {
                let inner = second.make_current().expect("a context");
                assert!(current() != firsts && !current().is_null());
                drop(inner);
            }
            drop(first.make_current().expect("it is already"));
            assert_eq!(current(), firsts);
            drop(outer);
            assert!(current().is_null());
        });
    });
}

#[test]
fn devices_copy_to_and_from_each_other() {
    let devices = all_devices();
    let [first, second] = &devices[..] else { return println!("skipped: fewer than two CUDA devices") };
    if !first.can_access(second).expect("the driver says") {
        let error = first.enable_peer(second).expect_err("they can't").to_string();
        assert!(error.contains("topo -p2p") && error.contains(second.pci_bus_id()), "{error}");
        return println!("skipped: {first:?} can't access {second:?}");
    }
    for _ in 0..2 {
        first.enable_peer(second).expect("also when it is enabled");
    }
    let (mine, theirs) = (first.allocate(4096).expect("memory"), second.allocate(4096).expect("memory"));
    theirs.write(0, &pattern(3, 4096)).expect("written");
    let stream = first.stream(Priority::Normal).expect("a stream");
    // SAFETY: both are held until the stream is done.
    unsafe { stream.copy(mine.address(), theirs.address(), 4096) }.expect("it is accessible");
    stream.synchronize(soon()).expect("copied");
    let mut read = vec![0; 4096];
    mine.read(0, &mut read).expect("read");
    assert_eq!(read, pattern(3, 4096));
}

/// Says what comes of a library that is no driver, or a very old one.
pub fn has_another_library() {
    let error = Device::count().expect_err("it has no function of a driver's");
    assert!(error.is_absence() && Device::open(0).as_ref() == Err(&error), "{error}");
    say(&error.to_string());
}

#[test]
fn a_library_that_lacks_functions_is_told() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process's mappings");
    let library = maps.split_whitespace().find(|word| word.starts_with('/') && word.contains("/libc.so"));
    let Some(library) = library else { return println!("skipped: this program has no C library as a file") };
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(library, folder.path().join("libcuda.so")).expect("a link");
    let peer = Peer::start_with("has another library", &[("LD_LIBRARY_PATH", folder.path().as_os_str())]);
    let said = peer.hear();
    assert!(said.contains("no function cuInit") && said.contains("too old") && said.contains("--device cpu"), "{said}");
    peer.end();
}

/// Leaves the forked process without whatever the test's process does at its end.
fn leave(status: i32) -> ! {
    // SAFETY: ends this process at once.
    unsafe { libc::_exit(status) }
}

#[test]
fn a_forked_process_is_told() {
    let Some(device) = device() else { return };
    let memory = device.allocate(4096).expect("memory");
    let event = Event::new(&device).expect("an event");
    // SAFETY: the child makes no call of the driver's, which is what is tested, and ends at once.
    match unsafe { libc::fork() } {
        -1 => panic!("{}", std::io::Error::last_os_error()),
        0 => {
            let told = |result: Result<(), CudaError>| result == Err(CudaError::Forked { device: device.ordinal() });
            let all = told(device.free_memory().map(drop))
                && told(memory.read(0, &mut [0; 4]))
                && told(event.is_done().map(drop))
                && told(Device::open(device.ordinal()).map(drop));
            drop((memory, event));
            leave(if all { 0 } else { 1 })
        }
        child => {
            let until = soon();
            let mut status = 0;
            // SAFETY: waits for the child that was made above, without blocking.
            while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
                assert!(std::time::Instant::now() < until, "the forked process hangs");
                std::thread::yield_now();
            }
            assert_eq!(status, 0, "the forked process wasn't told");
            memory.zero().expect("what it dropped is the parent's");
        }
    }
}
