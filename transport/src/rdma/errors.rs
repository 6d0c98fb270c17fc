//! What goes wrong with InfiniBand and RoCE, in the user's words, each with what to try.

#![forbid(unsafe_code)]

use std::io;

/// Why a link over InfiniBand or RoCE can't be had, or can't go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RdmaError {
    /// The library of the user's side of verbs is missing.
    #[error(
        "libibverbs can't be loaded: {0}; install it (libibverbs1 and ibverbs-providers on Debian, rdma-core on Red Hat)"
    )]
    NoLibrary(String),
    /// The kernel knows no device.
    #[error(
        "this host has no RDMA device: /sys/class/infiniband is empty; look at `lspci` and `rdma link`, and load the \
         device's module (mlx5_ib, irdma, bnxt_re, rdma_rxe)"
    )]
    NoDevice,
    /// The user's filter leaves none.
    #[error("PACELINE_RDMA_DEVICES={filter} leaves no RDMA device; there are {}", .present.join(", "))]
    Filtered {
        /// The filter.
        filter: String,
        /// What there is.
        present: Vec<String>,
    },
    /// The device can't be opened.
    #[error("{device} can't be opened: {error}{}", open_hint(.kind))]
    Open {
        /// The device.
        device: String,
        /// The answer.
        error: String,
        /// Its kind.
        kind: io::ErrorKind,
    },
    /// The port is not in service.
    #[error(
        "{port} is {state} ({physical}); {}",
        if .interfaces.is_empty() { "look at the cable, at `ibstat`, and on InfiniBand at the subnet manager".to_owned() }
        else { format!("bring its interface up (`ip link set {interfaces} up`) and look at the cable") }
    )]
    PortDown {
        /// The port.
        port: String,
        /// Its logical state.
        state: String,
        /// Its physical state.
        physical: String,
        /// The network interfaces behind it.
        interfaces: String,
    },
    /// The port has no address.
    #[error(
        "{port} has no usable GID: {why}; give its network interface an IP address (`ip addr add`), or choose a row with \
         PACELINE_RDMA_GID_INDEX (`rdma link`, /sys/class/infiniband/*/ports/*/gids)"
    )]
    NoGid {
        /// The port.
        port: String,
        /// What is wrong with its table.
        why: String,
    },
    /// Several ports, each with a problem of its own.
    #[error("no RDMA port can be used: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<RdmaError>),
    /// Memory can't be registered.
    #[error("{what}: {bytes} bytes of memory can't be pinned: {}", memlock_hint(*.limit))]
    Memlock {
        /// What was being done.
        what: String,
        /// How much memory it takes.
        bytes: usize,
        /// The process's limit in bytes, `None` for none.
        limit: Option<u64>,
    },
    /// The device refuses something.
    #[error("{device}: {what}: {error}")]
    Refused {
        /// The device.
        device: String,
        /// What was being done.
        what: &'static str,
        /// Its answer.
        error: String,
    },
    /// The two ends have no addresses that fit together.
    #[error(
        "{mine} and the peer's {theirs} have no GIDs of one kind (here {here}; there {there}): both need RoCE of the same \
         version, with addresses of the same family"
    )]
    NoCommonGid {
        /// This end's port.
        mine: String,
        /// The peer's.
        theirs: String,
        /// What this end has.
        here: String,
        /// What the peer has.
        there: String,
    },
    /// The kernel finds no way to the peer's port.
    #[error(
        "{port}: the peer's port can't be found ({error}; {path}): look whether the peer's interface is up and the two can \
         ping each other over these addresses"
    )]
    Unreachable {
        /// The port.
        port: String,
        /// From where to where.
        path: String,
        /// The kernel's answer.
        error: String,
    },
    /// Nothing comes through.
    #[error(
        "nothing came from the peer over {port} within {seconds} s ({path}): look whether the two can ping each other over \
         these addresses, at firewalls (RoCE v2 is UDP port 4791), VLANs, and at the other end's output"
    )]
    Silent {
        /// The port.
        port: String,
        /// How long was waited.
        seconds: u64,
        /// From where to where.
        path: String,
    },
    /// Small packets come through, large ones don't.
    #[error(
        "small writes arrive over {port} but not one of {bytes} bytes ({path}): something between has a smaller MTU than \
         the ends ({mtu} bytes per packet); make the MTU of all interfaces and switches fit (RoCE adds up to 66 bytes), or \
         lower that of the ends"
    )]
    MtuMismatch {
        /// The port.
        port: String,
        /// From where to where.
        path: String,
        /// Bytes of the write.
        bytes: usize,
        /// Bytes per packet.
        mtu: usize,
    },
    /// Packets were not acknowledged.
    #[error(
        "{port}: the peer's port did not acknowledge what was sent (retry exceeded, error 12; {path}): its process may have \
         died, a cable or interface be down, a firewall drop UDP port 4791, the GID index or RoCE version be wrong at one \
         end, something between have got a smaller MTU, or the network lose packets without flow control (PFC/ECN); \
         `paceline doctor --peer` tries it"
    )]
    RetryExceeded {
        /// The port.
        port: String,
        /// From where to where.
        path: String,
    },
    /// The other end tore the connection down.
    #[error("{port}: the peer's end of the connection is gone ({status}; {path}); look at its output")]
    PeerGone {
        /// The port.
        port: String,
        /// What the device said.
        status: String,
        /// From where to where.
        path: String,
    },
    /// A request failed in another way.
    #[error(
        "{port}: a request failed: {status} (vendor code {vendor:#x}; {path}); look whether the port is still up \
         (`rdma link`, `paceline doctor`)"
    )]
    Failed {
        /// The port.
        port: String,
        /// What the device said.
        status: String,
        /// What the device's maker says by it.
        vendor: u32,
        /// From where to where.
        path: String,
    },
    /// The device is gone.
    #[error("{device} was removed or has failed for good; look at the kernel's log (`dmesg`)")]
    DeviceGone {
        /// The device.
        device: String,
    },
    /// The peer does not want such links.
    #[error("the peer can't: {0}")]
    Peer(String),
}

