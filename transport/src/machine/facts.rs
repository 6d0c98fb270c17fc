//! Facts about the process and its host.

use std::sync::Mutex;

/// The host's name, as the kernel knows it.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The kernel's version, as far as its first two numbers say; zeros where they can't be read.
#[cfg(feature = "rdma")]
pub(crate) fn kernel_version() -> (u32, u32) {
    version_of(&rustix::system::uname().release().to_string_lossy())
}

#[cfg(any(feature = "rdma", test))]
fn version_of(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|char: char| !char.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// A text that is the same for all processes on one running kernel, and no other; empty where the kernel doesn't say.
pub(crate) fn boot_id() -> String {
    match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(text) => text.trim().to_owned(),
        Err(error) => {
            tracing::debug!("the kernel's boot number can't be read ({error}); shared memory is not tried");
            format!("unknown, process {:02x?}", process_id())
        }
    }
}

/// A number of this process that no other has, also after a fork.
pub(crate) fn process_id() -> [u8; 16] {
    static KNOWN: Mutex<Option<(u32, [u8; 16])>> = Mutex::new(None);
    let mut known = KNOWN.lock().expect("no panic while held");
    let pid = std::process::id();
    match *known {
        Some((of, number)) if of == pid => number,
        _ => known.insert((pid, random())).1,
    }
}

/// Sixteen bytes from the kernel's random numbers.
pub(crate) fn random() -> [u8; 16] {
    let mut bytes = [0u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel gives no random numbers: {error}"),
        }
    }
    bytes
}

/// Mixes a word into a digest.
pub(crate) fn mix(digest: u64, word: u64) -> u64 {
    // The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
    let mut mixed = (digest ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Raises this process's limit on open files as far as it may by itself.
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    if now.current != now.maximum {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
        if let Err(error) = raised {
            tracing::debug!("the limit on open files stays at {:?}: {error}", now.current);
        }
    }
}

/// What to do about an error, where it is for want of files; empty otherwise. To be appended to the error's text.
pub(crate) fn files_hint(error: &std::io::Error) -> &'static str {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::MFILE) => "; raise the limit on open files (ulimit -n)",
        Some(rustix::io::Errno::NFILE) => "; the system has no file handles left: raise fs.file-max",
        _ => "",
    }
}

/// What is in the way of opening so many more files, if the process's limit is.
pub(crate) fn files_missing(more: usize) -> Option<String> {
    let limit = usize::try_from(rustix::process::getrlimit(rustix::process::Resource::Nofile).current?).ok()?;
    let open = match open_files() {
        Ok(files) => files,
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => limit,
        Err(_) => return None,
    };
    (limit < open + more).then(|| {
        format!("{open} files are open and no more than {limit} may be; allow {} at least (ulimit -n)", open + more)
    })
}

/// How many files this process has open.
fn open_files() -> std::io::Result<usize> {
    const OPEN: &str = "/proc/self/fd";
    // Since Linux 6.2 the folder's size says it, without a look at each.
    match std::fs::metadata(OPEN)?.len() {
        // One is what is read here.
        0 => Ok(std::fs::read_dir(OPEN)?.count() - 1),
        files => Ok(files as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_far_as_they_are_numbers() {
        let rows =
            [("6.12.48+deb13-amd64", (6, 12)), ("5.4", (5, 4)), ("7", (7, 0)), ("strange", (0, 0)), ("", (0, 0))];
        for (release, version) in rows {
            assert_eq!(version_of(release), version, "{release}");
        }
    }

    #[test]
    fn open_files_are_counted() {
        const MORE: usize = 40;
        let before = open_files().unwrap();
        let files: Vec<_> = (0..MORE).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let by_name = std::fs::read_dir("/proc/self/fd").unwrap().count() - 1;
        let counted = open_files().unwrap();
        // Other tests of this process open and close files meanwhile.
        assert!(
            counted.abs_diff(by_name) < MORE / 2 && counted + MORE / 2 > before + MORE,
            "{before}, {counted}, {by_name}"
        );
        drop(files);
    }
}
