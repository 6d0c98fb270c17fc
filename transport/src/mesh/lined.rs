//! Joining ranks to which there is a line: all of them in one pass, in the caller's thread.
//!
//! Each rank first hands everyone its segment and its doorbell, and the upper rank of a pair an end of their control path as
//! well; that waits for nobody. Then it takes what has been handed to it, from whoever comes first.

#![forbid(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::calls::Calls;
use super::error::MeshError;
use super::line::{self, Content, Line, Parcel, Silence};
use super::pair::{Pairing, system};
use crate::control::{Control, SocketControl};
use crate::link::{Kind, Link};
use crate::machine;
use crate::shm;

/// What is under way with the ranks to which there are lines.
pub(super) struct Handed {
    began: Instant,
    lines: Vec<(usize, Arc<Line>)>,
    /// This rank's ends of the control paths that it made.
    controls: Vec<(usize, OwnedFd)>,
    failures: Vec<(usize, MeshError)>,
}

impl Calls<'_> {
    /// Those of some ranks to which there are lines, with these.
    pub(super) fn lines(&self, peers: &[usize]) -> Vec<(usize, Arc<Line>)> {
        peers.iter().filter_map(|peer| Some((*peer, self.line(*peer)?))).collect()
    }

    /// Tells those who may wait at a line that this rank can't join. Who has taken what it handed over hears it on the control
    /// path.
    pub(super) fn refuse(&self, error: &MeshError) {
        let (label, peers, how) = (self.label(0), error.peers(), error.to_string());
        for (peer, line) in self.lines(&self.others().collect::<Vec<_>>()) {
            line.refuse(label, &peers, &how);
            if let Ok(Some(Parcel { files, .. })) = line.take(label)
                && let Ok((_, mut more)) = shm::take_two(files, usize::from(self.me < peer))
                && let Some(control) = more.pop()
            {
                Control::Socket(SocketControl::at(control, None)).give_up(&peers, &how);
            }
        }
    }
}

impl Pairing<'_> {
    /// Hands this rank's part to the ranks at the other ends of `lines`.
    pub(super) fn hand_over(&self, lines: Vec<(usize, Arc<Line>)>) -> Handed {
        let (controls, failures) = (Vec::new(), Vec::new());
        let mut handed = Handed { began: Instant::now(), lines, controls, failures };
        let lines = std::mem::take(&mut handed.lines);
        for (peer, line) in lines {
            match self.hand_to(peer, &line, handed.began) {
                Ok(control) => {
                    handed.controls.extend(control.map(|control| (peer, control)));
                    handed.lines.push((peer, line));
                }
                Err(error) => handed.failures.push((peer, error)),
            }
        }
        handed
    }

    fn hand_to(&self, peer: usize, line: &Line, began: Instant) -> Result<Option<OwnedFd>, MeshError> {
        let ends = if peer < self.calls.me {
            Some(SocketControl::ends().map_err(system("making a control path"))?)
        } else {
            None
        };
        let content = Content::Joining(self.offer());
        let mut files = vec![self.segment().file(), self.bell.file()];
        files.extend(ends.as_ref().map(|(_, theirs)| theirs.as_fd()));
        let sent = line.send(self.calls.label(0), &content, &files, self.calls.deadline);
        sent.map_err(|silence| self.calls.silent(peer, silence, began))?;
        Ok(ends.map(|(mine, _)| mine))
    }

    /// Takes what the ranks at the other ends of the lines have handed over.
    pub(super) fn take_over(&self, handed: Handed) -> Vec<(usize, Result<Link, MeshError>)> {
        let Handed { began, lines, mut controls, failures } = handed;
        let mut joined: Vec<(usize, Result<Link, MeshError>)> =
            failures.into_iter().map(|(peer, error)| (peer, Err(error))).collect();
        joined.extend(line::take_each(&lines, self.calls.label(0), self.calls.deadline, |peer, line, parcel| {
            let parcel = parcel.map_err(|silence: Silence| self.calls.silent(peer, silence, began))?;
            self.open(peer, line, parcel, &mut controls)
        }));
        if let Some(error) = joined.iter().find_map(|(_, link)| link.as_ref().err()) {
            let (peers, how) = (error.peers(), error.to_string());
            for (_, control) in controls {
                Control::Socket(SocketControl::at(control, None)).give_up(&peers, &how);
            }
        }
        joined
    }

    fn open(
        &self,
        peer: usize,
        line: &Line,
        parcel: Parcel,
        controls: &mut Vec<(usize, OwnedFd)>,
    ) -> Result<Link, MeshError> {
        let offer = match parcel.content {
            Content::Joining(offer) => offer,
            Content::Refusal { peers: blamed, how } => {
                return Err(MeshError::Refused { peer, who: self.calls.who(peer), blamed, how });
            }
            Content::Memory(_) => return Err(self.calls.failed(peer, "it handed over memory before it had joined")),
        };
        let made_there = usize::from(self.calls.me < peer);
        let (files, mut more) = self.calls.files_from(peer, shm::take_two(parcel.files, made_there))?;
        let [segment, bell] = files;
        let neighbour = offer.open(segment, bell).map_err(system("mapping a neighbour's segment"))?;
        let ring = self.ring(peer, neighbour)?;
        let made_here = controls.iter().position(|(other, _)| *other == peer);
        let control = made_here.map(|at| controls.swap_remove(at).1).or_else(|| more.pop());
        let control = control.expect("one of the two has made it");
        Ok(Link::new(Kind::Shm(ring), Control::Socket(SocketControl::at(control, line.process()))))
    }
}

impl Calls<'_> {
    /// Files that came over a line. Where some are missing, it is this process that has no room for them.
    pub(super) fn files_from<T>(&self, peer: usize, files: std::io::Result<T>) -> Result<T, MeshError> {
        files.map_err(|error| {
            let most = std::io::Error::from(rustix::io::Errno::MFILE);
            self.failed(peer, format!("{error}{}", machine::files_hint(&most)))
        })
    }
}
