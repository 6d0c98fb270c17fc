//! Graphs, and what may be done while one is captured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use paceline_transport::cuda::{Comparison, CudaError, Event, HostFunction, Priority};

use crate::{device, pattern, soon, waiting_device};

#[test]
fn a_graph_runs_many_times() {
    let Some(device) = device() else { return };
    let stream = device.stream(Priority::Normal).expect("a stream");
    let (source, target) = (device.allocate(4096).expect("memory"), device.allocate(4096).expect("memory"));
    target.zero().expect("cleared");
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let function = HostFunction::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(stream.is_capturing(), Ok(false));
    stream.begin_capture().expect("it has begun");
    assert_eq!(stream.is_capturing(), Ok(true));
    // SAFETY: all are held until the graph is gone and its last run has ended.
    unsafe {
        stream.copy(target.address(), source.address(), 4096).expect("given");
        stream.host_call_shared(&function).expect("given");
    }
    let mut graph = stream.end_capture().expect("a graph");
    assert_eq!(stream.is_capturing(), Ok(false));
    assert_eq!(calls.load(Ordering::Relaxed), 0, "it was collected, and not done");
    for turn in 1..=5 {
        source.write(0, &pattern(turn, 4096)).expect("written");
        graph.launch(&stream).expect("given");
        stream.synchronize(soon()).expect("done");
        let mut read = vec![0; 4096];
        target.read(0, &mut read).expect("read");
        assert_eq!(read, pattern(turn, 4096), "turn {turn}");
        assert_eq!(calls.load(Ordering::Relaxed), u32::from(turn));
    }
}

#[test]
fn what_must_not_be_captured_is_refused_and_leaves_the_capture_as_it_is() {
    let Some(device) = device() else { return };
    let stream = device.stream(Priority::Normal).expect("a stream");
    let memory = device.allocate(4096).expect("memory");
    let (other, event) = (device.stream(Priority::Normal).expect("a stream"), Event::new(&device).expect("an event"));
    other.record(&event).expect("given");
    stream.begin_capture().expect("it has begun");
    for refused in [stream.is_idle().map(drop), stream.synchronize(soon()), stream.host_call(Box::new(|| {}))] {
        let is_told = matches!(&refused, Err(CudaError::Refused { reason, .. }) if reason.contains("captured"));
        assert!(is_told, "{refused:?}");
    }
    let during = device.allocate(4096).expect("what isn't captured may go on");
    during.zero().expect("cleared");
    drop(during);
    drop(device.pinned(4096).expect("memory"));
    other.synchronize(soon()).expect("another stream may be waited for");
    assert_eq!(event.is_done(), Ok(true));
    // SAFETY: it is held until the graph is gone.
    unsafe { stream.copy(memory.address() + 2048, memory.address(), 2048) }.expect("given");
    let mut graph = stream.end_capture().expect("the capture wasn't spoilt");
    graph.launch(&stream).expect("given");
    stream.synchronize(soon()).expect("done");
    assert!(stream.end_capture().is_err(), "nothing was begun");
}

#[test]
fn values_are_waited_for_and_written_in_graphs() {
    let Some(device) = waiting_device() else { return };
    let words = device.pinned(8).expect("memory");
    let stream = device.stream(Priority::Normal).expect("a stream");
    stream.begin_capture().expect("it has begun");
    // SAFETY: the words are held until the graph is gone and its last run has ended.
    unsafe {
        stream.wait_value(words.device_address(), 5, Comparison::AtLeast).expect("given");
        stream.write_value(words.device_address() + 4, 6).expect("given");
    }
    let mut graph = stream.end_capture().expect("a graph");
    for _ in 0..3 {
        words.word(0).store(0, Ordering::Release);
        words.word(1).store(0, Ordering::Release);
        graph.launch(&stream).expect("given");
        assert_eq!((stream.is_idle(), words.word(1).load(Ordering::Acquire)), (Ok(false), 0));
        words.word(0).store(5, Ordering::Release);
        stream.synchronize(soon()).expect("the word is 5");
        assert_eq!(words.word(1).load(Ordering::Acquire), 6);
    }
}
