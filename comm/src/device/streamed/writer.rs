//! Writes the work of one rank's stream, window by window and round by round.

use std::ops::Range;

use super::{Also, Base, Bays, Op, Place, Staging, Streamed};
use crate::device::flags::Signals;
use crate::engine::{Plan, Shapes};
use crate::schedule::{Buffer, Span, Step};

/// Bytes that lie one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    place: Place,
    bytes: u64,
}

pub(super) struct Writer<'a> {
    plan: &'a Plan,
    bays: &'a Bays,
    staging: Staging,
    me: usize,
    /// Where the chunks of the slice lie, and where in each of them the window begins.
    shapes: Shapes,
    from: u64,
    ops: Vec<Op>,
    /// What is to be told before the stream waits again.
    untold: Signals,
    /// How many messages have gone to each rank and have come from it, and how many it is known to have taken.
    sent: Vec<u32>,
    received: Vec<u32>,
    taken: Vec<u32>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(plan: &'a Plan, bays: &'a Bays, staging: Staging) -> Writer<'a> {
        let (me, ranks) = (plan.program.me as usize, plan.program.size as usize);
        let none = || vec![0; ranks];
        Writer {
            plan,
            bays,
            staging,
            me,
            shapes: plan.shapes(0),
            from: 0,
            ops: Vec::new(),
            untold: Signals::default(),
            sent: none(),
            received: none(),
            taken: none(),
        }
    }

    /// Goes on with the window that begins so many bytes after the start of each chunk, and stages the input.
    pub(super) fn open(&mut self, shapes: &Shapes, from: u64) {
        (self.shapes, self.from) = (shapes.clone(), from);
        if self.staging == Staging::None {
            return;
        }
        for chunk in self.bays.staged(self.me) {
            let source = [self.lies(Base::Input, self.shapes.input.range(*chunk, 1))];
            let target = [Piece { place: self.staged_at(*chunk), bytes: source[0].bytes }];
            match self.staging {
                Staging::Scaled => self.reduce(&target, vec![source.to_vec()], Also::Scales),
                _ => self.copy(&target, &source),
            }
        }
    }

    /// The rounds of the program, in the window.
    pub(super) fn program(&mut self) {
        let plan = self.plan;
        for round in plan.program.rounds() {
            self.round(round);
        }
    }

    /// The division of an average, of so many chunks of the output.
    pub(super) fn divide(&mut self, chunks: u32) {
        let pieces = joined((0..chunks).map(|chunk| self.lies(Base::Output, self.shapes.output.range(chunk, 1))));
        self.reduce(&pieces, vec![pieces.clone()], Also::Divides);
    }

    pub(super) fn finish(self) -> Streamed {
        Streamed { ops: self.ops, last: self.untold }
    }

    /// First everything is sent, then everything is received: what one rank has received before, it has told before it waits.
    fn round(&mut self, steps: &[Step]) {
        self.wait_for_places(steps);
        for step in steps {
            match *step {
                Step::Send { to, source } => self.send(to as usize, source),
                Step::Copy { source, target } => {
                    let (source, target) = (self.pieces(source), self.pieces(target));
                    self.copy(&target, &source);
                }
                Step::Reduce { source, runs, target } => {
                    let run = |k: u32| Span { first: source.first + k * target.count, count: target.count, ..source };
                    let sources = (0..runs).map(|k| self.pieces(run(k))).collect();
                    let target = self.pieces(target);
                    self.reduce(&target, sources, Also::Nothing);
                }
                Step::Recv { .. } | Step::RecvReduce { .. } => {}
            }
        }
        self.wait_for_messages(steps);
        for step in steps {
            match *step {
                Step::Recv { from, target } => {
                    let target = self.pieces(target);
                    let message = self.take(from as usize, &target);
                    self.copy(&target, &message);
                }
                Step::RecvReduce { from, source, target } => {
                    let (source, target) = (self.pieces(source), self.pieces(target));
                    let message = self.take(from as usize, &target);
                    self.reduce(&target, vec![source, message.to_vec()], Also::Nothing);
                }
                Step::Send { .. } | Step::Copy { .. } | Step::Reduce { .. } => {}
            }
        }
    }

    /// Waits until the receivers have taken what lay where the messages of a round go.
    fn wait_for_places(&mut self, steps: &[Step]) {
        let mut sent = self.sent.clone();
        let mut signals = Signals::default();
        for step in steps {
            let Step::Send { to, .. } = *step else { continue };
            let to = to as usize;
            sent[to] += 1;
            let needed = sent[to].saturating_sub(self.bays.channel(self.me, to).depth);
            if needed > self.taken[to] {
                (signals.awaited_takes[to], self.taken[to]) = (needed, needed);
            }
        }
        self.wait(signals);
    }

    /// Waits for the messages of a round.
    fn wait_for_messages(&mut self, steps: &[Step]) {
        let mut signals = Signals::default();
        for step in steps {
            let (Step::Recv { from, .. } | Step::RecvReduce { from, .. }) = *step else { continue };
            let from = from as usize;
            signals.awaited_puts[from] = signals.awaited_puts[from].max(self.received[from]) + 1;
        }
        self.wait(signals);
    }

    fn wait(&mut self, waits: Signals) {
        if waits.waits() {
            let Signals { puts, takes, .. } = std::mem::take(&mut self.untold);
            self.ops.push(Op::Tell(Box::new(Signals { puts, takes, ..waits })));
        }
    }

    /// Puts the next message into a rank's bay.
    fn send(&mut self, to: usize, source: Span) {
        self.sent[to] += 1;
        let source = self.pieces(source);
        let at = self.bays.message_at(self.bays.channel(self.me, to), self.sent[to]);
        let message = [Piece { place: Place { base: Base::Bay(to), at }, bytes: bytes_of(&source) }];
        self.copy(&message, &source);
        self.untold.puts[to] = self.sent[to];
    }

    /// Where the next message of a rank lies, which goes to `target`.
    fn take(&mut self, from: usize, target: &[Piece]) -> [Piece; 1] {
        self.received[from] += 1;
        self.untold.takes[from] = self.received[from];
        let at = self.bays.message_at(self.bays.channel(from, self.me), self.received[from]);
        [Piece { place: Place { base: Base::Bay(self.me), at }, bytes: bytes_of(target) }]
    }

    fn copy(&mut self, target: &[Piece], source: &[Piece]) {
        for (places, bytes) in split(&[target, source]) {
            self.ops.push(Op::Copy { target: places[0], source: places[1], bytes });
        }
    }

    fn reduce(&mut self, target: &[Piece], sources: Vec<Vec<Piece>>, also: Also) {
        let lists: Vec<&[Piece]> = [target].into_iter().chain(sources.iter().map(Vec::as_slice)).collect();
        for (places, bytes) in split(&lists) {
            let elements = bytes / self.plan.element_bytes as u64;
            self.ops.push(Op::Reduce { target: places[0], sources: places[1..].to_vec(), elements, also });
        }
    }

    /// Where a span lies, as far as it is in the window.
    fn pieces(&self, span: Span) -> Vec<Piece> {
        let chunks = span.first..span.first + span.count;
        match span.buffer {
            Buffer::Input if self.staging == Staging::None => {
                joined(chunks.map(|chunk| self.lies(Base::Input, self.shapes.input.range(chunk, 1))))
            }
            Buffer::Input => joined(chunks.map(|chunk| {
                let bytes = self.within(&self.shapes.input.range(chunk, 1));
                Piece { place: self.staged_at(chunk), bytes: bytes.end - bytes.start }
            })),
            Buffer::Output => joined(chunks.map(|chunk| self.lies(Base::Output, self.shapes.output.range(chunk, 1)))),
            Buffer::Scratch => {
                // A run lies packed from its first slot on.
                let before: u64 = (span.like - span.skip..span.like).map(|chunk| self.length(chunk)).sum();
                let bytes = (span.like..span.like + span.count).map(|chunk| self.length(chunk)).sum();
                let at = self.bays.scratch_at(span.first) + before;
                vec![Piece { place: Place { base: Base::Bay(self.me), at }, bytes }]
            }
        }
    }

    /// How long a chunk of the message is in the window.
    fn length(&self, chunk: u32) -> u64 {
        let bytes = self.within(&self.shapes.message().range(chunk, 1));
        bytes.end - bytes.start
    }

    fn lies(&self, base: Base, chunk: Range<usize>) -> Piece {
        let bytes = self.within(&chunk);
        Piece { place: Place { base, at: bytes.start }, bytes: bytes.end - bytes.start }
    }

    /// What of a chunk is in the window.
    fn within(&self, chunk: &Range<usize>) -> Range<u64> {
        let (start, end) = (chunk.start as u64, chunk.end as u64);
        (start + self.from).min(end)..(start + self.from + self.bays.unit()).min(end)
    }

    fn staged_at(&self, chunk: u32) -> Place {
        Place { base: Base::Bay(self.me), at: self.bays.staged_at(self.me, chunk) }
    }
}

