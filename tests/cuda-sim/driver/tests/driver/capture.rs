//! Captures: recorded, forbidden, replayed.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{
    self, CUgraph, CUgraphExec, CUresult, CUstream, CUstreamCaptureMode as Mode, CUstreamCaptureStatus as Status,
};

use crate::{
    Setting, allocate, alone, copy, fill, free, new_event, new_stream, ok, order, read, settle, stream_with, write,
};

const THREAD: Mode = Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

fn begin(stream: CUstream, mode: Mode) {
    // SAFETY: the handle is the driver's to check.
    ok(unsafe { sys::cuStreamBeginCapture_v2(stream, mode) });
}

fn end(stream: CUstream) -> Result<CUgraph, CUresult> {
    let mut graph = 1 as CUgraph;
    // SAFETY: the place is of this type.
    match unsafe { sys::cuStreamEndCapture(stream, &mut graph) } {
        CUresult::CUDA_SUCCESS => Ok(graph),
        code => {
            assert!(graph.is_null() || code == CUresult::CUDA_ERROR_INVALID_CONTEXT);
            Err(code)
        }
    }
}

fn status(stream: CUstream) -> Status {
    let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the place is of this type, and the driver writes one of its values.
    ok(unsafe { sys::cuStreamIsCapturing(stream, &mut status) });
    status
}

