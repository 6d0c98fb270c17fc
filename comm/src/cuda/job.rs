//! A call through the host: what the stream does, and what the host does meanwhile.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use paceline_transport::cuda::{Comparison, Device, Event, Stream};

use super::buffer::DeviceBuffers;
use super::order::PendingCall;
use super::segments::{self, Move, Segment};
use super::staging::Block;
use super::work::{Outcome, Teller};
use super::{DeviceCommunicator, DeviceWork, refused};
use crate::Communicator;
use crate::collective::Collective;
use crate::communicator::WeakCommunicator;
use crate::error::{Error, ErrorKind, Result};
use crate::reduce::{DataType, ReduceOp};
use crate::request::{Buffers, Counts, Request, Sound};

/// The host's part of a call, which it may have to do again where a graph is replayed.
pub(super) struct Job {
    comm: WeakCommunicator,
    collective: Collective,
    data_type: DataType,
    op: ReduceOp,
    root: usize,
    source: usize,
    count: usize,
    counts: Option<[Box<[usize]>; 4]>,
    block: Arc<Block>,
    layout: Layout,
    outcome: Arc<Outcome>,
    /// Whether what becomes of the whole call is known when this is done.
    is_last: bool,
}

/// Where a call's buffers are in its block.
enum Layout {
    Separate(Range<usize>, Range<usize>),
    InPlace(Range<usize>),
}

/// A job that a stream has got to.
pub(super) struct Due {
    pub(super) job: Arc<Job>,
    /// Its communicator, and that the call isn't over, until it is. A graph keeps neither.
    pub(super) pending: Option<(Communicator, PendingCall)>,
}

impl Job {
    /// Runs the call between the ranks, over the block. The stream waits meanwhile.
    pub(super) fn run(&self) -> Result<()> {
        // SAFETY: the stream has filled the block and waits for its word; the parts are apart.
        let buffers = unsafe {
            match &self.layout {
                Layout::Separate(input, output) => {
                    Buffers::Separate { input: self.block.part(input.clone()), output: self.block.part(output.clone()) }
                }
                Layout::InPlace(buffer) => Buffers::InPlace(self.block.part(buffer.clone())),
            }
        };
        let counts = self.counts.as_ref().map(|[send_counts, send_offsets, recv_counts, recv_offsets]| Counts {
            send_counts,
            send_offsets,
            recv_counts,
            recv_offsets,
        });
        let request = Request::new(self.collective, self.data_type, self.count, buffers);
        let request = Request { counts, ..request.op(self.op).root(self.root).source(self.source) };
        self.comm.upgrade().ok_or_else(dropped)?.run_now(request)
    }

    /// Notes what came of it, and lets the stream go on.
    pub(super) fn end(&self, result: Result<()>) {
        if self.is_last || result.is_err() {
            // What is replayed keeps the first outcome.
            let _ = self.outcome.set(result);
        }
        self.release();
    }

    /// Lets the stream go on.
    pub(super) fn release(&self) {
        self.block.is_done();
    }
}

fn dropped() -> Error {
    Error::new(ErrorKind::Aborted, "a graph was launched with a call of a communicator that was dropped")
}

/// Bytes from the first to the last address.
fn reach(start: usize, pieces: impl Iterator<Item = (usize, usize)>) -> usize {
    pieces.map(|(address, bytes)| address + bytes - start).max().unwrap_or(0)
}

impl DeviceCommunicator {
    /// Puts a call into a stream. Other ranks learn of what goes wrong here with a call that can be meant.
    pub(super) fn enqueue(&self, stream: &Stream, request: Request<'_, DeviceBuffers>) -> Result<DeviceWork> {
        self.check()?;
        self.put(stream, request).map_err(|error| match error.kind() {
            ErrorKind::InvalidArgument => error,
            _ => self.attached.worker.fails(self.comm.failed(error)),
        })
    }

