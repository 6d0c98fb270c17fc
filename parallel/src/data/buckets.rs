//! Which parameters share a bucket: neighbours in the order in which their gradients come, up to a size.

use candle_core::DType;

use crate::mesh::Axis;

/// What a parameter's gradient is, as far as buckets go.
pub(crate) struct Item {
    /// Where it is added, and in which precision: only the like share a bucket.
    pub(crate) key: (Vec<Axis>, DType),
    pub(crate) bytes: usize,
}

/// Sizes at which a bucket is full.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Of the first one: small, so that sending begins early.
    pub(crate) first_bytes: usize,
    pub(crate) bytes: usize,
}

/// Cuts items, given in the order in which they come, into buckets: for each its items, in that order. Buckets are ordered
/// by the last of their items, which is when they can leave. A bucket has at least one item, however large.
pub(crate) fn cut(order: &[usize], items: &[Item], sizes: Sizes) -> Vec<Vec<usize>> {
    let mut full: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut open: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for (position, item) in order.iter().enumerate() {
        let Item { key, bytes } = &items[*item];
        let place = open.iter().position(|(_, _, members)| items[members[0]].key == *key);
        let place = place.unwrap_or_else(|| {
            open.push((0, 0, Vec::new()));
            open.len() - 1
        });
        let (last, size, members) = &mut open[place];
        (*last, *size) = (position, *size + bytes);
        members.push(*item);
        let limit = if full.is_empty() { sizes.first_bytes } else { sizes.bytes };
        if *size >= limit {
            let (last, _, members) = open.swap_remove(place);
            full.push((last, members));
        }
    }
    full.extend(open.into_iter().map(|(last, _, members)| (last, members)));
    full.sort();
    full.into_iter().map(|(_, members)| members).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(sizes: &[(usize, DType)]) -> Vec<Item> {
        sizes.iter().map(|(bytes, dtype)| Item { key: (vec![Axis::Dp], *dtype), bytes: *bytes }).collect()
    }

    #[test]
    fn the_first_is_small_and_a_large_item_is_alone() {
        use DType::{F32, F64};
        let sizes = Sizes { first_bytes: 10, bytes: 100 };
        for (given, want) in [
            (
                &[(4, F32), (6, F32), (60, F32), (30, F32), (10, F32), (5, F32)][..],
                vec![vec![0, 1], vec![2, 3, 4], vec![5]],
            ),
            (&[(1000, F32), (1000, F32)], vec![vec![0], vec![1]]),
            (&[(4, F32), (4, F64), (6, F32), (6, F64)], vec![vec![0, 2], vec![1, 3]]),
            (&[], vec![]),
        ] {
            let order: Vec<usize> = (0..given.len()).collect();
            assert_eq!(cut(&order, &items(given), sizes), want, "{given:?}");
        }
    }

    #[test]
    fn the_order_is_that_of_the_last_item() {
        // An item of another kind that comes early leaves first only if it is complete first.
        let all = items(&[(4, DType::F64), (50, DType::F32), (50, DType::F32), (6, DType::F64)]);
        let sizes = Sizes { first_bytes: 10, bytes: 100 };
        assert_eq!(cut(&[0, 1, 2, 3], &all, sizes), [vec![1], vec![2], vec![0, 3]]);
        assert_eq!(cut(&[3, 0, 2, 1], &all, sizes), [vec![3, 0], vec![2, 1]]);
    }

    /// 55.56 GB in buckets of 25 MiB: the count of the reference model, whose gradients are all small against a bucket.
    #[test]
    fn as_many_as_the_size_says() {
        let all = items(&[(1 << 18, DType::F32); 1000]);
        let order: Vec<usize> = (0..1000).collect();
        let sizes = Sizes { first_bytes: 1 << 20, bytes: 25 << 20 };
        assert_eq!(cut(&order, &all, sizes).len(), 1 + (250usize - 1).div_ceil(25));
    }
}
