//! Brings stored elements to where they are wanted.

use half::{bf16, f16};
use safetensors::Dtype;

use crate::error::{Error, Result};
use crate::state::Numbers;
use crate::stretch::Stretch;

/// A stretch in some file.
pub(super) struct Found {
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) stretch: Stretch,
}

/// Reads what lies at an offset of a file.
pub(super) type Read<'r> = &'r mut dyn FnMut(usize, u64, &mut [u8]) -> Result<()>;

/// Reads all elements of a stretch that aren't padding to `target`, from `begin` on, from wherever they lie.
///
/// # Errors
/// Some lie nowhere, or those of `read`.
pub(super) fn fill(
    wanted: &Stretch,
    found: &[Found],
    dtype: Dtype,
    read: Read<'_>,
    (target, begin): (&mut Numbers, usize),
) -> Result<()> {
    let size = dtype.bitsize() / 8;
    let (mut bytes, mut filled) = (Vec::new(), Vec::new());
    for found in found {
        for run in wanted.shared(&found.stretch)? {
            bytes.resize(run.len * size, 0);
            let offset = found.offset + ((run.theirs - found.stretch.range.start) * size) as u64;
            read(found.file, offset, &mut bytes)?;
            decode(&bytes, dtype, target, begin + run.mine - wanted.range.start)?;
            filled.push(run.mine..run.mine + run.len);
        }
    }
    filled.sort_unstable_by_key(|range| range.start);
    let (mut count, mut end) = (0, 0);
    for range in filled {
        count += range.end.max(end) - range.start.max(end);
        end = end.max(range.end);
    }
    match wanted.real_len() - count {
        0 => Ok(()),
        missing => Err(Error::invalid(format!("{missing} elements of {:?} are nowhere", wanted.part.whole()))),
    }
}

/// Writes numbers of any type to `target`, from `begin` on.
fn decode(bytes: &[u8], dtype: Dtype, target: &mut Numbers, begin: usize) -> Result<()> {
    fn put<const N: usize, F>(bytes: &[u8], target: &mut Numbers, begin: usize, number: impl Fn([u8; N]) -> F)
    where
        F: Into<f64>,
    {
        let numbers = bytes.chunks_exact(N).map(|bytes| number(bytes.try_into().expect("N bytes")).into());
        match target {
            Numbers::F32(target) => {
                target[begin..].iter_mut().zip(numbers).for_each(|(target, number)| *target = number as f32);
            }
            Numbers::F64(target) => {
                target[begin..].iter_mut().zip(numbers).for_each(|(target, number)| *target = number)
            }
        }
    }
    match dtype {
        Dtype::F32 => put(bytes, target, begin, f32::from_le_bytes),
        Dtype::F64 => put(bytes, target, begin, f64::from_le_bytes),
        Dtype::F16 => put(bytes, target, begin, f16::from_le_bytes),
        Dtype::BF16 => put(bytes, target, begin, bf16::from_le_bytes),
        other => return Err(Error::invalid(format!("numbers of {other:?} can't be trained"))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::Part;

    /// Elements 0, 1, ... of a tensor of 4 x 3, of which two files have two columns and a stretch of the rest.
    fn read(file: usize, offset: u64, target: &mut [u8]) -> Result<()> {
        let elements: &[f64] = if file == 0 { &[0.0, 1.0, 3.0, 4.0, 6.0, 7.0, 9.0, 10.0] } else { &[5.0, 8.0, 11.0] };
        let bytes: Vec<u8> = elements.iter().flat_map(|number| number.to_le_bytes()).collect();
        target.copy_from_slice(&bytes[offset as usize..][..target.len()]);
        Ok(())
    }

    #[test]
    fn elements_come_from_several_files_and_none_may_be_missing() {
        let whole = Part::all(&[4, 3]);
        let columns = Stretch::all(whole.clone().range(1, 0..2));
        let column = |range| Stretch { part: whole.clone().range(1, 2..3), range };
        let (two, rest) = (Found { file: 0, offset: 0, stretch: columns }, |range: std::ops::Range<usize>| Found {
            file: 1,
            offset: 0,
            stretch: column(range),
        });
        let rows = |range| Stretch::all(whole.clone().range(0, range));
        let fill = |wanted: &Stretch, found: &[Found]| {
            let mut target = Numbers::zeros(candle_core::DType::F64, wanted.range.len() + 1);
            fill(wanted, found, Dtype::F64, &mut read, (&mut target, 1)).map(|()| target)
        };
        let found = [two, rest(1..4)];
        let got = fill(&rows(1..4), &found).unwrap();
        assert_eq!(got, Numbers::F64((2..12).map(|n| if n == 2 { 0.0 } else { f64::from(n) }).collect()));
        let error = fill(&rows(0..2), &found).unwrap_err().to_string();
        assert!(error.contains("1 elements of [4, 3]"), "{error}");
        // What is there twice makes up for nothing.
        let [two, rest] = found;
        let twice = [two, Found { stretch: column(1..4), ..rest }, Found { file: 1, offset: 0, stretch: column(1..4) }];
        assert!(fill(&rows(0..2), &twice).is_err());
    }
}
