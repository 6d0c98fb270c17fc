//! A rank other than the root: finds the root, brings its bytes, waits for the answer.
//!
//! Ranks start in any order, so nearly everything that goes wrong on the way is tried again until the deadline: nobody
//! listens yet, something else does, the notice is an earlier run's. Only what time won't mend ends it at once.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketType, connect, getpeername, getsockname, socket_with, sockopt};

use super::messages::{Introduction, decode_answer, longest_answer};
use super::search::{Search, Target};
use super::{Credentials, Exchanged, HandshakeError, Period, Rendezvous, RendezvousError, Setup, listen, socket, sys};

/// How long a target is given to answer: one that may be wrong, at first, and the only one there is.
const UNSURE: Duration = Duration::from_millis(500);
const ONLY: Duration = Duration::from_secs(10);

/// What becomes of one attempt.
enum Failure {
    Retry(String),
    Final(RendezvousError),
}

/// Meets the others at the root that `search` finds.
pub(super) fn join(
    setup: &Setup,
    mine: &[u8],
    search: &mut dyn Search,
    period: Period,
) -> Result<Exchanged, RendezvousError> {
    let mut pause = Duration::from_millis(2);
    let mut patience = UNSURE;
    loop {
        let sighting = search.look(setup, period)?;
        let mut problems: Vec<String> = Vec::new();
        let limit = if sighting.only { ONLY } else { patience };
        for target in &sighting.targets {
            let until = (Instant::now() + limit).min(period.deadline);
            match attempt(setup, mine, target, sighting.name, until, period) {
                Ok(exchanged) => return Ok(exchanged),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Retry(problem)) if !problems.contains(&problem) => problems.push(problem),
                Err(Failure::Retry(_)) => {}
            }
        }
        let last = if sighting.targets.is_empty() { sighting.note } else { problems.join("; ") };
        if period.left().is_zero() {
            return Err(RendezvousError::NoAnswer { place: search.place(), waited: period.total(), last });
        }
        std::thread::sleep(pause.min(period.left()));
        pause = (pause * 2).min(Duration::from_millis(200));
        patience = (patience * 2).min(Duration::from_secs(5));
    }
}

fn attempt(
    setup: &Setup,
    mine: &[u8],
    target: &Target,
    name: [u8; 16],
    until: Instant,
    period: Period,
) -> Result<Exchanged, Failure> {
    let place = match target {
        Target::Tcp(address) => address.to_string(),
        Target::Local(name) => format!("local://{name}"),
    };
    let socket = reach(target, until).map_err(Failure::Retry)?;
    let credentials = Credentials { job: name, token: setup.token.clone() };
    let introduction = Introduction {
        rank: setup.rank,
        size: setup.size,
        pid: std::process::id(),
        host: sys::host(),
        left: period.verdict_due().saturating_duration_since(Instant::now()),
        limit: period.total(),
    };
    match credentials.prove_as_connector(&socket, until, &introduction.encode()) {
        Ok(()) => {}
        Err(HandshakeError::AuthenticationFailed) => {
            return Err(Failure::Final(RendezvousError::AuthenticationFailed { peer: root_at(setup, &place) }));
        }
        Err(HandshakeError::Version { ours, theirs }) => {
            let peer = root_at(setup, &place);
            return Err(Failure::Final(RendezvousError::Version { peer, ours, theirs }));
        }
        Err(HandshakeError::Stranger(start)) => {
            let problem = format!("another program listens at {place} and answered {start:?}");
            return Err(Failure::Retry(problem));
        }
        Err(HandshakeError::OtherJob) => return Err(Failure::Retry(format!("another job's rank 0 is at {place}"))),
        Err(HandshakeError::Closed) => {
            return Err(Failure::Retry(format!("{place} took the connection and closed it without an answer")));
        }
        Err(HandshakeError::Deadline) => {
            let problem = format!("{place} took the connection and said nothing; the process may be stopped");
            return Err(Failure::Retry(problem));
        }
        Err(other) => return Err(Failure::Retry(format!("{place}: {other}"))),
    }
    tracing::debug!("rendezvous: rank {} reached {}", setup.rank, root_at(setup, &place));
    take_part(setup, mine, &socket, &place, period).map_err(Failure::Final)
}

/// The root in words.
fn root_at(setup: &Setup, place: &str) -> String {
    match setup.how {
        Rendezvous::Unique(_) => format!("the maker of the unique id at {place}"),
        _ => format!("rank 0 at {place}"),
    }
}

/// What follows the handshake.
fn take_part(
    setup: &Setup,
    mine: &[u8],
    socket: &OwnedFd,
    place: &str,
    period: Period,
) -> Result<Exchanged, RendezvousError> {
    let peer = || root_at(setup, place);
    let lost = |error| match error {
        HandshakeError::Deadline => RendezvousError::NoAnswer {
            place: place.to_owned(),
            waited: period.total(),
            last: "it let this rank in and then said nothing; the process may be stopped".to_owned(),
        },
        other => RendezvousError::LostRoot { place: place.to_owned(), problem: other.to_string() },
    };
    let entry = [&(mine.len() as u32).to_le_bytes(), mine].concat();
    socket::write(socket.as_fd(), &entry, period.deadline).map_err(lost)?;
    let mut length = [0; 8];
    socket::read(socket.as_fd(), &mut length, period.deadline).map_err(lost)?;
    let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
    if longest_answer(setup.size) < length {
        let problem = format!("it announced an answer of {length} bytes");
        return Err(RendezvousError::Protocol { peer: peer(), problem });
    }
    let mut answer = vec![0; length];
    socket::read(socket.as_fd(), &mut answer, period.deadline).map_err(lost)?;
    let problem = "its answer can't be read".to_owned();
    decode_answer(&answer, setup.size).unwrap_or(Err(RendezvousError::Protocol { peer: peer(), problem }))
}

/// A connection to `target`, or why there is none.
fn reach(target: &Target, until: Instant) -> Result<OwnedFd, String> {
    let words = |error: Errno| match error {
        Errno::CONNREFUSED => "connection refused".to_owned(),
        other => std::io::Error::from(other).to_string(),
    };
    let started = match target {
        Target::Tcp(address) => {
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let socket = socket_with(family, SocketType::STREAM, listen::flags(), None).map_err(words)?;
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            connect(&socket, &SocketAddrAny::from(*address))
                .map(|()| None)
                .or_else(in_progress)
                .map(|wait| (socket, wait))
        }
        Target::Local(name) => {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, listen::flags(), None).map_err(words)?;
            let address = listen::local_address(name).map_err(words)?;
            connect(&socket, &address).map(|()| (socket, None))
        }
    };
    let (socket, unfinished) = started.map_err(words)?;
    if unfinished.is_some() {
        socket::wait(socket.as_fd(), PollFlags::OUT, until).map_err(|error| match error {
            HandshakeError::Deadline => "the host doesn't answer".to_owned(),
            other => other.to_string(),
        })?;
        sockopt::socket_error(&socket).and_then(|result| result).map_err(words)?;
    }
    match target {
        Target::Tcp(_) if getsockname(&socket).ok() == getpeername(&socket).ok().flatten() => {
            // A port of the ephemeral range where nobody listens can be given to the one who tries to connect there.
            Err("connection refused".to_owned())
        }
        Target::Local(_) if !listen::is_ours(socket.as_fd()) => {
            Err("a process of another user listens there".to_owned())
        }
        _ => Ok(socket),
    }
}

fn in_progress(error: Errno) -> Result<Option<()>, Errno> {
    if error == Errno::INPROGRESS { Ok(Some(())) } else { Err(error) }
}
