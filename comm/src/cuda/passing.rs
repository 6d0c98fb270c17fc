//! A call through the host, as the stream does it: it fills a block, waits for the host, and empties the block.

use std::sync::Arc;

use paceline_transport::cuda::{Comparison, Stream};

use super::buffer::DeviceBuffers;
use super::job::{Call, Due, Job, Layout};
use super::segments::{self, Move, Segment};
use super::staging::Block;
use super::work::Outcome;
use super::{DeviceCommunicator, refused};
use crate::error::Result;
use crate::request::{Request, Sound};

/// A call that was checked.
pub(super) type Checked<'r> = (Request<'r, DeviceBuffers>, Sound);

/// Bytes from the first to the last address.
fn reach(start: usize, pieces: impl Iterator<Item = (usize, usize)>) -> usize {
    pieces.map(|(address, bytes)| address + bytes - start).max().unwrap_or(0)
}

impl DeviceCommunicator {
    /// Puts calls into a stream that pass by the host: one, or the messages of a group. Returns the blocks that the stream uses.
    pub(super) fn pass(
        &self,
        stream: &Stream,
        calls: &[Checked<'_>],
        outcome: &Arc<Outcome>,
        is_captured: bool,
    ) -> Result<Vec<Arc<Block>>> {
        let (job, pieces) = match calls {
            [] => {
                let _ = outcome.set(Ok(()));
                return Ok(Vec::new());
            }
            [(request, sound)] => match self.segments(request, sound) {
                Some(segments) => return self.pass_in_segments(stream, request, &segments, outcome, is_captured),
                None => self.staged(request, sound, outcome)?,
            },
            calls => self.staged_group(calls, outcome)?,
        };
        self.begin(stream, &job, &pieces, is_captured)?;
        self.finish(stream, &job, &pieces)?;
        Ok(vec![job.block.clone()])
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
            let layout = Layout::Separate(0..segment.input, at..at + segment.output);
            let job = Arc::new(Job {
                comm: self.comm.downgrade(),
                calls: vec![segment.call(request, layout)],
                block: block.clone(),
                outcome: outcome.clone(),
                is_last: number + 1 == segments.len(),
            });
            let pieces = Pieces { fill: placed(block, &segment.fill, 0), empty: placed(block, &segment.empty, at) };
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
        let calls = vec![Call { collective, data_type, op, root, source, count, counts, layout }];
        let (comm, outcome, is_last) = (self.comm.downgrade(), outcome.clone(), true);
        Ok((Arc::new(Job { comm, calls, block, outcome, is_last }), Pieces { fill, empty }))
    }

    /// The same for messages that go together. Each is cut as one that goes alone, since its other rank may send it so.
    fn staged_group(&self, calls: &[Checked<'_>], outcome: &Arc<Outcome>) -> Result<(Arc<Job>, Pieces)> {
        let cut = |(request, sound): &Checked<'_>| segments::of_message(request, sound, self.attached.segment_bytes);
        let segments: Vec<Vec<Segment>> = calls.iter().map(cut).collect();
        let room = |it: &Segment| it.input.next_multiple_of(64) + it.output.next_multiple_of(64);
        let bytes = segments.iter().flatten().map(room).sum();
        let block = self.attached.staging.take(self.own_device()?, bytes)?;
        let (mut parts, mut pieces) = (Vec::new(), Pieces { fill: Vec::new(), empty: Vec::new() });
        let mut start = 0;
        for ((request, _), segments) in calls.iter().zip(&segments) {
            for it in segments {
                let at = start + it.input.next_multiple_of(64);
                parts.push(it.call(request, Layout::Separate(start..start + it.input, at..at + it.output)));
                pieces.fill.extend(placed(&block, &it.fill, start));
                pieces.empty.extend(placed(&block, &it.empty, at));
                start += room(it);
            }
        }
        let (comm, outcome, is_last) = (self.comm.downgrade(), outcome.clone(), true);
        Ok((Arc::new(Job { comm, calls: parts, block, outcome, is_last }), pieces))
    }
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

/// What the stream copies to or from a part of a block that begins at `at`.
fn placed(block: &Block, moves: &[Move], at: usize) -> Vec<Piece> {
    let piece =
        |it: &Move| Piece { on_device: it.device, on_host: block.device_address(at + it.host), bytes: it.bytes };
    moves.iter().map(piece).collect()
}

impl Segment {
    /// The call of a segment of `whole`.
    fn call(&self, whole: &Request<'_, DeviceBuffers>, layout: Layout) -> Call {
        let Segment { collective, root, source, count, .. } = *self;
        let Request { data_type, op, .. } = *whole;
        Call { collective, data_type, op, root, source, count, counts: None, layout }
    }
}
