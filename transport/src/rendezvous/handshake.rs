//! The handshake: two ends show that they are of one job and know one token, and one of them says who it is.
//!
//! ```text
//!   connector                                                              acceptor
//!     hello:      magic, version, job, nonce A                      ------>
//!                                              <------  challenge:  magic, version, verdict, nonce B
//!     proof:      MAC(connector, hello, challenge, payload), payload ------>
//!                                              <------  welcome:    verdict, MAC(acceptor, all of the above)
//! ```
//!
//! The connector proves first, so that whoever knocks on an open port learns nothing that the token could be guessed
//! from. Both nonces are in both proofs, so none can be replayed; the roles are, so none can be reflected. Without a
//! token the same messages pass, with a key that everyone knows. What follows on the stream is not protected.
//!
//! The acceptor's half is a machine without input and output, because the root serves many at once.

use super::credentials::{Credentials, Role};

/// The most bytes of payload that a connector may send.
pub const MAX_HELLO: usize = 16 << 10;

pub(super) const VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"\xc5pacelin";

const HELLO: usize = 64;
const CHALLENGE: usize = 48;
const PROOF: usize = 36;
const WELCOME: usize = 33;

const GO_ON: u8 = 0;
const OTHER_JOB: u8 = 1;
const OTHER_VERSION: u8 = 2;
const NOT_AUTHENTIC: u8 = 3;

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The other end doesn't speak this protocol.
    #[error("not paceline's protocol; it began with {0:?}")]
    Stranger(String),
    /// The other end speaks another version of it.
    #[error("it speaks version {theirs} of the protocol and this end version {ours}")]
    Version {
        /// This end's.
        ours: u16,
        /// The other end's.
        theirs: u16,
    },
    /// The other end belongs to another job.
    #[error("it belongs to another job")]
    OtherJob,
    /// The ends don't know the same token.
    #[error("authentication failed")]
    AuthenticationFailed,
    /// The payload is too long.
    #[error("a hello of {bytes} bytes; at most {most}")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// The other end broke the protocol.
    #[error("it broke the protocol: {0}")]
    Protocol(&'static str),
    /// The other end closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// The deadline passed.
    #[error("no answer in time")]
    Deadline,
    /// The operating system failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// The bytes that a connector opens with.
pub(super) fn hello(credentials: &Credentials, nonce: [u8; 32]) -> [u8; HELLO] {
    let mut message = [0; HELLO];
    message[..8].copy_from_slice(&MAGIC);
    message[8..10].copy_from_slice(&VERSION.to_le_bytes());
    message[16..32].copy_from_slice(&credentials.job);
    message[32..].copy_from_slice(&nonce);
    message
}

/// What a connector answers to a challenge, given its own hello.
pub(super) fn proof(
    credentials: &Credentials,
    hello: &[u8; HELLO],
    challenge: &[u8; CHALLENGE],
    payload: &[u8],
) -> Result<Vec<u8>, HandshakeError> {
    let theirs = version(challenge)?;
    match challenge[10] {
        GO_ON => {}
        OTHER_JOB => return Err(HandshakeError::OtherJob),
        OTHER_VERSION => return Err(HandshakeError::Version { ours: VERSION, theirs }),
        _ => return Err(HandshakeError::Protocol("an unknown verdict")),
    }
    let length = (payload.len() as u32).to_le_bytes();
    let mac = credentials.mac(Role::Connector, &[hello, challenge, &length, payload]);
    Ok([&mac[..], &length, payload].concat())
}

/// What a connector makes of the welcome.
pub(super) fn check_welcome(
    credentials: &Credentials,
    hello: &[u8; HELLO],
    challenge: &[u8; CHALLENGE],
    proof: &[u8],
    welcome: &[u8; WELCOME],
) -> Result<(), HandshakeError> {
    let genuine = credentials.verify(Role::Acceptor, &[hello, challenge, proof], &welcome[1..]);
    if welcome[0] == GO_ON && genuine { Ok(()) } else { Err(HandshakeError::AuthenticationFailed) }
}

pub(super) const CHALLENGE_BYTES: usize = CHALLENGE;
pub(super) const WELCOME_BYTES: usize = WELCOME;

fn version(message: &[u8]) -> Result<u16, HandshakeError> {
    if !begins_right(message) {
        return Err(HandshakeError::Stranger(message[..message.len().min(32)].escape_ascii().to_string()));
    }
    Ok(u16::from_le_bytes([message[8], message[9]]))
}

fn begins_right(message: &[u8]) -> bool {
    let length = message.len().min(MAGIC.len());
    message[..length] == MAGIC[..length]
}

/// The acceptor's half: says how many bytes it wants, takes them, says what to send.
pub(super) struct Acceptor {
    credentials: Credentials,
    nonce: [u8; 32],
    transcript: Vec<u8>,
    stage: Stage,
}

enum Stage {
    Hello,
    Proof,
    Payload(usize),
}

/// What the acceptor wants done, after which it wants more, has the payload, or gives up.
pub(super) struct Reply {
    /// To be sent, if not empty, before anything else.
    pub(super) send: Vec<u8>,
    /// `None` if more is wanted; otherwise the payload or why there is none.
    pub(super) outcome: Option<Result<Vec<u8>, HandshakeError>>,
}

impl Reply {
    fn refusal(send: Vec<u8>, error: HandshakeError) -> Reply {
        Reply { send, outcome: Some(Err(error)) }
    }
}

impl Acceptor {
    pub(super) fn new(credentials: Credentials, nonce: [u8; 32]) -> Acceptor {
        Acceptor { credentials, nonce, transcript: Vec::new(), stage: Stage::Hello }
    }

    /// How long the next message is.
    pub(super) fn wanted(&self) -> usize {
        match self.stage {
            Stage::Hello => HELLO,
            Stage::Proof => PROOF,
            Stage::Payload(length) => length,
        }
    }

    /// An error if the first bytes of a message already tell a stranger.
    pub(super) fn glance(&self, start: &[u8]) -> Result<(), HandshakeError> {
        match self.stage {
            Stage::Hello if !begins_right(start) => version(start).map(drop),
            _ => Ok(()),
        }
    }

    /// Takes a message of exactly [`wanted`](Acceptor::wanted) bytes.
    pub(super) fn take(&mut self, message: &[u8]) -> Reply {
        assert_eq!(message.len(), self.wanted());
        match self.stage {
            Stage::Hello => self.take_hello(message),
            Stage::Proof => {
                let length = u32::from_le_bytes(message[32..].try_into().expect("4 bytes")) as usize;
                if length > MAX_HELLO {
                    let error = HandshakeError::TooLong { bytes: length, most: MAX_HELLO };
                    return Reply::refusal(Vec::new(), error);
                }
                self.transcript.extend_from_slice(message);
                self.stage = Stage::Payload(length);
                Reply { send: Vec::new(), outcome: None }
            }
            Stage::Payload(_) => self.take_payload(message),
        }
    }

    fn take_hello(&mut self, message: &[u8]) -> Reply {
        let theirs = match version(message) {
            Ok(theirs) => theirs,
            Err(error) => return Reply::refusal(Vec::new(), error),
        };
        let mut challenge = [0; CHALLENGE];
        challenge[..8].copy_from_slice(&MAGIC);
        challenge[8..10].copy_from_slice(&VERSION.to_le_bytes());
        challenge[16..].copy_from_slice(&self.nonce);
        if theirs != VERSION {
            challenge[10] = OTHER_VERSION;
            return Reply::refusal(challenge.to_vec(), HandshakeError::Version { ours: VERSION, theirs });
        }
        if message[16..32] != self.credentials.job {
            challenge[10] = OTHER_JOB;
            return Reply::refusal(challenge.to_vec(), HandshakeError::OtherJob);
        }
        self.transcript = [message, &challenge].concat();
        self.stage = Stage::Proof;
        Reply { send: challenge.to_vec(), outcome: None }
    }

    fn take_payload(&mut self, payload: &[u8]) -> Reply {
        let (opening, proof) = self.transcript.split_at(HELLO + CHALLENGE);
        let (mac, length) = proof.split_at(32);
        if !self.credentials.verify(Role::Connector, &[opening, length, payload], mac) {
            let mut welcome = vec![0; WELCOME];
            welcome[0] = NOT_AUTHENTIC;
            return Reply::refusal(welcome, HandshakeError::AuthenticationFailed);
        }
        let mac = self.credentials.mac(Role::Acceptor, &[opening, proof, payload]);
        Reply { send: [&[GO_ON], &mac[..]].concat(), outcome: Some(Ok(payload.to_vec())) }
    }
}
