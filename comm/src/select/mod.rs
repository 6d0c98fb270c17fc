//! Which row runs a call: the same on every rank, because it depends only on what all ranks know.

mod agreement;
mod costs;
mod explain;
mod overrides;
mod prices;
mod profile;

use std::sync::{Arc, OnceLock};

use paceline_transport::LinkKind;

use crate::algorithm::{ROWS, Row};
use crate::collective::Collective;
use crate::engine::{Slicing, fits_on_boards};
use crate::error::{Error, Result};
use crate::request::CallOptions;
use crate::schedule::Groups;

pub(crate) use agreement::Brought;
pub use explain::{Explanation, Measured, Offer};
pub(crate) use overrides::Overrides;
pub use prices::Prices;
pub use profile::{Circumstances, Crossover, MeasuredChoices, Profile, ProfileError, ProfileHost};

use costs::Machine;
use profile::Found;

/// What all ranks of a communicator know alike, and the choice depends on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    size: usize,
    /// The slowest kind of link between any two ranks.
    slowest: LinkKind,
    /// The most ranks per core on any host, rounded up.
    crowding: u32,
    /// Whether all ranks show each other boards.
    boards: bool,
    /// What the slowest kind of link charges.
    prices: Prices,
    /// Whether all ranks brought the same measured choices.
    measured: bool,
    /// What this rank brought. All have brought the same wishes, and the same choices if these are used.
    brought: Arc<Brought>,
}

/// A row that has been chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) row: &'static Row,
    pub(crate) number: usize,
}

impl Facts {
    pub(crate) fn in_process(size: usize) -> Facts {
        Facts { boards: size > 1, ..Facts::simulated(size) }
    }

    /// Of a simulated network, whose links are priced as memory.
    pub(crate) fn simulated(size: usize) -> Facts {
        let (slowest, crowding) = (LinkKind::Inproc, crowding(size, cores()));
        Facts { slowest, crowding, prices: Prices::standard(slowest), ..Facts::unknown(size, Arc::default()) }
    }

    /// What a rank may assume before it has heard of the others.
    pub(crate) fn unknown(size: usize, brought: Arc<Brought>) -> Facts {
        let (slowest, crowding, prices) = (LinkKind::Tcp, 1, Prices::standard(LinkKind::Tcp));
        Facts { size, slowest, crowding, boards: false, prices, measured: false, brought }
    }

    /// What measured choices depend on.
    pub(crate) fn circumstances(&self) -> Circumstances {
        Circumstances { link: self.slowest.name().to_owned(), ranks: self.size, crowding: self.crowding }
    }

    pub(crate) fn slicing(&self) -> Slicing {
        match self.slowest {
            LinkKind::Rdma | LinkKind::Tcp | LinkKind::Sim => Slicing { chunk_bytes: 1 << 20, lanes: 2 },
            LinkKind::Inproc | LinkKind::Shm => Slicing { chunk_bytes: 256 << 10, lanes: 2 },
        }
    }

    /// The row for a call, by the call's own wish, the environment's, a measurement, or the price.
    pub(crate) fn choose(
        &self,
        collective: Collective,
        bytes: usize,
        uneven: bool,
        options: &CallOptions,
    ) -> Result<Choice> {
        match options.algorithm.as_deref().or(self.brought.overrides.of(collective)) {
            Some(name) => self.fitting(collective, uneven).find(|choice| choice.row.name == name).ok_or_else(|| {
                let names: Vec<_> = self.fitting(collective, uneven).map(|choice| choice.row.name).collect();
                Error::invalid(format!("{collective} over {} ranks has no algorithm {name}", self.size))
                    .hint(format!("there are: {}", names.join(", ")))
            }),
            None => {
                Ok(self.quickest(collective, bytes, uneven).unwrap_or_else(|| self.cheapest(collective, bytes, uneven)))
            }
        }
    }

    /// The row that was measured to be the quickest. Blocks of one length were measured: others go by price.
    fn quickest(&self, collective: Collective, bytes: usize, uneven: bool) -> Option<Choice> {
        let found = if uneven { None } else { self.measured_for(collective, bytes) }?;
        self.fitting(collective, false).find(|choice| choice.row.name == found.row.name)
    }

    fn measured_for(&self, collective: Collective, bytes: usize) -> Option<Found> {
        let (profile, _) = self.brought.profile.as_ref().filter(|_| self.measured)?;
        profile.find(&self.circumstances(), collective, bytes)
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

    /// Whether a call goes over the boards when this row is chosen: the row says that everyone reads from everyone, memory
    /// joins all ranks, and the messages are small enough.
    pub(crate) fn on_boards(&self, row: &Row, bytes: usize, uneven: bool) -> bool {
        self.boards && row.name == "direct" && fits_on_boards(row.collective, self.size, bytes, uneven)
    }

    /// Whether large calls may read registered memory directly: memory joins all ranks, and nobody wishes for a row.
    pub(crate) fn may_use_windows(&self, collective: Collective) -> bool {
        self.boards && self.brought.overrides.of(collective).is_none()
    }

    /// How long a row should take, in seconds.
    fn price(&self, row: &Row, bytes: usize, uneven: bool) -> f64 {
        let machine = Machine::of(&self.prices, self.crowding);
        if self.on_boards(row, bytes, uneven) {
            return machine.board_s(row.collective, self.size, bytes);
        }
        let chunks = (row.chunks)(&Groups::assumed(self.size as u32)) as usize;
        let cut = bytes.div_ceil(self.slicing().chunk_bytes * chunks).clamp(1, 1 << 20);
        machine.row_s(row, self.size, bytes, if row.moves_runs { 1 } else { cut as u32 })
    }
}

/// The cores that this process may use, as they were when first asked for: finding out takes longer than the rest of
/// making a small communicator.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// How many ranks must share a core when a host has that many ranks, which may use so many cores.
fn crowding(neighbours: usize, cores: usize) -> u32 {
    neighbours.div_ceil(cores.max(1)) as u32
}
