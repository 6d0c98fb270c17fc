//! Copies past the caches: for data that nobody looks at soon.

/// Copies `source` to `target` without fetching the target's lines, and without pushing others out of the caches.
///
/// # Panics
///
/// If the two have different lengths.
pub fn copy(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "a copy keeps its length");
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: SSE2 is part of the architecture; any bits are lanes.
        let (before, lines, _) = unsafe { target.align_to_mut::<std::arch::x86_64::__m128i>() };
        let (skip, n) = (before.len(), lines.len());
        before.copy_from_slice(&source[..skip]);
        for (place, lane) in lines.iter_mut().enumerate() {
            let from = &source[skip + place * 16..][..16];
            // SAFETY: `from` has sixteen bytes, and `lane` is aligned to sixteen.
            unsafe {
                use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
                _mm_stream_si128(lane, _mm_loadu_si128(from.as_ptr().cast()));
            }
        }
        let done = skip + n * 16;
        target[done..].copy_from_slice(&source[done..]);
        // SAFETY: always there. Streamed stores are ordered before what the caller stores next.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    target.copy_from_slice(source);
}

#[cfg(test)]
mod tests {
    use super::copy;

    #[test]
    fn copies_everything_and_nothing_else() {
        let source: Vec<u8> = (0..300).map(|i| i as u8).collect();
        for start in 0..20 {
            for len in [0, 1, 15, 16, 17, 31, 63, 64, 65, 200, 260] {
                let mut target = [0xee; 300];
                copy(&mut target[start..start + len], &source[7..7 + len]);
                assert_eq!(target[start..start + len], source[7..7 + len]);
                assert!(target[..start].iter().chain(&target[start + len..]).all(|byte| *byte == 0xee));
            }
        }
    }
}
