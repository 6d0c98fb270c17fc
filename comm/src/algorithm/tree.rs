//! The in-order binary tree over positions 1, 2, ..., m: what the double binary tree is made of.
//!
//! A position's level is its number of trailing zeros. Leaves are the odd positions. For m = 7:
//!
//! ```text
//!          4
//!      2       6
//!    1   3   5   7
//! ```

/// The position above, unless it is the top one.
pub fn parent(position: u32, m: u32) -> Option<u32> {
    let mut above = position;
    loop {
        let bit = above & above.wrapping_neg();
        let double = bit.checked_mul(2).filter(|double| *double <= m)?;
        above = (above & !bit) | double;
        if above <= m {
            return Some(above);
        }
    }
}

/// The positions below, on the left and on the right.
pub fn children(position: u32, m: u32) -> [Option<u32>; 2] {
    let half = (position & position.wrapping_neg()) / 2;
    let left = (half > 0).then(|| position - half);
    let steps = std::iter::successors(Some(half), |step| Some(step / 2)).take_while(|step| *step > 0);
    let right = steps.map(|step| position + step).find(|right| *right <= m);
    [left, right]
}

/// How far above the leaves a position is.
pub fn level(position: u32) -> u32 {
    position.trailing_zeros()
}

/// The level of the top position.
pub fn top_level(m: u32) -> u32 {
    m.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_hangs_below_one_parent_of_a_higher_level() {
        for m in 1..200 {
            let tops: Vec<u32> = (1..=m).filter(|p| parent(*p, m).is_none()).collect();
            assert_eq!(tops, [1 << top_level(m)], "m {m}");
            for position in 1..=m {
                for child in children(position, m).into_iter().flatten() {
                    assert_eq!(parent(child, m), Some(position), "m {m}, child {child}");
                    assert!(level(child) < level(position));
                }
                if let Some(above) = parent(position, m) {
                    assert!(children(above, m).contains(&Some(position)), "m {m}, position {position}");
                }
            }
        }
    }
}
