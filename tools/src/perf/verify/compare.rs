//! Bytes against the bytes that were expected.

/// What a comparison found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mismatch {
    /// How many elements are wrong.
    pub wrong: u64,
    /// The first of them.
    pub first: Option<Wrong>,
}

/// A wrong element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// Its place in what was compared.
    pub index: usize,
    /// Its bits.
    pub got: u64,
    /// The bits it should have.
    pub want: u64,
}

/// Compares element by element; floats of a positive tolerance may differ by that many units in the last place.
#[must_use]
pub fn compare(got: &[u8], want: &[u8], element: usize, tolerance: u64) -> Mismatch {
    assert!(got.len() == want.len(), "{} bytes against {}", got.len(), want.len());
    if got == want {
        return Mismatch::default();
    }
    let mut mismatch = Mismatch::default();
    for (index, (got, want)) in got.chunks(element).zip(want.chunks(element)).enumerate() {
        let (got, want) = (bits(got), bits(want));
        if got != want && (tolerance == 0 || distance(got, want, element) > tolerance) {
            mismatch.wrong += 1;
            mismatch.first.get_or_insert(Wrong { index, got, want });
        }
    }
    mismatch
}

fn bits(element: &[u8]) -> u64 {
    element.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

/// How many representable floats lie between two.
fn distance(left: u64, right: u64, element: usize) -> u64 {
    let sign = 1u64 << (8 * element - 1);
    let place = |bits: u64| if bits & sign == 0 { i128::from(bits) } else { -i128::from(bits & !sign) };
    u64::try_from((place(left) - place(right)).unsigned_abs()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_wrong_elements_and_shows_the_first() {
        let want = [1u32, 2, 3, 4].map(u32::to_le_bytes).concat();
        let mut got = want.clone();
        assert_eq!(compare(&got, &want, 4, 0), Mismatch::default());
        got[4] = 9;
        got[15] = 1;
        let mismatch = compare(&got, &want, 4, 0);
        assert_eq!(mismatch, Mismatch { wrong: 2, first: Some(Wrong { index: 1, got: 9, want: 2 }) });
    }

    #[test]
    fn tolerance_counts_floats_across_zero() {
        let bits = |value: f32, steps: i32| ((value.to_bits() as i32 + steps) as u32).to_le_bytes();
        let rows = [(1.0, 2, 0), (1.0, -2, 0), (1.0, 3, 1), (-1.0, 3, 1), (1.0, -3, 1), (1e30, 2, 0)];
        for (value, steps, wrong) in rows {
            assert_eq!(compare(&bits(value, steps), &bits(value, 0), 4, 2).wrong, wrong, "{value} and {steps}");
        }
        assert_eq!(compare(&(-0.0f32).to_le_bytes(), &0.0f32.to_le_bytes(), 4, 2).wrong, 0);
        assert_eq!(compare(&(-0.0f32).to_le_bytes(), &0.0f32.to_le_bytes(), 4, 0).wrong, 1);
        assert_eq!(compare(&(-1e-45f32).to_le_bytes(), &1e-45f32.to_le_bytes(), 4, 2).wrong, 0);
        assert_eq!(compare(&f32::NAN.to_le_bytes(), &1f32.to_le_bytes(), 4, 2).wrong, 1);
    }
}
