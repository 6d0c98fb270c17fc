//! Compiled kernels on disk, so that a job compiles only what no job before it has compiled.
//!
//! A cache may lose anything at any time and is never a reason to fail: what can't be read is compiled again, what can't
//! be written is said once. Many processes use the same folder at the same time, so a file appears whole, by being
//! renamed, and carries a digest, so that one that was cut or damaged by whatever else is not taken for a kernel.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use sha2::{Digest, Sha256};

use super::Key;
use crate::{Environment, Error, Result};

/// How a file begins. Then come the key, the digest of the content, and the content.
const MAGIC: &str = "paceline kernel 1\n";

/// No compiled kernel comes near this: what is longer isn't read.
const CONTENT_MAX: usize = 64 << 20;

/// A folder of compiled kernels, or none.
#[derive(Debug)]
pub struct Cache {
    folder: Option<PathBuf>,
    told: Once,
}

impl Cache {
    /// What the environment says: `PACELINE_CACHE`, or the usual place in the user's cache.
    ///
    /// # Errors
    ///
    /// A value is not UTF-8.
    pub fn from_env(environment: &Environment) -> Result<Cache> {
        let text = |name| environment.text(name).map_err(|error| Error::invalid(error.to_string()));
        match text("PACELINE_CACHE")? {
            Some("none") => return Ok(Cache::nowhere()),
            Some(folder) => return Ok(Cache::at(folder)),
            None => {}
        }
        let absolute = |name| text(name).map(|text| text.map(PathBuf::from).filter(|path| path.is_absolute()));
        let usual = match absolute("XDG_CACHE_HOME")? {
            Some(cache) => Some(cache),
            None => absolute("HOME")?.map(|home| home.join(".cache")),
        };
        Ok(usual.map_or_else(Cache::nowhere, |usual| Cache::at(usual.join("paceline").join("kernels"))))
    }

    /// The cache in `folder`, which is made when something is first put into it.
    pub fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: Some(folder.into()), told: Once::new() }
    }

    /// A cache that keeps nothing.
    #[must_use]
    pub fn nowhere() -> Cache {
        Cache { folder: None, told: Once::new() }
    }

    /// The folder, if there is one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// What was put under `key`. `None` if nothing was, or if what is there can't be read or is something else.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.folder.as_ref()?.join(file_name(key));
        match read(&path, key) {
            Ok(content) => Some(content),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::debug!("{}: not used, and compiled again: {error}", path.display());
                }
                None
            }
        }
    }

    /// Keeps `content` under `key`, in place of whatever was there. Where that can't be done, the first time is logged.
    pub fn put(&self, key: &Key, content: &[u8]) {
        let Some(folder) = &self.folder else { return };
        if let Err(error) = write(folder, key, content) {
            self.told.call_once(|| {
                tracing::warn!(
                    "compiled kernels can't be kept in {}: {error}; each process compiles its own. Set PACELINE_CACHE to \
                     a folder that can be written, or to none",
                    folder.display()
                );
            });
        }
    }
}

fn file_name(key: &Key) -> String {
    format!("{key}.kernel")
}

fn header(key: &Key, content: &[u8]) -> Vec<u8> {
    let mut header = format!("{MAGIC}{key}\n").into_bytes();
    header.extend_from_slice(&Sha256::digest(content));
    header
}

fn read(path: &Path, key: &Key) -> io::Result<Vec<u8>> {
    let expected = header(key, &[]).len();
    let mut bytes = Vec::new();
    let limit = expected + CONTENT_MAX + 1;
    File::open(path)?.take(limit as u64).read_to_end(&mut bytes)?;
    if bytes.len() < expected || bytes.len() == limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} bytes are no kernel", bytes.len())));
    }
    let content = bytes.split_off(expected);
    if bytes != header(key, &content) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "another kernel, or a damaged one"));
    }
    Ok(content)
}

