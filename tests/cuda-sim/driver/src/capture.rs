//! Captures: what streams are given becomes a graph instead of being done.
//!
//! A capture begins in one stream; others join it by waiting for events that were recorded in it, and must be joined back
//! before it ends. What CUDA forbids meanwhile fails, and leaves the capture invalid.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use crate::context::Context;
use crate::driver::Driver;
use crate::error::{Code, Status};
use crate::graph::Node;
use crate::handle::lock;
use crate::operation::Operation;
use crate::stream::{Kind, Stream};

/// What calls a capture forbids, and to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// To all threads, unless they are relaxed.
    Global,
    /// To the thread that began it.
    ThreadLocal,
    /// To none.
    Relaxed,
}

impl Mode {
    pub fn of(number: u32) -> Status<Mode> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(Code::CUDA_ERROR_INVALID_VALUE),
        }
    }
}

thread_local! {
    static THREAD: std::cell::Cell<Mode> = const { std::cell::Cell::new(Mode::Global) };
}

/// Sets what captures may forbid to this thread. Returns what it was.
pub fn exchange_mode(mode: Mode) -> Mode {
    THREAD.replace(mode)
}

/// One capture.
pub struct Capture {
    pub id: u64,
    mode: Mode,
    thread: ThreadId,
    origin: usize,
    state: Mutex<Recording>,
}

#[derive(Default)]
struct Recording {
    nodes: Vec<Node>,
    /// For each stream that takes part, the nodes that its next one comes after.
    tails: BTreeMap<usize, Vec<usize>>,
    streams: Vec<Arc<Stream>>,
    is_invalid: bool,
}

/// Whether a stream is captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    None = 0,
    Active = 1,
    Invalidated = 2,
}

impl Capture {
    pub fn invalidate(&self) {
        lock(&self.state).is_invalid = true;
    }

    pub fn state(&self) -> State {
        if lock(&self.state).is_invalid { State::Invalidated } else { State::Active }
    }

    fn valid(&self) -> Status<std::sync::MutexGuard<'_, Recording>> {
        let recording = lock(&self.state);
        if recording.is_invalid { Err(Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) } else { Ok(recording) }
    }

    fn push(&self, stream: &Stream, operation: &Operation) -> Status {
        let mut recording = self.valid()?;
        let number = recording.nodes.len();
        let after = recording.tails.insert(stream.handle, vec![number]).unwrap_or_default();
        recording.nodes.push(Node { operation: operation.clone(), after });
        Ok(())
    }

    /// Makes a stream's next node come after these; a stream that was not captured now is.
    pub fn join(self: &Arc<Capture>, driver: &Driver, stream: &Arc<Stream>, nodes: &[usize]) -> Status {
        let mut own = lock(&stream.capture);
        match &*own {
            None if stream.kind == Kind::Legacy => {
                self.invalidate();
                return Err(Code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            }
            None => {
                let mut recording = self.valid()?;
                if lock(&driver.captures).iter().all(|active| active.id != self.id) {
                    // The capture has ended: its nodes are part of a graph, and of no stream's past.
                    return Err(Code::CUDA_ERROR_CAPTURED_EVENT);
                }
                recording.streams.push(stream.clone());
                recording.tails.insert(stream.handle, nodes.to_vec());
                *own = Some(self.clone());
            }
            Some(other) if other.id != self.id => {
                self.invalidate();
                other.invalidate();
                return Err(Code::CUDA_ERROR_STREAM_CAPTURE_MERGE);
            }
            Some(_) => {
                let mut recording = self.valid()?;
                let tail = recording.tails.entry(stream.handle).or_default();
                tail.extend_from_slice(nodes);
                tail.sort_unstable();
                tail.dedup();
            }
        }
        Ok(())
    }
}

