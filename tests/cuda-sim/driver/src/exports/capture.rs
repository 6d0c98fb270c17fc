//! Captures and graphs.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::sync::Mutex;

use super::{api, put, put_if_asked};
use crate::capture::{self, Mode, State};
use crate::context::{current, stream};
use crate::driver::driver;
use crate::error::{Code, Status, refuse};
use crate::graph::{Executable, Graph};
use crate::handle::lock;
use crate::operation::Operation;
use crate::stream::Kind;

/// Whether a stream is captured, and by which capture.
fn state(handle: usize) -> Status<(State, u64)> {
    let (_, stream) = stream(handle)?;
    if let Some(capture) = &*lock(&stream.capture) {
        return Ok((capture.state(), capture.id));
    }
    if stream.kind == Kind::Legacy && !capture::captured(&stream.context).is_empty() {
        return Err(Code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    Ok((State::None, 0))
}

fn instantiate(graph: usize) -> Status<usize> {
    let (driver, _) = current()?;
    let graph = driver.graphs.get(graph).map_err(|_| Code::CUDA_ERROR_INVALID_VALUE)?;
    let nodes = Mutex::new(graph.nodes.clone());
    Ok(driver.executables.insert(|handle| Executable { handle, nodes }).handle)
}

api! {
    fn cuStreamBeginCapture_v2(handle: usize, mode: c_uint) {
        let (driver, stream) = stream(handle)?;
        capture::begin(driver, &stream, Mode::of(mode)?)
    }

    fn cuStreamEndCapture(handle: usize, graph: *mut usize) {
        let (driver, stream) = stream(handle)?;
        match capture::end(driver, &stream) {
            Ok(nodes) => put(graph, driver.graphs.insert(|handle| Graph::new(handle, nodes)).handle),
            Err(code) => {
                put_if_asked(graph, 0);
                Err(code)
            }
        }
    }

    fn cuStreamIsCapturing(handle: usize, status: *mut c_uint) {
        put(status, state(handle)?.0 as c_uint)
    }

    /// Graphs that are still captured can't be changed, so there is none to give.
    fn cuStreamGetCaptureInfo_v2(
        handle: usize,
        status: *mut c_uint,
        id: *mut c_ulonglong,
        graph: *mut usize,
        nodes: *mut *const c_void,
        count: *mut usize,
    ) {
        let (state, number) = state(handle)?;
        put(status, state as c_uint)?;
        if state == State::Active {
            put_if_asked(id, number);
            put_if_asked(graph, 0);
            put_if_asked(nodes, std::ptr::null());
            put_if_asked(count, 0);
        }
        Ok(())
    }

    fn cuStreamGetCaptureInfo_v3(
        handle: usize,
        status: *mut c_uint,
        id: *mut c_ulonglong,
        graph: *mut usize,
        nodes: *mut *const c_void,
        edges: *mut *const c_void,
        count: *mut usize,
    ) {
        put_if_asked(edges, std::ptr::null());
        match cuStreamGetCaptureInfo_v2(handle, status, id, graph, nodes, count) {
            Code::CUDA_SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) {
        driver()?;
        if mode.is_null() {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let before = capture::exchange_mode(Mode::of(*mode)?);
        put(mode, before as c_uint)
    }

    fn cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, _flags: c_ulonglong) {
        put(executable, instantiate(graph)?)
    }

    fn cuGraphUpload(executable: usize, handle: usize) {
        let (driver, _) = stream(handle)?;
        driver.executables.get(executable).map(drop).map_err(|_| Code::CUDA_ERROR_INVALID_VALUE)
    }

    fn cuGraphLaunch(executable: usize, handle: usize) {
        let (driver, stream) = stream(handle)?;
        let executable = driver.executables.get(executable).map_err(|_| Code::CUDA_ERROR_INVALID_VALUE)?;
        stream.submit(driver, Operation::Graph(executable.nodes())).map(drop)
    }

    /// A graph of as many nodes takes the place of the one that was instantiated.
    fn cuGraphExecUpdate_v2(executable: usize, graph: usize, _result: *mut c_void) {
        let (driver, _) = current()?;
        let executable = driver.executables.get(executable).map_err(|_| Code::CUDA_ERROR_INVALID_VALUE)?;
        let graph = driver.graphs.get(graph).map_err(|_| Code::CUDA_ERROR_INVALID_VALUE)?;
        let mut nodes = lock(&executable.nodes);
        if nodes.len() != graph.nodes.len() {
            return refuse(Code::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, format_args!("another number of nodes"));
        }
        *nodes = graph.nodes.clone();
        Ok(())
    }

    fn cuGraphGetNodes(graph: usize, nodes: *mut *mut c_void, count: *mut usize) {
        let (driver, _) = current()?;
        let graph = driver.graphs.get(graph).map_err(|_| Code::CUDA_ERROR_INVALID_VALUE)?;
        if !nodes.is_null() {
            return refuse(Code::CUDA_ERROR_NOT_SUPPORTED, format_args!("nodes are only counted"));
        }
        put(count, graph.nodes.len())
    }

    fn cuGraphExecDestroy(executable: usize) {
        let (driver, _) = current()?;
        driver.executables.remove(executable).map(drop).map_err(|_| Code::CUDA_ERROR_INVALID_VALUE)
    }

    fn cuGraphDestroy(graph: usize) {
        let (driver, _) = current()?;
        driver.graphs.remove(graph).map(drop).map_err(|_| Code::CUDA_ERROR_INVALID_VALUE)
    }
}
