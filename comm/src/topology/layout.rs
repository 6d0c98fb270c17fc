//! The order of ranks in which neighbours are near each other, and their groups.

use std::sync::{Arc, OnceLock};

use super::Crossing;
use crate::algorithm::{ROWS, Row};
use crate::schedule::{Groups, Program, Rank};

/// Where a rank is: what it tells all others. Equal numbers mean the same place; which numbers they are has no meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Spot {
    /// What shares memory.
    pub host: u32,
    /// Of a host, what is near each other: a NUMA node, for a rank that may use the processors of one only.
    pub domain: u16,
    /// Of a host, the RDMA adapter that the rank uses; 0 where it uses none.
    pub adapter: u16,
}

/// Where all ranks of a communicator are.
///
/// ```
/// use paceline_comm::topology::{Layout, Spot};
///
/// // Five ranks, dealt out to two hosts by turns.
/// let layout = Layout::of(&[0, 1, 0, 1, 0].map(|host| Spot { host, ..Spot::default() }));
/// assert_eq!(layout.order(), [0, 2, 4, 1, 3]);
/// assert_eq!(layout.hosts(), [vec![0, 2, 4], vec![1, 3]]);
/// assert_eq!(layout.rings(), [vec![0, 1], vec![2, 1], vec![4, 3]]);
/// ```
#[derive(Clone, Debug)]
pub struct Layout(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The rank at each place.
    order: Box<[Rank]>,
    /// The place of each rank.
    places: Box<[Rank]>,
    groups: Groups,
    n_hosts: u32,
    /// How many network adapters ranks use, on the host where they are fewest.
    adapters: u32,
    crossings: Vec<OnceLock<Crossing>>,
}

impl Layout {
    /// Ranks of which nobody has said where they are.
    #[must_use]
    pub fn unknown(size: u32) -> Layout {
        Layout::new((0..size).collect(), Groups::assumed(size), 1, 1)
    }

    /// Ranks that are there: rank `r` at `spots[r]`.
    ///
    /// Hosts come in the order of their first ranks, domains within a host, too; within a domain ranks by their adapter, then by
    /// their number.
    ///
    /// # Panics
    ///
    /// When there are no ranks.
    #[must_use]
    pub fn of(spots: &[Spot]) -> Layout {
        assert!(!spots.is_empty(), "there is a rank");
        let mut hosts = Firsts::default();
        let mut domains = Firsts::default();
        let mut keyed: Vec<_> = spots
            .iter()
            .enumerate()
            .map(|(rank, spot)| {
                let (host, domain) = (hosts.number(spot.host), domains.number((spot.host, spot.domain)));
                (host, domain, spot.adapter, rank as Rank)
            })
            .collect();
        keyed.sort_unstable();
        let sizes = |same: fn(&Keyed, &Keyed) -> bool| -> Vec<u32> {
            keyed.chunk_by(same).map(|group| group.len() as u32).collect()
        };
        let (by_host, by_domain) = (sizes(|a, b| a.0 == b.0), sizes(|a, b| a.1 == b.1));
        let adapters = keyed.chunk_by(|a, b| a.0 == b.0).map(|host| {
            let mut used: Vec<u16> = host.iter().map(|key| key.2).collect();
            used.sort_unstable();
            used.dedup();
            used.len() as u32
        });
        let adapters = adapters.min().unwrap_or(1);
        let order: Box<[Rank]> = keyed.iter().map(|key| key.3).collect();
        let size = spots.len() as u32;
        let mut groups = Groups::flat(size);
        let divides = |sizes: &[u32]| sizes.len() > 1 && sizes.len() < spots.len();
        if divides(&by_domain) && by_domain.len() > by_host.len() {
            groups = groups.around(&by_domain);
        }
        if divides(&by_host) {
            groups = groups.around(&by_host);
        }
        if groups.outermost().is_none() && by_host.len() == 1 {
            groups = Groups::assumed(size);
        }
        Layout::new(order, groups, by_host.len() as u32, adapters)
    }

