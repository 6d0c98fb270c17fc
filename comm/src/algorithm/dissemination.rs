//! Dissemination: a barrier in ⌈log₂ n⌉ rounds. After round r each rank has heard, through others, from 2^(r+1) ranks.
//!
//! Hensgen, Finkel, Manber: "Two algorithms for barrier synchronization", 1988.
//!
//! For n = 5:
//!
//! ```text
//! barrier dissemination
//! ranks 5 root 0 chunks 1
//!      | 0        | 1        | 2        | 3        | 4        |
//!    0 | i0>1 0<4 | i0>2 0<0 | i0>3 0<1 | i0>4 0<2 | i0>0 0<3 |
//!    1 | i0>2 0<3 | i0>3 0<4 | i0>4 0<0 | i0>0 0<1 | i0>1 0<2 |
//!    2 | i0>4 0<1 | i0>0 0<2 | i0>1 0<3 | i0>2 0<4 | i0>3 0<0 |
//! ```

use crate::schedule::Step::{Recv, Send};
use crate::schedule::cost::{Load, Work};
use crate::schedule::{Program, input, output};

/// No rank ends before all have begun.
pub fn barrier(p: &mut Program) {
    let mut distance = 1;
    while distance < p.size {
        let (to, from) = (p.peer(i64::from(distance)), p.peer(-i64::from(distance)));
        p.round([Send { to, source: input(0) }, Recv { from, target: output(0) }]);
        distance = distance.saturating_mul(2);
    }
}

/// ⌈log₂ n⌉ messages, one after another.
pub fn barrier_work(n: u32) -> Work {
    let n_rounds = f64::from(n.next_power_of_two().ilog2());
    Work::steady(n_rounds, Load::messages(n_rounds, 0.0))
}