fn instantiated(graph: CUgraph) -> CUgraphExec {
    let mut executable = ptr::null_mut();
    // SAFETY: the place is of this type.
    unsafe {
        ok(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
        ok(sys::cuGraphDestroy(graph));
        assert_eq!(sys::cuGraphDestroy(graph), CUresult::CUDA_ERROR_INVALID_VALUE, "it is gone");
    }
    executable
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the test gives a number that it leaves alone while the graph runs.
    unsafe { *data.cast::<u32>() += 1 };
}

#[test]
fn two_streams_are_captured_and_replayed() {
    let Some(_) = Setting::new() else { return };
    let (one, other, address) = (new_stream(), new_stream(), allocate(48));
    let (flag, mut calls) = (allocate(4), 0u32);
    write(address, &[9; 48]);
    begin(one, THREAD);
    ok(fill(address, 1, 16, one));
    order(one, other);
    assert_eq!(status(other), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE, "it joined");
    ok(copy(address + 16, address, 16, other));
    // SAFETY: the number stays until the graph was run.
    unsafe {
        ok(sys::cuLaunchHostFunc(other, Some(count), (&raw mut calls).cast()));
        ok(sys::cuStreamWriteValue32_v2(other, flag, 5, 0));
        ok(sys::cuStreamWaitValue32_v2(other, flag, 5, 1));
    }
    order(other, one);
    ok(copy(address + 32, address + 16, 16, one));
    let mut id = [0; 2];
    for (stream, id) in [one, other].into_iter().zip(&mut id) {
        let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the places are of these types, or null.
        ok(unsafe {
            sys::cuStreamGetCaptureInfo_v2(stream, &mut status, id, ptr::null_mut(), ptr::null_mut(), ptr::null_mut())
        });
    }
    assert!(id[0] == id[1] && id[0] > 0, "{id:?}");
    let executable = instantiated(end(one).expect("it is joined"));
    assert_eq!(status(other), Status::CU_STREAM_CAPTURE_STATUS_NONE);
    assert_eq!((read(address, 48), calls), (vec![9; 48], 0), "nothing was done");
    for turn in 1..=3 {
        write(address, &[9; 48]);
        // SAFETY: the handles are the driver's to check.
        ok(unsafe { sys::cuGraphLaunch(executable, other) });
        settle(other);
        assert_eq!((read(address, 48), calls), (vec![1; 48], turn));
    }
    // SAFETY: as above.
    unsafe {
        ok(sys::cuGraphExecDestroy(executable));
        assert_eq!(sys::cuGraphLaunch(executable, other), CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    free(address);
    free(flag);
}

/// What may not be done, what comes of it, and whether the capture is lost.
#[test]
fn what_a_capture_forbids() {
    alone(
        "capture::what_a_capture_forbids",
        |simulated| simulated,
        || {
            let Some(_) = Setting::new() else { return };
            let (stream, plain, event, address) = (new_stream(), new_stream(), new_event(2), allocate(16));
            let mut pinned = ptr::null_mut();
            let mut other = 0;
            // SAFETY: the handles and addresses are the driver's to check.
            let calls: [(&str, &mut dyn FnMut() -> CUresult); 9] = unsafe {
                [
                    ("allocate", &mut || sys::cuMemAlloc_v2(&mut other, 16)),
                    ("free", &mut || sys::cuMemFree_v2(address)),
                    ("pin", &mut || sys::cuMemHostAlloc(&mut pinned, 16, 0)),
                    ("wait for it", &mut || sys::cuStreamSynchronize(stream)),
                    ("ask about it", &mut || sys::cuStreamQuery(stream)),
                    ("wait for another", &mut || sys::cuStreamSynchronize(plain)),
                    ("ask about an event", &mut || sys::cuEventQuery(event)),
                    ("wait for all", &mut || sys::cuCtxSynchronize()),
                    ("copy at once", &mut || sys::cuMemsetD8_v2(address, 0, 1)),
                ]
            };
            for (what, call) in calls {
                begin(stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
                ok(fill(address, 1, 16, stream));
                assert_eq!(call(), UNSUPPORTED, "{what}");
                assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED, "{what}");
                assert_eq!(fill(address, 1, 16, stream), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "{what}");
                assert_eq!(end(stream), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), "{what}");
                ok(fill(address, 1, 16, stream));
                settle(stream);
            }
            free(address);
        },
    );
}

#[test]
fn whom_a_capture_forbids_it() {
    alone(
        "capture::whom_a_capture_forbids_it",
        |simulated| simulated,
        || {
            let Some(_) = Setting::new() else { return };
            let stream = new_stream();
            let elsewhere = || {
                let allocated = std::thread::spawn(|| {
                    let Some(_) = Setting::new() else { unreachable!("there is one") };
                    let mut address = 0;
                    // SAFETY: the place is of this type.
                    unsafe { sys::cuMemAlloc_v2(&mut address, 16) }
                });
                allocated.join().expect("it ends")
            };
            begin(stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
            assert_eq!(elsewhere(), UNSUPPORTED);
            assert!(end(stream).is_err());
            begin(stream, THREAD);
            ok(elsewhere());
            free_all(end(stream));
            begin(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
            allocate(16);
            free_all(end(stream));
            begin(stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
            let mut mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
            // SAFETY: the place is of this type.
            unsafe {
                ok(sys::cuThreadExchangeStreamCaptureMode(&mut mode));
                allocate(16);
                ok(sys::cuThreadExchangeStreamCaptureMode(&mut mode));
            }
            assert_eq!(mode, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
            free_all(end(stream));
        },
    );
}

fn free_all(graph: Result<CUgraph, CUresult>) {
    // SAFETY: the handle is the driver's to check.
    ok(unsafe { sys::cuGraphDestroy(graph.expect("it is valid")) });
}

#[test]
fn captures_are_ended_where_they_began_and_joined() {
    let Some(_) = Setting::new() else { return };
    let (one, other, address) = (new_stream(), new_stream(), allocate(16));
    begin(one, THREAD);
    order(one, other);
    ok(fill(address, 1, 16, other));
    assert_eq!(end(one), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
    begin(one, THREAD);
    order(one, other);
    free_all(end(one));
    begin(one, THREAD);
    order(one, other);
    assert_eq!(end(other), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    assert_eq!(end(one), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    assert_eq!(end(one), Err(CUresult::CUDA_ERROR_ILLEGAL_STATE), "nothing is captured");
    begin(one, THREAD);
    let handle = one as usize;
    let elsewhere = std::thread::spawn(move || {
        let Some(_) = Setting::new() else { unreachable!("there is one") };
        end(handle as CUstream).expect_err("it began elsewhere")
    });
    assert_eq!(elsewhere.join().expect("it ends"), CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    free_all(end(one));
    begin(one, THREAD);
    begin(other, THREAD);
    let event = new_event(2);
    // SAFETY: the handles are the driver's to check.
    unsafe {
        ok(sys::cuEventRecord(event, one));
        assert_eq!(sys::cuStreamWaitEvent(other, event, 0), CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
        assert!(end(one).is_err() && end(other).is_err());
        assert_eq!(sys::cuStreamBeginCapture_v2(ptr::null_mut(), THREAD), UNSUPPORTED, "the legacy stream");
    }
    free(address);
}

#[test]
fn events_dont_cross_a_captures_border() {
    let Some(_) = Setting::new() else { return };
    let (one, other, before, within) = (new_stream(), new_stream(), new_event(2), new_event(2));
    // SAFETY: the handles are the driver's to check.
    unsafe {
        ok(sys::cuEventRecord(before, other));
        begin(one, THREAD);
        assert_eq!(sys::cuStreamWaitEvent(one, before, 0), CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        assert!(end(one).is_err());
        begin(one, THREAD);
        ok(sys::cuEventRecord(within, one));
        free_all(end(one));
        assert_eq!(sys::cuStreamWaitEvent(other, within, 0), CUresult::CUDA_ERROR_CAPTURED_EVENT, "its capture ended");
        assert_eq!(sys::cuEventSynchronize(within), CUresult::CUDA_ERROR_CAPTURED_EVENT);
        ok(sys::cuEventRecord(within, other));
        ok(sys::cuEventSynchronize(within));
    }
}

#[test]
fn the_legacy_stream_is_of_no_use_meanwhile() {
    alone(
        "capture::the_legacy_stream_is_of_no_use_meanwhile",
        |simulated| simulated,
        || {
            let Some(_) = Setting::new() else { return };
            let (blocking, plain, address) = (stream_with(0), new_stream(), allocate(16));
            let legacy = ptr::null_mut();
            begin(plain, THREAD);
            ok(fill(address, 1, 16, legacy));
            free_all(end(plain));
            begin(blocking, THREAD);
            let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
            let implicit = CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            // SAFETY: the place is of this type.
            assert_eq!(unsafe { sys::cuStreamIsCapturing(legacy, &mut status) }, implicit);
            assert_eq!(
                crate::capture::status(blocking),
                Status::CU_STREAM_CAPTURE_STATUS_ACTIVE,
                "asking does no harm"
            );
            assert_eq!(fill(address, 1, 16, legacy), implicit);
            assert_eq!(end(blocking), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
            free(address);
        },
    );
}

#[test]
fn a_graph_finds_out_that_its_memory_was_freed() {
    alone(
        "capture::a_graph_finds_out_that_its_memory_was_freed",
        |simulated| simulated,
        || {
            let Some(_) = Setting::new() else { return };
            let (stream, address) = (new_stream(), allocate(16));
            begin(stream, THREAD);
            ok(fill(address, 1, 16, stream));
            let executable = instantiated(end(stream).expect("it is valid"));
            free(address);
            // SAFETY: the handles are the driver's to check.
            unsafe {
                ok(sys::cuGraphLaunch(executable, stream));
                assert_eq!(sys::cuStreamSynchronize(stream), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            }
        },
    );
}
