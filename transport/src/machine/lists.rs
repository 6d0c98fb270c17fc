//! Sets of processors as the kernel and NCCL write them: lists (`0-3,8`) and masks (`ff,0000ffff`).

/// The most processors of a host that are told apart: Linux allows no more than this.
pub const CORES_MAX: u32 = 8192;

/// The numbers of a list such as `0-3,8`, in order; `None` if it is none.
pub(super) fn list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= CORES_MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// Numbers in order as a list such as `0-3,8`; empty for none.
#[must_use]
pub fn list_text(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let text = runs.map(|run| match run {
        [one] => one.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    text.collect::<Vec<_>>().join(",")
}

/// The numbers of a mask: words of 32 bits in hexadecimal, the highest first; `None` if it is none.
pub(super) fn mask(text: &str) -> Option<Vec<u32>> {
    let words: Vec<&str> = text.trim().split(',').collect();
    let mut numbers = Vec::new();
    for (at, word) in words.iter().rev().enumerate() {
        let word = word.strip_prefix("0x").unwrap_or(word);
        if word.is_empty() || word.len() > 8 || !word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let bits = u32::from_str_radix(word, 16).ok()?;
        let base = u32::try_from(at).ok()?.checked_mul(32).filter(|base| *base < CORES_MAX)?;
        numbers.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| base + bit));
    }
    Some(numbers)
}

/// Numbers as a mask, as long as it must be.
pub(super) fn mask_text(numbers: &[u32]) -> String {
    let last = numbers.iter().max().copied().unwrap_or(0);
    let mut words = vec![0u32; last as usize / 32 + 1];
    numbers.iter().for_each(|number| words[*number as usize / 32] |= 1 << (number % 32));
    words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_are_read_as_they_are_written() {
        for (text, numbers) in
            [("", vec![]), ("0", vec![0]), ("0-3,8", vec![0, 1, 2, 3, 8]), ("31-33", vec![31, 32, 33])]
        {
            assert_eq!(list(text), Some(numbers.clone()));
            assert_eq!(list_text(&numbers), text);
            assert_eq!(mask(&mask_text(&numbers)), Some(numbers), "{text}");
        }
        assert_eq!(mask("1,00000003"), Some(vec![0, 1, 32]));
        assert_eq!(mask_text(&[0, 1, 32]), "00000001,00000003");
        for wrong in ["3-1", "a", "0-99999999", "-", "1-2-3"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
        for wrong in ["", "0-63", "fffffffff", "1,,2", "+f"] {
            assert_eq!(mask(wrong), None, "{wrong}");
        }
    }
}
