//! Which row runs a call: the same on every rank, because it depends only on what all ranks know.

mod agreement;
mod costs;
mod explain;
mod overrides;
mod own_core;
mod prices;
mod profile;

use std::sync::{Arc, OnceLock};

use paceline_transport::LinkKind;

use crate::algorithm::{ROWS, Row};
use crate::collective::Collective;
use crate::engine::{Slicing, fits_on_boards};
use crate::error::{Error, Result};
use crate::request::CallOptions;
use crate::schedule::Program;
use crate::topology::{Layout, Spot};

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
    /// What memory charges, by which hosts are joined within.
    near: Prices,
    /// Where the ranks are.
    layout: Layout,
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

    /// Of a simulated network on which rank `r` is at `spots[r]`: between hosts priced as such a network, within as memory, and
    /// no rank shares its core.
    pub(crate) fn simulated_at(spots: &[Spot]) -> Facts {
        let layout = Layout::of(spots);
        let slowest = if layout.n_hosts() < 2 { LinkKind::Inproc } else { LinkKind::Sim };
        let prices = Prices::standard(slowest);
        Facts { slowest, prices, layout, ..Facts::unknown(spots.len(), Arc::default()) }
    }

    /// What a rank may assume before it has heard of the others.
    pub(crate) fn unknown(size: usize, brought: Arc<Brought>) -> Facts {
        let (slowest, crowding, prices) = (LinkKind::Tcp, 1, Prices::standard(LinkKind::Tcp));
        let (near, layout) = (Prices::standard(LinkKind::Shm), Layout::unknown(size as u32));
        Facts { size, slowest, crowding, boards: false, prices, near, layout, measured: false, brought }
    }

    /// What measured choices depend on.
    pub(crate) fn circumstances(&self) -> Circumstances {
        let hosts = if self.layout.n_hosts() < 2 { Vec::new() } else { self.layout.host_sizes() };
        Circumstances { link: self.slowest.name().to_owned(), ranks: self.size, crowding: self.crowding, hosts }
    }

    /// Where the ranks are.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A rank's program of a row.
    pub(crate) fn program(&self, row: &Row, me: usize, root: usize) -> Program {
        self.layout.program(row, me as u32, if row.collective.has_root() { root as u32 } else { 0 })
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
        match self.wish(collective, options) {
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

    /// The algorithm that a call asks for, or the environment for all calls of the collective.
    pub(crate) fn wish<'a>(&'a self, collective: Collective, options: &'a CallOptions) -> Option<&'a str> {
        options.algorithm.as_deref().or(self.brought.overrides.of(collective))
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

    /// The cheapest row. Between hosts the network is what is scarce, and not one job's alone: of long messages no more passes
    /// there than has to.
    fn cheapest(&self, collective: Collective, bytes: usize, uneven: bool) -> Choice {
        let passes = |choice: &Choice| self.layout.crossing(choice.row).mean;
        let least = if bytes < SCARCE_BYTES || self.layout.n_hosts() < 2 {
            f64::INFINITY
        } else {
            self.fitting(collective, uneven).map(|choice| passes(&choice)).fold(f64::INFINITY, f64::min)
        };
        let rows =
            self.fitting(collective, uneven).filter(|choice| least.is_infinite() || passes(choice) <= 1.05 * least);
        let priced = rows.map(|choice| (self.price(choice.row, bytes, uneven), choice));
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
    fn price(&self, row: &'static Row, bytes: usize, uneven: bool) -> f64 {
        let machine = Machine::of(&self.prices, self.crowding, self.slowest);
        if self.on_boards(row, bytes, uneven) {
            return machine.board_s(row.collective, self.size, bytes);
        }
        let chunks = self.layout.chunks(row) as usize;
        let cut = bytes.div_ceil(self.slicing().chunk_bytes * chunks).clamp(1, 1 << 20);
        let n_slices = if row.moves_runs { 1 } else { cut as u32 };
        if self.layout.n_hosts() < 2 || self.layout.n_hosts() as usize == self.size {
            return machine.row_s(row, self.size, bytes, n_slices);
        }
        let crossing = self.layout.crossing(row);
        let near = Machine::of(&self.near, self.crowding, LinkKind::Shm);
        machine.levels_s(&near, row, &self.layout, &crossing, bytes, n_slices)
    }
}

/// From how many bytes on rows let no more pass between hosts than has to.
const SCARCE_BYTES: usize = 256 << 10;

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