impl RdmaError {
    pub(super) fn of_several(mut problems: Vec<RdmaError>) -> RdmaError {
        if problems.len() == 1 { problems.remove(0) } else { RdmaError::Several(problems) }
    }

    /// What registering memory, or making what needs memory, came to.
    pub(super) fn of_memory(device: &str, what: &'static str, bytes: usize, error: &io::Error) -> RdmaError {
        let limit = memlock_limit();
        let is_memory = matches!(error.raw_os_error(), Some(12 | 1 | 11));
        if is_memory && limit.is_some_and(|limit| limit < (bytes as u64).max(64 << 20)) {
            return RdmaError::Memlock { what: format!("{device}: {what}"), bytes, limit };
        }
        RdmaError::Refused { device: device.to_owned(), what, error: error.to_string() }
    }

    /// What connecting a queue pair came to: on Ethernet the kernel looks for the peer's interface then.
    pub(super) fn of_connecting(port: &str, path: &str, error: &io::Error) -> RdmaError {
        let (port, path, said) = (port.to_owned(), path.to_owned(), error.to_string());
        match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::TIMEDOUT | rustix::io::Errno::HOSTUNREACH | rustix::io::Errno::NETUNREACH) => {
                RdmaError::Unreachable { port, path, error: said }
            }
            _ => {
                RdmaError::Refused { device: format!("{port} ({path})"), what: "connecting a queue pair", error: said }
            }
        }
    }

    /// What a failed completion says.
    pub(super) fn of_status(port: &str, path: &str, status: u32, vendor: u32) -> RdmaError {
        let (port, path) = (port.to_owned(), path.to_owned());
        let text = STATUS.get(status as usize).map_or_else(|| format!("status {status}"), |text| (*text).to_owned());
        match status {
            12 => RdmaError::RetryExceeded { port, path },
            // The peer's queue pair, its memory's key, or its receive requests are not there any more.
            9..=11 | 13 | 15 => RdmaError::PeerGone { port, path, status: text },
            _ => RdmaError::Failed { port, path, status: text, vendor },
        }
    }
}

/// The limit on pinned memory.
pub(super) fn memlock_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

/// What completions say, by number.
const STATUS: [&str; 22] = [
    "success",
    "local length error",
    "local queue pair operation error",
    "local EE context operation error",
    "local protection error",
    "flushed",
    "memory window bind error",
    "bad response",
    "local access error",
    "remote invalid request",
    "remote access error",
    "remote operation error",
    "retry exceeded",
    "receiver-not-ready retry exceeded",
    "local RDD violation",
    "remote invalid read request",
    "remote aborted",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout",
    "general error",
];

/// The status of requests that ended because another had failed.
pub(super) const FLUSHED: u32 = 5;

fn memlock_hint(limit: Option<u64>) -> String {
    match limit {
        Some(limit) => format!(
            "the limit is {} KiB (RLIMIT_MEMLOCK); raise it with `ulimit -l unlimited`, for logins by `* - memlock \
             unlimited` in /etc/security/limits.conf, for services by LimitMEMLOCK=infinity, in containers by `--ulimit \
             memlock=-1`",
            limit >> 10
        ),
        None => "there is no limit on it (RLIMIT_MEMLOCK), but no memory".to_owned(),
    }
}

fn open_hint(kind: &io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied => {
            "; this user may not open /dev/infiniband/uverbs*: look at its mode and groups"
        }
        io::ErrorKind::NotFound => {
            "; look whether /dev/infiniband/uverbs* is there (modprobe ib_uverbs; containers need --device \
             /dev/infiniband), and the device's provider is installed (ibverbs-providers)"
        }
        _ => "; look at the kernel's log (`dmesg`)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_says_what_to_try() {
        let memlock = RdmaError::Memlock { what: "rxe0: slots".into(), bytes: 1 << 20, limit: Some(64 << 10) };
        let retry = RdmaError::of_status("rxe0 port 1", "10.0.0.1 to 10.0.0.2", 12, 0);
        let open = |kind| RdmaError::Open { device: "rxe0".into(), error: "no".into(), kind };
        let rows: [(RdmaError, &[&str]); 6] = [
            (memlock, &["1048576 bytes", "64 KiB", "ulimit -l", "limits.conf"]),
            (retry, &["error 12", "4791", "GID", "10.0.0.2", "doctor"]),
            (open(io::ErrorKind::PermissionDenied), &["/dev/infiniband", "groups"]),
            (open(io::ErrorKind::NotFound), &["uverbs", "providers"]),
            (RdmaError::NoDevice, &["lspci", "rdma_rxe"]),
            (RdmaError::of_status("p", "a to b", 10, 0), &["gone", "remote access error"]),
        ];
        for (error, wanted) in rows {
            let text = error.to_string();
            for want in wanted {
                assert!(text.contains(want), "{want:?} is missing: {text}");
            }
        }
    }
}
