//! Who keeps a call waiting: found by following who waits for whom, from what each rank answered.
//!
//! This rank waits for rank 1, which waits for rank 2, which doesn't answer: rank 2 is to blame, and neither rank 1 nor the
//! idle rank 3, which doesn't answer either. If all that are reached answer and wait, those that wait for one another in a
//! circle are to blame: something between them is stuck.

use std::collections::BTreeSet;

use super::notice::Status;
use crate::error::CallName;

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Blame {
    /// They don't answer.
    Silent(Vec<usize>),
    /// They answer, and are in another call or in none.
    Elsewhere(Vec<usize>),
    /// They answer, are in this call, and wait for one another.
    Circle(Vec<usize>),
}

/// Who is to blame that rank `me`, in `call`, waits for the ranks in `first`.
pub(crate) fn blame<'a>(
    me: usize,
    call: &CallName,
    first: &[usize],
    status: impl Fn(usize) -> Option<&'a Status>,
) -> Blame {
    let reached = reach(first, me, &status);
    let is_here = |status: &Status| status.current.as_ref() == Some(call) && status.beside.is_none();
    let is_elsewhere = |rank: usize| status(rank).is_some_and(|status| !is_here(status));
    let others = || reached.iter().copied().filter(|rank| *rank != me);
    let silent: Vec<usize> = others().filter(|rank| status(*rank).is_none()).collect();
    let elsewhere: Vec<usize> = others().filter(|rank| is_elsewhere(*rank)).collect();
    if !silent.is_empty() {
        return Blame::Silent(silent);
    }
    if !elsewhere.is_empty() {
        return Blame::Elsewhere(elsewhere);
    }
    // Whoever waits for the fewest, directly or not, is in the circle that holds up the rest.
    let circles = others().map(|rank| reach(&[rank], me, &status));
    let circle = circles.filter(|circle| !circle.contains(&me)).min_by_key(BTreeSet::len);
    Blame::Circle(circle.unwrap_or_else(|| reached.clone()).into_iter().filter(|rank| *rank != me).collect())
}

/// Of the ranks in `blamed` and those that these wait for, directly or not: those that don't answer. Who is blamed and
/// waits for nobody stays blamed.
pub(crate) fn behind<'a>(me: usize, blamed: &[usize], status: impl Fn(usize) -> Option<&'a Status>) -> Vec<usize> {
    let holds_up = |rank: &usize| match status(*rank) {
        None => true,
        Some(status) => blamed.contains(rank) && status.waits_for.is_empty(),
    };
    reach(blamed, me, &status).into_iter().filter(|rank| *rank != me && holds_up(rank)).collect()
}

/// The ranks in `first`, those they wait for, and so on. What `me` waits for is in `first`.
fn reach<'a>(first: &[usize], me: usize, status: &impl Fn(usize) -> Option<&'a Status>) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut left = first.to_vec();
    while let Some(rank) = left.pop() {
        if reached.insert(rank)
            && rank != me
            && let Some(status) = status(rank)
        {
            left.extend(&status.waits_for);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;

    fn call(sequence: u64) -> CallName {
        CallName { collective: Collective::AllReduce, sequence, algorithm: "ring".into(), size: 6 }
    }

    fn waits(for_ranks: &[usize]) -> Option<Status> {
        Some(Status { current: Some(call(7)), ended: 6, waits_for: for_ranks.to_vec(), ..Status::default() })
    }

    fn check(first: &[usize], statuses: &[Option<Status>], want: Blame) {
        assert_eq!(blame(0, &call(7), first, |rank| statuses[rank].as_ref()), want);
    }

    #[test]
    fn the_chain_ends_at_the_culprit() {
        check(&[1], &[None, waits(&[2]), None, None], Blame::Silent(vec![2]));
        check(&[1], &[None, waits(&[2, 0]), waits(&[3]), None, None], Blame::Silent(vec![3]));
        let elsewhere = Some(Status { current: Some(call(6)), ended: 5, ..Status::default() });
        check(&[1], &[None, waits(&[2]), elsewhere, None], Blame::Elsewhere(vec![2]));
    }

    #[test]
    fn a_rank_that_lags_for_a_silent_one_is_not_to_blame() {
        let lags = Some(Status { current: Some(call(6)), ended: 5, waits_for: vec![3], ..Status::default() });
        check(&[1], &[None, waits(&[2]), lags, None], Blame::Silent(vec![3]));
    }

    #[test]
    fn a_rank_in_another_communicator_is_followed_there() {
        let beside = |waits_for: &[usize]| Some(Status { beside: Some(vec![9]), ..waits(waits_for).unwrap() });
        check(&[1], &[None, waits(&[2]), beside(&[3]), None], Blame::Silent(vec![3]));
        check(&[1], &[None, waits(&[2]), beside(&[])], Blame::Elsewhere(vec![2]));
    }

    #[test]
    fn whoever_answers_and_waits_is_not_the_one() {
        let statuses = [None, waits(&[2]), waits(&[3]), None, None];
        let of = |rank: usize| statuses[rank].as_ref();
        let idle = Status { ended: 6, ..Status::default() };
        assert_eq!(behind(0, &[1, 4], |rank| if rank == 4 { Some(&idle) } else { of(rank) }), [3, 4]);
        assert_eq!(behind(0, &[1], of), [3]);
        assert_eq!(behind(0, &[1, 3], of), [3], "one of the blamed waits for the other");
        assert_eq!(behind(0, &[1, 4], of), [3, 4], "who doesn't answer stays blamed");
    }

    #[test]
    fn a_circle_is_to_blame_and_not_those_behind_it() {
        check(&[1], &[None, waits(&[2]), waits(&[3]), waits(&[2]), None], Blame::Circle(vec![2, 3]));
    }

    #[test]
    fn a_circle_through_this_rank_is_named_without_it() {
        check(&[1], &[None, waits(&[2]), waits(&[0])], Blame::Circle(vec![1, 2]));
        check(&[2], &[None, waits(&[2]), waits(&[0])], Blame::Circle(vec![2]));
    }
}
