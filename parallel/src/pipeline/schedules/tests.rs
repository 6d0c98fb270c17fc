//! What follows from every row.

use super::*;
use crate::pipeline::{Lowered, Placement, prove, text};

fn fitting(row: &'static Row, ranks: &'static [u32], micro_batches: &'static [u32]) -> impl Iterator<Item = Shape> {
    let shapes =
        move |&p: &u32| micro_batches.iter().flat_map(move |&m| (1..=3).map(move |v| Shape::new(p, m).chunks(v)));
    ranks.iter().flat_map(shapes).filter(|&shape| row.check_shape(shape).is_ok())
}

#[test]
fn rows_are_complete_and_their_names_are_unique() {
    for (index, row) in SCHEDULES.iter().enumerate() {
        assert!(!row.summary.is_empty() && !row.source.is_empty(), "{}", row.name);
        assert_eq!(SCHEDULES.iter().position(|other| other.name == row.name), Some(index), "{}", row.name);
        assert!(schedule_row(row.name).is_some_and(|found| found.name == row.name));
    }
    assert!(schedule_row("no such").is_none());
}

#[test]
fn every_schedule_is_proved_for_every_shape() {
    const MICRO_BATCHES: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 20, 24, 31, 32];
    for row in &SCHEDULES {
        let mut n_shapes = 0;
        for shape in fitting(row, &[1, 2, 3, 4, 5, 6, 7, 8, 16], MICRO_BATCHES) {
            let schedule = row.schedule(shape).unwrap();
            let proof = prove(&schedule).unwrap_or_else(|error| panic!("{} {shape:?}: {error}", row.name));
            let hops = match schedule.placement {
                // The turn stays on the rank, and so does everything on a single one.
                Placement::V => 2 * (shape.n_ranks - 1),
                _ if shape.n_ranks == 1 => 0,
                _ => schedule.n_stages() - 1,
            };
            assert_eq!(proof.n_transfers, (2 * hops * shape.n_micro_batches) as usize, "{} {shape:?}", row.name);
            assert!(proof.in_order, "{} {shape:?}", row.name);
            assert_eq!(text::parse(&text::write(&schedule)), Ok(schedule), "{} {shape:?}", row.name);
            n_shapes += 1;
        }
        assert!(n_shapes > 20, "{}: only {n_shapes} shapes", row.name);
    }
}

#[test]
fn weights_gradients_are_added_up_in_the_order_of_micro_batches() {
    use crate::pipeline::Kind;
    for row in SCHEDULES.iter().filter(|row| row.name != "dual_pipe") {
        for shape in fitting(row, &[2, 4, 8], &[8, 16, 24]) {
            let schedule = row.schedule(shape).unwrap();
            for list in &schedule.ranks {
                let mut next = vec![0; schedule.n_stages() as usize];
                let actions = list.iter().flat_map(|step| step.actions());
                for action in actions.filter(|action| matches!(action.kind, Kind::Backward | Kind::Weight)) {
                    let next = &mut next[action.stage as usize];
                    assert_eq!(action.micro_batch, *next, "{} {shape:?}: {action}", row.name);
                    *next += 1;
                }
            }
        }
    }
}

#[test]
fn misfits_say_what_would_do() {
    let misfit = |name: &str, shape| schedule_row(name).unwrap().check_shape(shape).unwrap_err().to_string();
    let cases = [
        ("gpipe", Shape::new(0, 1), "there must be a rank"),
        ("gpipe", Shape::new(1, 0), "there must be a micro-batch"),
        ("gpipe", Shape::new(1, 1).chunks(0), "a rank must hold a chunk"),
        ("zbv", Shape::new(2, 4).chunks(2), "the number of chunks can be chosen for interleaved only"),
        ("interleaved", Shape::new(8, 32), "it needs at least 2 chunks per rank; with 1 it is one_f_one_b"),
        ("interleaved", Shape::new(8, 4).chunks(2), "it needs at least as many micro-batches as ranks, 8"),
        (
            "interleaved",
            Shape::new(8, 12).chunks(12),
            "12 micro-batches in groups of 8 leave 4, which is fewer than the 8 ranks; take 8 or 16 micro-batches, or \
             other groups",
        ),
        (
            "interleaved",
            Shape::new(8, 16).chunks(2).group(4),
            "groups of 4 micro-batches must be of 8 (the ranks) to 16 (all)",
        ),
        (
            "dual_pipe",
            Shape::new(3, 12),
            "the number of ranks must be even, for the two directions meet between two ranks",
        ),
        ("dual_pipe", Shape::new(4, 9), "half of the micro-batches enter at either end; take 8 or 10"),
        ("dual_pipe", Shape::new(4, 6), "it needs at least 2 micro-batches per rank, 8"),
        ("dual_pipe_v", Shape::new(4, 7), "it needs at least 2 micro-batches per rank, 8"),
    ];
    for (name, shape, why) in cases {
        let Shape { n_ranks, n_micro_batches, n_chunks, .. } = shape;
        let head = format!(
            "{name} does not fit {n_ranks} ranks, {n_micro_batches} micro-batches, {n_chunks} chunks per rank: "
        );
        assert_eq!(misfit(name, shape), head + why);
    }
    let grouped = Shape::new(8, 12).chunks(2).group(12);
    assert!(schedule_row("interleaved").unwrap().check_shape(grouped).is_ok(), "other groups do help");
}

/// As the figures of the papers show them.
#[test]
fn small_cases_are_as_drawn() {
    let lines = |name: &str, shape| {
        let schedule = schedule_row(name).unwrap().schedule(shape).unwrap();
        text::write(&schedule).lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        lines("zb_h1", Shape::new(3, 4)),
        [
            "0F0, 0F1, 0F2, 0I0, 0W0, 0F3, 0I1, 0W1, 0I2, 0W2, 0I3, 0W3",
            "1F0, 1F1, 1I0, 1F2, 1I1, 1W0, 1F3, 1I2, 1W1, 1I3, 1W2, 1W3",
            "2F0, 2I0, 2F1, 2I1, 2F2, 2I2, 2W0, 2F3, 2I3, 2W1, 2W2, 2W3",
        ]
    );
    assert_eq!(
        lines("interleaved", Shape::new(2, 2).chunks(2)),
        ["0F0, 0F1, 2F0, 2F1, 2B0, 2B1, 0B0, 0B1", "1F0, 1F1, 3F0, 3B0, 3F1, 3B1, 1B0, 1B1"]
    );
    assert_eq!(
        lines("dual_pipe", Shape::new(2, 4)),
        ["0F0, 1F2, 0F1, 1B2, 1F3+0B0, 1B3, 0I1, 0W1", "0F2, 1F0, 0F3, 1B0, 1F1+0B2, 1B1, 0I3, 0W3"]
    );
}

#[test]
fn tags_are_unambiguous() {
    for row in &SCHEDULES {
        let shape = Shape::new(4, 8).chunks(if row.name == "interleaved" { 2 } else { 1 });
        let lists = crate::pipeline::lower(&row.schedule(shape).unwrap()).unwrap();
        let mut tags: Vec<u64> = lists
            .iter()
            .flatten()
            .filter_map(|action| if let Lowered::Send { transfer, .. } = action { Some(transfer.tag()) } else { None })
            .collect();
        let n = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), n, "{}", row.name);
    }
}
