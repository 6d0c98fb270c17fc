//! What rides with every frame: which call a rank believes to be making.

use std::sync::Arc;

use paceline_transport::Stamp;

use crate::collective::Collective;
use crate::reduce::{DataType, ReduceOp};

/// The facts that all ranks of a call must agree on, in sixteen bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fingerprint {
    pub(crate) collective: Collective,
    pub(crate) data_type: DataType,
    /// The operator's code; 0 where nothing is reduced.
    pub(crate) op: u8,
    /// The row's number in its table, so that ranks that chose differently find out.
    pub(crate) row: u8,
    pub(crate) root: u32,
    /// The count of the call; of uneven blocks, a digest of all counts, or the count between two ranks where only they know.
    pub(crate) count: u64,
    pub(crate) uneven: bool,
}

/// The stamps of one call: what goes out to, and must come in from, each rank.
#[derive(Clone, Debug)]
pub(crate) struct Stamps {
    sends: Stamp,
    expects: Stamp,
    own: Stamp,
    /// Elements to and from each rank, where they differ from pair to pair.
    pairs: Option<Arc<[(u64, u64)]>>,
}

impl Stamps {
    /// The same stamp everywhere, but for the counts where `pairs` are given.
    pub(crate) fn collective(fingerprint: Fingerprint, pairs: Option<Arc<[(u64, u64)]>>) -> Stamps {
        let stamp = fingerprint.pack();
        Stamps { sends: stamp, expects: stamp, own: stamp, pairs }
    }

    /// A message of `sends` elements, and one of `expects` elements: whoever receives expects what a sender says.
    pub(crate) fn message(own: Fingerprint, sends: u64, expects: u64) -> Stamps {
        let of = |count| Fingerprint { collective: Collective::Send, count, ..own }.pack();
        Stamps { sends: of(sends), expects: of(expects), own: own.pack(), pairs: None }
    }

    #[inline(always)]
    pub(crate) fn to(&self, peer: usize) -> Stamp {
        match &self.pairs {
            None => self.sends,
            Some(pairs) => Stamp([self.sends.0[0], pairs[peer].0]),
        }
    }

    #[inline(always)]
    pub(crate) fn from(&self, peer: usize) -> Stamp {
        match &self.pairs {
            None => self.expects,
            Some(pairs) => Stamp([self.expects.0[0], pairs[peer].1]),
        }
    }

    /// What this rank says that the call is.
    pub(crate) fn own(&self) -> Stamp {
        self.own
    }

    /// The same as one other rank should see it.
    pub(crate) fn own_towards(&self, peer: usize) -> Stamp {
        if self.pairs.is_some() { self.from(peer) } else { self.own }
    }
}

/// The stamp of an uneven all_to_all with the length of this rank's message, where the root would be: ranks differ in it.
#[inline]
pub(crate) fn with_length(stamp: Stamp, bytes: u32) -> Stamp {
    Stamp([u64::from(stamp.0[0] as u32) | u64::from(bytes) << 32, stamp.0[1]])
}

/// The length in such a stamp.
#[inline]
pub(crate) fn length_in(stamp: Stamp) -> usize {
    (stamp.0[0] >> 32) as usize
}

/// The stamp without what ranks may differ in.
#[inline]
pub(crate) fn without_length(stamp: Stamp) -> Stamp {
    let [collective, _, op, ..] = stamp.0[0].to_le_bytes();
    let tells_length = collective == Collective::AllToAll as u8 && op & UNEVEN_BIT != 0;
    if tells_length { with_length(stamp, 0) } else { stamp }
}

/// The digest of a history with one more call.
#[inline(always)]
pub(crate) fn remembered(history: u64, stamp: Stamp) -> u64 {
    let mix = |digest: u64, word: u64| (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    mix(mix(history, stamp.0[0]), stamp.0[1])
}

const UNEVEN_BIT: u8 = 0x80;

impl Fingerprint {
    pub(crate) fn pack(self) -> Stamp {
        let op = self.op | if self.uneven { UNEVEN_BIT } else { 0 };
        let first = u64::from(self.collective as u8)
            | u64::from(self.data_type as u8) << 8
            | u64::from(op) << 16
            | u64::from(self.row) << 24
            | u64::from(self.root) << 32;
        Stamp([first, self.count])
    }

    /// What a peer's stamp says; `None` if no sound peer makes such a stamp.
    pub(crate) fn unpack(stamp: Stamp) -> Option<Fingerprint> {
        let [c, d, op, row, ..] = stamp.0[0].to_le_bytes();
        Some(Fingerprint {
            collective: Collective::ALL.into_iter().find(|collective| *collective as u8 == c)?,
            data_type: DataType::from_code(d)?,
            op: op & !UNEVEN_BIT,
            row,
            root: (stamp.0[0] >> 32) as u32,
            count: stamp.0[1],
            uneven: op & UNEVEN_BIT != 0,
        })
    }

    /// A digest of counts, for calls whose blocks differ.
    pub(crate) fn digest(counts: &[usize]) -> u64 {
        counts.iter().fold(0xcbf2_9ce4_8422_2325, |hash, count| {
            let mixed = (hash ^ *count as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 29
        })
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.collective)?;
        if self.collective == Collective::Barrier {
            return Ok(());
        }
        if self.uneven && self.collective == Collective::AllToAll {
            write!(f, " of {} {} between the two, in uneven blocks", self.count, self.data_type)?;
        } else if self.uneven {
            write!(f, " of {} in uneven blocks (counts {:#x})", self.data_type, self.count)?;
        } else {
            write!(f, " of {} {}", self.count, self.data_type)?;
        }
        if self.collective.reduces() {
            write!(f, ", {}", op_name(self.op))?;
        }
        if self.collective.has_root() {
            write!(f, ", root {}", self.root)?;
        }
        Ok(())
    }
}

fn op_name(code: u8) -> &'static str {
    let plain = ReduceOp::PLAIN.into_iter().find(|op| op.code() == code);
    plain.unwrap_or(ReduceOp::PreMulSum(0)).name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_wire() {
        for collective in Collective::ALL {
            for uneven in [false, true] {
                let fingerprint = Fingerprint {
                    collective,
                    data_type: DataType::Bf16,
                    op: 3,
                    row: 200,
                    root: 131_071,
                    count: 1 << 40,
                    uneven,
                };
                assert_eq!(Fingerprint::unpack(fingerprint.pack()), Some(fingerprint));
            }
        }
        assert_eq!(Fingerprint::unpack(Stamp([0xff, 0])), None);
    }

    #[test]
    fn says_what_it_stands_for() {
        let fingerprint = Fingerprint {
            collective: Collective::Reduce,
            data_type: DataType::F32,
            op: ReduceOp::Sum.code(),
            row: 0,
            root: 2,
            count: 1024,
            uneven: false,
        };
        assert_eq!(fingerprint.to_string(), "reduce of 1024 float, sum, root 2");
    }
}
