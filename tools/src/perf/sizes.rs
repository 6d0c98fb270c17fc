//! Which sizes a run visits, and how a size becomes a number of elements.

use super::arguments::Step;

/// The sizes from `first` to `last` bytes, by factor or by step, as nccl-tests visits them. Ends on overflow.
pub fn sweep(first: u64, last: u64, step: Step) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(first), move |&size| match step {
        Step::Factor(factor) => size.checked_mul(factor),
        Step::Bytes(bytes) => size.checked_add(bytes),
    })
    .take_while(move |&size| size <= last)
}

/// The sizes that are warmed up: doubling, whatever the step of the sweep.
pub fn warm_up(first: u64, last: u64) -> impl Iterator<Item = u64> {
    sweep(first, last, Step::Factor(2))
}

/// How many elements a collective over one vector moves for a size in bytes: at least one.
#[must_use]
pub fn whole(bytes: u64, element: usize) -> usize {
    elements(bytes, element).max(1)
}

/// How many elements each of `n` ranks contributes for a total size in bytes.
///
/// nccl-tests rounds each rank's share down to a multiple of 16 bytes, which turns small sizes into rows of zero bytes.
/// Here a share that rounds to nothing keeps its own number of elements, and is at least one element: every row measures
/// a message. Where nccl-tests measures anything at all, the counts are the same.
#[must_use]
pub fn share(bytes: u64, element: usize, n: usize) -> usize {
    let exact = elements(bytes, element) / n;
    let aligned = exact & !(16 / element - 1);
    if aligned > 0 { aligned } else { exact.max(1) }
}

fn elements(bytes: u64, element: usize) -> usize {
    usize::try_from(bytes).expect("sizes fit into memory") / element
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps() {
        let rows: [(u64, u64, Step, &[u64]); 7] = [
            (8, 128, Step::Factor(2), &[8, 16, 32, 64, 128]),
            (8, 100, Step::Factor(4), &[8, 32]),
            (10, 40, Step::Bytes(10), &[10, 20, 30, 40]),
            (10, 39, Step::Bytes(10), &[10, 20, 30]),
            (7, 7, Step::Factor(3), &[7]),
            (32 << 20, 32 << 20, Step::Bytes(1 << 20), &[32 << 20]),
            (1 << 62, u64::MAX, Step::Factor(2), &[1 << 62, 1 << 63]),
        ];
        for (first, last, step, want) in rows {
            assert_eq!(sweep(first, last, step).collect::<Vec<_>>(), want, "{first}..{last} by {step:?}");
        }
        assert_eq!(warm_up(3, 13).collect::<Vec<_>>(), [3, 6, 12]);
    }

    #[test]
    fn shares_are_nccl_tests_shares_where_those_are_not_zero() {
        for element in [1, 2, 4, 8] {
            for n in 1..=9 {
                for bytes in 1..2000 {
                    let nccl = (bytes as usize / element / n) & !(16 / element - 1);
                    let ours = share(bytes, element, n);
                    assert!(ours >= 1);
                    assert!(nccl == 0 || nccl == ours, "{bytes} B of {element} over {n}: {ours}, nccl-tests {nccl}");
                }
            }
        }
        let rows = [(8, 4, 2, 1), (32, 4, 2, 4), (28, 4, 2, 3), (1, 4, 8, 1), (64, 1, 4, 16), (60, 1, 4, 15)];
        for (bytes, element, n, want) in rows {
            assert_eq!(share(bytes, element, n), want, "{bytes} B of {element} over {n}");
        }
        assert_eq!(whole(3, 4), 1);
        assert_eq!(whole(1 << 20, 4), 262144);
    }
}
