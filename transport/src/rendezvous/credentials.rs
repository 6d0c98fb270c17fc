//! What shows that a connection belongs to a job: its number, and the token if one is set.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::handshake::{self, Acceptor, HandshakeError, MAX_HELLO};
use super::{socket, sys};

/// A secret that every rank of a job must know.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

impl Token {
    /// The fewest bytes that a token may have.
    pub const LEAST: usize = 8;

    /// The given secret; `None` if it is shorter than [`Token::LEAST`].
    #[must_use]
    pub fn new(secret: impl AsRef<[u8]>) -> Option<Token> {
        let secret = secret.as_ref();
        (Token::LEAST <= secret.len()).then(|| Token(secret.into()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(not shown)")
    }
}

/// What both ends of a connection must share: the job's number and its token.
///
/// Every socket that ranks open to each other starts with the handshake of these two functions, one at each end. They
/// work on any stream socket (TCP or Unix), set to block or not, read no byte beyond the handshake, and return by the
/// deadline. The proof covers the handshake; what follows on the connection is neither signed nor encrypted.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The job's number, from [`Exchanged`](super::Exchanged).
    pub job: [u8; 16],
    /// The token, if one is set.
    pub token: Option<Token>,
}

#[derive(Clone, Copy)]
pub(super) enum Role {
    Connector,
    Acceptor,
}

impl Credentials {
    /// The connecting end's half. The acceptor is given `hello`, at most [`MAX_HELLO`] bytes.
    ///
    /// # Errors
    /// The other end isn't of this job, doesn't know the token, isn't paceline, went away or was silent.
    pub fn prove_as_connector(&self, stream: impl AsFd, deadline: Instant, hello: &[u8]) -> Result<(), HandshakeError> {
        if hello.len() > MAX_HELLO {
            return Err(HandshakeError::TooLong { bytes: hello.len(), most: MAX_HELLO });
        }
        let stream = stream.as_fd();
        let opening = handshake::hello(self, sys::random());
        socket::write(stream, &opening, deadline)?;
        let mut challenge = [0; handshake::CHALLENGE_BYTES];
        socket::read(stream, &mut challenge, deadline)?;
        let proof = handshake::proof(self, &opening, &challenge, hello)?;
        socket::write(stream, &proof, deadline)?;
        let mut welcome = [0; handshake::WELCOME_BYTES];
        socket::read(stream, &mut welcome, deadline)?;
        handshake::check_welcome(self, &opening, &challenge, &proof, &welcome)
    }

    /// The accepting end's half: the bytes that the connector gave as `hello`.
    ///
    /// # Errors
    /// The other end isn't of this job, doesn't know the token, isn't paceline, went away or was silent.
    pub fn accept(&self, stream: impl AsFd, deadline: Instant) -> Result<Vec<u8>, HandshakeError> {
        let stream = stream.as_fd();
        let mut acceptor = Acceptor::new(self.clone(), sys::random());
        loop {
            let mut message = vec![0; acceptor.wanted()];
            let first = message.len().min(8);
            socket::read(stream, &mut message[..first], deadline)?;
            acceptor.glance(&message[..first])?;
            socket::read(stream, &mut message[first..], deadline)?;
            let reply = acceptor.take(&message);
            socket::write(stream, &reply.send, deadline)?;
            if let Some(outcome) = reply.outcome {
                return outcome;
            }
        }
    }

    pub(super) fn mac(&self, role: Role, parts: &[&[u8]]) -> [u8; 32] {
        self.start_mac(role, parts).finalize().into_bytes().into()
    }

    /// Compares in constant time.
    pub(super) fn verify(&self, role: Role, parts: &[&[u8]], mac: &[u8]) -> bool {
        self.start_mac(role, parts).verify_slice(mac).is_ok()
    }

    /// The label says whether there is a token, so that no token equals the absence of one.
    fn start_mac(&self, role: Role, parts: &[&[u8]]) -> Hmac<Sha256> {
        let key = self.token.as_ref().map_or(&[][..], |token| &token.0);
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(match (role, self.token.is_some()) {
            (Role::Connector, true) => b"paceline: connector, token",
            (Role::Connector, false) => b"paceline: connector, open.",
            (Role::Acceptor, true) => b"paceline: acceptor., token",
            (Role::Acceptor, false) => b"paceline: acceptor., open.",
        });
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

/// The number that stands for a job until the root has chosen one: a hash of its name.
pub(super) fn name_of_job(name: &str) -> [u8; 16] {
    let digest = Sha256::new().chain_update(b"paceline job ").chain_update(name.as_bytes()).finalize();
    digest[..16].try_into().expect("16 of 32 bytes")
}

#[cfg(test)]
mod tests;
