//! Which row runs a call: the same on every rank, because it depends only on what all ranks know.

mod costs;
mod explain;
mod overrides;

use paceline_transport::LinkKind;

use crate::algorithm::{ROWS, Row};
use crate::collective::Collective;
use crate::engine::{Slicing, fits_on_boards};
use crate::error::{Error, ErrorKind, Result};
use crate::request::CallOptions;

pub use explain::{Explanation, Offer};
pub(crate) use overrides::Overrides;

use costs::Machine;

/// What all ranks of a communicator know alike, and the choice depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    size: usize,
    /// The slowest kind of link between any two ranks.
    slowest: LinkKind,
    /// The most ranks per core on any host, rounded up.
    crowding: u32,
    /// Whether all ranks show each other boards.
    boards: bool,
    overrides: Overrides,
}

/// A row that has been chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) row: &'static Row,
    pub(crate) number: usize,
}

/// What one rank says of itself when the ranks agree.
const FACT_BYTES: usize = 13;

impl Facts {
    pub(crate) fn in_process(size: usize) -> Facts {
        Facts { boards: size > 1, ..Facts::simulated(size) }
    }

    /// Of a simulated network, whose links are priced as memory.
    pub(crate) fn simulated(size: usize) -> Facts {
        Facts { slowest: LinkKind::Inproc, crowding: crowding(size), ..Facts::unknown(size, Overrides::default()) }
    }

    /// What a rank may assume before it has heard of the others.
    pub(crate) fn unknown(size: usize, overrides: Overrides) -> Facts {
        Facts { size, slowest: LinkKind::Tcp, crowding: 1, boards: false, overrides }
    }

    pub(crate) fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// What this rank, whose slowest link is `slowest` and whose host has `neighbours` ranks, tells the others.
    pub(crate) fn encode(&self, slowest: LinkKind, neighbours: usize) -> [u8; FACT_BYTES] {
        let mut bytes = [0; FACT_BYTES];
        bytes[0] = slowest as u8;
        bytes[1..5].copy_from_slice(&crowding(neighbours).to_le_bytes());
        bytes[5..].copy_from_slice(&self.overrides.digest().to_le_bytes());
        bytes
    }

    /// The facts that follow from what all ranks said.
    pub(crate) fn decode(&self, all: &[u8]) -> Result<Facts> {
        let mine = self.overrides.digest().to_le_bytes();
        let others = all.chunks_exact(FACT_BYTES).enumerate().filter(|(_, said)| said[5..] != mine);
        let differing: Vec<usize> = others.map(|(rank, _)| rank).collect();
        if !differing.is_empty() {
            let cause = format!("PACELINE_ALGORITHM is not the same on this rank and on ranks {differing:?}");
            let error = Error::new(ErrorKind::Mismatch, cause).blaming(differing);
            return Err(error.hint("set it alike for all ranks, or pass the algorithm with the call"));
        }
        let slowest = all.chunks_exact(FACT_BYTES).map(|said| said[0]).max().unwrap_or(0);
        let kinds = [LinkKind::Inproc, LinkKind::Shm, LinkKind::Tcp, LinkKind::Sim];
        let slowest = kinds.into_iter().find(|kind| *kind as u8 == slowest).unwrap_or(LinkKind::Tcp);
        let crowding_of = |said: &[u8]| u32::from_le_bytes([said[1], said[2], said[3], said[4]]);
        let crowding = all.chunks_exact(FACT_BYTES).map(crowding_of).max().unwrap_or(1);
        let boards = matches!(slowest, LinkKind::Inproc | LinkKind::Shm) && self.size > 1;
        Ok(Facts { slowest, crowding, boards, ..self.clone() })
    }

    pub(crate) fn slicing(&self) -> Slicing {
        match self.slowest {
            LinkKind::Tcp | LinkKind::Sim => Slicing { chunk_bytes: 1 << 20, lanes: 2 },
            LinkKind::Inproc | LinkKind::Shm => Slicing { chunk_bytes: 256 << 10, lanes: 2 },
        }
    }

    /// The row for a call, by the call's own wish, the environment's, or the price.
    pub(crate) fn choose(
        &self,
        collective: Collective,
        bytes: usize,
        uneven: bool,
        options: &CallOptions,
    ) -> Result<Choice> {
        match options.algorithm.as_deref().or(self.overrides.of(collective)) {
            Some(name) => self.fitting(collective, uneven).find(|choice| choice.row.name == name).ok_or_else(|| {
                let names: Vec<_> = self.fitting(collective, uneven).map(|choice| choice.row.name).collect();
                Error::invalid(format!("{collective} over {} ranks has no algorithm {name}", self.size))
                    .hint(format!("there are: {}", names.join(", ")))
            }),
            None => Ok(self.cheapest(collective, bytes, uneven)),
        }
    }

    /// The rows that can run a call. Uneven blocks are moved one by one, wherever they lie: rows that move runs of blocks
    /// are not among them.
    fn fitting(&self, collective: Collective, uneven: bool) -> impl Iterator<Item = Choice> {
        let size = self.size as u32;
        let uneven_fits = move |row: &Row| !uneven || (row.uneven && !row.moves_runs);
        let fits = move |row: &Row| row.collective == collective && (row.fits)(size) && uneven_fits(row);
        let rows = ROWS.iter().enumerate().filter(move |(_, row)| fits(row));
        rows.map(|(number, row)| Choice { row, number })
    }

    fn cheapest(&self, collective: Collective, bytes: usize, uneven: bool) -> Choice {
        let priced = self.fitting(collective, uneven).map(|choice| (self.price(choice.row, bytes, uneven), choice));
        priced.min_by(|a, b| a.0.total_cmp(&b.0)).expect("each collective has rows for every number of ranks").1
    }

    /// Whether a call with blocks of one length goes over the boards when this row is chosen: the row says that everyone
    /// reads from everyone, memory joins all ranks, and the messages are small enough.
    pub(crate) fn on_boards(&self, row: &Row, bytes: usize) -> bool {
        self.boards && row.name == "direct" && fits_on_boards(row.collective, self.size, bytes)
    }

    /// Whether large calls may read registered memory directly: memory joins all ranks, and nobody wishes for a row.
    pub(crate) fn may_use_windows(&self, collective: Collective) -> bool {
        self.boards && self.overrides.of(collective).is_none()
    }

    /// How long a row should take, in seconds.
    fn price(&self, row: &Row, bytes: usize, uneven: bool) -> f64 {
        if !uneven && self.on_boards(row, bytes) {
            return Machine::of(self.slowest, self.crowding).board_s(row.collective, self.size, bytes);
        }
        let (size, chunks) = (self.size as u32, (row.chunks)(self.size as u32) as usize);
        let n_slices = bytes.div_ceil(self.slicing().chunk_bytes * chunks).clamp(1, 1 << 20);
        let costs = Machine::of(self.slowest, self.crowding).costs_of(row, size, bytes);
        row.work(size).seconds_in_slices(bytes as u64, n_slices as u32, &costs) + costs::scratch_s(row)
    }
}

/// How many ranks must share a core when a host has that many.
fn crowding(neighbours: usize) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    neighbours.div_ceil(cores) as u32
}
