//! Programs that are wrong in one way each, and what the checker says of them.

use paceline_comm::collective::Collective::{self, AllGather, AllReduce, AllToAll, Barrier, Broadcast, Gather, Reduce};
use paceline_comm::collective::Collective::{ReduceScatter, Scatter, Send};
use paceline_comm::schedule::check::{Mode, prove};
use paceline_comm::schedule::text::parse;

const PLAIN: Mode = Mode { in_place: false, uneven: true };
const IN_PLACE: Mode = Mode { in_place: true, uneven: true };
const EVEN: Mode = Mode { in_place: false, uneven: false };

/// Checks that a drawing without its first line is rejected with these words; "" means that it is right.
fn check(collective: Collective, mode: Mode, head: &str, rounds: &str, want: &str) {
    let text = format!("{head}\n{rounds}");
    let programs = parse(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    let said = prove(collective, &programs, mode).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(said, want, "\n{collective}, {mode:?}:\n{text}");
}

#[test]
fn results() {
    let two = "ranks 2 root 0 chunks 1";
    let right = "| 0 | 1 |\n 0 | i0>1 s0[0]<1 | i0>0 0=i0+0 |\n 1 | s1[0]=i0 | |\n 2 | 0=s0[0]*2 | |";
    check(AllReduce, PLAIN, two, right, "rank 1: chunk 0 of the output is folded in another order than on rank 0");
    check(AllReduce, PLAIN, two, "| 0 | 1 |\n 0 | i0>1 0=i0+1 | i0>0 0=i0+0 |", "");
    check(
        AllReduce,
        PLAIN,
        two,
        "| 0 | 1 |\n 0 | i0>1 0<1 | i0>0 0<0 |",
        "rank 0: chunk 0 of the output ends as chunk 0 of rank 1, but must be the fold of chunk 0 of all 2 ranks",
    );
    check(
        Broadcast,
        PLAIN,
        two,
        "| 0 | 1 |\n 0 | i0>1 | 0<0 |",
        "rank 0: chunk 0 of the output ends as what nobody has written, but must be chunk 0 of rank 0",
    );
    check(Broadcast, IN_PLACE, two, "| 0 | 1 |\n 0 | i0>1 | 0<0 |", "");
    let blocks = "ranks 2 root 0 chunks 2";
    check(
        AllToAll,
        PLAIN,
        blocks,
        "| 0 | 1 |\n 0 | 0..2=i0..2 | 0..2=i0..2 |",
        "rank 0, round 0, step 0 (0..2=i0..2): as long as i0..2 on one side and 0..2 on the other",
    );
    check(
        AllToAll,
        EVEN,
        blocks,
        "| 0 | 1 |\n 0 | 0..2=i0..2 | 0..2=i0..2 |",
        "rank 0: chunk 1 of the output ends as chunk 1 of rank 0, but must be chunk 0 of rank 1",
    );
    check(
        Scatter,
        PLAIN,
        blocks,
        "| 0 | 1 |\n 0 | 0=i0 i0>1 | 0<0 |",
        "rank 1, round 0, step 0 (0<0): as long as 0 on one side and i0 on the other",
    );
}

#[test]
fn steps_that_fit_no_buffer() {
    let head = "ranks 2 root 0 chunks 1\n| 0 | 1 |";
    let at = |step: &str, what: &str| format!("rank 0, round 0, step 0 ({step}): {what}");
    let input = "reaches chunk 1 of the input, where this rank has 1";
    let cases = [
        (AllReduce, "i0>2", "there is no other rank 2"),
        (AllReduce, "i0>0", "there is no other rank 0"),
        (AllReduce, "0<0", "there is no other rank 0"),
        (AllReduce, "i0..2>1", input),
        (AllReduce, "i1>1", input),
        (AllReduce, "0<1 i0<1", "races"),
        (AllReduce, "i0<1", "writes to the input, which is the caller's"),
        (AllReduce, "i0=0", "writes to the input, which is the caller's"),
        (AllReduce, "0=i0*2", "folds fewer than two runs, or runs that do not start in slots of scratch"),
        (AllReduce, "0=s0[0]*1", "folds fewer than two runs, or runs that do not start in slots of scratch"),
        (AllReduce, "0=s0[0]*0", "folds fewer than two runs, or runs that do not start in slots of scratch"),
        (AllReduce, "s0[1]=i0", "the span's lengths are not those of a run of chunks of the message"),
        (AllReduce, "0=s0[0]", "reads place 0 of its span, where nobody has written that"),
        (AllReduce, "s0[0]=0", "reads place 0 of its span, where nobody has written that"),
        (Broadcast, "0+1", "the collective has no such step"),
        (Barrier, "0=i0", "the collective has no such step"),
        (Barrier, "0>1", "the collective has no such step"),
    ];
    for (collective, step, what) in cases.into_iter().filter(|case| case.2 != "races") {
        check(collective, PLAIN, head, &format!("0 | {step} | |"), &at(step, what));
    }
    let output = "reaches chunk 0 of the output, where this rank has 0";
    for collective in [Reduce, Gather] {
        let head = format!("ranks 2 root 0 chunks {}\n| 0 | 1 |", if collective == Reduce { 1 } else { 2 });
        check(collective, PLAIN, &head, "0 | | 0=i0 |", &format!("rank 1, round 0, step 0 (0=i0): {output}"));
    }
    let none = "reaches chunk 0 of the input, where this rank has 0";
    check(Broadcast, PLAIN, head, "0 | | 0=i0 |", &format!("rank 1, round 0, step 0 (0=i0): {none}"));
}

#[test]
fn races() {
    let head = "ranks 2 root 0 chunks 4\n| 0 | 1 |";
    let race = |step: usize, text: &str, other: &str| {
        format!("rank 0, round 0, step {step} ({text}): races with the step {other} of the same round")
    };
    let overlap =
        |text: &str| format!("rank 0, round 0, step 0 ({text}): source and target overlap without being the same");
    // Each of these is all that rank 0 does: what matters is that the race is seen first.
    let cases = [
        (PLAIN, "0=i0 0<1", race(1, "0<1", "0=i0")),
        (PLAIN, "0..2=i0..2 1..3<1", race(1, "1..3<1", "0..2=i0..2")),
        (PLAIN, "0<1 0>1", race(1, "0>1", "0<1")),
        (PLAIN, "0>1 0<1", race(0, "0>1", "0<1")),
        (PLAIN, "0>1 0=i0+1", race(0, "0>1", "0=i0+1")),
        (IN_PLACE, "i0>1 0=i0+1", race(0, "i0>1", "0=i0+1")),
        (IN_PLACE, "i0>1 0<1", race(0, "i0>1", "0<1")),
        // Where the later chunks of a packed run lie depends on lengths: they may reach over any slot of the run.
        (PLAIN, "s0[0..3]=i0..3 s1[1]<1", race(1, "s1[1]<1", "s0[0..3]=i0..3")),
        (PLAIN, "s0[0:2]=i2 s1[1]<1", race(1, "s1[1]<1", "s0[0:2]=i2")),
        (PLAIN, "s1[1]<1 s0[0:2]=i2", race(1, "s0[0:2]=i2", "s1[1]<1")),
        (PLAIN, "s0[0:2]<1 0=s1[0]*2", race(1, "0=s1[0]*2", "s0[0:2]<1")),
        (PLAIN, "s1[0]=s0[0]*2", overlap("s1[0]=s0[0]*2")),
    ];
    for (mode, steps, want) in cases {
        check(AllReduce, mode, head, &format!("0 | {steps} | |"), &want);
    }
    let even = Mode { in_place: true, uneven: false };
    let three = "ranks 3 root 0 chunks 3\n| 0 | 1 | 2 |";
    check(AllToAll, even, three, "0 | 0..2=i1..3 | | |", &overlap("0..2=i1..3"));
    // Copying what is in place already does nothing, so that others may read it.
    let bcast = "ranks 2 root 0 chunks 1\n| 0 | 1 |";
    check(Broadcast, IN_PLACE, bcast, "0 | 0=i0 i0>1 | 0<0 |", "");
}

#[test]
fn packed_runs_are_read_as_they_were_written() {
    let head = "ranks 2 root 0 chunks 2\n| 0 | 1 |";
    let unwritten = |round: usize, step: &str, place: u32| {
        format!(
            "rank 0, round {round}, step 0 ({step}): reads place {place} of its span, where nobody has written that"
        )
    };
    let send = |rounds: &str| format!("0 | s0[0..2]=i0..2 | |\n{rounds}");
    let cases = [
        (send("1 | 1=s1[1] | |"), unwritten(1, "1=s1[1]", 0)),
        (send("1 | 0=s0[0] 1=s0[0:1] | |"), String::new()),
        (send("1 | s1[1]=i1 | |\n2 | 0=s0[0] | |\n3 | 1=s0[0:1] | |"), unwritten(3, "1=s0[0:1]", 0)),
        (send("1 | s1[0]=i0 | |\n2 | 0..2=s0[0..2] | |"), unwritten(2, "0..2=s0[0..2]", 1)),
        ("0 | s0[0]=i0 s1[1]=i1 | |\n1 | 0..2=s0[0..2] | |".to_owned(), unwritten(1, "0..2=s0[0..2]", 1)),
        ("0 | s0[0]=i0 s0[0:1]=i1 | |\n1 | 0..2=s0[0..2] | |".to_owned(), String::new()),
        (
            "0 | s1[0]=i0 | |\n1 | s0[0:1]=i1 | |\n2 | 1=s0[0:1] | |\n3 | 0=s1[0] | |".to_owned(),
            unwritten(3, "0=s1[0]", 0),
        ),
        ("0 | s0[1]=i1 | |\n1 | 0=s0[0] | |".to_owned(), unwritten(1, "0=s0[0]", 0)),
    ];
    for (rounds, want) in cases {
        // Rank 0 is the root of a broadcast and copies by way of scratch; rank 1 gets the message plainly.
        let lines: Vec<&str> = rounds.lines().collect();
        let last = lines.len();
        let rounds = format!("{rounds}\n{last} | i0..2>1 | 0..2<0 |");
        check(Broadcast, PLAIN, head, &rounds, &want);
    }
}

#[test]
fn folds() {
    let head = "ranks 3 root 0 chunks 2\n| 0 | 1 | 2 |";
    check(
        AllReduce,
        PLAIN,
        head,
        "0 | i0>1 | s1[1]<0 | |",
        "rank 1, round 0, step 0 (s1[1]<0): as long as s1[1] on one side and i0 on the other",
    );
    let one = "ranks 3 root 0 chunks 1\n| 0 | 1 | 2 |";
    check(
        Reduce,
        PLAIN,
        one,
        "0 | 0=i0+1 | i0>0 | |\n1 | 0+1 | i0>0 | |",
        "rank 0, round 1, step 0 (0+1): counts the contribution of rank 1 twice",
    );
    check(
        Reduce,
        PLAIN,
        one,
        "0 | s0[0]=i0 s1[0]=i0 s2[0]<1 | i0>0 | |\n1 | 0=s0[0]*3 | | |",
        "rank 0, round 1, step 0 (0=s0[0]*3): counts the contribution of rank 0 twice",
    );
    check(
        ReduceScatter,
        EVEN,
        "ranks 2 root 0 chunks 2\n| 0 | 1 |",
        "0 | i1>1 0=i0+1 | i1>0 0=i1+0 |",
        "rank 0, round 0, step 1 (0=i0+1): folds chunk 0 of rank 0 with chunk 1 of rank 1",
    );
}

#[test]
fn waits() {
    let head = "ranks 3 root 0 chunks 1\n| 0 | 1 | 2 |";
    let cases = [
        ("0 | i0>1 0=i0 | | |", "rank 0, round 0, step 0 (i0>1): waits forever for rank 1, which has ended"),
        (
            "0 | 0=i0 i0>1 | 0<2 | 0<1 |",
            "rank 0, round 0, step 1 (i0>1): waits forever for rank 1, which waits in round 0",
        ),
        // With room for one message the two sends would pass each other; the proof allows for none.
        ("0 | 0=i0 i0>1 | s0[0]=i0 | |\n1 | | 0<0 | |\n2 | | 0>2 | 0>1 |\n3 | | 0<2 | 0<1 |", ""),
    ];
    check(Broadcast, PLAIN, head, cases[0].0, cases[0].1);
    check(Broadcast, PLAIN, head, cases[1].0, cases[1].1);
    let ring = "0 | 0=i0 i0>1 | i0>2 | i0>0 |\n1 | 0<2 | 0<0 | 0<1 |";
    let all = "ranks 3 root 0 chunks 1\n| 0 | 1 | 2 |";
    check(
        AllReduce,
        PLAIN,
        all,
        ring,
        "rank 0, round 0, step 1 (i0>1): waits forever for rank 1, which waits in round 0",
    );
    let heard = "0 | i0>1 | 0<0 | |\n1 | | i0>2 | 0<1 |\n2 | 0<2 | | i0>0 |";
    check(Barrier, PLAIN, all, heard, "rank 1: may end before rank 2 has begun");
    // What a rank hears in a round it has not yet said in that round.
    let same_round = "0 | i0>1 0<2 | i0>2 0<0 | i0>0 0<1 |";
    check(Barrier, PLAIN, all, same_round, "rank 0: may end before rank 1 has begun");
    check(Barrier, PLAIN, all, &format!("{same_round}\n{}", same_round.replacen('0', "1", 1)), "");
}

#[test]
fn sets() {
    let cases = [
        (AllReduce, "ranks 2 root 0 chunks 1\n| 0 |", "program 0 of 1 is written for rank 0 of 2"),
        (AllReduce, "ranks 2 root 0 chunks 1\n| 1 |", "program 0 of 1 is written for rank 1 of 2"),
        (AllReduce, "ranks 1 root 0 chunks 0\n| 0 |", "written for root 0 of 1 ranks and 0 chunks"),
        (AllGather, "ranks 2 root 0 chunks 3\n| 0 | 1 |", "all_gather of 2 ranks has 2 chunks, not 3"),
        (Barrier, "ranks 2 root 0 chunks 2\n| 0 | 1 |", "barrier of 2 ranks has 1 chunks, not 2"),
        (Send, "ranks 2 root 0 chunks 1\n| 0 | 1 |", "send is not run from a schedule"),
        (AllReduce, "ranks 1 root 0 chunks 4000000000\n| 0 |", "too many chunks, slots and ranks to check"),
        (
            AllReduce,
            "ranks 1 root 0 chunks 1\n| 0 |\n 0 | s4294967295[0..4294967295]=i0 |",
            "too many chunks, slots and ranks to check",
        ),
    ];
    for (collective, text, want) in cases {
        check(collective, PLAIN, text, "", &format!("rank 0: {want}"));
    }
    assert_eq!(prove(AllReduce, &[], PLAIN).unwrap_err().to_string(), "rank 0: there is no program");
}
