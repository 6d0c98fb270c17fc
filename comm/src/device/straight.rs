//! Copies straight from the other ranks' registered arrays, by a stream that does nothing else.
//!
//! A stream is given addresses, and can't ask others for theirs as kernels do: so all ranks have theirs at the same place of the
//! same arrays, and the digest of the call says where.

use super::lent::place;
use super::plan::digest_of;
use super::{Call, Data, Lending};
use crate::collective::Collective;

/// What one rank copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Straight {
    /// Target, source and bytes. What is where it belongs is not copied.
    pub(crate) copies: Vec<(u64, u64, u64)>,
    pub(crate) digest: u32,
    /// The number of the registered array, and where in it the ranks' arrays begin.
    pub(crate) lies: (u64, u64),
}

impl Straight {
    /// The copies of an all_gather or all_to_all of blocks of one length; `None` where this rank's input lies in no registered
    /// array, or, of an all_to_all in place, would be covered before others have read it.
    pub(crate) fn new(
        call: &Call<'_>,
        data: Data,
        lending: &Lending<'_>,
        rank: usize,
        ranks: usize,
    ) -> Option<Straight> {
        let block = call.count as u64 * call.data_type.size() as u64;
        let all = block * ranks as u64;
        let mine = block * rank as u64;
        let gathers = call.collective == Collective::AllGather;
        let in_place = data.input == if gathers { data.output + mine } else { data.output };
        // Where everybody's array begins, and how long it is.
        let (start, bytes) = match (gathers, in_place) {
            (true, true) => (data.output, all),
            (true, false) => (data.input, block),
            (false, true) => return None,
            (false, false) => (data.input, all),
        };
        let found = place(lending, rank, start, bytes);
        let (number, at) = ((found >> 48).checked_sub(1)?, found & ((1 << 48) - 1));
        let (windows, _) = lending.windows[number as usize].as_ref()?;
        // From the next rank on, so that not all read the same one first.
        let copy = |distance: usize| {
            let from = (rank + distance) % ranks;
            let within = match (gathers, in_place) {
                (true, true) => block * from as u64,
                (true, false) => 0,
                (false, _) => mine,
            };
            (data.output + block * from as u64, windows[from] + at + within, block)
        };
        let copies = (1..=ranks).map(copy).filter(|(target, source, _)| target != source).collect();
        let digest = digest_of(call, [STRAIGHT, found, u64::from(in_place), ranks as u64]);
        Some(Straight { copies, digest, lies: (number, at) })
    }
}

/// Tells such a call from the same one by a kernel.
const STRAIGHT: u64 = 0x5354_5241_4947_4854;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::{DataType, ReduceOp};

    fn straight(collective: Collective, rank: usize, input: u64, output: u64) -> Option<Straight> {
        let call = Call { collective, data_type: DataType::F32, op: ReduceOp::Sum, root: 0, count: 10, counts: None };
        let mut windows = vec![1 << 20, 2 << 20, 3 << 20];
        // Each rank has its own at the same address.
        windows[rank] = 1 << 30;
        Straight::new(&call, Data { input, output }, &Lending { windows: &[None, Some((windows, 4096))] }, rank, 3)
    }

    #[test]
    fn each_rank_copies_what_is_for_it_from_the_next_rank_on() {
        let gathered = straight(Collective::AllGather, 1, (1 << 30) + 8, 1 << 40).expect("it is lent");
        let target = |rank: u64| (1 << 40) + 40 * rank;
        let want = [(target(2), (3 << 20) + 8, 40), (target(0), (1 << 20) + 8, 40), (target(1), (1 << 30) + 8, 40)];
        assert_eq!((gathered.copies, gathered.lies), (want.to_vec(), (1, 8)));
        let exchanged = straight(Collective::AllToAll, 1, 1 << 30, 1 << 40).expect("it is lent");
        let want = [(target(2), (3 << 20) + 40, 40), (target(0), (1 << 20) + 40, 40), (target(1), (1 << 30) + 40, 40)];
        assert_eq!(exchanged.copies, want);
    }

    #[test]
    fn in_place_all_have_the_whole_at_the_same_place() {
        let ranks = [0, 1, 2].map(|rank| straight(Collective::AllGather, rank, (1 << 30) + 40 * rank as u64, 1 << 30));
        let ranks = ranks.map(|rank| rank.expect("it is lent"));
        assert!(ranks.iter().all(|rank| rank.digest == ranks[0].digest && rank.copies.len() == 2), "{ranks:?}");
        assert_eq!(ranks[1].copies[0], ((1 << 30) + 80, (3 << 20) + 80, 40));
        assert_eq!(straight(Collective::AllToAll, 1, 1 << 30, 1 << 30), None);
    }

    #[test]
    fn another_place_is_another_call() {
        let digest = |input| straight(Collective::AllGather, 1, input, 1 << 40).map(|it| it.digest);
        assert_ne!(digest(1 << 30), digest((1 << 30) + 4));
        assert_eq!(digest((1 << 30) + 4096 - 36), None);
    }
}