/// Begins a capture in a stream.
pub fn begin(driver: &Driver, stream: &Arc<Stream>, mode: Mode) -> Status {
    if stream.kind == Kind::Legacy {
        return Err(Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut own = lock(&stream.capture);
    if own.is_some() {
        return Err(Code::CUDA_ERROR_ILLEGAL_STATE);
    }
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let recording = Recording {
        streams: vec![stream.clone()],
        tails: BTreeMap::from([(stream.handle, Vec::new())]),
        ..Recording::default()
    };
    let capture = Arc::new(Capture {
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        mode,
        thread: thread::current().id(),
        origin: stream.handle,
        state: Mutex::new(recording),
    });
    lock(&driver.captures).push(capture.clone());
    *own = Some(capture);
    Ok(())
}

/// Ends the capture that began in this stream. Returns what was captured.
pub fn end(driver: &Driver, stream: &Stream) -> Status<Vec<Node>> {
    let Some(capture) = lock(&stream.capture).clone() else { return Err(Code::CUDA_ERROR_ILLEGAL_STATE) };
    if capture.origin != stream.handle {
        capture.invalidate();
        return Err(Code::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != Mode::Relaxed && capture.thread != thread::current().id() {
        return Err(Code::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    lock(&driver.captures).retain(|active| active.id != capture.id);
    let recording = std::mem::take(&mut *lock(&capture.state));
    for stream in &recording.streams {
        *lock(&stream.capture) = None;
    }
    if recording.is_invalid {
        return Err(Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    if !is_joined(&recording, capture.origin) {
        return Err(Code::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    Ok(recording.nodes)
}

/// Whether all that other streams did comes before the origin's end.
fn is_joined(recording: &Recording, origin: usize) -> bool {
    let mut reached = vec![false; recording.nodes.len()];
    let mut open = recording.tails[&origin].clone();
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut reached[node], true) {
            open.extend_from_slice(&recording.nodes[node].after);
        }
    }
    recording.tails.values().flatten().all(|node| reached[*node])
}

/// Adds an operation to the stream's capture. Returns false if it isn't captured, and may be enqueued.
pub fn add(stream: &Arc<Stream>, operation: &Operation) -> Status<bool> {
    match lock(&stream.capture).clone() {
        Some(_) if matches!(operation, Operation::Free(_)) => {
            Err(spoil(stream, Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED))
        }
        Some(capture) => capture.push(stream, operation).map(|()| true),
        None => refuse_implicit(stream).map(|()| false),
    }
}

/// The stream's capture, and the nodes that its next one comes after.
pub fn tail(stream: &Stream) -> Status<Option<(Arc<Capture>, Vec<usize>)>> {
    let Some(capture) = lock(&stream.capture).clone() else {
        refuse_implicit(stream)?;
        return Ok(None);
    };
    let tail = capture.valid()?.tails.get(&stream.handle).cloned().unwrap_or_default();
    Ok(Some((capture, tail)))
}

/// The legacy stream would wait for a stream that is captured.
fn refuse_implicit(stream: &Stream) -> Status {
    let captured = if stream.kind == Kind::Legacy { captured(&stream.context) } else { Vec::new() };
    for capture in &captured {
        capture.invalidate();
    }
    if captured.is_empty() { Ok(()) } else { Err(Code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) }
}

/// The captures of a context's blocking streams.
pub fn captured(context: &Context) -> Vec<Arc<Capture>> {
    let streams = context.streams();
    let blocking = streams.iter().filter(|stream| stream.kind == Kind::Blocking);
    blocking.filter_map(|stream| lock(&stream.capture).clone()).collect()
}

/// Invalidates the stream's capture. Returns `code`.
pub fn spoil(stream: &Stream, code: Code) -> Code {
    if let Some(capture) = &*lock(&stream.capture) {
        capture.invalidate();
    }
    code
}

/// Refuses to wait for, or ask about, a stream that is captured.
pub fn refuse_captured(stream: &Stream) -> Status {
    if lock(&stream.capture).is_some() {
        return Err(spoil(stream, Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    }
    refuse_implicit(stream)
}

/// Refuses a call that is not safe while streams are captured, if a capture forbids it to this thread.
pub fn refuse_unsafe(driver: &Driver) -> Status {
    let me = thread::current().id();
    let mode = THREAD.get();
    let forbids = |capture: &&Arc<Capture>| match (mode, capture.mode) {
        (Mode::Relaxed, _) | (_, Mode::Relaxed) => false,
        (Mode::Global, Mode::Global) => true,
        _ => capture.thread == me,
    };
    let captures = lock(&driver.captures).clone();
    let forbidding: Vec<_> = captures.iter().filter(forbids).collect();
    for capture in &forbidding {
        capture.invalidate();
    }
    if forbidding.is_empty() { Ok(()) } else { Err(Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) }
}
