//! Streams and events: what is done in which order, and waits that end.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use paceline_transport::cuda::{Comparison, CudaError, Event, HostMemory, Priority, Stream};

use crate::{device, pattern, soon, waiting_device};

#[test]
fn a_stream_copies_in_order() {
    let Some(device) = device() else { return };
    let (first, second) = (device.allocate(4096).expect("memory"), device.allocate(4096).expect("memory"));
    let (from, mut to) = (pattern(1, 4096), vec![0; 4096]);
    for priority in [Priority::Normal, Priority::High] {
        let stream = device.stream(priority).expect("a stream");
        // SAFETY: all are held, and not used otherwise, until the stream is done.
        unsafe {
            stream.copy_from_host(first.address(), from.as_ptr(), 4096).expect("given");
            stream.copy(second.address(), first.address(), 4096).expect("given");
            stream.copy_to_host(to.as_mut_ptr(), second.address(), 4096).expect("given");
        }
        stream.synchronize(soon()).expect("done");
        assert_eq!(stream.is_idle(), Ok(true));
        assert_eq!(std::mem::replace(&mut to, vec![0; 4096]), from);
        second.zero().expect("cleared");
    }
}

/// A stream that goes on when the memory's first word is 1 or more.
fn held(memory: &HostMemory) -> Stream {
    let stream = memory.device().stream(Priority::Normal).expect("a stream");
    // SAFETY: the callers hold the memory until the stream is done.
    unsafe { stream.wait_value(memory.device_address(), 1, Comparison::AtLeast) }.expect("given");
    stream
}

#[test]
fn waiting_ends_at_the_deadline() {
    let Some(device) = waiting_device() else { return };
    let word = device.pinned(4).expect("memory");
    let stream = held(&word);
    let event = Event::new(&device).expect("an event");
    assert_eq!(event.is_done(), Ok(true), "it was never recorded");
    stream.record(&event).expect("given");
    assert_eq!((stream.is_idle(), event.is_done()), (Ok(false), Ok(false)));
    let began = Instant::now();
    for late in [
        stream.synchronize(began + Duration::from_millis(50)).expect_err("the word is 0"),
        event.synchronize(Instant::now() + Duration::from_millis(50)).expect_err("the word is 0"),
    ] {
        assert!(matches!(late, CudaError::TimedOut { .. }), "{late}");
    }
    assert!(Duration::from_millis(100) <= began.elapsed() && began.elapsed() < Duration::from_secs(30));
    word.word(0).store(1, Ordering::Release);
    stream.synchronize(soon()).expect("the word is 1");
    event.synchronize(soon()).expect("the word is 1");
}

#[test]
fn values_are_compared_as_said() {
    let Some(device) = waiting_device() else { return };
    let words = device.pinned(8).expect("memory");
    for (comparison, value, blocking, passing) in [
        (Comparison::Equal, 7, 6, 7),
        (Comparison::Equal, 7, 8, 7),
        (Comparison::AtLeast, 7, 6, 7),
        (Comparison::AtLeast, 7, 0, 8),
        (Comparison::AtLeast, 0xffff_fff0, 0xffff_ffef, 3),
        (Comparison::AtLeast, 3, 0xffff_fff0, 3),
    ] {
        words.word(0).store(blocking, Ordering::Release);
        let stream = device.stream(Priority::Normal).expect("a stream");
        // SAFETY: the words are held until the stream is done.
        unsafe {
            stream.wait_value(words.device_address(), value, comparison).expect("given");
            stream.write_value(words.device_address() + 4, value).expect("given");
        }
        let late = stream.synchronize(Instant::now() + Duration::from_millis(20));
        words.word(0).store(passing, Ordering::Release);
        assert!(matches!(late, Err(CudaError::TimedOut { .. })), "{comparison:?} {value} let {blocking} pass");
        stream.synchronize(soon()).unwrap_or_else(|error| panic!("{comparison:?} {value} {passing}: {error}"));
        assert_eq!(words.word(1).load(Ordering::Acquire), value);
    }
    let stream = device.stream(Priority::Normal).expect("a stream");
    // SAFETY: neither is given to the device.
    let refused = unsafe {
        [
            stream.wait_value(words.device_address() + 1, 0, Comparison::Equal),
            stream.write_value(words.device_address() + 2, 0),
        ]
    };
    assert!(refused.into_iter().all(|result| matches!(result, Err(CudaError::Refused { .. }))));
}

#[test]
fn a_value_brings_what_was_written_before_it() {
    let Some(device) = waiting_device() else { return };
    let (source, target) = (device.allocate(1 << 20).expect("memory"), device.allocate(1 << 20).expect("memory"));
    let (flag, there) = (device.allocate(4).expect("memory"), device.allocate(1 << 20).expect("memory"));
    source.write(0, &pattern(7, 1 << 20)).expect("written");
    flag.zero().expect("cleared");
    let sender = device.stream(Priority::Normal).expect("a stream");
    let receiver = device.stream(Priority::Normal).expect("a stream");
    for turn in 1..=20_u32 {
        target.zero().expect("cleared");
        // SAFETY: all are held until both streams are done.
        unsafe {
            receiver.wait_value(flag.address(), turn, Comparison::AtLeast).expect("given");
            receiver.copy(there.address(), target.address(), 1 << 20).expect("given");
            sender.copy(target.address(), source.address(), 1 << 20).expect("given");
            sender.write_value(flag.address(), turn).expect("given");
        }
        sender.synchronize(soon()).expect("done");
        receiver.synchronize(soon()).expect("done");
        let mut read = vec![0; 1 << 20];
        there.read(0, &mut read).expect("read");
        assert!(read == pattern(7, 1 << 20), "turn {turn}: the value came before the bytes");
    }
}

