//! What goes wrong is told, by name, and no stream is left waiting.

use std::time::{Duration, Instant};

use paceline_comm::cuda::{AttachOptions, DeviceVec, Priority};
use paceline_comm::{CallOptions, Communicator, ErrorKind, ReduceOp};
use paceline_cuda_sim::Machine;

use super::processes::{is_rank, job, said};
use super::world::{PATIENCE, Rank, Way, device_of, is_there, ranks};

const WAYS: [Way; 2] = [Way::Host, Way::Direct];

#[test]
fn a_rank_that_does_not_come_is_named() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        ranks(3, way, |rank| {
            let mut vector = DeviceVec::of(&rank.device, &[1.0f32; 1000]).unwrap();
            rank.devices.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap().wait().unwrap();
            if rank.comm.rank() == 2 {
                // Long enough for the others to give up, and not so long that they may think that it has gone.
                std::thread::sleep(Duration::from_millis(2500));
                return;
            }
            let hasty = CallOptions { timeout: Some(Duration::from_millis(800)), ..CallOptions::default() };
            let hasty = rank.devices.with(hasty);
            let work = hasty.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap();
            let error = work.wait_timeout(PATIENCE).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{way:?}: {error}");
            assert_eq!(error.peers(), [2], "{way:?}: {error}");
            // The stream goes on, and nothing is begun any more.
            rank.stream.synchronize(Instant::now() + PATIENCE).unwrap();
            let again = hasty.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap_err();
            assert!(again.to_string().contains("has failed"), "{way:?}: {again}");
        });
    }
}

#[test]
fn a_rank_that_leaves_is_named() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        let comms = Communicator::in_process(2).unwrap();
        std::thread::scope(|scope| {
            for comm in comms {
                scope.spawn(move || {
                    let rank = Rank::new(&comm, way).unwrap();
                    let mut vector = DeviceVec::of(&rank.device, &[1.0f32; 1000]).unwrap();
                    rank.devices
                        .on(&rank.stream)
                        .all_reduce_in_place(&mut vector, ReduceOp::Sum)
                        .unwrap()
                        .wait()
                        .unwrap();
                    if comm.rank() == 1 {
                        return;
                    }
                    let began = Instant::now();
                    let work = rank.devices.on(&rank.stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap();
                    let error = work.wait_timeout(PATIENCE).unwrap_err();
                    assert_eq!((error.kind(), error.peers()), (ErrorKind::PeerLeft, &[1][..]), "{way:?}: {error}");
                    assert!(began.elapsed() < Duration::from_secs(15), "{way:?}: {:?}", began.elapsed());
                });
            }
        });
    }
}

/// A long call through the host is several short ones, of which a later one fails.
#[test]
fn a_call_that_fails_after_its_first_segment_has_failed() {
    if !is_there() {
        return;
    }
    ranks(2, Way::Host, |rank| {
        // What a segment has, of those that `Rank` attaches with.
        let segment = (48 << 10) / size_of::<f32>();
        let on = rank.devices.on(&rank.stream);
        let mut vector = DeviceVec::of(&rank.device, &vec![1.0f32; 3 * segment]).unwrap();
        let work = if rank.comm.rank() == 0 {
            on.all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap()
        } else {
            on.all_reduce_in_place(&mut vector.slice_mut(0..segment), ReduceOp::Sum).unwrap().wait().unwrap();
            on.broadcast(&mut vector.slice_mut(0..segment), 0).unwrap()
        };
        let error = work.wait_timeout(PATIENCE).expect_err("the second segment meets another call");
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        rank.stream.synchronize(Instant::now() + PATIENCE).unwrap();
    });
}

#[test]
fn ranks_that_call_different_things_are_told() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        let errors = ranks(2, way, |rank| {
            let mut vector = DeviceVec::of(&rank.device, &[1.0f32; 1000]).unwrap();
            let mut part = vector.slice_mut(0..1000 - rank.comm.rank());
            let work = rank.devices.on(&rank.stream).all_reduce_in_place(&mut part, ReduceOp::Sum).unwrap();
            work.wait().unwrap_err()
        });
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{way:?}: {error}");
        }
    }
}

#[test]
fn arguments_are_checked_before_anything_is_begun() {
    if !is_there() {
        return;
    }
    for way in WAYS {
        ranks(2, way, |rank| {
            let input = DeviceVec::of(&rank.device, &[1u8; 100]).unwrap();
            let mut output = DeviceVec::<u8>::zeroed(&rank.device, 99).unwrap();
            let on = rank.devices.on(&rank.stream);
            for (error, says) in [
                (on.all_reduce(&input, &mut output, ReduceOp::Sum).unwrap_err(), "has 99 bytes but 100 are needed"),
                (on.broadcast(&mut output, 2).unwrap_err(), "not below the communicator's size"),
                (on.all_to_all(&input, &mut output).unwrap_err(), "has 99 bytes but 100 are needed"),
            ] {
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                assert!(error.to_string().contains(says), "{way:?}: {error}");
            }
            on.barrier().unwrap().wait().unwrap();
        });
    }
}

