//! Launches that read the ranks' own arrays where they lie, if all ranks have lent them.

use super::{Board, Call, Data, Grid, Kernel, PeerArguments, Plan, Site, Tuning};
use crate::collective::Collective;
use crate::error::Result;

const RANKS: usize = Board::RANKS_MAX;
const WINDOWS: usize = LentPlan::WINDOWS_MAX;

/// What the ranks have lent each other, as this rank knows it.
#[derive(Clone, Copy, Debug)]
pub struct Lending<'a> {
    /// The pieces of memory that every rank has lent one of: where this rank reaches that of each rank, its own included, and
    /// how long its own is. `None` for numbers that are free. The same numbers on all ranks.
    pub windows: &'a [Option<(Vec<u64>, u64)>],
}

/// The one argument of [`Kernel::FoldLent`], [`Kernel::TwoShotLent`] and [`Kernel::CopyLent`]; `LentArguments` in
/// `kernels/lent.cuh` is the same, and says what each field is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct LentArguments {
    given: PeerArguments,
    windows: [[u64; RANKS]; WINDOWS],
    input: u64,
    output: u64,
    piece_at: u64,
    reserved: u64,
}

const _: () = assert!(size_of::<LentArguments>() == 864 + 8 * 16 * 16 + 32, "the kernels' text asserts the same");

/// A launch that reads lent arrays, or cells where some rank has lent none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LentPlan {
    /// The kernel.
    pub kernel: Kernel,
    /// Exactly so many threads.
    pub grid: Grid,
    /// The kernel's one argument.
    pub arguments: LentArguments,
}

impl LentPlan {
    /// How many pieces of memory a rank may lend at a time.
    pub const WINDOWS_MAX: usize = 16;

    /// From how many bytes on (of the vector, or of all blocks) arrays are read where they lie. Below, copying them to cells
    /// costs less than a meeting more.
    pub const BYTES_MIN: u64 = 64 << 10;

    /// Whether a call between so many ranks may read lent arrays: the same answer on all ranks.
    #[must_use]
    pub fn takes(call: &Call<'_>, ranks: usize, bytes_min: u64) -> bool {
        let size = call.data_type.size() as u64;
        let width = match (call.collective, &call.counts) {
            (Collective::AllReduce, None) => 1,
            (Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll, None) => ranks as u64,
            _ => return false,
        };
        let bytes = (call.count as u64).saturating_mul(size).saturating_mul(width);
        bytes > 0 && bytes >= bytes_min
    }

    /// The launch of this rank's part of `call`, which [`LentPlan::takes`]. It may be launched in a captured graph, as long as
    /// nobody takes back what was lent.
    ///
    /// # Errors
    ///
    /// As of [`Plan::new`].
    pub fn new(
        call: &Call<'_>,
        data: Data,
        lending: &Lending<'_>,
        site: &Site<'_>,
        tuning: &Tuning,
    ) -> Result<LentPlan> {
        // What is read in place can't be written in one shot by ranks that come early.
        let tuning = Tuning { one_shot_bytes: Some(0), ..*tuning };
        let Plan { kernel, grid, arguments: mut given } = Plan::new(call, data, site, &tuning)?;
        let kernel = match kernel {
            Kernel::Fold(data_type, op) => Kernel::FoldLent(data_type, op),
            Kernel::TwoShot(data_type, op) => Kernel::TwoShotLent(data_type, op),
            _ => Kernel::CopyLent,
        };
        given.mark(0x4c45_4e54);
        let (ranks, me) = (site.boards.len() as u64, site.rank as u64);
        let block = call.count as u64 * call.data_type.size() as u64;
        let (input_bytes, output_bytes, piece_at) = match call.collective {
            Collective::AllReduce => (block, block, 0),
            Collective::AllGather => (block, block * ranks, 0),
            Collective::ReduceScatter => (block * ranks, block, block * me),
            _ => (block * ranks, block * ranks, block * me),
        };
        // Of an all_to_all in place, what comes would cover what others still have to read.
        let covers = call.collective == Collective::AllToAll && data.input == data.output;
        let input = if covers { 0 } else { place(lending, me as usize, data.input, input_bytes) };
        let output = place(lending, me as usize, data.output, output_bytes);
        let mut windows = [[0; RANKS]; WINDOWS];
        for (window, lent) in windows.iter_mut().zip(lending.windows) {
            if let Some((addresses, _)) = lent {
                window[..addresses.len()].copy_from_slice(addresses);
            }
        }
        let arguments = LentArguments { given, windows, input, output, piece_at, reserved: 0 };
        Ok(LentPlan { kernel, grid, arguments })
    }

