//! What the guest's file system holds: a base of tools, packed once, and what one run brings.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use crate::archive::Archive;
use crate::command::{find, libraries, output};
use crate::error::{Doing, Error, Result};
use crate::kernel::{Kernel, MODULES};

/// What every guest has: the program, the package it comes from, where it lies in the guest.
const NEEDED: [(&str, &str, &str); 7] = [
    ("dash", "dash", "/bin/dash"),
    ("busybox", "busybox-static", "/bin/busybox"),
    ("kmod", "kmod", "/usr/sbin/modprobe"),
    ("ip", "iproute2", "/usr/sbin/ip"),
    ("rdma", "iproute2", "/usr/sbin/rdma"),
    ("setpriv", "util-linux", "/usr/bin/setpriv"),
    ("prlimit", "util-linux", "/usr/bin/prlimit"),
];

/// What it has if the machine does, for measuring and looking.
const WELCOME: [&str; 6] = ["ibv_devinfo", "ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat", "ib_read_lat"];

const FILES: [(&str, &str); 4] = [
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n"),
    ("/etc/group", "root:x:0:\nuser:x:1000:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
];

/// The archive with the tools, in `cache`; packed anew if the kernel or a tool is another.
///
/// # Errors
///
/// [`Error::Missing`] if the machine lacks a tool.
pub fn base(cache: &Path, kernel: &Kernel) -> Result<PathBuf> {
    let mut programs: Vec<(PathBuf, PathBuf)> = Vec::new();
    for (program, package, target) in NEEDED {
        programs.push((find(program, package)?, target.into()));
    }
    let optional = WELCOME.iter().filter_map(|program| find(program, "perftest").ok());
    programs.extend(optional.map(|path| (path.clone(), Path::new("/usr/bin").join(path.file_name().expect("a file")))));
    let driver = provider()?;
    programs.push((driver.clone(), driver));

    let mut contents = format!("kernel {} with {}\n", kernel.version, MODULES.join(" "));
    for (source, _) in &programs {
        let about = source.metadata().doing(format!("looking at {}", source.display()))?;
        let changed = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        writeln!(contents, "{} {} {}", source.display(), about.len(), changed.as_secs()).expect("memory takes all");
    }
    let (archive, stamp) = (cache.join("base.cpio"), cache.join("base.stamp"));
    if archive.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|old| old == contents) {
        return Ok(archive);
    }
    let _ = std::fs::remove_file(&stamp);
    let mut base = Archive::create(&archive)?;
    for (source, target) in &programs {
        base.program(source, target)?;
    }
    for (target, content) in FILES {
        base.text(Path::new(target), content)?;
    }
    base.link(Path::new("/bin/sh"), "dash")?;
    base.text(Path::new("/etc/libibverbs.d/rxe.driver"), "driver rxe\n")?;
    below(&kernel.root, &mut |file| {
        base.file(file, &Path::new("/").join(file.strip_prefix(&kernel.root).expect("it lies below")))
    })?;
    base.finish()?;
    std::fs::write(&stamp, contents).doing("writing the stamp")?;
    Ok(archive)
}

/// The part of libibverbs that drives soft-RoCE.
fn provider() -> Result<PathBuf> {
    let libraries = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = libraries.chain([PathBuf::from("/usr/lib64")]).map(|folder| folder.join("libibverbs"));
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    let mut files = files.map(|entry| entry.path());
    files
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("librxe-rdmav")))
        .ok_or_else(|| Error::Missing("no librxe-rdmav*.so on this machine (apt-get install ibverbs-providers)".into()))
}

/// Every file below a folder.
///
/// # Errors
///
/// If it can't be read, or as `each`.
pub fn below(folder: &Path, each: &mut impl FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in std::fs::read_dir(folder).doing(format!("reading {}", folder.display()))? {
        let path = entry.doing(format!("reading {}", folder.display()))?.path();
        if path.is_dir() { below(&path, each)? } else { each(&path)? }
    }
    Ok(())
}

/// Where a brought program lies in the guest: tests as cargo has them, in `deps`, without the hash.
///
/// Tests look for the programs that they start in the folder above.
#[must_use]
pub fn place(program: &Path) -> PathBuf {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let is_test = program.parent().is_some_and(|folder| folder.ends_with("deps"));
    let folder = Path::new("/paceline");
    if !is_test {
        return folder.join(&*name);
    }
    let is_hash = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = name.rsplit_once('-').filter(|(_, hash)| is_hash(hash)).map_or(&*name, |(name, _)| name);
    folder.join("deps").join(name)
}

/// Packs a program, without its debugging information, which the guest would hold in memory.
///
/// # Errors
///
/// If it can't be read, or lacks a library.
pub fn bring(archive: &mut Archive, program: &Path, scratch: &Path) -> Result<()> {
    for library in libraries(program)? {
        archive.file(&library, &library)?;
    }
    let stripped = scratch.join("stripped");
    let strip = find("strip", "binutils")
        .and_then(|strip| output(Command::new(strip).arg("--strip-debug").arg("-o").arg(&stripped).arg(program)));
    let source = if strip.is_ok() { &stripped } else { program };
    archive.file(source, &place(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_lie_where_they_find_their_programs() {
        let check = |program: &str, want: &str| assert_eq!(place(Path::new(program)), Path::new(want));
        check("target/debug/all_reduce_perf", "/paceline/all_reduce_perf");
        check("target/debug/deps/links-0123456789abcdef", "/paceline/deps/links");
        check("target/debug/deps/bad-input", "/paceline/deps/bad-input");
        check("/usr/bin/x-0123456789abcdef", "/paceline/x-0123456789abcdef");
    }
}
