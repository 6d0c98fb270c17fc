//! What only the operating system knows: random bytes, the host's addresses, inherited descriptors, the end of the
//! process.

use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes from the kernel's random generator.
///
/// # Panics
/// The kernel has none, which Linux doesn't do.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel gave no random bytes: {error}"),
        }
    }
    bytes
}

/// The name that this host gives itself.
pub(super) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What is in the way of opening so many more files, if the process's limit is.
pub(super) fn files_missing(more: usize) -> Option<String> {
    let limit = usize::try_from(rustix::process::getrlimit(rustix::process::Resource::Nofile).current?).ok()?;
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    (limit < open + more).then(|| {
        format!("{open} files are open and no more than {limit} may be; allow {} at least (ulimit -n)", open + more)
    })
}

/// A copy, closed on exec, of a descriptor that the process was started with.
pub(super) fn inherited(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a number that isn't -1 may be borrowed; if nothing is open there, `fcntl` says so and no harm is done. The
    // borrow ends in this statement.
    unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()
}

/// Has `handler` called when the process ends by returning from `main` or by `exit`.
pub(super) fn at_exit(handler: extern "C" fn()) {
    // SAFETY: `handler` is a function of this program and takes no arguments, as `atexit` asks.
    let full = unsafe { libc::atexit(handler) };
    if full != 0 {
        tracing::debug!("no room for a handler at the end of the process");
    }
}

/// The addresses of this host's interfaces that are up, with the interface's name. IPv6 addresses that need a scope
/// (link-local) are left out.
pub(super) fn addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `head` is a place for the list's head.
    if unsafe { libc::getifaddrs(&mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = head;
    while !next.is_null() {
        // SAFETY: `next` is an element of the list that getifaddrs made and that isn't freed before the loop ends.
        let entry = unsafe { &*next };
        // SAFETY: as above; the address it points at belongs to the same list.
        let address = unsafe { address(entry) };
        if let Some(address) = address.filter(|_| entry.ifa_flags & libc::IFF_UP as u32 != 0) {
            // SAFETY: the name is a C string of the same list.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
            found.push((name.to_string_lossy().into_owned(), address));
        }
        next = entry.ifa_next;
    }
    // SAFETY: `head` came from getifaddrs and nothing refers to the list any more.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

/// # Safety
/// `entry.ifa_addr` is null or points at an address of the family that it says.
unsafe fn address(entry: &libc::ifaddrs) -> Option<IpAddr> {
    if entry.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: not null, and every address starts with its family.
    match i32::from(unsafe { (*entry.ifa_addr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a `sockaddr_in`.
            let bytes = unsafe { (*entry.ifa_addr.cast::<libc::sockaddr_in>()).sin_addr.s_addr };
            Some(IpAddr::from(bytes.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a `sockaddr_in6`.
            let bytes = unsafe { (*entry.ifa_addr.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr };
            let address = std::net::Ipv6Addr::from(bytes);
            (!address.is_unicast_link_local()).then_some(address.into())
        }
        _ => None,
    }
}
