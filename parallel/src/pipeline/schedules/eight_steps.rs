//! The eight steps that DualPipe and DualPipeV share.
//!
//! Both have two streams of micro-batches through every rank: the near one meets the rank on its way in, the far one on
//! its way out. `n` is how many ranks lie between the end where a stream enters and the place where the streams meet
//! or turn, and `i` which of them this rank is, from the entrance.
//!
//! | Step | Times | What (0 near, 1 far) |
//! |---|---|---|
//! | 1 | 2(n-1-i) | F0 |
//! | 2 | i+1 | F0 F1 |
//! | 3 | n-1-i | I1 W1 F1 |
//! | 4 | k-2n+i+1 | F0+B1 F1+B0, where k is how many micro-batches each stream has |
//! | 5 | n-1-i | B1 F1+B0 |
//! | 6 | i+1 | B1 B0; in the second half, their inputs' gradients alone |
//! | 7 | n-1-i | W I0 |
//! | 8 | i+1 | W |

use std::collections::VecDeque;

use crate::pipeline::action::{Action, Kind, Step};

/// One of the two streams, as one rank sees it.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    /// The stage that the rank is to it.
    pub(super) stage: u32,
    /// Its first micro-batch.
    pub(super) first: u32,
}

/// Where the rank stands.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// How many ranks lie between the entrance and the meeting.
    pub(super) n: u32,
    /// Which of them the rank is, from the entrance.
    pub(super) i: u32,
    /// How many micro-batches each stream has: at least 2n.
    pub(super) per_stream: u32,
}

const NEAR: usize = 0;
const FAR: usize = 1;

struct Writer {
    list: Vec<Step>,
    streams: [Stream; 2],
    n_forwards: [u32; 2],
    n_backwards: [u32; 2],
    owed: VecDeque<(u32, u32)>,
}

impl Writer {
    fn next_forward(&mut self, to: usize) -> Action {
        let Stream { stage, first } = self.streams[to];
        self.n_forwards[to] += 1;
        Action { stage, kind: Kind::Forward, micro_batch: first + self.n_forwards[to] - 1 }
    }

    fn next_backward(&mut self, to: usize, kind: Kind) -> Action {
        let Stream { stage, first } = self.streams[to];
        self.n_backwards[to] += 1;
        Action { stage, kind, micro_batch: first + self.n_backwards[to] - 1 }
    }

    fn forward(&mut self, to: usize) {
        let action = self.next_forward(to);
        self.list.push(Step::One(action));
    }

    fn backward(&mut self, to: usize) {
        let action = self.next_backward(to, Kind::Backward);
        self.list.push(Step::One(action));
    }

    fn input(&mut self, to: usize) {
        let action = self.next_backward(to, Kind::Input);
        self.owed.push_back((action.stage, action.micro_batch));
        self.list.push(Step::One(action));
    }

    fn weight(&mut self) {
        let (stage, micro_batch) = self.owed.pop_front().expect("as many weights' gradients as inputs'");
        self.list.push(Step::One(Action { stage, kind: Kind::Weight, micro_batch }));
    }

    fn both(&mut self, forward: usize, backward: usize) {
        let forward = self.next_forward(forward);
        let backward = self.next_backward(backward, Kind::Backward);
        self.list.push(Step::Both { forward, backward });
    }
}

/// The list of one rank.
pub(super) fn eight_steps(place: Place, near: Stream, far: Stream) -> Vec<Step> {
    let Place { n, i, per_stream } = place;
    assert!(i < n && 2 * n <= per_stream, "rank {i} of {n}, {per_stream} micro-batches");
    let (inward, outward) = (n - 1 - i, i + 1);
    let mut w = Writer {
        list: Vec::new(),
        streams: [near, far],
        n_forwards: [0; 2],
        n_backwards: [0; 2],
        owed: VecDeque::new(),
    };
    for _ in 0..2 * inward {
        w.forward(NEAR);
    }
    for _ in 0..outward {
        w.forward(NEAR);
        w.forward(FAR);
    }
    for _ in 0..inward {
        w.input(FAR);
        w.weight();
        w.forward(FAR);
    }
    for round in 0..per_stream - 2 * n + outward {
        if round == 0 && inward == 0 {
            // Where the streams meet, the next rank waits for the first forward: it isn't held up by a backward.
            w.forward(NEAR);
            w.backward(FAR);
        } else {
            w.both(NEAR, FAR);
        }
        w.both(FAR, NEAR);
    }
    for _ in 0..inward {
        w.backward(FAR);
        w.both(FAR, NEAR);
    }
    for half in 0..2 * outward {
        let to = if half % 2 == 0 { FAR } else { NEAR };
        if half < outward { w.backward(to) } else { w.input(to) }
    }
    for _ in 0..inward {
        w.weight();
        w.input(NEAR);
    }
    for _ in 0..outward {
        w.weight();
    }
    w.list
}
