//! Where facts are read: the kernel's file trees of this machine, or a copy of another's.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::{GpuLinks, Machine, gpus, nics, pci, processors};

/// The most bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The most entries of a folder that are looked at.
const ENTRIES_MAX: usize = 1 << 16;

/// Where facts about a machine are read.
#[derive(Clone, Debug)]
pub struct Source {
    sys: PathBuf,
    proc: Option<PathBuf>,
}

impl Source {
    /// This machine.
    #[must_use]
    pub fn here() -> Source {
        Source { sys: PathBuf::from("/sys"), proc: Some(PathBuf::from("/proc")) }
    }

    /// A copy of a machine's tree: a folder with `sys`, and `proc` if it was kept, or what is in `sys` itself.
    #[must_use]
    pub fn at(root: &Path) -> Source {
        let (sys, proc) = (root.join("sys"), root.join("proc"));
        if sys.is_dir() {
            return Source { sys, proc: proc.is_dir().then_some(proc) };
        }
        Source { sys: root.to_owned(), proc: None }
    }

    /// Where a path such as `sys/devices` is; nowhere for `proc` if it wasn't kept.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("sys"), path.strip_prefix("proc"), &self.proc) {
            (Ok(rest), ..) => self.sys.join(rest),
            (_, Ok(rest), Some(proc)) => proc.join(rest),
            _ => PathBuf::new(),
        }
    }

    /// Where a path of sysfs is.
    pub(super) fn sys(&self, path: &str) -> PathBuf {
        self.sys.join(path)
    }

    /// A file of `/proc`.
    pub(super) fn proc_text(&self, path: &str) -> Option<String> {
        text(&self.proc.as_ref()?.join(path))
    }
}

impl Machine {
    /// Reads what there is. What is missing is missing in the result, with a note; nothing is an error.
    ///
    /// `links` tells about GPUs and NVLinks, of which the kernel knows nothing: NVIDIA's library with the feature `nvml`, or a
    /// record.
    #[must_use]
    pub fn detect(source: &Source, links: Option<&dyn GpuLinks>) -> Machine {
        let mut machine = Machine::default();
        processors::read(source, &mut machine);
        let tree = pci::Tree::read(source, &mut machine);
        gpus::read(&mut machine, links);
        nics::read(source, &tree, &mut machine);
        machine
    }
}

/// A file's first line or lines without the white space around; `None` if it can't be read or is empty.
pub(super) fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// A file with a number.
pub(super) fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// A file with a hexadecimal number such as `0x10de`.
pub(super) fn hexadecimal(path: &Path) -> Option<u32> {
    let text = text(path)?;
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(&text), 16).ok()
}

/// The names in a folder, in order; empty if there is none.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(ENTRIES_MAX).flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// The numbers of the entries that are called `prefix` and a number, in order.
pub(super) fn numbered(folder: &Path, prefix: &str) -> Vec<u32> {
    let numbers = names(folder).into_iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers
}
