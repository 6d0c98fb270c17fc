//! Tables are read as they are written, and errors name the place.

use proptest::prelude::*;

use super::*;
use crate::pipeline::price::{Costs, price};
use crate::pipeline::{Action, Kind, Placement, Schedule, Step};

#[test]
fn tables_may_leave_out_what_they_imply() {
    let table = "# two ranks\n\n0F0,0F1,,,0B0, ,0B1 # idle places\n ,1F0,1B0,1F1,1B1,\n";
    let schedule = parse(table).unwrap();
    assert_eq!((schedule.placement, schedule.n_micro_batches), (Placement::Loop { n_chunks: 1 }, 2));
    assert_eq!(price(&schedule, &Costs::even(2)).unwrap().makespan, 9.0);
    assert_eq!(parse("micro_batches 2\n0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1"), Ok(schedule));
    let v = parse("placement v\n0F0, 3F0, 3I0, 0B0, 3W0\n1F0, 2F0, 2B0, 1B0").unwrap();
    assert_eq!((v.placement, v.n_micro_batches, v.n_stages()), (Placement::V, 1, 4));
    assert_eq!(price(&v, &Costs::even(4)).unwrap().makespan, 12.0);
}

#[test]
fn errors_name_line_and_column() {
    let cases = [
        ("", 1, 1, "expected a line of actions for each rank, found the end of the line"),
        ("# nothing\n\n", 2, 1, "expected a line of actions for each rank, found the end of the line"),
        ("0F0\n1F0; 1B0", 2, 4, "expected ',' or the end of the line, found ';'"),
        ("0F0\n1F0, 1X0", 2, 7, "expected one of F B I W, found 'X'"),
        ("0F0, F0", 1, 6, "expected an action such as 2F0, found 'F'"),
        ("0F0, 0F1+0W0", 1, 6, "0F1+0W0 is not a forward and a backward, such as 2F4+5B1"),
        ("placement x\n0F0", 1, 11, "expected loop, v or mirrored, found 'x'"),
        ("placement loop\n0F0", 1, 15, "expected how many stages a rank holds, found the end of the line"),
        ("placement v placement v\n0F0", 1, 13, "placement is named twice"),
        ("ranks 3\n0F0", 1, 1, "expected placement, micro_batches or an action, found 'r'"),
        ("micro_batches 0x\n0F0", 1, 16, "expected placement, micro_batches or an action, found 'x'"),
        ("0F0\nplacement v", 2, 1, "expected an action such as 2F0, found 'p'"),
        ("- 0F0", 1, 3, "expected the end of the line, found '0'"),
    ];
    for (text, line, column, what) in cases {
        let error = parse(text).expect_err(text);
        let what = what.strip_suffix(", found the end of the line").filter(|_| line < 3 && column == 1).unwrap_or(what);
        assert_eq!((error.line, error.column, error.what.as_str()), (line, column, what), "{text}");
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let action = |stage, kind, micro_batch| Action { stage, kind, micro_batch };
    let one = (any::<u32>(), 0..Kind::ALL.len(), any::<u32>())
        .prop_map(move |(s, k, m)| Step::One(action(s, Kind::ALL[k], m)));
    let both = (0u32..99, 0u32..99, any::<bool>(), 0u32..9, 0u32..9).prop_map(move |(s, t, whole, m, k)| Step::Both {
        forward: action(s, Kind::Forward, m),
        backward: action(t, if whole { Kind::Backward } else { Kind::Input }, k),
    });
    prop_oneof![one, both]
}

proptest! {
    #[test]
    fn tables_are_read_as_they_are_written(
        ranks in prop::collection::vec(prop::collection::vec(any_step(), 0..9), 1..5),
        n_micro_batches in any::<u32>(),
        placement in prop_oneof![
            any::<u32>().prop_map(|n_chunks| Placement::Loop { n_chunks }),
            Just(Placement::V),
            Just(Placement::Mirrored),
        ],
    ) {
        let schedule = Schedule { placement, n_micro_batches, ranks };
        prop_assert_eq!(parse(&write(&schedule)), Ok(schedule));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[0-9FBIW,+\\-# \n\\|a-z_é]{0,60}") {
        if let Ok(schedule) = parse(&text) {
            let _ = crate::pipeline::check(&schedule);
        }
    }
}
