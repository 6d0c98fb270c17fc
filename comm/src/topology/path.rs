//! How many latencies lie on a row's longest path, between hosts and within.

use super::{Layout, Spot};
use crate::algorithm::Row;
use crate::schedule::run::{At, Watch, run};
use crate::schedule::{Program, Rank};

/// The most ranks whose programs are followed; of more, those of the first hosts are, and the rest is in proportion.
const FOLLOWED: u32 = 256;
/// A latency within a host, where one between hosts is 1: any number of these count less.
const NEAR: f64 = 1.0 / (1 << 20) as f64;

/// The latencies of the path that meets most hosts: between hosts, and within.
pub(super) fn path(layout: &Layout, row: &Row) -> [f64; 2] {
    if layout.size() <= FOLLOWED {
        return followed(layout, row);
    }
    let hosts = layout.hosts();
    let mut spots = Vec::new();
    for (host, ranks) in (0..).zip(&hosts) {
        if host > 1 && spots.len() + ranks.len() > FOLLOWED as usize {
            break;
        }
        spots.extend(ranks.iter().map(|_| Spot { host, ..Spot::default() }));
    }
    if !(row.fits)(spots.len() as u32) {
        return [row.work(layout.size()).latencies, 0.0];
    }
    let [far, near] = followed(&Layout::of(&spots), row);
    let whole = row.work(layout.size()).latencies;
    // What grows with the number of ranks does so between hosts, but in rings, which pass all in turn.
    let part = row.work(spots.len() as u32).latencies;
    let ratio = if far + near > 0.0 { whole / part.max(1.0) } else { 1.0 };
    if far > near { [(whole - near).max(far), near] } else { [far * ratio, near * ratio] }
}

fn followed(layout: &Layout, row: &Row) -> [f64; 2] {
    let programs: Vec<Program> = (0..layout.size()).map(|me| layout.program(row, me, 0)).collect();
    let n = programs.len();
    let mut longest = Longest { host_of: layout.host_of(), starts: vec![0.0; n], arrivals: vec![0.0; n] };
    if run(&programs, &mut longest).is_err() {
        return [row.work(layout.size()).latencies, 0.0];
    }
    let most = longest.starts.into_iter().fold(0.0, f64::max);
    [most.floor(), (most.fract() / NEAR).round()]
}

/// When each rank begins its round, by latencies alone.
struct Longest {
    host_of: Vec<u32>,
    starts: Vec<f64>,
    /// When all that has come for the round is there.
    arrivals: Vec<f64>,
}

impl Watch for Longest {
    type Fault = ();

    fn begin(&mut self, rank: Rank, _round: usize) -> Result<(), ()> {
        self.arrivals[rank as usize] = self.starts[rank as usize];
        Ok(())
    }

    fn transfer(&mut self, send: At, receive: At) -> Result<(), ()> {
        let (from, to) = (send.rank as usize, receive.rank as usize);
        let latency = if self.host_of[from] == self.host_of[to] { NEAR } else { 1.0 };
        self.arrivals[to] = self.arrivals[to].max(self.starts[from] + latency);
        Ok(())
    }

    fn end(&mut self, rank: Rank, _round: usize) -> Result<(), ()> {
        self.starts[rank as usize] = self.arrivals[rank as usize];
        Ok(())
    }
}