#[test]
fn streams_wait_for_events() {
    let Some(device) = waiting_device() else { return };
    let word = device.pinned(4).expect("memory");
    let memory = device.allocate(4096).expect("memory");
    memory.zero().expect("cleared");
    let (first, second) = (held(&word), device.stream(Priority::Normal).expect("a stream"));
    let event = Event::new(&device).expect("an event");
    let (from, mut to) = (device.pinned(4096).expect("memory"), vec![0; 4096]);
    // SAFETY: all are held, and not used otherwise, until both streams are done.
    unsafe {
        from.slice_mut(0..4096).copy_from_slice(&pattern(2, 4096));
        first.copy(memory.address(), from.device_address(), 4096).expect("given");
    }
    first.record(&event).expect("given");
    second.wait(&event).expect("given");
    assert_eq!((second.is_idle(), event.is_done()), (Ok(false), Ok(false)));
    word.word(0).store(1, Ordering::Release);
    // SAFETY: as above.
    unsafe { second.copy_to_host(to.as_mut_ptr(), memory.address(), 4096) }.expect("given");
    second.synchronize(soon()).expect("done");
    assert_eq!((first.is_idle(), event.is_done()), (Ok(true), Ok(true)));
    assert_eq!(to, pattern(2, 4096));
}

#[test]
fn events_with_timing_know_how_long_it_took() {
    let Some(device) = device() else { return };
    let stream = device.stream(Priority::Normal).expect("a stream");
    let [start, end] = [(); 2].map(|()| Event::with_timing(&device).expect("an event"));
    let untimed = Event::new(&device).expect("an event");
    stream.record(&start).expect("given");
    stream.host_call(Box::new(|| std::thread::sleep(Duration::from_millis(20)))).expect("given");
    stream.record(&end).expect("given");
    stream.record(&untimed).expect("given");
    stream.synchronize(soon()).expect("done");
    let took = start.elapsed(&end).expect("both are done");
    assert!(Duration::from_millis(19) <= took && took < Duration::from_secs(30), "{took:?}");
    assert!(start.elapsed(&untimed).is_err(), "it has no time");
}

#[test]
fn functions_are_called_in_order_and_dropped() {
    let Some(device) = device() else { return };
    let stream = device.stream(Priority::Normal).expect("a stream");
    let (order, called) = mpsc::channel();
    let held = Arc::new(AtomicU32::new(0));
    for turn in 0..100 {
        let (order, held) = (order.clone(), held.clone());
        let call = move || {
            held.fetch_add(1, Ordering::Relaxed);
            order.send(turn).expect("the test listens");
            assert!(turn != 50, "planted");
        };
        stream.host_call(Box::new(call)).expect("given");
    }
    stream.synchronize(soon()).expect("a function's panic is no failure of the stream");
    drop(order);
    assert_eq!(called.into_iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    assert_eq!((held.load(Ordering::Relaxed), Arc::strong_count(&held)), (100, 1));
}

#[test]
fn streams_of_others_are_used_and_not_destroyed() {
    let Some(device) = device() else { return };
    let memory = device.allocate(4096).expect("memory");
    let other = cudarc::driver::CudaContext::new(device.ordinal()).expect("the primary context");
    let theirs = [other.default_stream(), other.new_stream().expect("a stream")];
    for stream in &theirs {
        let stream = Stream::from_cudarc(stream).expect("it is of the primary context");
        assert_eq!(stream.device(), &device);
        // SAFETY: the memory is held until the stream is done.
        unsafe { stream.copy(memory.address() + 2048, memory.address(), 2048) }.expect("given");
        stream.synchronize(soon()).expect("done");
    }
    let stream = device.stream(Priority::Normal).expect("a stream");
    // SAFETY: the stream is the device's, and outlives this.
    let borrowed = unsafe { Stream::borrowed(&device, stream.as_raw()) };
    drop(borrowed);
    stream.synchronize(soon()).expect("it is still there");
    theirs[1].synchronize().expect("it is still there");
}

/// Freeing memory may wait for all streams, and a stream may wait for what never comes.
#[test]
fn dropping_ends_though_a_stream_does_not() {
    let Some(device) = waiting_device() else { return };
    let word = device.pinned(4).expect("memory");
    let memory = device.allocate(4096).expect("memory");
    let stream = held(&word);
    let began = Instant::now();
    drop(memory);
    drop(stream.clone());
    let took = began.elapsed();
    word.word(0).store(1, Ordering::Release);
    assert!(took < Duration::from_secs(30), "{took:?}");
    stream.synchronize(soon()).expect("the word is 1");
}
