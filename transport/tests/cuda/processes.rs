//! Memory and events that other processes, or other ranks of this one, reach.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use paceline_transport::cuda::{
    Comparison, CudaError, Device, DeviceMemory, Event, IpcHandle, PeerFacts, PeerMemory, Place, Priority, Unreachable,
    pointer,
};

use crate::peer::{Peer, hex, role, say, told, unhex};
use crate::{all_devices, device, devices, kernels, pattern, soon, waiting_device};

const HOST: &[u8] = b"this host";
const BYTES: usize = 1 << 20;

/// Not a test by itself: what a started process runs.
#[test]
fn as_peer() {
    match role().as_deref() {
        None => {}
        Some("reaches memory") => reaches_memory(),
        Some("waits for an event") => waits_for_an_event(),
        Some("has memory") => has_memory(),
        Some("has another library") => devices::has_another_library(),
        Some("loses its context") => kernels::loses_its_context(),
        Some(other) => panic!("there is no part {other:?}"),
    }
}

fn exported(device: &Device) -> Option<(Arc<DeviceMemory>, PeerFacts)> {
    let memory = Arc::new(device.allocate(BYTES).expect("memory"));
    memory.write(0, &pattern(1, BYTES)).expect("written");
    let facts = PeerFacts::of(&memory, HOST).expect("facts");
    if let Err(reason) = &facts.handle {
        println!("skipped: {reason}");
        return None;
    }
    Some((memory, facts))
}

/// Reaches what it is told of, for each of its devices, copies the second quarter to the third, and says what became of it.
fn reaches_memory() {
    while let Some(line) = told() {
        let facts = PeerFacts::decode(&unhex(&line)).expect("facts");
        for device in all_devices() {
            let peer = match PeerMemory::reach(&device, HOST, &facts) {
                Ok(peer) => peer,
                Err(reason) => {
                    say(&format!("no: {reason}"));
                    continue;
                }
            };
            let again = PeerMemory::reach(&device, HOST, &facts).expect("it is within reach");
            assert_eq!(again.address(), peer.address(), "it is mapped once");
            assert!(!peer.is_same_process() && peer.is_same_device() == (facts.uuid == device.uuid()));
            assert_eq!(peer.bytes(), BYTES);
            drop(again);
            let stream = device.stream(Priority::Normal).expect("a stream");
            let part = (BYTES / 4) as u64;
            // SAFETY: the memory is mapped until the stream is done.
            unsafe { stream.copy(peer.address() + 2 * part, peer.address() + part, BYTES / 4) }.expect("given");
            stream.synchronize(soon()).expect("done");
            let place = pointer(peer.address()).expect("the driver knows it");
            assert!(matches!(place, Place::Device { .. }), "{place:?}");
            say("yes");
        }
    }
}

#[test]
fn another_process_reads_and_writes() {
    let devices = all_devices();
    let Some(device) = devices.first() else { return };
    let Some((memory, facts)) = exported(device) else { return };
    let mut peer = Peer::start("reaches memory");
    for _ in 0..2 {
        memory.write(PeerFacts::RESERVED, &pattern(1, BYTES)[PeerFacts::RESERVED..]).expect("written");
        peer.tell(&hex(&facts.encode()));
        for theirs in &devices {
            match peer.hear() {
                said if said == "yes" => {}
                said if theirs != device && theirs.can_access(device) == Ok(false) => {
                    assert!(said.starts_with("no: ") && said.contains("can't access"), "{said}");
                }
                said => panic!("for {theirs:?}: {said}"),
            }
        }
        let mut read = vec![0; BYTES];
        memory.read(0, &mut read).expect("read");
        let (expected, part) = (pattern(1, BYTES), BYTES / 4);
        assert_eq!(read[..PeerFacts::RESERVED], facts.nonce);
        assert!(read[PeerFacts::RESERVED..2 * part] == expected[PeerFacts::RESERVED..2 * part]);
        assert!(read[2 * part..3 * part] == expected[part..2 * part], "the other process's copy");
        assert!(read[3 * part..] == expected[3 * part..]);
    }
    peer.end();
}

#[test]
fn what_is_not_the_memory_told_of_is_a_reason() {
    let Some(device) = device() else { return };
    let Some((memory, facts)) = exported(&device) else { return };
    memory.write(3, &[!facts.nonce[3]]).expect("written");
    let mut peer = Peer::start("reaches memory");
    peer.tell(&hex(&facts.encode()));
    let said = peer.hear();
    assert!(said.starts_with("no: ") && said.contains("random number isn't there"), "{said}");
    assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
    drop(peer);

    let mut peer = Peer::start("reaches memory");
    peer.tell(&hex(&PeerFacts { host: b"another".to_vec(), ..facts.clone() }.encode()));
    let said = peer.hear();
    assert!(said.contains("another host"), "{said}");
    drop(peer);

    let mut peer = Peer::start("reaches memory");
    peer.tell(&hex(&PeerFacts { handle: Err("planted".to_owned()), ..facts.clone() }.encode()));
    let said = peer.hear();
    assert!(said.contains("could not export its device memory: planted"), "{said}");
    drop(peer);

    let mut peer = Peer::start("reaches memory");
    peer.tell(&hex(&PeerFacts { handle: Ok(IpcHandle([0xa5; 64])), ..facts }.encode()));
    let said = peer.hear();
    assert!(said.contains("cuIpcOpenMemHandle"), "{said}");
}

