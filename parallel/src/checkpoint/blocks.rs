//! Checksums of a file, block by block: what is read is verified, and what isn't needed isn't read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Doing, Error, Result};

pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// SHA-256 in hexadecimal digits.
pub(super) fn sha256(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The checksums of the blocks of a file that is made of some parts.
pub(super) fn checksums(parts: &[&[u8]], block_bytes: usize) -> Vec<String> {
    let mut parts = parts.iter().copied().filter(|part| !part.is_empty());
    let (mut rest, mut sums) = (parts.next().unwrap_or_default(), Vec::new());
    while !rest.is_empty() {
        let (mut block, mut room) = (Vec::new(), block_bytes);
        while room > 0 && !rest.is_empty() {
            let (taken, left) = rest.split_at(room.min(rest.len()));
            block.push(taken);
            room -= taken.len();
            rest = if left.is_empty() { parts.next().unwrap_or_default() } else { left };
        }
        sums.push(sha256(&block));
    }
    sums
}

/// A file that is read through its checksums.
pub(super) struct BlockFile<'c> {
    path: PathBuf,
    file: File,
    bytes: u64,
    block_bytes: usize,
    checksums: &'c [String],
    /// The block that was read last.
    block: Option<(usize, Vec<u8>)>,
}

impl<'c> BlockFile<'c> {
    /// # Errors
    /// The file isn't there, or has another length.
    pub(super) fn open(path: &Path, bytes: u64, block_bytes: usize, checksums: &'c [String]) -> Result<BlockFile<'c>> {
        let file = File::open(path).doing(|| format!("opening {}", path.display()))?;
        let is = file.metadata().doing(|| format!("looking at {}", path.display()))?.len();
        if is != bytes {
            let what = if is < bytes { "is cut short" } else { "is too long" };
            let path = path.display();
            return Err(Error::invalid(format!("{path} {what}: it has {is} bytes, and should have {bytes}")));
        }
        Ok(BlockFile { path: path.to_owned(), file, bytes, block_bytes, checksums, block: None })
    }

    /// Reads what lies at an offset.
    ///
    /// # Errors
    /// It can't be read, lies beyond the end, or a block isn't what was written.
    pub(super) fn read(&mut self, offset: u64, target: &mut [u8]) -> Result<()> {
        if offset + target.len() as u64 > self.bytes {
            return Err(Error::invalid(format!("{} ends before what should be in it", self.path.display())));
        }
        let (mut offset, mut target) = (offset as usize, target);
        while !target.is_empty() {
            let (block, within) = (offset / self.block_bytes, offset % self.block_bytes);
            let source = &self.block(block)?[within..];
            let len = source.len().min(target.len());
            target[..len].copy_from_slice(&source[..len]);
            offset += len;
            target = &mut target[len..];
        }
        Ok(())
    }

    /// Reads all of it.
    pub(super) fn verify(&mut self) -> Result<()> {
        (0..self.checksums.len()).try_for_each(|block| self.block(block).map(drop))
    }

    fn block(&mut self, number: usize) -> Result<&[u8]> {
        if self.block.as_ref().is_none_or(|(held, _)| *held != number) {
            let begin = number as u64 * self.block_bytes as u64;
            let mut block = vec![0; (self.bytes - begin).min(self.block_bytes as u64) as usize];
            let read = self.file.seek(SeekFrom::Start(begin)).and_then(|_| self.file.read_exact(&mut block));
            read.doing(|| format!("reading {}", self.path.display()))?;
            if self.checksums.get(number) != Some(&sha256(&[&block])) {
                let path = self.path.display();
                return Err(Error::invalid(format!(
                    "{path} is damaged: the {} bytes from {begin} on are not those that were written",
                    block.len()
                )));
            }
            self.block = Some((number, block));
        }
        Ok(&self.block.as_ref().expect("it was just read").1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_range_is_read_and_any_damage_is_seen(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..5), block_bytes in 1usize..9,
            from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(), hit in any::<prop::sample::Index>(),
        ) {
            let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let mut all = parts.concat();
            let sums = checksums(&slices, block_bytes);
            prop_assert_eq!(sums.len(), all.len().div_ceil(block_bytes));
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file");
            let (from, to) = (from.index(all.len() + 1), to.index(all.len() + 1));
            let (from, to) = (from.min(to), from.max(to));
            let read = |all: &[u8]| {
                std::fs::write(&path, all).unwrap();
                let mut target = vec![0; to - from];
                let mut file = BlockFile::open(&path, parts.concat().len() as u64, block_bytes, &sums)?;
                file.read(from as u64, &mut target)?;
                Ok::<_, Error>((target, file.verify()))
            };
            let (target, verified) = read(&all).unwrap();
            prop_assert_eq!(&target, &all[from..to]);
            prop_assert!(verified.is_ok());
            if !all.is_empty() {
                let hit = hit.index(all.len());
                all[hit] ^= 1;
                let touched = from < to && from / block_bytes <= hit / block_bytes && hit / block_bytes <= (to - 1) / block_bytes;
                match read(&all) {
                    Ok((_, verified)) => prop_assert!(!touched && verified.is_err()),
                    Err(error) => prop_assert!(touched && error.to_string().contains("damaged")),
                }
                let error = read(&all[1..]).unwrap_err().to_string();
                prop_assert!(error.contains("cut short"));
            }
        }
    }

    #[test]
    fn sha256_is_the_known_one() {
        let want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&[b"a", b"", b"bc"]), want);
    }
}