    fn put(&self, stream: &Stream, request: Request<'_, DeviceBuffers>) -> Result<DeviceWork> {
        let device = self.own_device()?;
        let sound = request.over(DeviceBuffers::places).check_places(self.comm.rank(), self.comm.size())?;
        check_device(device, stream)?;
        let is_captured = stream.is_capturing().map_err(refused)?;
        let mut last = self.attached.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_captured {
            last.lead(stream)?;
        }
        let wish = self.comm.wish();
        let watch = self.attached.watch.as_ref().filter(|watch| watch.direct.takes(&request, wish));
        let (teller, blocks) = match watch {
            Some(watch) => {
                watch.direct.launch(stream, &request, &sound, self.timeout())?;
                if watch.begin(is_captured) {
                    self.attached.worker.watch();
                }
                (Teller::Device(watch.clone(), self.attached.worker.failure()), Vec::new())
            }
            None => {
                let outcome = Arc::new(Outcome::default());
                let blocks = match self.segments(&request, &sound) {
                    Some(segments) => self.pass_in_segments(stream, &request, &segments, &outcome, is_captured)?,
                    None => {
                        let (job, pieces) = self.staged(&request, &sound, &outcome)?;
                        self.begin(stream, &job, &pieces, is_captured)?;
                        self.finish(stream, &job, &pieces)?;
                        vec![job.block.clone()]
                    }
                };
                (Teller::Host(outcome), blocks)
            }
        };
        let end = Arc::new(Event::new(device).map_err(refused)?);
        stream.record(&end).map_err(refused)?;
        if !is_captured {
            blocks.into_iter().for_each(|block| self.attached.staging.lend(block, end.clone()));
            last.is_now(stream, end.clone());
        }
        Ok(DeviceWork::new(end, is_captured, teller, self.timeout()))
    }

    /// The short calls of a long one, where no rank is without a device, which would not know of them.
    fn segments(&self, request: &Request<'_, DeviceBuffers>, sound: &Sound) -> Option<Vec<Segment>> {
        let segment_bytes = self.attached.segment_bytes?;
        segments::cut(request, sound, (self.comm.rank(), self.comm.size()), segment_bytes)
    }

    /// A call in segments, over two blocks by turns: the stream copies one while the host runs another.
    fn pass_in_segments(
        &self,
        stream: &Stream,
        request: &Request<'_, DeviceBuffers>,
        segments: &[Segment],
        outcome: &Arc<Outcome>,
        is_captured: bool,
    ) -> Result<Vec<Arc<Block>>> {
        let device = self.own_device()?;
        let room = |it: &Segment| it.input.next_multiple_of(64) + it.output;
        let bytes = segments.iter().map(room).max().expect("there are segments");
        let blocks = [self.attached.staging.take(device, bytes)?, self.attached.staging.take(device, bytes)?];
        let mut before: Option<(Arc<Job>, Pieces)> = None;
        for (number, segment) in segments.iter().enumerate() {
            let block = &blocks[number % 2];
            let at = segment.input.next_multiple_of(64);
            let job = Arc::new(Job {
                comm: self.comm.downgrade(),
                collective: segment.collective,
                data_type: request.data_type,
                op: request.op,
                root: segment.root,
                source: segment.source,
                count: segment.count,
                counts: None,
                block: block.clone(),
                layout: Layout::Separate(0..segment.input, at..at + segment.output),
                outcome: outcome.clone(),
                is_last: number + 1 == segments.len(),
            });
            let pieces = |moves: &[Move], at: usize| {
                let piece = |it: &Move| Piece {
                    on_device: it.device,
                    on_host: block.device_address(at + it.host),
                    bytes: it.bytes,
                };
                moves.iter().map(piece).collect()
            };
            let pieces = Pieces { fill: pieces(&segment.fill, 0), empty: pieces(&segment.empty, at) };
            self.begin(stream, &job, &pieces, is_captured)?;
            if let Some((job, pieces)) = before.replace((job, pieces)) {
                self.finish(stream, &job, &pieces)?;
            }
        }
        let (job, pieces) = before.expect("there are segments");
        self.finish(stream, &job, &pieces)?;
        Ok(blocks.into())
    }