#[test]
fn a_rank_that_dies_is_named_and_no_stream_waits_for_it() {
    if is_rank() {
        return;
    }
    let Some(machine) = Machine::here() else { return };
    for peers in ["1", "0"] {
        let outputs = job(&machine, 3, "faults::a_rank_of_which_one_dies", &[("PACELINE_CUDA_PEERS", peers)]);
        for (rank, output) in outputs.iter().enumerate() {
            assert_eq!(output.status.success(), rank != 1, "rank {rank}, peers {peers}: {}", said(output));
        }
    }
}

#[test]
fn a_rank_of_which_one_dies() {
    if !is_rank() {
        return;
    }
    let comm = Communicator::from_env().unwrap();
    let device = device_of(comm.rank());
    let stream = device.stream(Priority::Normal).unwrap();
    let devices = comm.attach(Some(&device)).unwrap();
    let mut vector = DeviceVec::of(&device, &[1.0f32; 1000]).unwrap();
    devices.on(&stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap().wait().unwrap();
    if comm.rank() == 1 {
        // The others must have heard that the first call has ended.
        std::thread::sleep(Duration::from_millis(300));
        std::process::abort();
    }
    let began = Instant::now();
    let work = devices.on(&stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap();
    let error = work.wait().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::PeerDied | ErrorKind::PeerLeft), "{error}");
    assert_eq!(error.peers(), [1], "{error}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    stream.synchronize(Instant::now() + PATIENCE).unwrap();
    assert!(devices.check().is_err());
}

#[test]
fn a_rank_that_dies_in_a_message_is_named() {
    if is_rank() {
        return;
    }
    let Some(machine) = Machine::here() else { return };
    for (peers, sends) in [("1", "1"), ("1", "0"), ("0", "1")] {
        let variables = [("PACELINE_CUDA_PEERS", peers), ("PACELINE_TEST_SENDS", sends)];
        let outputs = job(&machine, 3, "faults::a_rank_of_which_one_dies_in_a_message", &variables);
        for (rank, output) in outputs.iter().enumerate() {
            let said = said(output);
            assert_eq!(output.status.success(), rank != 1, "rank {rank}, peers {peers}, sends {sends}: {said}");
        }
    }
}

/// Rank 1 dies while a long message goes to it or from it; rank 2 has a message to rank 0 that waits behind.
#[test]
fn a_rank_of_which_one_dies_in_a_message() {
    if !is_rank() {
        return;
    }
    let comm = Communicator::from_env().unwrap();
    let device = device_of(comm.rank());
    let stream = device.stream(Priority::Normal).unwrap();
    let devices = comm.attach(Some(&device)).unwrap();
    let dead_sends = std::env::var("PACELINE_TEST_SENDS").is_ok_and(|value| value == "1");
    let mut vector = DeviceVec::<u8>::zeroed(&device, 32 << 20).unwrap();
    let on = devices.on(&stream);
    on.barrier().unwrap().wait().unwrap();
    let began = Instant::now();
    let mut once = || match (comm.rank(), dead_sends) {
        (0, true) => on.recv(&mut vector, 1),
        (1, true) => on.send(&vector, 0),
        (0, false) => on.send(&vector, 1),
        (1, false) => on.recv(&mut vector, 0),
        _ => on.send(&vector, 0),
    };
    if comm.rank() == 1 {
        for _ in 0..1000 {
            once().unwrap();
            if began.elapsed() > Duration::from_millis(60) {
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // Devices may be so quick that some messages get through.
    let error = (0..10_000).find_map(|_| once().and_then(|work| work.wait()).err());
    let error = error.expect("rank 1 is gone");
    assert!(matches!(error.kind(), ErrorKind::PeerDied | ErrorKind::PeerLeft), "{error}");
    assert_eq!(error.peers(), [1], "{error}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    stream.synchronize(Instant::now() + PATIENCE).unwrap();
    assert!(devices.check().is_err());
}

#[test]
fn devices_that_are_full_are_told() {
    if is_rank() {
        return;
    }
    let small = Machine::simulated("so small", |machine| machine.devices(1).memory(8 << 20));
    let Some(machine) = small else { return };
    for output in job(&machine, 2, "faults::a_rank_with_little_memory", &[]) {
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn a_rank_with_little_memory() {
    if !is_rank() {
        return;
    }
    let comm = Communicator::from_env().unwrap();
    let device = device_of(0);
    let error = DeviceVec::<u8>::zeroed(&device, 100 << 20).unwrap_err();
    assert!(error.to_string().contains("asked for"), "{error}");
    // The board of 16 MiB has no room, so calls pass by the host.
    let devices = comm.attach_with(Some(&device), &AttachOptions::default()).unwrap();
    assert!(!devices.is_direct());
    let stream = device.stream(Priority::Normal).unwrap();
    let mut vector = DeviceVec::of(&device, &[1i32; 1000]).unwrap();
    devices.on(&stream).all_reduce_in_place(&mut vector, ReduceOp::Sum).unwrap().wait().unwrap();
    assert_eq!(vector.to_vec().unwrap(), [2; 1000]);
}
