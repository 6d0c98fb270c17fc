//! Which row runs a call: the same on every rank, because it depends only on what all ranks know.

use crate::algorithm::{ROWS, Row};
use crate::collective::Collective;
use crate::engine::Slicing;
use crate::error::{Error, Result};
use crate::request::CallOptions;

/// What all ranks of a communicator know alike, and the choice depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    pub(crate) size: usize,
    pub(crate) sockets: bool,
}

/// A row that has been chosen.
#[derive(Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) row: &'static Row,
    pub(crate) number: usize,
}

impl Facts {
    pub(crate) fn in_process(size: usize) -> Facts {
        Facts { size, sockets: false }
    }

    pub(crate) fn slicing(&self) -> Slicing {
        if self.sockets {
            Slicing { chunk_bytes: 1 << 20, lanes: 2 }
        } else {
            Slicing { chunk_bytes: 256 << 10, lanes: 2 }
        }
    }

    pub(crate) fn choose(
        &self,
        collective: Collective,
        bytes: usize,
        uneven: bool,
        options: &CallOptions,
    ) -> Result<Choice> {
        let fits = |row: &Row| row.collective == collective && (row.fits)(self.size as u32) && (!uneven || row.uneven);
        let named = |name: &str| ROWS.iter().enumerate().find(|(_, row)| row.name == name && fits(row));
        let found = match options.algorithm.as_deref() {
            Some(name) => named(name).ok_or_else(|| {
                let names: Vec<_> = ROWS.iter().filter(|row| fits(row)).map(|row| row.name).collect();
                Error::invalid(format!("{collective} over {} ranks has no algorithm {name}", self.size))
                    .hint(format!("there are: {}", names.join(", ")))
            })?,
            None => named(default_name(collective, bytes, self.size, uneven)).expect("the defaults are in the table"),
        };
        Ok(Choice { row: found.1, number: found.0 })
    }
}

fn default_name(collective: Collective, bytes: usize, size: usize, uneven: bool) -> &'static str {
    let small = bytes <= 4096;
    match collective {
        Collective::AllReduce if small && size <= 8 => "direct",
        Collective::AllReduce if small => "recursive_doubling",
        Collective::AllReduce | Collective::AllGather | Collective::ReduceScatter => "ring",
        Collective::Reduce | Collective::Broadcast if small => "binomial",
        Collective::Reduce | Collective::Broadcast => "ring",
        Collective::AllToAll => "pairwise",
        Collective::Gather | Collective::Scatter if small && !uneven => "binomial",
        Collective::Gather | Collective::Scatter => "direct",
        _ => "dissemination",
    }
}
