//! What rides with every frame: which call a rank believes to be making.

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
    /// The count of the call; of uneven blocks, a digest of all counts.
    pub(crate) count: u64,
    pub(crate) uneven: bool,
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
        if self.uneven {
            write!(f, " of {} blocks with counts of digest {:08x}", self.data_type, self.count as u32)?;
        } else {
            write!(f, " of {} {}", self.count, self.data_type)?;
        }
        if self.collective.reduces() {
            write!(f, ", {}", ReduceOp::name_of_code(self.op).unwrap_or("an unknown operator"))?;
        }
        if self.collective.has_root() {
            write!(f, ", root {}", self.root)?;
        }
        Ok(())
    }
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
