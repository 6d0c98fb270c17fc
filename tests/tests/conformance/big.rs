//! More elements than 31 bits count.

use std::time::Duration;

use paceline_comm::{CallOptions, ReduceOp};
use paceline_tests::is_asked_for;
use paceline_tests::world::{Wire, on_each};

/// Takes 4.3 GiB of memory, and so runs only where it is asked for: `PACELINE_BIG=1`.
#[test]
fn more_than_two_to_the_31_elements_are_reduced() {
    if !is_asked_for("PACELINE_BIG") {
        return println!("skipped: takes 4.3 GiB; set PACELINE_BIG=1");
    }
    const COUNT: usize = (1 << 31) + 64;
    on_each(Wire::Inproc, 2, |comm| {
        let comm = comm.with(CallOptions { timeout: Some(Duration::from_secs(600)), algorithm: None });
        let mine =
            |at: usize| (at as u8).wrapping_mul(if comm.rank() == 0 { 3 } else { 5 }).wrapping_add((at >> 24) as u8);
        let mut buffer: Vec<u8> = (0..COUNT).map(mine).collect();
        comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum).unwrap();
        let want = |at: usize| (at as u8).wrapping_mul(8).wrapping_add(((at >> 24) as u8).wrapping_mul(2));
        let wrong = buffer.iter().enumerate().position(|(at, element)| *element != want(at));
        assert_eq!(wrong, None, "the first wrong element");
    });
}