    /// Has the stream fill a block, and then the worker do the job.
    fn begin(&self, stream: &Stream, job: &Arc<Job>, pieces: &Pieces, is_captured: bool) -> Result<()> {
        for piece in &pieces.fill {
            // SAFETY: the caller lends the memory until the stream has done the call; the block is kept until then.
            unsafe { stream.copy(piece.on_host, piece.on_device, piece.bytes) }.map_err(refused)?;
        }
        if is_captured {
            return self.attached.worker.call_on_each_replay(stream, job);
        }
        let pending = Some((self.comm.again(), self.comm.pending().begin()));
        self.attached.worker.call_when_reached(stream, Due { job: job.clone(), pending })
    }

    /// Has the stream wait until the job is done, and empty the block.
    fn finish(&self, stream: &Stream, job: &Arc<Job>, pieces: &Pieces) -> Result<()> {
        // SAFETY: the block is kept until the stream has passed; the word is written by the worker, whatever happens.
        unsafe {
            stream.wait_value(job.block.word(), 1, Comparison::Equal).map_err(refused)?;
            stream.write_value(job.block.word(), 0).map_err(refused)?;
        }
        for piece in &pieces.empty {
            // SAFETY: as above, and the caller lends the memory.
            unsafe { stream.copy(piece.on_device, piece.on_host, piece.bytes) }.map_err(refused)?;
        }
        Ok(())
    }

    /// The host's part of a call, and what the stream copies to it and from it.
    fn staged(
        &self,
        request: &Request<'_, DeviceBuffers>,
        sound: &Sound,
        outcome: &Arc<Outcome>,
    ) -> Result<(Arc<Job>, Pieces)> {
        let device = self.own_device()?;
        let (me, ranks) = (self.comm.rank(), self.comm.size());
        let (read, written) = (sound.read(me, ranks), sound.written(me, ranks));
        let (layout, bytes, input_base, output_base) = match request.buffers {
            DeviceBuffers::Separate { input, output } => {
                let (from, to) = (input.0 as usize, output.0 as usize);
                let n_in = reach(from, [read].into_iter().filter(|piece| piece.1 > 0));
                let n_out = reach(to, written.iter().copied());
                let at = n_in.next_multiple_of(64);
                (Layout::Separate(0..n_in, at..at + n_out), at + n_out, (from, 0), (to, at))
            }
            DeviceBuffers::InPlace((start, bytes)) => {
                (Layout::InPlace(0..bytes), bytes, (start as usize, 0), (start as usize, 0))
            }
        };
        let block = self.attached.staging.take(device, bytes)?;
        let piece = |(base, at): (usize, usize), (address, bytes): (usize, usize)| Piece {
            on_device: address as u64,
            on_host: block.device_address(at + (address - base)),
            bytes,
        };
        let fill = [read].into_iter().filter(|piece| piece.1 > 0).map(|read| piece(input_base, read)).collect();
        let empty = written.iter().map(|written| piece(output_base, *written)).collect();
        let own = |list: &[usize]| Box::from(list);
        let Request { collective, data_type, op, root, source, count, .. } = *request;
        let counts = request
            .counts
            .map(|counts| [counts.send_counts, counts.send_offsets, counts.recv_counts, counts.recv_offsets].map(own));
        let (comm, outcome, is_last) = (self.comm.downgrade(), outcome.clone(), true);
        let job = Job { comm, collective, data_type, op, root, source, count, counts, block, layout, outcome, is_last };
        Ok((Arc::new(job), Pieces { fill, empty }))
    }
}

fn check_device(device: &Device, stream: &Stream) -> Result<()> {
    if stream.device() == device {
        return Ok(());
    }
    let (theirs, ours) = (stream.device().ordinal(), device.ordinal());
    Err(Error::invalid(format!("the stream is of CUDA device {theirs}, and this rank was attached with device {ours}"))
        .hint("make the call on a stream of that device"))
}

/// What a stream copies for a call.
struct Pieces {
    fill: Vec<Piece>,
    empty: Vec<Piece>,
}

struct Piece {
    on_device: u64,
    on_host: u64,
    bytes: usize,
}
