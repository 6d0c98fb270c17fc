//! Handles of memory and events that other processes open: who has it, and how it is found and recognised there.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open, readlink};

use crate::error::{Code, Status, refuse};
use crate::mapping::{PAGE, shared_file};
use crate::memory::{file_name, nonce};

/// What the 64 bytes of a handle say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    pub kind: What,
    pub process: u32,
    pub descriptor: u32,
    pub device: u32,
    pub bytes: u64,
    pub nonce: u64,
}

/// What a handle is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    Memory,
    Event,
}

impl What {
    const fn mark(self) -> [u8; 8] {
        match self {
            What::Memory => *b"softmem1",
            What::Event => *b"softevt1",
        }
    }
}

impl Ticket {
    pub fn write(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&self.kind.mark());
        for (at, number) in [self.process, self.descriptor, self.device].into_iter().enumerate() {
            bytes[8 + 4 * at..][..4].copy_from_slice(&number.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.nonce.to_le_bytes());
        bytes
    }

    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE`: the bytes are no handle of this kind.
    pub fn read(bytes: &[u8; 64], kind: What) -> Status<Ticket> {
        if bytes[..8] != kind.mark() {
            return refuse(Code::CUDA_ERROR_INVALID_VALUE, format_args!("the handle is none of {kind:?}"));
        }
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let (process, descriptor, device) = (number(8), number(12), number(16));
        Ok(Ticket { kind, process, descriptor, device, bytes: long(24), nonce: long(32) })
    }

    /// The file that it names, in a process that may open it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` in the process that it is of; `CUDA_ERROR_INVALID_HANDLE` when that process, or what
    /// it had there, is gone.
    pub fn open(&self) -> Status<OwnedFd> {
        if self.process == std::process::id() {
            let why = format_args!("a process can't open a handle of its own");
            return refuse(Code::CUDA_ERROR_INVALID_CONTEXT, why);
        }
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
        let opened = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let file = opened.or_else(|error| {
            let why = format_args!("process {} has no such memory or event any more ({path}: {error})", self.process);
            refuse(Code::CUDA_ERROR_INVALID_HANDLE, why)
        })?;
        // The number may mean another file by now; its name says which it is.
        let name = readlink(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()), Vec::new());
        let expected = file_name(self.nonce);
        if !name.is_ok_and(|name| name.to_string_lossy().contains(&expected)) {
            let why = format_args!("process {} has something else there by now ({path})", self.process);
            return refuse(Code::CUDA_ERROR_INVALID_HANDLE, why);
        }
        Ok(file)
    }
}

/// The file of a new event that other processes may open, and its nonce.
pub fn new_event_file() -> Status<(OwnedFd, u64)> {
    let nonce = nonce();
    let file = shared_file(&file_name(nonce), PAGE).map_err(|_| Code::CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok((file, nonce))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_survives_its_bytes() {
        let ticket =
            Ticket { kind: What::Event, process: 7, descriptor: 8, device: 9, bytes: 1 << 40, nonce: u64::MAX - 3 };
        assert_eq!(Ticket::read(&ticket.write(), What::Event), Ok(ticket));
        assert!(Ticket::read(&ticket.write(), What::Memory).is_err());
    }
}
