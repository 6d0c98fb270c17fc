//! A long call through the host as several short ones, so that the stream copies one while the host runs another.
//!
//! Where all ranks cut alike, a call of many elements is the same as several calls of some of them: element by element for
//! vectors and messages, the same elements of every block for collectives that have blocks.

use super::buffer::DeviceBuffers;
use crate::collective::Collective;
use crate::engine::Extent;
use crate::request::{Request, Sound};

/// One of the short calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) collective: Collective,
    pub(super) root: usize,
    pub(super) source: usize,
    /// Elements of the vector, or of a block.
    pub(super) count: usize,
    /// What is copied to the host's input, and how long that is.
    pub(super) fill: Vec<Move>,
    pub(super) input: usize,
    /// What is copied from the host's output, and how long that is.
    pub(super) empty: Vec<Move>,
    pub(super) output: usize,
}

/// Bytes that lie at an address of the device, and from a byte on of the host's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    pub(super) device: u64,
    pub(super) host: usize,
    pub(super) bytes: usize,
}

/// How the buffers of one side are cut: so many runs of elements, each as long as a block.
struct Side {
    start: usize,
    runs: usize,
    run_bytes: usize,
    /// Whether this rank copies anything.
    is_touched: bool,
    /// Whether the call on the host has such a buffer.
    is_there: bool,
}

impl Side {
    /// The bytes from `at` to `at + bytes` of each run, one behind the other on the host.
    fn moves(&self, at: usize, bytes: usize) -> Vec<Move> {
        let runs = if self.is_touched && bytes > 0 { self.runs } else { 0 };
        let run = |number: usize| Move {
            device: (self.start + number * self.run_bytes + at) as u64,
            host: number * bytes,
            bytes,
        };
        (0..runs).map(run).collect()
    }

    fn bytes(&self, bytes: usize) -> usize {
        if self.is_there { self.runs * bytes } else { 0 }
    }
}

/// The short calls of rank `me` of `ranks`, of `segment_bytes` bytes of the vector or of all blocks together; `None` where the
/// call is short itself, or has blocks of different lengths.
pub(super) fn cut(
    request: &Request<'_, DeviceBuffers>,
    sound: &Sound,
    (me, ranks): (usize, usize),
    segment_bytes: usize,
) -> Option<Vec<Segment>> {
    let size = request.data_type.size();
    let cut = |count: usize, width: usize| {
        let step = (segment_bytes / width).max(1);
        (0..count).step_by(step).map(move |first| (first * size, step.min(count - first)))
    };
    let (collective, is_root) = (request.collective, request.root == me);
    if collective.is_message() {
        return messages(request, sound, segment_bytes);
    }
    let (count, runs) = match sound.extent {
        Extent::Vector(count) => (count, (1, 1)),
        Extent::Blocks(count) => match collective {
            Collective::AllGather | Collective::Gather => (count, (1, ranks)),
            Collective::ReduceScatter | Collective::Scatter => (count, (ranks, 1)),
            _ => (count, (ranks, ranks)),
        },
        Extent::Uneven { .. } => return None,
    };
    let width = size * runs.0.max(runs.1);
    if count * width <= segment_bytes {
        return None;
    }
    let run_bytes = count * size;
    let takes_input = !matches!(collective, Collective::Broadcast | Collective::Scatter) || is_root;
    let has_output = !matches!(collective, Collective::Reduce | Collective::Gather) || is_root;
    let input = Side {
        start: sound.input.0.addr(),
        runs: runs.0,
        run_bytes,
        is_touched: sound.read(me, ranks).1 > 0,
        is_there: takes_input,
    };
    let output = Side {
        start: sound.output.0.addr(),
        runs: runs.1,
        run_bytes,
        is_touched: !sound.written(me, ranks).is_empty(),
        is_there: has_output,
    };
    let segment = |(at, count): (usize, usize)| Segment {
        collective,
        root: request.root,
        source: request.source,
        count,
        fill: input.moves(at, count * size),
        input: input.bytes(count * size),
        empty: output.moves(at, count * size),
        output: output.bytes(count * size),
    };
    Some(cut(count, width).map(segment).collect())
}

/// A message as several, each way by itself: who sends and who receives cut the same message alike.
fn messages(request: &Request<'_, DeviceBuffers>, sound: &Sound, segment_bytes: usize) -> Option<Vec<Segment>> {
    let segments = of_message(request, sound, Some(segment_bytes));
    (segments.len() > 1).then_some(segments)
}

