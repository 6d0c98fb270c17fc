//! What ranks and root tell each other after the handshake, as bytes.

use std::time::Duration;

use super::{Exchanged, MAX_ENTRY, RankIdentity, RendezvousError};

/// How a rank introduces itself, as the payload of the handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Introduction {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) pid: u32,
    pub(super) host: String,
    /// How long the rank still waits, less what the answer needs to reach it.
    pub(super) left: Duration,
    /// How long it waits in all.
    pub(super) limit: Duration,
}

impl Introduction {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [self.rank as u64, self.size as u64, self.pid.into(), millis(self.left), millis(self.limit)] {
            put_number(&mut bytes, number);
        }
        put_bytes(&mut bytes, self.host.as_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Introduction> {
        let mut reader = Reader(bytes);
        let introduction = Introduction {
            rank: reader.number()?.try_into().ok()?,
            size: reader.number()?.try_into().ok()?,
            pid: reader.number()?.try_into().ok()?,
            left: Duration::from_millis(reader.number()?),
            limit: Duration::from_millis(reader.number()?),
            host: reader.text()?,
        };
        reader.0.is_empty().then_some(introduction)
    }
}

/// The most bytes that an answer to `size` ranks can have.
pub(super) fn longest_answer(size: usize) -> usize {
    1024 + size * (MAX_ENTRY + 1024)
}

const COMPLETE: u64 = 0;
const INCOMPLETE: u64 = 1;
const DUPLICATE: u64 = 2;
const SIZE_MISMATCH: u64 = 3;
const LOST_RANK: u64 = 4;
const FAILED: u64 = 5;

/// The root's answer; errors that only concern the root are carried as text.
pub(super) fn encode_answer(answer: &Result<Exchanged, RendezvousError>, root: &RankIdentity) -> Vec<u8> {
    let mut bytes = Vec::new();
    match answer {
        Ok(Exchanged { job, entries }) => {
            put_number(&mut bytes, COMPLETE);
            bytes.extend_from_slice(job);
            put_number(&mut bytes, entries.len() as u64);
            entries.iter().for_each(|entry| put_bytes(&mut bytes, entry));
        }
        Err(RendezvousError::Incomplete { size, limit, limited_by, arrived, missing }) => {
            let numbers = [INCOMPLETE, *size as u64, millis(*limit), *limited_by as u64, missing.len() as u64];
            numbers.into_iter().for_each(|number| put_number(&mut bytes, number));
            missing.iter().for_each(|rank| put_number(&mut bytes, *rank as u64));
            put_number(&mut bytes, arrived.len() as u64);
            arrived.iter().for_each(|who| put_identity(&mut bytes, who));
        }
        Err(RendezvousError::Duplicate { first, second }) => {
            put_number(&mut bytes, DUPLICATE);
            [first, second].into_iter().for_each(|who| put_identity(&mut bytes, who));
        }
        Err(RendezvousError::SizeMismatch { root, root_size, other, other_size }) => {
            put_number(&mut bytes, SIZE_MISMATCH);
            for (who, size) in [(root, root_size), (other, other_size)] {
                put_identity(&mut bytes, who);
                put_number(&mut bytes, *size as u64);
            }
        }
        Err(RendezvousError::LostRank { lost, arrived, size, problem }) => {
            put_number(&mut bytes, LOST_RANK);
            put_identity(&mut bytes, lost);
            [*arrived, *size].into_iter().for_each(|number| put_number(&mut bytes, number as u64));
            put_bytes(&mut bytes, problem.as_bytes());
        }
        Err(other) => {
            put_number(&mut bytes, FAILED);
            put_identity(&mut bytes, root);
            put_bytes(&mut bytes, other.to_string().as_bytes());
        }
    }
    bytes
}

/// What the root answered; `None` if the bytes don't hold an answer to `size` ranks.
pub(super) fn decode_answer(bytes: &[u8], size: usize) -> Option<Result<Exchanged, RendezvousError>> {
    let mut reader = Reader(bytes);
    let answer = match reader.number()? {
        COMPLETE => {
            let job = reader.take(16)?.try_into().ok()?;
            let count = reader.count(size).filter(|count| *count == size)?;
            let entries = (0..count).map(|_| reader.bytes().map(<[u8]>::to_vec)).collect::<Option<_>>()?;
            Ok(Exchanged { job, entries })
        }
        INCOMPLETE => Err(RendezvousError::Incomplete {
            size: reader.number()?.try_into().ok()?,
            limit: Duration::from_millis(reader.number()?),
            limited_by: reader.count(size)?,
            missing: (0..reader.count(size)?).map(|_| reader.count(size)).collect::<Option<_>>()?,
            arrived: (0..reader.count(size)?).map(|_| reader.identity()).collect::<Option<_>>()?,
        }),
        DUPLICATE => Err(RendezvousError::Duplicate {
            first: Box::new(reader.identity()?),
            second: Box::new(reader.identity()?),
        }),
        SIZE_MISMATCH => Err(RendezvousError::SizeMismatch {
            root: Box::new(reader.identity()?),
            root_size: reader.number()?.try_into().ok()?,
            other: Box::new(reader.identity()?),
            other_size: reader.number()?.try_into().ok()?,
        }),
        LOST_RANK => Err(RendezvousError::LostRank {
            lost: Box::new(reader.identity()?),
            arrived: reader.number()?.try_into().ok()?,
            size: reader.number()?.try_into().ok()?,
            problem: reader.text()?,
        }),
        FAILED => {
            let root = Box::new(reader.identity()?);
            Err(RendezvousError::RootFailed { root, problem: reader.text()? })
        }
        _ => return None,
    };
    reader.0.is_empty().then_some(answer)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn put_number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put_number(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

fn put_identity(bytes: &mut Vec<u8>, who: &RankIdentity) {
    put_number(bytes, who.rank as u64);
    put_number(bytes, who.pid.into());
    put_bytes(bytes, who.host.as_bytes());
    put_bytes(bytes, who.address.as_bytes());
}

/// Reads from the front; `None` once something doesn't fit.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(front)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn count(&mut self, most: usize) -> Option<usize> {
        self.number()?.try_into().ok().filter(|count| *count <= most)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.count(self.0.len())?;
        self.take(length)
    }

    fn text(&mut self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    fn identity(&mut self) -> Option<RankIdentity> {
        Some(RankIdentity {
            rank: self.number()?.try_into().ok()?,
            pid: self.number()?.try_into().ok()?,
            host: self.text()?,
            address: self.text()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(rank: usize) -> RankIdentity {
        RankIdentity { rank, host: format!("host{rank}"), pid: 7, address: "10.0.0.1:4".to_owned() }
    }

    fn answers() -> Vec<Result<Exchanged, RendezvousError>> {
        let limit = Duration::from_millis(1500);
        let failed = RendezvousError::RootFailed { root: Box::new(who(0)), problem: "it rained".to_owned() };
        vec![
            Ok(Exchanged { job: [9; 16], entries: vec![vec![], b"one".to_vec(), vec![0; 1000]] }),
            Err(RendezvousError::Incomplete {
                size: 3,
                limit,
                limited_by: 1,
                arrived: vec![who(0), who(1)],
                missing: vec![2],
            }),
            Err(RendezvousError::Duplicate { first: Box::new(who(1)), second: Box::new(who(1)) }),
            Err(RendezvousError::SizeMismatch {
                root: Box::new(who(0)),
                root_size: 3,
                other: Box::new(who(2)),
                other_size: 5,
            }),
            Err(RendezvousError::LostRank { lost: Box::new(who(2)), arrived: 2, size: 3, problem: "gone".to_owned() }),
            Err(failed),
        ]
    }

    #[test]
    fn answers_survive_the_journey_and_no_part_of_one_is_taken_for_whole() {
        for answer in answers() {
            let bytes = encode_answer(&answer, &who(0));
            match (&answer, decode_answer(&bytes, 3)) {
                (Err(RendezvousError::RootFailed { .. }), Some(Err(RendezvousError::RootFailed { problem, .. }))) => {
                    assert!(problem.contains("it rained"));
                }
                (_, decoded) => assert_eq!(decoded.as_ref(), Some(&answer)),
            }
            for length in 0..bytes.len() {
                assert_eq!(decode_answer(&bytes[..length], 3), None, "{answer:?} cut to {length} bytes");
            }
            assert_eq!(decode_answer(&[&bytes[..], b"x"].concat(), 3), None);
        }
    }

    #[test]
    fn lengths_beyond_the_bytes_are_refused() {
        let bytes = encode_answer(&answers()[0], &who(0));
        for at in 0..bytes.len() - 8 {
            let mut damaged = bytes.clone();
            damaged[at..at + 8].fill(0xff);
            let _ = decode_answer(&damaged, 3);
        }
        let introduction = Introduction {
            rank: 1,
            size: 3,
            pid: 9,
            host: "b".to_owned(),
            left: Duration::from_secs(1),
            limit: Duration::from_secs(2),
        };
        let bytes = introduction.encode();
        assert_eq!(Introduction::decode(&bytes), Some(introduction));
        for length in 0..bytes.len() {
            assert_eq!(Introduction::decode(&bytes[..length]), None);
        }
    }
}
