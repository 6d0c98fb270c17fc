//! A place to meet that one process opens, as 128 bytes for the others: the way of NCCL's unique id.
//!
//! The process listens from then on. Whichever of its ranks comes first with the id becomes the root, whatever its number;
//! every other rank tries the addresses in the id, one after the other. The id has the job's name and token in it as well, so
//! that who doesn't have it stays out.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::listen::{self, Listener};
use super::search::{Search, Sighting, Target};
use super::{Period, RendezvousError, Setup, Token, sys};

/// How long finding a free port may take.
const OPENING: Duration = Duration::from_secs(5);

/// The listeners that no rank has come for yet.
static OPEN: Mutex<Vec<([u8; 16], Listener)>> = Mutex::new(Vec::new());

/// Where, and by what secret, the ranks of one communicator meet.
///
/// It is a secret itself: whoever has it may take part.
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId {
    pub(super) name: [u8; 16],
    token: [u8; 16],
    /// The likely ones first.
    addresses: Vec<SocketAddr>,
}

impl UniqueId {
    /// The length of the bytes.
    pub const BYTES: usize = 128;
    const HEAD: [u8; 7] = *b"pclid1\n";

    /// Listens at a port of `setup.ports`, or of the system's choice, until a rank of this process comes with the id.
    ///
    /// ```
    /// use paceline_transport::Setup;
    /// use paceline_transport::rendezvous::UniqueId;
    ///
    /// let id = UniqueId::open(&Setup::alone())?;
    /// assert_eq!(UniqueId::from_bytes(&id.to_bytes()), Some(id));
    /// # Ok::<(), paceline_transport::RendezvousError>(())
    /// ```
    ///
    /// # Errors
    /// No port is free, or the host has no address that `setup` allows.
    pub fn open(setup: &Setup) -> Result<UniqueId, RendezvousError> {
        let started = Instant::now();
        let listener = listen::on_any_port(setup, Period { started, deadline: started + OPENING })?;
        let id = UniqueId { name: sys::random(), token: sys::random(), addresses: listener.reachable(setup)? };
        OPEN.lock().expect("no panic while held").push((id.name, listener));
        Ok(id)
    }

    /// The id as bytes. Where the host has more addresses than fit, the last are left out; loopback never is.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; UniqueId::BYTES] {
        let mut bytes = Vec::with_capacity(UniqueId::BYTES);
        bytes.extend(UniqueId::HEAD);
        bytes.push(0);
        bytes.extend(self.name);
        bytes.extend(self.token);
        let mut room = UniqueId::BYTES - bytes.len();
        let longest = |address: &SocketAddr| if address.is_ipv4() { 7 } else { 19 };
        let (near, far): (Vec<_>, Vec<_>) = self.addresses.iter().partition(|address| address.ip().is_loopback());
        let reserved: usize = near.iter().copied().map(longest).sum();
        let mut taken: Vec<&SocketAddr> = Vec::new();
        room -= reserved.min(room);
        for address in far {
            if longest(address) <= room {
                room -= longest(address);
                taken.push(address);
            }
        }
        taken.extend(near);
        bytes[UniqueId::HEAD.len()] = taken.len() as u8;
        for address in taken {
            match address.ip() {
                IpAddr::V4(ip) => bytes.extend([&[4][..], &ip.octets()].concat()),
                IpAddr::V6(ip) => bytes.extend([&[6][..], &ip.octets()].concat()),
            }
            bytes.extend(address.port().to_le_bytes());
        }
        bytes.resize(UniqueId::BYTES, 0);
        bytes.try_into().expect("resized")
    }

    /// The id that these bytes are; `None` if they are none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; UniqueId::BYTES]) -> Option<UniqueId> {
        let rest = bytes.strip_prefix(&UniqueId::HEAD)?;
        let (count, rest) = rest.split_first()?;
        let (name, rest) = rest.split_first_chunk::<16>()?;
        let (token, mut rest) = rest.split_first_chunk::<16>()?;
        let mut addresses = Vec::new();
        for _ in 0..*count {
            let (kind, after) = rest.split_first()?;
            let (ip, after) = match kind {
                4 => after.split_first_chunk::<4>().map(|(ip, after)| (IpAddr::from(*ip), after))?,
                6 => after.split_first_chunk::<16>().map(|(ip, after)| (Ipv6Addr::from(*ip).into(), after))?,
                _ => return None,
            };
            let (port, after) = after.split_first_chunk::<2>()?;
            addresses.push(SocketAddr::new(ip, u16::from_le_bytes(*port)));
            rest = after;
        }
        (!addresses.is_empty()).then_some(UniqueId { name: *name, token: *token, addresses })
    }

    /// The secret that ranks prove to know.
    pub(super) fn token(&self) -> Token {
        Token::new(self.token).expect("it is long enough")
    }

    /// The listener, for the first rank of the process that opened it.
    pub(super) fn take_listener(&self) -> Option<Listener> {
        let mut open = OPEN.lock().expect("no panic while held");
        let place = open.iter().position(|(name, _)| *name == self.name)?;
        Some(open.swap_remove(place).1)
    }

    /// Whether no rank of this process has come for the listener.
    #[cfg(test)]
    pub(super) fn is_listener_here(&self) -> bool {
        OPEN.lock().expect("no panic while held").iter().any(|(name, _)| *name == self.name)
    }
}

impl std::fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UniqueId {{ addresses: {:?}, secret: not shown }}", self.addresses)
    }
}

impl Search for &UniqueId {
    fn look(&mut self, _: &Setup, _: Period) -> Result<Sighting, RendezvousError> {
        let targets: Vec<Target> = self.addresses.iter().copied().map(Target::Tcp).collect();
        Ok(Sighting { only: targets.len() == 1, targets, name: self.name, note: String::new() })
    }

    fn place(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        format!("{} (from the unique id)", addresses.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(addresses: &[&str]) -> UniqueId {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        UniqueId { name: [7; 16], token: [9; 16], addresses }
    }

    #[test]
    fn bytes_are_the_id() {
        let some = id(&["10.0.0.1:5", "[fd00::2]:65535", "127.0.0.1:5", "[::1]:5"]);
        assert_eq!(UniqueId::from_bytes(&some.to_bytes()), Some(some));
        let many: Vec<String> = (0..40).map(|i| format!("10.0.0.{i}:9")).chain(["127.0.0.1:9".to_owned()]).collect();
        let many = id(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let cut = UniqueId::from_bytes(&many.to_bytes()).unwrap();
        assert_eq!(cut.addresses[..11], many.addresses[..11]);
        assert_eq!(cut.addresses.last(), many.addresses.last());
    }

    #[test]
    fn other_bytes_are_none() {
        let sound = id(&["10.0.0.1:5"]).to_bytes();
        for (at, value) in [(0, b'q'), (7, 0), (7, 200), (40, 5)] {
            let mut bytes = sound;
            bytes[at] = value;
            assert_eq!(UniqueId::from_bytes(&bytes), None, "{at} = {value}");
        }
        assert_eq!(UniqueId::from_bytes(&[0; 128]), None);
        assert_eq!(UniqueId::from_bytes(&[255; 128]), None);
    }
}
