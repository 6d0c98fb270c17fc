//! Facts about the machine.

/// The host's name, as the kernel knows it.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