fn write(folder: &Path, key: &Key, content: &[u8]) -> io::Result<()> {
    // Kernels are programs: nobody else may put some there.
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let (temporary, mut file) = fresh(folder, key)?;
    let written = file
        .write_all(&header(key, content))
        .and_then(|()| file.write_all(content))
        .and_then(|()| fs::rename(&temporary, folder.join(file_name(key))));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A new file that nobody else writes to, in the same folder, so that it can be renamed.
fn fresh(folder: &Path, key: &Key) -> io::Result<(PathBuf, File)> {
    // Another thread, or a process of the same number that was killed or runs elsewhere, may have taken some names.
    const TRIES: u32 = 64;
    let mut last = None;
    for number in 0..TRIES {
        let path = folder.join(format!(".{key}.{}.{number}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.expect("there was a try"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Architecture, Kernel, source};
    use crate::reduce::{DataType, ReduceOp};

    fn key(data_type: DataType) -> Key {
        source(Kernel::Reduce(data_type, ReduceOp::Sum), Architecture::new(9, 0)).key("nvrtc 12.9")
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
    }

    #[test]
    fn what_was_put_is_got_again_by_its_key_only() {
        let room = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(room.path().join("a").join("b"));
        let (one, other) = (key(DataType::F32), key(DataType::F64));
        assert_eq!(cache.get(&one), None, "nothing was put, not even the folder is there");
        for content in [&b"kernel"[..], b"", b"another", &[7; 100_000]] {
            cache.put(&one, content);
            assert_eq!(cache.get(&one).as_deref(), Some(content));
            assert_eq!(Cache::at(cache.folder().expect("one")).get(&one).as_deref(), Some(content));
        }
        assert_eq!(cache.get(&other), None);
        assert_eq!(names(cache.folder().expect("one")), [file_name(&one)], "no temporary file is left");
    }

    #[test]
    fn a_damaged_or_foreign_file_is_ignored_and_rewritten() {
        let room = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(room.path());
        let (one, other) = (key(DataType::F32), key(DataType::F64));
        cache.put(&one, b"some kernel");
        cache.put(&other, b"some other kernel");
        let path = room.path().join(file_name(&one));
        let sound = fs::read(&path).expect("the file");
        let mut damaged: Vec<Vec<u8>> = (0..sound.len())
            .map(|at| {
                let mut bytes = sound.clone();
                bytes[at] ^= 0x10;
                bytes
            })
            .collect();
        damaged.extend((0..sound.len()).map(|length| sound[..length].to_vec()));
        damaged.push([&sound[..], b"!"].concat());
        damaged.push(fs::read(room.path().join(file_name(&other))).expect("the other file"));
        for bytes in damaged {
            fs::write(&path, &bytes).expect("written");
            assert_eq!(cache.get(&one), None, "{}", String::from_utf8_lossy(&bytes));
            cache.put(&one, b"compiled again");
            assert_eq!(cache.get(&one).as_deref(), Some(&b"compiled again"[..]));
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_no_error() {
        let room = tempfile::tempdir().expect("a folder");
        let file = room.path().join("file");
        fs::write(&file, "in the way").expect("written");
        let one = key(DataType::U8);
        // Below a file no folder can be made, by nobody.
        for cache in [Cache::at(file.join("kernels")), Cache::at(&file), Cache::nowhere()] {
            cache.put(&one, b"kernel");
            cache.put(&one, b"kernel");
            assert_eq!(cache.get(&one), None);
            assert_eq!(cache.told.is_completed(), cache.folder().is_some(), "{cache:?}");
        }
        let cache = Cache::at(room.path());
        fs::create_dir_all(room.path().join(file_name(&one)).join("in the way")).expect("made");
        cache.put(&one, b"kernel");
        assert_eq!(cache.get(&one), None);
        assert_eq!(names(room.path()).len(), 2, "no temporary file is left: {:?}", names(room.path()));
    }

    #[test]
    fn many_writers_leave_one_whole_file() {
        let room = tempfile::tempdir().expect("a folder");
        let one = key(DataType::I8);
        std::thread::scope(|scope| {
            for writer in 0..8u8 {
                let (cache, one) = (Cache::at(room.path()), &one);
                scope.spawn(move || {
                    for _ in 0..50 {
                        cache.put(one, &vec![writer; 10_000]);
                        let content = cache.get(one).expect("once it is there, it stays");
                        assert!(content.len() == 10_000 && content.iter().all(|byte| *byte == content[0]));
                    }
                    assert!(!cache.told.is_completed());
                });
            }
        });
        assert_eq!(names(room.path()), [file_name(&one)]);
    }

    #[test]
    fn the_environment_says_where() {
        let folder = |pairs: &[(&str, &str)]| {
            let cache = Cache::from_env(&Environment::from_pairs(pairs.to_vec())).expect("a place");
            cache.folder().map(|folder| folder.to_str().expect("UTF-8").to_owned())
        };
        assert_eq!(folder(&[]), None);
        assert_eq!(folder(&[("HOME", "/h")]).as_deref(), Some("/h/.cache/paceline/kernels"));
        assert_eq!(folder(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]).as_deref(), Some("/c/paceline/kernels"));
        let relative = [("HOME", "/h"), ("XDG_CACHE_HOME", "c")];
        assert_eq!(folder(&relative).as_deref(), Some("/h/.cache/paceline/kernels"));
        assert_eq!(folder(&[("HOME", "/h"), ("PACELINE_CACHE", "none")]), None);
        assert_eq!(folder(&[("HOME", "/h"), ("PACELINE_CACHE", "k")]).as_deref(), Some("k"));
    }
}
