//! Lines between ranks of one host: how groups made later hand each other their files.
//!
//! Two ranks that have proven themselves to each other, and that see each other's memory, keep a pair of sockets for as long
//! as either may join groups. What one hands over for a group (its segment, its doorbell, an end of a control path) is one
//! message with files, so nobody has to call, prove itself or answer again, and no thread is needed. Messages of different
//! groups may cross: whoever reads one that isn't its own keeps it for the other.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::fabric::GroupId;
use crate::shm::{self, Offer};

/// What a parcel is for: the joining of a group (number 0), or one of its memories.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Label {
    pub(super) group: GroupId,
    pub(super) number: u64,
}

/// What a parcel says; its files are beside it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum Content {
    /// A segment and a doorbell, and from the upper rank an end of the control path.
    Joining(Offer),
    /// Memory of so many bytes.
    Memory(u64),
    /// The sender can't join, for which the ranks `peers` of the group are to blame.
    Refusal { peers: Vec<usize>, how: String },
}

/// What a rank has handed over.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) content: Content,
    pub(super) files: Vec<OwnedFd>,
}

/// Why a parcel can't be had, or can't be sent.
#[derive(Debug)]
pub(super) enum Silence {
    /// The other end is closed, or its process has ended.
    Closed,
    /// It has not come by the deadline.
    Late,
    /// The operating system failed.
    Io(std::io::Error),
}

impl From<Errno> for Silence {
    fn from(error: Errno) -> Silence {
        match error {
            Errno::PIPE | Errno::CONNRESET => Silence::Closed,
            other => Silence::Io(other.into()),
        }
    }
}

/// A message's bytes at most; a refusal's text is cut to fit.
const MESSAGE_BYTES_MAX: usize = 4096;
const TEXT_BYTES_MAX: usize = 2048;
const PEERS_MAX: usize = 64;
/// How often everyone is looked at before this thread sleeps: neighbours come to a split within microseconds of each other.
const LOOKS: u32 = 200;
/// The longest sleep between two looks: another thread may have read what this one waits for.
const NAP: Duration = Duration::from_millis(10);

/// One rank's end of a line to a neighbour.
pub(super) struct Line {
    socket: OwnedFd,
    /// The neighbour's process, where the kernel shows it: a child that it has forked keeps its sockets open.
    process: Option<Arc<OwnedFd>>,
    arrived: Mutex<HashMap<Label, Parcel>>,
}

/// The two ends of a new line, of which one is to be handed to the neighbour.
pub(super) fn ends() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

impl Line {
    pub(super) fn new(end: OwnedFd, process: Option<Arc<OwnedFd>>) -> Line {
        Line { socket: end, process, arrived: Mutex::default() }
    }

    /// The neighbour's process.
    pub(super) fn process(&self) -> Option<Arc<OwnedFd>> {
        self.process.clone()
    }