    /// What the launch has in common with those that read cells.
    #[must_use]
    pub fn given(&self) -> &PeerArguments {
        &self.arguments.given
    }

    /// Whether this rank lends its input and its output.
    #[must_use]
    pub fn lends(&self) -> (bool, bool) {
        (self.arguments.input != 0, self.arguments.output != 0)
    }
}

/// Where bytes lie in what this rank has lent: the number of the piece, from 1 on, above 48 bits. 0 where in none.
pub(super) fn place(lending: &Lending<'_>, me: usize, address: u64, bytes: u64) -> u64 {
    let within = |(number, window): (usize, &Option<(Vec<u64>, u64)>)| {
        let (addresses, length) = window.as_ref()?;
        let at = address.checked_sub(addresses[me])?;
        (at < 1 << 48 && at.checked_add(bytes)? <= *length).then_some((number as u64 + 1) << 48 | at)
    };
    lending.windows.iter().enumerate().find_map(within).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reduce::{DataType, ReduceOp};
    use crate::request::Counts;

    const BOARDS: [u64; 3] = [0x1000; 3];

    fn call(collective: Collective, count: usize) -> Call<'static> {
        Call { collective, data_type: DataType::F32, op: ReduceOp::Sum, root: 0, count, counts: None }
    }

    fn plan(call: &Call<'_>, data: Data, windows: &[Option<(Vec<u64>, u64)>]) -> LentPlan {
        let board = Board::new(1 << 20, 8).expect("a board");
        let site = Site { rank: 1, board, boards: &BOARDS, status: 8, abort: 4, limit: Duration::from_secs(1) };
        LentPlan::new(call, data, &Lending { windows }, &site, &Tuning::default()).expect("a plan")
    }

    #[test]
    fn what_lies_in_a_window_is_lent_from_its_first_byte_to_its_last() {
        let windows = [None, Some((vec![7, 1 << 20, 9], 4096))];
        for (address, lies) in [
            (1 << 20, Some(0)),
            ((1 << 20) + 96, Some(96)),
            ((1 << 20) + 100, None),
            ((1 << 20) - 4, None),
            (1 << 30, None),
        ] {
            let plan = plan(&call(Collective::AllGather, 1000), Data { input: address, output: 1 << 40 }, &windows);
            let want = lies.map_or(0, |at| 2 << 48 | at);
            assert_eq!(plan.arguments.input, want, "{address:#x}");
            assert_eq!(plan.lends(), (lies.is_some(), false));
        }
    }

    #[test]
    fn an_exchange_in_place_lends_nothing() {
        let windows = [Some((vec![7, 1 << 20, 9], 1 << 16))];
        let in_place = Data { input: 1 << 20, output: 1 << 20 };
        assert_eq!(plan(&call(Collective::AllToAll, 10), in_place, &windows).lends(), (false, true));
        assert_eq!(plan(&call(Collective::AllReduce, 10), in_place, &windows).lends(), (true, true));
    }

    #[test]
    fn long_calls_of_equal_blocks_are_taken() {
        let counts = Counts { recv_counts: &[9; 3], ..Counts::default() };
        for (call, takes) in [
            (call(Collective::AllReduce, 16 << 10), true),
            (call(Collective::AllReduce, (16 << 10) - 1), false),
            (call(Collective::AllGather, 8 << 10), true),
            (call(Collective::Broadcast, 1 << 20), false),
            (Call { counts: Some(counts), ..call(Collective::AllGather, 1 << 20) }, false),
        ] {
            assert_eq!(LentPlan::takes(&call, 3, LentPlan::BYTES_MIN), takes, "{call:?}");
        }
        assert!(!LentPlan::takes(&call(Collective::AllReduce, 0), 3, 0), "nothing is nowhere");
    }

    #[test]
    fn the_same_call_by_cells_is_another() {
        let apart = Data { input: 1 << 32, output: 1 << 40 };
        let all_gather = call(Collective::AllGather, 8);
        let board = Board::new(1 << 20, 8).expect("a board");
        let site = Site { rank: 1, board, boards: &BOARDS, status: 8, abort: 4, limit: Duration::from_secs(1) };
        let cells = Plan::new(&all_gather, apart, &site, &Tuning::default()).expect("a plan");
        assert_ne!(cells.arguments.digests(), plan(&all_gather, apart, &[]).given().digests());
    }
}
