//! cudarc's own contexts, streams and slices, as a user of paceline has them.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

use crate::Setting;

#[test]
fn slices_are_copied_and_captured() {
    let Some(_) = Setting::new() else { return };
    let context = CudaContext::new(0).expect("a device");
    let stream = context.new_stream().expect("a stream");
    let numbers: Vec<f32> = (0..1000).map(|n| n as f32).collect();
    let one = stream.clone_htod(&numbers).expect("memory");
    let mut other = stream.alloc_zeros::<f32>(1000).expect("memory");
    assert_eq!(stream.clone_dtoh(&other).expect("a copy"), [0.0; 1000]);
    stream.memcpy_dtod(&one, &mut other).expect("a copy");
    stream.synchronize().expect("it ends");
    assert_eq!(stream.clone_dtoh(&other).expect("a copy"), numbers);
    // What is tracked are events from before the capture, which no part of it may wait for.
    // SAFETY: one stream uses the slices from here on.
    unsafe { context.disable_event_tracking() };
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).expect("it begins");
    stream.memset_zeros(&mut other).expect("it is captured");
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).expect("it ends").expect("it holds something");
    assert_eq!(stream.clone_dtoh(&other).expect("a copy"), numbers, "nothing was done yet");
    graph.launch().expect("a launch");
    assert_eq!(stream.clone_dtoh(&other).expect("a copy"), [0.0; 1000]);
}
