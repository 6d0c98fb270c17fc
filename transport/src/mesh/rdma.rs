//! Two ranks try whether they can write into each other's memory over InfiniBand or RoCE.
//!
//! They talk over the connection that becomes their control path, on which both have proved who they are. Every step ends
//! in both hearing how it went at the other, so that both use the link or neither does.

#![forbid(unsafe_code)]

use std::os::fd::AsFd;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::calls::Calls;
use super::card::{Allowed, Card};
use super::error::MeshError;
use super::listen::Call;
use crate::link::LinkKind;
use crate::rdma::{Adapters, Offer, Opening, RdmaError, RdmaLink, Trial};
use crate::rendezvous::{HandshakeError, Setup, socket};

/// The longest thing that either end says.
const WORDS_MAX: usize = 64 << 10;

/// Opens the devices that a rank may use; a card that allows such links without having a device is set right.
pub(super) fn open(setup: &Setup, card: &mut Card) -> Result<Option<Adapters>, MeshError> {
    if !card.allows(Allowed::Rdma) {
        return Ok(None);
    }
    match Adapters::open(&setup.rdma, setup.family) {
        Ok(adapters) => Ok(Some(adapters)),
        Err(error) if setup.links == [LinkKind::Rdma] => Err(MeshError::Links(error.to_string())),
        Err(error) => {
            // A host without devices is nothing to talk about, unless somebody has asked for them.
            match error {
                RdmaError::NoDevice | RdmaError::NoLibrary(_) if setup.links == Setup::LINKS => {
                    tracing::debug!("no rdma links: {error}");
                }
                _ => tracing::warn!("no rdma links: {error}"),
            }
            card.without_rdma(error.to_string());
            Ok(None)
        }
    }
}

fn in_words(results: Vec<Result<(), RdmaError>>) -> Vec<Result<(), String>> {
    results.into_iter().map(|result| result.map_err(|error| error.to_string())).collect()
}

/// Drops the ports of which this end or the peer has said that they don't work, with one line in the log; an error says what
/// is wrong if none is left.
fn keep_working(
    peer: usize,
    opening: &mut Opening,
    mine: Vec<Result<(), String>>,
    heard: Vec<Result<(), String>>,
) -> Result<(), String> {
    let works: Vec<bool> = mine.iter().zip(&heard).map(|(mine, theirs)| mine.is_ok() && theirs.is_ok()).collect();
    let there = heard.into_iter().filter_map(|said| said.err().map(|said| format!("at its end: {said}")));
    let problem = mine.into_iter().filter_map(Result::err).chain(there).next();
    if !works.contains(&true) {
        return Err(problem.unwrap_or_else(|| "no port works".to_owned()));
    }
    if let Some(problem) = problem {
        tracing::warn!("rank {peer} is not reached over every port: {problem}");
    }
    opening.keep(&works);
    Ok(())
}

impl Calls<'_> {
    /// The outer error is the connection's: the peer is gone or silent. The inner one says why there is no such link; both
    /// ends come to the same.
    pub(super) fn try_rdma(&self, peer: usize, call: &Call) -> Result<Result<RdmaLink, String>, MeshError> {
        let adapters = self.fabric.adapters.as_ref().expect("the card says that there are some");
        let made = Opening::new(adapters, self.members.len() - 1);
        let (opening, offer) = match made {
            Ok((opening, offer)) => (Some(opening), Ok(offer)),
            Err(error) => (None, Err(error.to_string())),
        };
        let theirs: Result<Offer, String> = self.swap_words(peer, call, &offer)?;
        let (mut opening, theirs) = match (opening, offer, theirs) {
            (Some(opening), Ok(_), Ok(theirs)) => (opening, theirs),
            (_, Err(mine), _) => return Ok(Err(mine)),
            (_, _, Err(theirs)) => return Ok(Err(format!("at its end: {theirs}"))),
            (None, Ok(_), _) => unreachable!("an offer comes with what is offered"),
        };
        let connected = opening.connect(&theirs, self.me < peer).map(in_words).map_err(|error| error.to_string());
        let heard: Result<Vec<Result<(), String>>, String> = self.swap_words(peer, call, &connected)?;
        let (mine, heard) = match (connected, heard) {
            (Ok(mine), Ok(heard)) => (mine, heard),
            (Err(mine), _) => return Ok(Err(mine)),
            (_, Err(theirs)) => return Ok(Err(format!("at its end: {theirs}"))),
        };
        if let Err(problem) = keep_working(peer, &mut opening, mine, heard) {
            return Ok(Err(problem));
        }
        for trial in [Trial::Small, Trial::Large] {
            let mine = in_words(opening.try_out(trial, &theirs));
            let heard: Vec<Result<(), String>> = self.swap_words(peer, call, &mine)?;
            if let Err(problem) = keep_working(peer, &mut opening, mine, heard) {
                return Ok(Err(problem));
            }
        }
        Ok(Ok(opening.finish()))
    }

    /// Says something to the peer and hears the same kind of thing from it.
    fn swap_words<T: Serialize + DeserializeOwned>(&self, peer: usize, call: &Call, mine: &T) -> Result<T, MeshError> {
        let broken = |error: HandshakeError| self.failed(peer, format!("trying an rdma link: {error}"));
        let (line, deadline) = (call.socket.as_fd(), self.deadline);
        let words = postcard::to_allocvec(mine).expect("plain data");
        assert!(words.len() <= WORDS_MAX, "{} bytes to say", words.len());
        let length = (words.len() as u32).to_le_bytes();
        socket::write(line, &[&length[..], &words].concat(), deadline).map_err(broken)?;
        let mut length = [0; 4];
        socket::read(line, &mut length, deadline).map_err(broken)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > WORDS_MAX {
            return Err(self.failed(peer, format!("trying an rdma link: it wants to say {length} bytes")));
        }
        let mut words = vec![0; length];
        socket::read(line, &mut words, deadline).map_err(broken)?;
        postcard::from_bytes(&words)
            .map_err(|error| self.failed(peer, format!("trying an rdma link: what it says can't be read ({error})")))
    }
}
