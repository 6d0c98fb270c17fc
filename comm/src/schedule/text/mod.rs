//! Programs as text: a row for each round, a column for each rank; and back.
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

mod write;

pub use write::draw;