/// Says what it has, and ends at once when it is told to.
fn has_memory() {
    let device = device().expect("the other process has one");
    let (memory, facts) = exported(&device).expect("the other process can");
    say(&hex(&facts.encode()));
    if told().is_some() {
        std::mem::forget(memory);
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(0) };
    }
}

#[test]
fn memory_of_a_process_that_has_ended_is_a_reason() {
    let Some(device) = device() else { return };
    if exported(&device).is_none() {
        return;
    }
    let mut peer = Peer::start("has memory");
    let facts = PeerFacts::decode(&unhex(&peer.hear())).expect("facts");
    let reached = PeerMemory::reach(&device, HOST, &facts).expect("it is still there");
    drop(reached);
    peer.tell("end");
    peer.end();
    let reason = PeerMemory::reach(&device, HOST, &facts).expect_err("it has ended");
    assert!(!reason.is_fatal(), "{reason}");
    println!("{reason}");
    device.allocate(16).expect("memory").zero().expect("the context is as it was");
}

#[test]
fn ranks_of_one_process_hold_each_others_memory() {
    let devices = all_devices();
    let Some(device) = devices.first() else { return };
    let memory = Arc::new(device.allocate(BYTES).expect("memory"));
    let facts = PeerFacts::of(&memory, HOST).expect("facts");
    assert_eq!(PeerFacts::of(&memory, HOST), Ok(facts.clone()), "told again, it is the same");
    let sent = PeerFacts::decode(&facts.encode()).expect("facts");
    let mut reached = Vec::new();
    for theirs in &devices {
        match PeerMemory::reach(theirs, b"the host isn't asked", &sent) {
            Ok(peer) => {
                assert!(peer.is_same_process() && peer.is_same_device() == (theirs == device));
                assert_eq!((peer.address(), peer.bytes()), (memory.address(), BYTES));
                reached.push(peer);
            }
            Err(reason) => assert!(matches!(reason, Unreachable::NoPeerAccess { .. }), "{reason}"),
        }
    }
    let weak = Arc::downgrade(&memory);
    drop(memory);
    assert!(weak.upgrade().is_some(), "whoever reached it holds it");
    drop(reached);
    assert!(weak.upgrade().is_none());
    assert_eq!(PeerMemory::reach(device, HOST, &sent).err(), Some(Unreachable::Gone));
    let small = Arc::new(device.allocate(PeerFacts::RESERVED - 1).expect("memory"));
    assert!(matches!(PeerFacts::of(&small, HOST), Err(CudaError::Refused { .. })));
}

#[test]
fn a_process_can_not_import_its_own() {
    let Some(device) = device() else { return };
    let Some((_memory, facts)) = exported(&device) else { return };
    let error = device.import(&facts.handle.expect("a handle")).expect_err("it is this process's");
    assert!(error.to_string().contains("cuIpcOpenMemHandle") && !error.is_fatal(), "{error}");
}

/// Opens the event that it is told of, says that it isn't done, and, once told, that it is.
fn waits_for_an_event() {
    let device = device().expect("the other process has one");
    let handle = IpcHandle(unhex(&told().expect("a handle")).try_into().expect("64 bytes"));
    let event = device.import_event(&handle).expect("an event");
    let stream = device.stream(Priority::Normal).expect("a stream");
    stream.wait(&event).expect("given");
    let late = stream.synchronize(Instant::now() + Duration::from_millis(50));
    let is_late = matches!(late, Err(CudaError::TimedOut { .. }));
    say(&format!("late: {is_late}, done: {:?}", event.is_done().expect("the driver says")));
    told().expect("that it may go on");
    stream.synchronize(soon()).expect("the event is reached");
    say(&format!("done: {:?}", event.is_done().expect("the driver says")));
}

#[test]
fn another_process_waits_for_an_event() {
    let Some(device) = waiting_device() else { return };
    let event = match Event::shareable(&device).and_then(|event| event.export().map(|handle| (event, handle))) {
        Ok(event) => event,
        Err(error) if error.code() == Some(801) => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let (event, handle) = event;
    let word = device.pinned(4).expect("memory");
    let stream = device.stream(Priority::Normal).expect("a stream");
    // SAFETY: the word is held until the stream is done.
    unsafe { stream.wait_value(word.device_address(), 1, Comparison::AtLeast) }.expect("given");
    stream.record(&event).expect("given");
    let mut peer = Peer::start("waits for an event");
    peer.tell(&hex(&handle.0));
    let said = peer.hear();
    word.word(0).store(1, Ordering::Release);
    assert_eq!(said, "late: true, done: false");
    stream.synchronize(soon()).expect("the word is 1");
    peer.tell("go on");
    assert_eq!(peer.hear(), "done: true");
    peer.end();
    assert!(Event::new(&device).expect("an event").export().is_err(), "it isn't shareable");
}
