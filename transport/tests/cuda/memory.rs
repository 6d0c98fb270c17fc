//! Memory of devices and pinned memory, and what addresses are.

use std::sync::atomic::Ordering;

use paceline_transport::cuda::{Place, Priority, pointer};

use crate::{device, pattern, soon};

#[test]
fn what_is_written_is_read() {
    let Some(device) = device() else { return };
    let memory = device.allocate(70_001).expect("memory");
    assert!(memory.bytes() == 70_001 && memory.address().is_multiple_of(256), "{memory:?}");
    memory.write(0, &pattern(1, 70_001)).expect("written");
    memory.write(69_990, &[9; 11]).expect("written up to the end");
    let mut read = vec![0; 70_001];
    memory.read(0, &mut read).expect("read");
    assert_eq!(read[..69_990], pattern(1, 70_001)[..69_990]);
    assert_eq!(read[69_990..], [9; 11]);
    memory.read(5, &mut []).expect("nothing is read");
    memory.zero().expect("cleared");
    memory.read(0, &mut read).expect("read");
    assert!(read.iter().all(|byte| *byte == 0));
    for (offset, bytes) in [(70_001, 1), (69_991, 11), (usize::MAX, 2)] {
        let error = memory.write(offset, &vec![0; bytes]).expect_err("it doesn't fit").to_string();
        assert!(error.contains(&format!("{bytes} bytes from {offset} on aren't in 70001 bytes")), "{error}");
        assert!(memory.read(offset, &mut vec![0; bytes]).is_err());
    }
}

#[test]
fn what_there_is_not_can_not_be_taken() {
    let Some(device) = device() else { return };
    assert!(device.allocate(0).is_err() && device.pinned(0).is_err());
    let bytes = 2 * device.total_memory();
    let error = device.allocate(bytes).expect_err("it is twice what there is");
    assert!(error.to_string().contains("cuMemAlloc on CUDA device 0: CUDA_ERROR_OUT_OF_MEMORY (2,"), "{error}");
    assert!(error.to_string().contains(&format!("asked for {bytes} bytes")), "{error}");
    assert!(error.to_string().contains("nvidia-smi") && !error.is_fatal(), "{error}");
    device.allocate(16).expect("there is some");
}

#[test]
fn what_is_dropped_can_be_taken_again() {
    let Some(device) = device() else { return };
    let bytes = device.free_memory().expect("a number") / 3;
    for turn in 0..8 {
        device.allocate(bytes).unwrap_or_else(|error| panic!("turn {turn}: {error}"));
    }
}

#[test]
fn pinned_memory_is_seen_by_host_and_device() {
    let Some(device) = device() else { return };
    let pinned = device.pinned(8192).expect("memory");
    assert!((0..2048).all(|word| pinned.word(word).load(Ordering::Relaxed) == 0), "it begins as zeros");
    let memory = device.allocate(4096).expect("memory");
    let stream = device.stream(Priority::Normal).expect("a stream");
    // SAFETY: nobody else uses the memory; the stream is done with it before it is read.
    let arrived = unsafe {
        pinned.slice_mut(0..4096).copy_from_slice(&pattern(5, 4096));
        stream.copy(memory.address(), pinned.device_address(), 4096).expect("given");
        stream.copy(pinned.device_address() + 4096, memory.address(), 4096).expect("given");
        stream.synchronize(soon()).expect("done");
        pinned.slice(4096..8192)
    };
    assert_eq!(arrived, pattern(5, 4096));
    assert_eq!(pinned.word(1025).load(Ordering::Relaxed).to_ne_bytes(), pattern(5, 4096)[4..8]);
    assert!(std::panic::catch_unwind(|| pinned.word(2048)).is_err(), "there are 2048 words");
}

#[test]
fn addresses_are_told_apart() {
    let Some(device) = device() else { return };
    let memory = device.allocate(5000).expect("memory");
    let pinned = device.pinned(5000).expect("memory");
    let boxed = vec![0_u8; 5000];
    assert_eq!(pointer(boxed.as_ptr().addr() as u64), Ok(Place::Host));
    assert_eq!(pointer(8), Ok(Place::Host));
    assert_eq!(pointer(pinned.address().addr() as u64 + 17), Ok(Place::Pinned));
    assert_eq!(pointer(pinned.device_address()), Ok(Place::Pinned));
    for offset in [0, 17, 4999] {
        let place = pointer(memory.address() + offset).expect("the driver knows it");
        let Place::Device { device: ordinal, base, bytes, can_export } = place else { panic!("{place:?}") };
        assert!(ordinal == device.ordinal() && base == memory.address() && bytes >= 5000, "{place:?}");
        assert!(can_export != Some(false) || memory.export().is_err(), "{place:?}");
    }
    let (address, at) = (memory.address(), pinned.address().addr() as u64);
    drop((memory, pinned));
    for freed in [address, at] {
        println!("after it was freed: {:?}", pointer(freed));
    }
}