/// A message as one or several, of `segment_bytes` bytes each way at most.
pub(super) fn of_message(
    request: &Request<'_, DeviceBuffers>,
    sound: &Sound,
    segment_bytes: Option<usize>,
) -> Vec<Segment> {
    let size = request.data_type.size();
    let (sends, receives) = (sound.message.0 as usize, sound.message.1 as usize);
    let longest = sends.max(receives).max(1);
    let step = segment_bytes.map_or(longest, |bytes| (bytes / size).max(1));
    let part = |all: usize, first: usize| all.saturating_sub(first).min(step);
    let segment = |first: usize| {
        let (out, back) = (part(sends, first) * size, part(receives, first) * size);
        let one = |start: usize, bytes: usize| match bytes {
            0 => Vec::new(),
            bytes => vec![Move { device: (start + first * size) as u64, host: 0, bytes }],
        };
        // A message of nothing is a message, once.
        let (collective, root) = match (out, back) {
            (0, _) if first > 0 && request.collective == Collective::SendRecv => (Collective::Recv, request.source),
            (_, 0) if first > 0 && request.collective == Collective::SendRecv => (Collective::Send, request.root),
            _ => (request.collective, request.root),
        };
        Segment {
            collective,
            root,
            source: request.source,
            count: out.max(back) / size,
            fill: one(sound.input.0.addr(), out),
            input: out,
            empty: one(sound.output.0.addr(), back),
            output: back,
        }
    };
    (0..longest).step_by(step).map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::DataType;
    use crate::request::Counts;

    const IN: u64 = 1 << 20;
    const OUT: u64 = 2 << 20;

    fn apart(collective: Collective, count: usize, bytes: usize) -> Request<'static, DeviceBuffers> {
        let buffers = DeviceBuffers::Separate { input: (IN, bytes), output: (OUT, bytes) };
        Request::new(collective, DataType::F32, count, buffers)
    }

    fn segments(request: &Request<'_, DeviceBuffers>, me: usize, bytes: usize) -> Option<Vec<Segment>> {
        let sound = request.over(DeviceBuffers::places).check_places(me, 3).unwrap();
        cut(request, &sound, (me, 3), bytes)
    }

    fn covered(moves: impl Iterator<Item = Move>) -> Vec<u64> {
        let mut bytes: Vec<u64> = moves.flat_map(|it| it.device..it.device + it.bytes as u64).collect();
        bytes.sort_unstable();
        bytes
    }

    #[test]
    fn every_byte_is_in_one_segment() {
        let has_bytes = |collective: &Collective| !collective.is_message() && *collective != Collective::Barrier;
        for collective in Collective::ALL.into_iter().filter(has_bytes) {
            for me in 0..3 {
                for in_place in [false, true] {
                    let mut request = apart(collective, 100, 1200).root(1);
                    if in_place {
                        request = request.over(|_| DeviceBuffers::InPlace((OUT, 1200)));
                    }
                    let sound = request.over(DeviceBuffers::places).check_places(me, 3).unwrap();
                    let segments = cut(&request, &sound, (me, 3), 96).unwrap();
                    let what = format!("{collective}, rank {me}, in place {in_place}");
                    assert_eq!(segments.iter().map(|it| it.count).sum::<usize>(), 100, "{what}");
                    let (at, bytes) = sound.read(me, 3);
                    let read: Vec<u64> = (at as u64..(at + bytes) as u64).collect();
                    assert_eq!(covered(segments.iter().flat_map(|it| it.fill.clone())), read, "{what}");
                    let written = sound.written(me, 3).into_iter();
                    let written: Vec<u64> = written.flat_map(|(at, bytes)| at as u64..(at + bytes) as u64).collect();
                    assert_eq!(covered(segments.iter().flat_map(|it| it.empty.clone())), written, "{what}");
                    for it in &segments {
                        assert!(it.fill.iter().all(|step| step.host + step.bytes <= it.input), "{what}");
                        assert!(it.empty.iter().all(|step| step.host + step.bytes <= it.output), "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn messages_are_cut_by_their_own_length() {
        let buffers = DeviceBuffers::Separate { input: (IN, 40), output: (OUT, 100) };
        let request = Request::new(Collective::SendRecv, DataType::F32, 0, buffers).root(1).source(2);
        let segments = segments(&request, 0, 32).unwrap();
        let calls: Vec<_> = segments.iter().map(|it| (it.collective, it.root, it.input, it.output)).collect();
        assert_eq!(
            calls,
            [
                (Collective::SendRecv, 1, 32, 32),
                (Collective::SendRecv, 1, 8, 32),
                (Collective::Recv, 2, 0, 32),
                (Collective::Recv, 2, 0, 4)
            ]
        );
    }

    #[test]
    fn a_message_of_nothing_is_a_message_beside_a_long_one() {
        let buffers = DeviceBuffers::Separate { input: (0, 0), output: (OUT, 100) };
        let request = Request::new(Collective::SendRecv, DataType::F32, 0, buffers).root(1).source(2);
        let segments = segments(&request, 0, 64).unwrap();
        let calls: Vec<_> = segments.iter().map(|it| (it.collective, it.root, it.input, it.output)).collect();
        assert_eq!(calls, [(Collective::SendRecv, 1, 0, 64), (Collective::Recv, 2, 0, 36)]);
    }

    #[test]
    fn short_calls_and_uneven_blocks_stay_whole() {
        assert_eq!(segments(&apart(Collective::AllReduce, 100, 400), 0, 400), None);
        assert!(segments(&apart(Collective::AllReduce, 100, 400), 0, 399).is_some());
        let counts = Counts { recv_counts: &[100, 50, 20], ..Counts::default() };
        assert_eq!(segments(&apart(Collective::AllGather, 0, 800).counts(counts), 0, 64), None);
        let nothing = Request::new(Collective::Barrier, DataType::U8, 0, DeviceBuffers::InPlace((0, 0)));
        assert_eq!(segments(&nothing, 0, 1), None);
    }
}
