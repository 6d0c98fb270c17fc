//! Rendezvous: an all-gather of opaque bytes between ranks that don't know each other yet.
//!
//! Every rank brings some bytes; each leaves with everyone's, in rank order, and with a random number that names the
//! job from then on. Rank 0 is the *root* (with a [`UniqueId`], a rank of the process that opened it): it listens somewhere,
//! the other ranks find it there ([`Rendezvous`] says where), and it answers all of them at once when the last has arrived.
//! If that can't come about, it answers all of them with the reason. Threads of one process meet in a [`Hub`] instead, without a root.
//!
//! ```text
//!   member 1 --- handshake, bytes 1 --->                     <--- bytes 2, handshake --- member 2
//!            <-- all bytes, or why not --    root (rank 0)    --- all bytes, or why not -->
//! ```
//!
//! What it promises:
//!
//! 1. It returns by its deadline, on every rank, or fails by it. The shortest limit among the ranks that arrived
//!    counts for all, so that each of them gets the full report of who was missing, not only the root.
//! 2. Strangers don't disturb it. The root serves all connections from one thread without blocking on any; bytes that
//!    aren't the handshake's, connections that stay silent and lengths beyond the bounds are logged and dropped.
//! 3. With a token set, only ranks that know it take part, and they see that the root does ([`Credentials`]).
//! 4. A rank that dies after it arrived ends the rendezvous at once, by name; so does the root's death.

mod access;
mod board;
mod credentials;
mod error;
mod handshake;
mod hub;
mod launcher;
mod listen;
mod member;
mod messages;
mod pmi;
mod resolve;
mod root;
mod search;
mod setup;
pub(crate) mod socket;
mod sys;
mod unique;

use std::time::{Duration, Instant};

pub use access::{Rendezvous, TcpPlace};
pub use credentials::{Credentials, Token};
pub use error::{RankIdentity, RendezvousError};
pub use handshake::{HandshakeError, MAX_HELLO};
pub use hub::Hub;
pub use launcher::Launcher;
pub use pmi::{PmiDoor, PmiPlace};
pub use setup::{ProfilePlace, Setup};
pub use unique::UniqueId;

pub use crate::tcp::interface::Family;

/// The most bytes that one rank may bring to [`exchange`].
pub const MAX_ENTRY: usize = 64 << 10;

/// What an exchange leaves every rank with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchanged {
    /// The job's random number, chosen by the root and the same on all ranks.
    pub job: [u8; 16],
    /// What each rank brought, in rank order.
    pub entries: Vec<Vec<u8>>,
}

/// Brings `mine` to where the ranks meet and waits there for everyone's bytes, at most until `deadline`.
///
/// Every rank of the job calls this, each with its own rank in `setup`. `setup.init_timeout` isn't looked at; a caller
/// turns it into `deadline`. Exchanges may follow each other with the same setup.
///
/// # Errors
/// The ranks couldn't all meet. Where several are there, all of them fail, with the same account of it.
pub fn exchange(setup: &Setup, mine: &[u8], deadline: Instant) -> Result<Exchanged, RendezvousError> {
    setup.validate()?;
    if mine.len() > MAX_ENTRY {
        return Err(RendezvousError::EntryTooLong { bytes: mine.len(), most: MAX_ENTRY });
    }
    let period = Period { started: Instant::now(), deadline };
    if let Rendezvous::Hub(hub) = &setup.how {
        return hub.exchange(setup, mine, period);
    }
    if setup.size == 1 {
        if let Rendezvous::Unique(id) = &setup.how {
            drop(id.take_listener());
        }
        return Ok(Exchanged { job: sys::random(), entries: vec![mine.to_vec()] });
    }
    let name = credentials::name_of_job(&setup.job_name);
    match &setup.how {
        Rendezvous::Alone => Err(RendezvousError::NowhereToMeet { size: setup.size }),
        Rendezvous::Hub(_) => unreachable!("served above"),
        Rendezvous::Tcp(place) if setup.rank == 0 => {
            root::serve(setup, mine, listen::at_place(place, setup.family, period)?, name, period)
        }
        Rendezvous::Tcp(place) => member::join(setup, mine, &mut search::AtPlace::new(place, name), period),
        Rendezvous::Local(local) => meet_locally(setup, mine, local, name, period),
        Rendezvous::File(path) => meet_through_board(setup, mine, &mut board::File::new(path), period),
        Rendezvous::Unique(id) => match id.take_listener() {
            Some(listener) => root::serve(setup, mine, listener, id.name, period),
            None => member::join(setup, mine, &mut &**id, period),
        },
        Rendezvous::Pmi(place) => {
            let session = pmi::session(place, setup.rank, period)?;
            if place.one_host {
                return meet_locally(setup, mine, session.name(), name, period);
            }
            meet_through_board(setup, mine, &mut board::Pmi::new(session, place.process == 0), period)
        }
    }
}

fn meet_locally(
    setup: &Setup,
    mine: &[u8],
    local: &str,
    name: [u8; 16],
    period: Period,
) -> Result<Exchanged, RendezvousError> {
    match setup.rank {
        0 => root::serve(setup, mine, listen::on_this_host(local, period)?, name, period),
        _ => member::join(setup, mine, &mut search::OnThisHost::new(local, name), period),
    }
}

/// The root listens on a port of its choice and publishes where; the name in the notice stands for the job's, so that
/// whatever answers at the address of an outdated notice is recognised as another job.
fn meet_through_board(
    setup: &Setup,
    mine: &[u8],
    board: &mut dyn board::Board,
    period: Period,
) -> Result<Exchanged, RendezvousError> {
    if setup.rank != 0 {
        return member::join(setup, mine, &mut search::AtBoard::new(board), period);
    }
    let listener = listen::on_any_port(setup, period)?;
    let notice = board::Notice { name: sys::random(), addresses: listener.reachable(setup)? };
    board.publish(&notice, period)?;
    let result = root::serve(setup, mine, listener, notice.name, period);
    board.withdraw(&notice);
    result
}

/// The time that an exchange has.
#[derive(Clone, Copy, Debug)]
struct Period {
    started: Instant,
    deadline: Instant,
}

impl Period {
    fn total(self) -> Duration {
        self.deadline.saturating_duration_since(self.started)
    }

    fn left(self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn elapsed(self) -> Duration {
        self.started.elapsed()
    }

    /// When the root must know the outcome, so that the answer reaches everyone before the deadline.
    fn verdict_due(self) -> Instant {
        self.deadline - (self.total() / 10).min(Duration::from_millis(300))
    }
}

#[cfg(test)]
mod tests;
