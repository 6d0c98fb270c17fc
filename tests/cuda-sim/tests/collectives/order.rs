//! Calls follow each other, whatever their streams and memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use paceline_comm::cuda::{DeviceVec, Priority};
use paceline_comm::{CallOptions, ErrorKind, ReduceOp};

use super::world::{PATIENCE, Way, is_there, ranks};

const WAYS: [Way; 2] = [Way::Host, Way::Direct];

#[test]
fn a_call_returns_before_its_stream_gets_to_it() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        ranks(2, way, |rank| {
            let mut vector = DeviceVec::of(&rank.device, &[1.5f32; 100]).unwrap();
            // Compiles what is to be compiled.
            rank.devices.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap().wait().unwrap();
            static OPEN: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
            OPEN[rank.comm.rank()].store(false, Ordering::SeqCst);
            let me = rank.comm.rank();
            rank.stream
                .host_call(Box::new(move || {
                    let deadline = Instant::now() + PATIENCE;
                    while !OPEN[me].load(Ordering::SeqCst) && Instant::now() < deadline {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }))
                .unwrap();
            let work = rank.devices.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap();
            assert!(!work.test().unwrap(), "{way:?}: it can't be over before what was before it in the stream");
            let late = work.wait_timeout(Duration::from_millis(20)).unwrap_err();
            assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
            OPEN[me].store(true, Ordering::SeqCst);
            work.wait().unwrap();
            assert_eq!(vector.to_vec().unwrap(), [6.0; 100]);
        });
    }
}

#[test]
fn calls_beside_a_stream_begin_after_it_and_are_joined() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        ranks(2, way, |rank| {
            let (one, two) = (
                DeviceVec::of(&rank.device, &[1i32; 3000]).unwrap(),
                DeviceVec::of(&rank.device, &[2i32; 3000]).unwrap(),
            );
            let mut vector = DeviceVec::<i32>::zeroed(&rank.device, 3000).unwrap();
            let copy = |from: &DeviceVec<i32>, to: &DeviceVec<i32>| {
                // SAFETY: both live until the stream has done it.
                unsafe { rank.stream.copy(to.address(), from.address(), 12_000) }.unwrap();
            };
            let joined = DeviceVec::<i32>::zeroed(&rank.device, 3000).unwrap();
            for turn in 0..20 {
                copy(if turn % 2 == 0 { &one } else { &two }, &vector);
                let work = rank.devices.beside(&rank.stream).unwrap();
                let work = work.all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap();
                work.join(&rank.stream).unwrap();
                copy(&vector, &joined);
                rank.stream.synchronize(Instant::now() + PATIENCE).unwrap();
                assert_eq!(joined.to_vec().unwrap(), [2 + 2 * (turn % 2); 3000], "{way:?}, turn {turn}");
            }
        });
    }
}

#[test]
fn slices_of_cudarc_are_taken_on_its_streams() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        ranks(2, way, |rank| {
            let context = cudarc::driver::CudaContext::new(rank.device.ordinal()).unwrap();
            let theirs = context.new_stream().unwrap();
            let mut vector = theirs.clone_htod(&vec![1.5f32; 4000]).unwrap();
            let stream = paceline_comm::cuda::Stream::from_cudarc(&theirs).unwrap();
            let work = rank.devices.on(&stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap();
            work.wait().unwrap();
            assert_eq!(theirs.clone_dtoh(&vector).unwrap(), vec![3.0; 4000], "{way:?}");
            let error = rank.devices.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap_err();
            assert!(error.to_string().contains("Stream::from_cudarc"), "{error}");
        });
    }
}

#[test]
fn streams_get_calls_in_one_order() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        ranks(3, way, |rank| {
            let other = rank.device.stream(Priority::High).unwrap();
            let mut vector = DeviceVec::of(&rank.device, &[1i32; 5000]).unwrap();
            for _ in 0..5 {
                rank.devices.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap();
                rank.devices.on(&other).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap();
            }
            let last = rank.devices.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Max).unwrap();
            last.wait().unwrap();
            assert_eq!(vector.to_vec().unwrap(), [59_049; 5000], "{way:?}");
        });
    }
}

#[test]
fn calls_over_memory_of_the_host_come_after_those_before_them() {
    if !is_there() {
        return;
    }
    ranks(2, Way::Host, |rank| {
        let mut vector = DeviceVec::of(&rank.device, &[1i64; 1000]).unwrap();
        for turn in 0..50i64 {
            rank.devices.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Max).unwrap();
            let mut number = [turn];
            rank.comm.all_reduce_in_place(&mut number, ReduceOp::Sum).unwrap();
            assert_eq!(number, [2 * turn]);
            let mut group = rank.comm.group();
            group.all_reduce_in_place(&mut number, ReduceOp::Sum);
            group.run().unwrap();
            assert_eq!(number, [4 * turn]);
        }
        rank.devices.check().unwrap();
    });
}

#[test]
fn ranks_without_a_device_take_part() {
    if !is_there() {
        return;
    }
    let comms = paceline_comm::Communicator::in_process(3).unwrap();
    std::thread::scope(|scope| {
        for comm in &comms {
            scope.spawn(move || {
                let comm = comm.with(CallOptions { timeout: Some(PATIENCE), ..CallOptions::default() });
                if comm.rank() == 1 {
                    let devices = comm.attach(None).unwrap();
                    assert!(!devices.is_direct());
                    let mut total = [0.0f64; 1000];
                    comm.all_reduce(&[1.0; 1000], &mut total, ReduceOp::Sum).unwrap();
                    assert_eq!(total, [3.0; 1000]);
                    let device = super::world::device_of(0);
                    let stream = device.stream(Priority::Normal).unwrap();
                    let error = devices.on(&stream).barrier().unwrap_err();
                    assert!(error.to_string().contains("attached without a device"), "{error}");
                    return;
                }
                let device = super::world::device_of(comm.rank());
                let stream = device.stream(Priority::Normal).unwrap();
                let devices = comm.attach(Some(&device)).unwrap();
                let input = DeviceVec::of(&device, &[1.0f64; 1000]).unwrap();
                let mut total = DeviceVec::zeroed(&device, 1000).unwrap();
                devices.on(&stream).all_reduce(&input, &mut total, ReduceOp::Sum).unwrap().wait().unwrap();
                assert_eq!(total.to_vec().unwrap(), [3.0; 1000]);
            });
        }
    });
}
