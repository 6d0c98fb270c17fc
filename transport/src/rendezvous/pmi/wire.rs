//! PMI version 1 as text on a socket: one line asks, one line answers.
//!
//! Once a line failed or was late, the next one read could be its answer, so the connection is never used again.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use super::super::{Family, resolve, socket, sys};
use super::PmiDoor;

/// No answer is longer.
const LONGEST_LINE: usize = 64 << 10;

pub(super) struct Wire {
    socket: OwnedFd,
    inbox: Vec<u8>,
    name: String,
    longest_value: usize,
    /// Rank and size, which are only told to those who come by address.
    told: Option<(usize, usize)>,
    broken: Option<String>,
}

impl Wire {
    pub(super) fn open(door: &PmiDoor, deadline: Instant) -> Result<Wire, String> {
        let socket = match door {
            PmiDoor::Descriptor(descriptor) => {
                sys::inherited(*descriptor).map_err(|error| format!("PMI_FD={descriptor} can't be used: {error}"))?
            }
            PmiDoor::Address { manager, .. } => connect(manager, deadline)?,
        };
        let mut wire =
            Wire { socket, inbox: Vec::new(), name: String::new(), longest_value: 0, told: None, broken: None };
        if let PmiDoor::Address { id, .. } = door {
            wire.ask(&format!("cmd=initack pmiid={id}"), "initack", deadline)?;
            let mut told = [None; 2];
            for _ in ["size", "rank", "debug"] {
                let answer = wire.answer("set", deadline)?;
                for (told, key) in told.iter_mut().zip(["rank", "size"]) {
                    *told = told.or(answer.value(key).and_then(|text| text.parse().ok()));
                }
            }
            wire.told = told[0].zip(told[1]);
        }
        wire.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline)?;
        let limits = wire.ask("cmd=get_maxes", "maxes", deadline)?;
        wire.longest_value = limits.value("vallen_max").and_then(|text| text.parse().ok()).unwrap_or(256);
        let answer = wire.ask("cmd=get_my_kvsname", "my_kvsname", deadline)?;
        wire.name = answer.value("kvsname").ok_or("the manager named no key-value space")?.to_owned();
        Ok(wire)
    }

    /// The name of the job's key-value space.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The rank and size that the manager told, if it did.
    pub(super) fn rank_and_size(&self) -> Option<(usize, usize)> {
        self.told
    }

    /// The most bytes that a value may have, the C string's end counted.
    pub(super) fn longest_value(&self) -> usize {
        self.longest_value.saturating_sub(1)
    }

    pub(super) fn put(&mut self, key: &str, value: &str, deadline: Instant) -> Result<(), String> {
        let line = format!("cmd=put kvsname={} key={key} value={value}", self.name);
        self.ask(&line, "put_result", deadline).map(drop)
    }

    pub(super) fn get(&mut self, key: &str, deadline: Instant) -> Result<String, String> {
        let line = format!("cmd=get kvsname={} key={key}", self.name);
        let answer = self.ask(&line, "get_result", deadline)?;
        answer.value("value").map(str::to_owned).ok_or_else(|| format!("no value in {:?}", answer.0))
    }

    pub(super) fn barrier(&mut self, deadline: Instant) -> Result<(), String> {
        self.ask("cmd=barrier_in", "barrier_out", deadline).map(drop)
    }

    pub(super) fn finalize(&mut self, deadline: Instant) {
        let _ = self.ask("cmd=finalize", "finalize_ack", deadline);
    }

    fn ask(&mut self, line: &str, expected: &str, deadline: Instant) -> Result<Answer, String> {
        if let Some(problem) = &self.broken {
            return Err(format!("the connection is not used any more since an earlier failure: {problem}"));
        }
        let sent = socket::write(self.socket.as_fd(), format!("{line}\n").as_bytes(), deadline);
        let result = sent.map_err(|error| error.to_string()).and_then(|()| self.answer(expected, deadline));
        result.inspect_err(|problem| self.broken = Some(problem.clone()))
    }

    fn answer(&mut self, expected: &str, deadline: Instant) -> Result<Answer, String> {
        let end = loop {
            if let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') {
                break end;
            }
            if LONGEST_LINE < self.inbox.len() {
                return Err("the manager answered without end".to_owned());
            }
            let mut buffer = [0; 1024];
            match socket::read_now(self.socket.as_fd(), &mut buffer).map_err(|error| error.to_string())? {
                Some(0) => return Err("the manager closed the connection".to_owned()),
                Some(count) => self.inbox.extend_from_slice(&buffer[..count]),
                None => socket::wait(self.socket.as_fd(), rustix::event::PollFlags::IN, deadline)
                    .map_err(|error| error.to_string())?,
            }
        };
        let line: Vec<u8> = self.inbox.drain(..=end).collect();
        let answer = Answer(String::from_utf8_lossy(&line).trim_end().to_owned());
        let sound = answer.value("cmd") == Some(expected) && answer.value("rc").is_none_or(|code| code == "0");
        if sound { Ok(answer) } else { Err(format!("expected {expected}, the manager answered {:?}", answer.0)) }
    }
}

struct Answer(String);

impl Answer {
    fn value(&self, key: &str) -> Option<&str> {
        self.0.split_ascii_whitespace().find_map(|part| part.strip_prefix(key)?.strip_prefix('='))
    }
}

fn connect(manager: &str, deadline: Instant) -> Result<OwnedFd, String> {
    let (host, port) = manager.rsplit_once(':').ok_or_else(|| format!("PMI_PORT={manager} is not host:port"))?;
    let port: u16 = port.parse().map_err(|_| format!("PMI_PORT={manager} is not host:port"))?;
    let addresses = resolve::addresses(host, Family::Any, deadline)?;
    let mut last = String::new();
    for address in addresses.into_iter().map(|ip| SocketAddr::new(ip, port)) {
        let left = deadline.saturating_duration_since(Instant::now()).max(std::time::Duration::from_millis(1));
        match std::net::TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream.into()),
            Err(error) => last = format!("connecting to {address}: {error}"),
        }
    }
    Err(last)
}