    fn new(order: Box<[Rank]>, groups: Groups, n_hosts: u32, adapters: u32) -> Layout {
        let mut places = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(rank, place)| places[*rank as usize] = place);
        let crossings = ROWS.iter().map(|_| OnceLock::new()).collect();
        Layout(Arc::new(Inner { order, places: places.into(), groups, n_hosts, adapters, crossings }))
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.0.groups.size()
    }

    /// The ranks, those that are near each other one behind the other.
    #[must_use]
    pub fn order(&self) -> &[Rank] {
        &self.0.order
    }

    /// Where a rank is in the order.
    ///
    /// # Panics
    ///
    /// When there is no such rank.
    #[must_use]
    pub fn place(&self, rank: Rank) -> u32 {
        self.0.places[rank as usize]
    }

    /// Which places are near each other.
    #[must_use]
    pub fn groups(&self) -> &Groups {
        &self.0.groups
    }

    /// How many hosts there are.
    #[must_use]
    pub fn n_hosts(&self) -> u32 {
        self.0.n_hosts
    }

    /// How many network adapters ranks use, on the host where they are fewest.
    #[must_use]
    pub fn adapters(&self) -> u32 {
        self.0.adapters
    }

    /// The ranks of each host.
    #[must_use]
    pub fn hosts(&self) -> Vec<Vec<Rank>> {
        match self.0.groups.outermost() {
            _ if self.0.n_hosts == 1 => vec![self.order().to_vec()],
            Some(level) => level.ranges().map(|range| self.ranks(range)).collect(),
            None => self.order().iter().map(|rank| vec![*rank]).collect(),
        }
    }

    /// How many ranks each host has.
    #[must_use]
    pub fn host_sizes(&self) -> Vec<u32> {
        self.hosts().iter().map(|ranks| ranks.len() as u32).collect()
    }

    /// The number of each rank's host, counted in the order of their first ranks.
    #[must_use]
    pub fn host_of(&self) -> Vec<u32> {
        let mut host_of = vec![0; self.size() as usize];
        for (host, ranks) in (0..).zip(self.hosts()) {
            ranks.iter().for_each(|rank| host_of[*rank as usize] = host);
        }
        host_of
    }

    /// The ranks of each innermost group: those to which traffic is cheapest, for tensor parallelism.
    #[must_use]
    pub fn fast_groups(&self) -> Vec<Vec<Rank>> {
        match self.0.groups.levels().next() {
            Some(level) if self.0.n_hosts > 1 => level.ranges().map(|range| self.ranks(range)).collect(),
            _ => self.hosts(),
        }
    }

    fn ranks(&self, places: std::ops::Range<Rank>) -> Vec<Rank> {
        places.map(|place| self.order()[place as usize]).collect()
    }

    /// The rings between hosts in which rows of two levels reduce, one for each lane: at each host the rank that stands for the
    /// lane, with its adapter.
    #[must_use]
    pub fn rings(&self) -> Vec<Vec<Rank>> {
        let hosts = self.hosts();
        let lanes = hosts.iter().map(Vec::len).max().unwrap_or(1);
        (0..lanes).map(|lane| hosts.iter().map(|host| host[lane * host.len() / lanes]).collect()).collect()
    }

    /// Whether ranks that are near each other have numbers that are.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.order().is_sorted()
    }

    /// A rank's program of a row.
    ///
    /// # Panics
    ///
    /// As [`Row::program`].
    #[must_use]
    pub fn program(&self, row: &Row, me: Rank, root: Rank) -> Program {
        if self.is_in_order() {
            return row.program_in(self.groups(), me, root);
        }
        if !row.may_be_placed() {
            return row.program(me, self.size(), root);
        }
        let root = if row.collective.has_root() { self.place(root) } else { 0 };
        row.program_in(self.groups(), self.place(me), root).placed(row.collective, self.order())
    }

    /// Into how many chunks a row cuts a message.
    #[must_use]
    pub fn chunks(&self, row: &Row) -> u32 {
        (row.chunks)(self.groups())
    }

    /// What of a row passes between hosts. Found out when it is first asked for, from the programs of some hosts.
    #[must_use]
    pub fn crossing(&self, row: &'static Row) -> Crossing {
        let number = ROWS.iter().position(|other| std::ptr::eq(other, row));
        match number {
            Some(number) => *self.0.crossings[number].get_or_init(|| Crossing::of(self, row)),
            None => Crossing::of(self, row),
        }
    }
}

type Keyed = (usize, usize, u16, Rank);

/// Numbers things in the order in which they first come.
struct Firsts<T>(std::collections::BTreeMap<T, usize>);

impl<T> Default for Firsts<T> {
    fn default() -> Firsts<T> {
        Firsts(std::collections::BTreeMap::new())
    }
}

impl<T: Ord> Firsts<T> {
    fn number(&mut self, thing: T) -> usize {
        let next = self.0.len();
        *self.0.entry(thing).or_insert(next)
    }
}
