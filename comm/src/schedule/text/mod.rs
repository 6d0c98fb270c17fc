//! Programs as text: a row for each round, a column for each rank; and back.
//!
//! ```
//! use paceline_comm::algorithm::row;
//! use paceline_comm::collective::Collective;
//! use paceline_comm::schedule::text;
//!
//! let programs = row(Collective::ReduceScatter, "ring").unwrap().programs(3, 0);
//! let drawing = text::draw(&programs);
//! assert_eq!(
//!     drawing,
//!     "\
//! ranks 3 root 0 chunks 3
//!      | 0               | 1               | 2               |
//!    0 | i2>1 s0[1]=i1+2 | i0>2 s0[2]=i2+0 | i1>0 s0[0]=i0+1 |
//!    1 | s0[1]>1 0=i0+2  | s0[2]>2 0=i1+0  | s0[0]>0 0=i2+1  |
//! "
//! );
//! assert_eq!(text::parse(&drawing), Ok(programs));
//! ```
//!
//! | Text | Step |
//! |---|---|
//! | `3>1` | send chunk 3 to rank 1 |
//! | `3<1` | receive chunk 3 from rank 1 |
//! | `3+1` | fold what arrives from rank 1 into chunk 3 |
//! | `3=i3+1` | fold what arrives from rank 1 with chunk 3 of the input, and keep it in chunk 3 |
//! | `3=i3` | copy chunk 3 of the input to chunk 3 |
//! | `0=s0[0]*4` | fold four runs of scratch, the first in slot 0, and keep the result in chunk 0 |
//!
//! | Text | Span |
//! |---|---|
//! | `3`, `3..6` | chunk 3, chunks 3 to 5 of the output |
//! | `i3`, `i3..6` | the same of the input |
//! | `s2[5]` | slot 2 of scratch, holding something as long as chunk 5 |
//! | `s2[5..8]` | the run at slot 2 that holds chunks 5 to 7 |
//! | `s2[5:6..8]` | of the run at slot 2 that begins with chunk 5: chunks 6 and 7 |

mod parse;
mod write;

pub use parse::{ParseError, parse};
pub use write::draw;