    /// Hands something over. Waits only while the neighbour has left very many messages unread.
    pub(super) fn send(
        &self,
        label: Label,
        content: &Content,
        files: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(), Silence> {
        let bytes = postcard::to_allocvec(&(label, content)).expect("plain data");
        loop {
            match shm::send_files(self.socket.as_fd(), &bytes, files) {
                Err(Errno::AGAIN) if Instant::now() < deadline => {
                    sleep(&mut [PollFd::new(&self.socket, PollFlags::OUT)], deadline)?;
                }
                Err(Errno::AGAIN) => return Err(Silence::Late),
                Err(Errno::INTR) => {}
                other => return other.map(drop).map_err(Silence::from),
            }
        }
    }

    /// Tells the neighbour that this rank can't join, as far as there is room for it.
    pub(super) fn refuse(&self, label: Label, peers: &[usize], how: &str) {
        let end = (0..=how.len().min(TEXT_BYTES_MAX)).rev().find(|end| how.is_char_boundary(*end)).unwrap_or(0);
        let peers = peers[..peers.len().min(PEERS_MAX)].to_vec();
        let refusal = Content::Refusal { peers, how: how[..end].to_owned() };
        if let Err(error) = self.send(label, &refusal, &[], Instant::now()) {
            tracing::debug!("a refusal was not sent: {error:?}");
        }
    }

    /// What has come for `label`, without waiting. A refusal takes the place of what was sent before it.
    pub(super) fn take(&self, label: Label) -> Result<Option<Parcel>, Silence> {
        let mut arrived = self.arrived.lock().expect("no panic while held");
        let ended = loop {
            match self.read() {
                Ok((label, parcel)) => drop(arrived.insert(label, parcel)),
                Err(Silence::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => break None,
                Err(Silence::Io(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
        };
        match (arrived.remove(&label), ended) {
            (Some(parcel), _) => Ok(Some(parcel)),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    fn read(&self) -> Result<(Label, Parcel), Silence> {
        let mut bytes = [0u8; MESSAGE_BYTES_MAX];
        let (filled, files) = shm::receive_message(self.socket.as_fd(), &mut bytes)?;
        if filled == 0 {
            return Err(Silence::Closed);
        }
        let (label, content) = postcard::from_bytes(&bytes[..filled])
            .map_err(|error| Silence::Io(std::io::Error::other(format!("a message can't be read: {error}"))))?;
        Ok((label, Parcel { content, files }))
    }
}

/// Waits for what the neighbours at the other ends of `lines` hand over, and does `with` each as it comes. They are waited for
/// together: who is slow or gone holds up nobody else.
pub(super) fn take_each<T>(
    lines: &[(usize, Arc<Line>)],
    label: Label,
    deadline: Instant,
    mut with: impl FnMut(usize, &Line, Result<Parcel, Silence>) -> T,
) -> Vec<(usize, T)> {
    let (mut waiting, mut done) = (lines.to_vec(), Vec::with_capacity(lines.len()));
    let mut ended: Vec<usize> = Vec::new();
    let mut looks = 0;
    while !waiting.is_empty() {
        waiting.retain(|(peer, line)| {
            let taken = match line.take(label) {
                Ok(None) if ended.contains(peer) => Err(Silence::Closed),
                Ok(None) => return true,
                Ok(Some(parcel)) => Ok(parcel),
                Err(error) => Err(error),
            };
            done.push((*peer, with(*peer, line, taken)));
            false
        });
        looks += 1;
        if waiting.is_empty() || looks < LOOKS {
            std::thread::yield_now();
            continue;
        }
        let now = Instant::now();
        if deadline <= now {
            done.extend(waiting.drain(..).map(|(peer, line)| (peer, with(peer, &line, Err(Silence::Late)))));
            break;
        }
        match look_for_ends(&waiting, deadline.min(now + NAP)) {
            Ok(found) => ended.extend(found),
            Err(error) => {
                let failed = |(peer, line): (usize, Arc<Line>)| (peer, with(peer, &line, Err(Silence::from(error))));
                done.extend(waiting.drain(..).map(failed));
            }
        }
    }
    done
}

/// Sleeps until something has come on a line, or a process has ended; whose.
fn look_for_ends(lines: &[(usize, Arc<Line>)], until: Instant) -> Result<Vec<usize>, Errno> {
    let mut files: Vec<PollFd<'_>> = lines.iter().map(|(_, line)| PollFd::new(&line.socket, PollFlags::IN)).collect();
    let watched: Vec<(usize, &OwnedFd)> =
        lines.iter().filter_map(|(peer, line)| Some((*peer, line.process.as_deref()?))).collect();
    files.extend(watched.iter().map(|(_, process)| PollFd::new(*process, PollFlags::IN)));
    sleep(&mut files, until)?;
    let processes = files[lines.len()..].iter().zip(&watched);
    Ok(processes.filter(|(file, _)| file.revents().contains(PollFlags::IN)).map(|(_, (peer, _))| *peer).collect())
}

fn sleep(files: &mut [PollFd<'_>], until: Instant) -> Result<(), Errno> {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    match poll(files, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A rank's lines, by its neighbours' numbers in the world.
#[derive(Default)]
pub(super) struct Lines {
    lines: RwLock<HashMap<usize, Arc<Line>>>,
}

impl Lines {
    pub(super) fn to(&self, rank: usize) -> Option<Arc<Line>> {
        self.lines.read().expect("no panic while held").get(&rank).cloned()
    }

    pub(super) fn keep(&self, rank: usize, line: Line) {
        self.lines.write().expect("no panic while held").insert(rank, Arc::new(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> (Line, Line) {
        let (a, b) = ends().unwrap();
        (Line::new(a, None), Line::new(b, None))
    }

    fn label(group: u8) -> Label {
        Label { group: GroupId([group; 16]), number: 0 }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn messages_of_groups_may_cross_and_bring_their_files() {
        let (a, b) = lines();
        let file = rustix::event::eventfd(7, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        a.send(label(1), &Content::Memory(1), &[], soon()).unwrap();
        a.send(label(2), &Content::Memory(2), &[file.as_fd(), file.as_fd(), file.as_fd()], soon()).unwrap();
        let second = b.take(label(2)).unwrap().unwrap();
        assert_eq!((second.content, second.files.len()), (Content::Memory(2), 3));
        let mut count = [0; 8];
        rustix::io::read(&second.files[2], &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 7);
        assert!(b.take(label(2)).unwrap().is_none(), "a parcel is taken once");
        drop(a);
        let first = b.take(label(1)).unwrap().unwrap();
        assert_eq!((first.content, first.files.len()), (Content::Memory(1), 0), "what came before the end counts");
        assert!(matches!(b.take(label(2)), Err(Silence::Closed)));
    }

    #[test]
    fn a_refusal_is_the_last_word_and_fits() {
        let (a, b) = lines();
        a.send(label(1), &Content::Memory(1), &[], soon()).unwrap();
        a.refuse(label(1), &vec![5; 9000], &"ä".repeat(9000));
        let refused = b.take(label(1)).unwrap().unwrap().content;
        assert!(matches!(refused, Content::Refusal { peers, how } if peers.len() == PEERS_MAX && how.len() >= 2000));
    }

    /// A neighbour that reads nothing holds up whoever hands it something until the deadline, and not beyond.
    #[test]
    fn a_full_line_is_given_up_at_the_deadline() {
        let (a, _b) = lines();
        let limit = Instant::now() + Duration::from_millis(300);
        let refused = (0..1_000_000).find_map(|_| a.send(label(1), &Content::Memory(1), &[], limit).err());
        assert!(matches!(refused, Some(Silence::Late)), "{refused:?}");
        assert!(limit <= Instant::now() && Instant::now() < limit + Duration::from_secs(5));
    }

    #[test]
    fn who_is_silent_or_gone_holds_up_nobody() {
        let ((silent, _held), (gone, end), (here, other)) = (lines(), lines(), lines());
        drop(end);
        other.send(label(1), &Content::Memory(9), &[], soon()).unwrap();
        let all = [(0, Arc::new(silent)), (1, Arc::new(gone)), (2, Arc::new(here))];
        let mut done = take_each(&all, label(1), Instant::now() + Duration::from_millis(50), |_, _, parcel| parcel);
        done.sort_by_key(|(peer, _)| *peer);
        let [(0, Err(Silence::Late)), (1, Err(Silence::Closed)), (2, Ok(parcel))] = &done[..] else {
            panic!("{done:?}")
        };
        assert_eq!(parcel.content, Content::Memory(9));
    }

    /// A child that a process has forked holds its sockets; the end of the process shows all the same.
    #[test]
    fn a_process_that_has_ended_is_not_waited_for() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let (a, _held) = ends().unwrap();
        let line = Arc::new(Line::new(a, Some(Arc::new(process))));
        let start = Instant::now();
        let done = take_each(&[(3, line)], label(1), start + Duration::from_secs(60), |_, _, parcel| parcel);
        assert!(matches!(done[..], [(3, Err(Silence::Closed))]), "{done:?}");
        assert!(start.elapsed() < Duration::from_secs(30));
        child.wait().unwrap();
    }
}
