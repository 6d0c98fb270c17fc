//! What is wrong with buffers after a call: elements that differ, guard zones that were written.

use super::buffers::{Damage, Guarded};
use super::verify::compare;
use super::verify::compare::Wrong;

const BLOCK: usize = 1 << 16;

/// What a check found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Findings {
    /// Wrong elements, and damaged bytes of guard zones.
    pub wrong: u64,
    /// What the first finding is.
    pub first: Option<String>,
}

impl Findings {
    /// Adds what else was found.
    pub fn join(&mut self, other: Findings) {
        self.add(other.wrong, || other.first.unwrap_or_default());
    }

    /// Adds wrong elements, and what they are if they are the first.
    pub fn add(&mut self, wrong: u64, what: impl FnOnce() -> String) {
        if wrong > 0 {
            self.wrong += wrong;
            self.first.get_or_insert_with(what);
        }
    }

    /// Adds what became of a buffer's guard zones.
    pub fn add_damage(&mut self, damage: Option<Damage>, whose: &str) {
        if let Some(Damage { bytes, first }) = damage {
            self.add(bytes as u64, || {
                format!("{bytes} bytes outside the {whose} were written, the first at byte {first} of it")
            });
        }
    }
}

/// Elements of a buffer that are to be checked.
pub struct Run<'a> {
    /// The buffer.
    pub buffer: &'a Guarded,
    /// The first element.
    pub first: usize,
    /// How many elements.
    pub count: usize,
    /// Bytes of one element.
    pub element: usize,
    /// By how many units in the last place floats may be off.
    pub tolerance: u64,
}

impl Run<'_> {
    /// Compares with what `expected` writes for each block, given how many elements of the run come before it.
    pub fn check(&self, findings: &mut Findings, expected: impl Fn(usize, &mut [u8])) {
        let Run { buffer, first, count, element, tolerance } = *self;
        let mut want = vec![0; BLOCK.min(count * element)];
        let per_block = BLOCK / element;
        for skip in (0..count).step_by(per_block) {
            let want = &mut want[..per_block.min(count - skip) * element];
            expected(skip, want);
            let got = buffer.bytes((first + skip) * element, want.len());
            let mismatch = compare(got, want, element, tolerance);
            findings.add(mismatch.wrong, || {
                let Wrong { index, got, want } = mismatch.first.expect("one is wrong");
                format!("element {} is {got:#x}, not {want:#x}", first + skip + index)
            });
        }
    }
}