fn bytes_of(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.bytes).sum()
}

/// The same pieces, with those joined that lie one behind the other, and without those of nothing.
fn joined(pieces: impl Iterator<Item = Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces.filter(|piece| piece.bytes > 0) {
        match joined.last_mut() {
            Some(last) if (last.place.base, last.place.at + last.bytes) == (piece.place.base, piece.place.at) => {
                last.bytes += piece.bytes;
            }
            _ => joined.push(piece),
        }
    }
    joined
}

/// Lists of equally many bytes, cut where any of them ends a piece: where each cut lies in each list, and its length.
fn split(lists: &[&[Piece]]) -> Vec<(Vec<Place>, u64)> {
    let mut rests: Vec<_> = lists.iter().map(|list| (list.iter().copied(), None::<Piece>)).collect();
    let mut cuts = Vec::new();
    loop {
        for (list, rest) in &mut rests {
            if rest.is_none_or(|rest| rest.bytes == 0) {
                *rest = list.find(|piece| piece.bytes > 0);
            }
        }
        let Some(bytes) = rests.iter().map(|(_, rest)| rest.map(|rest| rest.bytes)).min().flatten() else {
            assert!(rests.iter().all(|(_, rest)| rest.is_none()), "lists of different lengths: {lists:?}");
            return cuts;
        };
        let places = rests.iter().map(|(_, rest)| rest.expect("there is a shortest").place).collect();
        cuts.push((places, bytes));
        for (_, rest) in &mut rests {
            let Piece { place, bytes: left } = rest.expect("there is a shortest");
            *rest = Some(Piece { place: Place { at: place.at + bytes, ..place }, bytes: left - bytes });
        }
    }
}
