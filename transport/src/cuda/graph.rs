//! Graphs: what a stream was given during a capture, to be run any number of times.

use cudarc::driver::sys as ffi;

use super::{CudaError, Device, Stream, bounded};

/// What was captured, ready to run. It may be used from any thread; one run of it begins when the last has ended.
///
/// It holds nothing of what it uses: memory, modules, events and host functions must be there until its last run has ended.
pub struct Graph {
    device: Device,
    graph: ffi::CUgraph,
    runnable: ffi::CUgraphExec,
}

// SAFETY: the graph isn't changed once it is made, and the driver locks what a launch of it needs.
unsafe impl Send for Graph {}
// SAFETY: launches of one graph from several threads would need the caller to keep them apart; `launch` takes `&mut self`, and
// nothing else is done with a shared one.
unsafe impl Sync for Graph {}

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: what other threads call is their business.
const THREAD_LOCAL: u32 = 1;

impl Stream {
    /// From now on what the stream is given is collected, and not done. Streams that wait for one of its events join it.
    ///
    /// # Errors
    /// If it is being captured already, if it is the default stream, or if the context is lost.
    pub fn begin_capture(&self) -> Result<(), CudaError> {
        let _current = self.device().make_current()?;
        // SAFETY: the stream is held.
        let code = unsafe { (self.functions().cuStreamBeginCapture_v2)(self.raw(), THREAD_LOCAL) };
        self.check("cuStreamBeginCapture", code)
    }

    /// Ends what [`Stream::begin_capture`] of the same thread began, and makes what was collected ready to run.
    ///
    /// # Errors
    /// If nothing was begun, if a stream that joined hasn't been waited for, if a call meanwhile wasn't allowed in a
    /// capture, or if the context is lost. The capture has ended then too.
    pub fn end_capture(&self) -> Result<Graph, CudaError> {
        let _current = self.device().make_current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the driver writes one pointer.
        let code = unsafe { (self.functions().cuStreamEndCapture)(self.raw(), &raw mut raw) };
        self.check("cuStreamEndCapture", code)?;
        let mut graph = Graph { device: self.device().clone(), graph: raw, runnable: std::ptr::null_mut() };
        // SAFETY: the driver writes one pointer; both are destroyed in `drop`.
        let code = unsafe { (self.functions().cuGraphInstantiateWithFlags)(&raw mut graph.runnable, raw, 0) };
        self.check("cuGraphInstantiate", code)?;
        Ok(graph)
    }
}

impl Graph {
    /// Has the stream run it once.
    ///
    /// # Errors
    /// If the stream is another device's, or if the context is lost.
    pub fn launch(&mut self, stream: &Stream) -> Result<(), CudaError> {
        let _current = self.device.make_current()?;
        // SAFETY: graph and stream are held; what the graph uses was checked by whoever gave it to the captured stream.
        let code = unsafe { (self.device.functions().cuGraphLaunch)(self.runnable, stream.raw()) };
        self.device.check("cuGraphLaunch", code)
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "graph {:p} on CUDA device {}", self.graph, self.device.ordinal())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.is_foreign() {
            return;
        }
        let (device, functions) = (&self.device, self.device.functions());
        let destroyed = device.outside_capture().and_then(|_outside| {
            if !self.runnable.is_null() {
                // SAFETY: it is held by nobody else; while it still runs the driver destroys it later.
                device.check("cuGraphExecDestroy", unsafe { (functions.cuGraphExecDestroy)(self.runnable) })?;
            }
            if !self.graph.is_null() {
                // SAFETY: as above.
                device.check("cuGraphDestroy", unsafe { (functions.cuGraphDestroy)(self.graph) })?;
            }
            Ok(())
        });
        bounded::report("a graph", device.ordinal(), destroyed);
    }
}
