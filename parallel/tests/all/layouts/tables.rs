//! Schedules and layers over stages that the user brings: trained like rows of the table, or refused before anything is built.

use paceline_parallel::pipeline::partition::{Layer, Partition};
use paceline_parallel::pipeline::{Schedule, Shape, schedule_row, text};
use paceline_parallel::train::{PipelineOptions, TrainerOptions};

use super::*;

fn table(text: &str) -> Schedule {
    text::parse(text).unwrap()
}

/// The text of a row's schedule, read again.
fn as_table(row: &str, shape: Shape) -> Schedule {
    table(&text::write(&schedule_row(row).unwrap().schedule(shape).unwrap()))
}

fn over(options: TrainerOptions, stages: &str) -> TrainerOptions {
    let partition = Some(Partition::drawn(stages).unwrap());
    TrainerOptions { pipeline: PipelineOptions { partition, ..options.pipeline }, ..options }
}

#[test]
fn a_table_trains_as_the_row_that_it_was_written_from() {
    for (layout, row, shape) in [
        ("pp=2", "one_f_one_b", Shape::new(2, 4)),
        ("pp=4,dp=2", "one_f_one_b", Shape::new(4, 4)),
        ("pp=2", "zbv", Shape::new(2, 4)),
        ("pp=2", "interleaved", Shape::new(2, 4).chunks(2)),
    ] {
        let micro_batches = shape.n_micro_batches;
        let base = options(llama());
        let named = run(layout, &piped(base.clone(), row, shape.n_chunks, micro_batches));
        let read = run(layout, &piped(base, as_table(row, shape), 1, micro_batches));
        assert!(named == read, "{layout}, {row}: all bits are the same");
    }
}

/// No row writes these: the second one drains weights' gradients late, the third one has stages in a V.
#[test]
fn tables_of_ones_own_equal_one_process() {
    for model in [llama(), gpt2_tied()] {
        let base = options(model);
        let alone = run("", &base);
        for (layout, text) in [
            ("pp=2", "0F0, 0F1, 0F2, 0B0, 0F3, 0B1, 0B2, 0B3\n1F0, 1B0, 1F1, 1B1, 1F2, 1B2, 1F3, 1B3"),
            (
                "pp=2,dp=2",
                "0F0, 0F1, 0I0, 0F2, 0W0, 0I1, 0F3, 0B2, 0W1, 0B3\n1F0, 1I0, 1F1, 1I1, 1F2, 1B2, 1W1, 1F3, 1B3, 1W0",
            ),
            (
                "pp=2",
                "placement v micro_batches 2\n0F0, 0F1, 3F0, 3B0, 3F1, 3B1, 0B0, 0B1\n1F0, 2F0, 1F1, 2F1, 2B0, 1B0, 2B1, 1B1",
            ),
        ] {
            let table = table(text);
            let micro_batches = table.n_micro_batches;
            check(layout, &piped(base.clone(), table, 1, micro_batches), &alone);
        }
    }
}

#[test]
fn layers_lie_over_stages_as_drawn() {
    for model in [llama(), gpt2_tied()] {
        let base = options(model);
        let alone = run("", &base);
        for (layout, row, stages) in [
            ("pp=2", "one_f_one_b", "Et|tttL"),
            ("pp=2", "gpipe", "E|ttttL"),
            ("pp=2", "zbv", "Ett|t||tL"),
            ("pp=4,fsdp=2", "zb_h1", "E|t*2|t*2|L"),
        ] {
            let base = if layout.contains("fsdp") { sharded(base.clone(), Stage::Parameters) } else { base.clone() };
            check(layout, &over(piped(base, row, 1, 4), stages), &alone);
        }
    }
}

#[test]
fn what_is_no_schedule_is_refused_with_its_place() {
    let base = options(llama());
    let sound = "0F0, 0F1, 0B0, 0B1\n1F0, 1B0, 1F1, 1B1";
    assert_eq!(refused("pp=2", &piped(base.clone(), table(sound), 1, 2)), "");
    for (text, said) in [
        (
            "0F0, 0B0, 0F1, 0B1\n1F1, 1B1, 1F0, 1B0",
            "rank 0, position 1, 0B0: waits for ever for 1B0, position 3 of rank 1, which stands at position 0",
        ),
        ("0F0, 0F1, 0B0\n1F0, 1B0, 1F1, 1B1", "rank 0, position 3, 0B1: 0B1 is missing"),
        ("0F0, 0F1, 0B0, 0B1\n1F0, 1I0, 1F1, 1B1", "rank 1, position 1, 1I0: 1W0 is missing"),
        ("0F0, 0F1, 0B0, 0B1\n1B0, 1F0, 1F1, 1B1", "rank 1, position 0, 1B0: must come after 1F0"),
        ("0F0, 0F1, 1B0, 0B1\n1F0, 0B0, 1F1, 1B1", "rank 0, position 2, 1B0: the placement gives this to rank 1"),
        (&format!("micro_batches 3\n{sound}"), "the schedule's table has 3 micro-batches, and each step is to have 2"),
        (&format!("micro_batches 1\n{sound}"), "the schedule's table has 1 micro-batches, and each step is to have 2"),
        (&format!("{sound}\n-"), "the schedule's table is for 3 ranks, and there are 2 along pp"),
        (&format!("placement v\n{sound}"), "rank 1, position 4, 2F0: 2F0 is missing"),
        (&format!("placement loop 4000000000\n{sound}"), "rank 0, position 4, 2F0: 2F0 is missing"),
    ] {
        let error = refused("pp=2", &piped(base.clone(), table(text), 1, 2));
        assert!(error.contains(said), "{text}: {error}");
    }
    let error = refused("pp=2", &piped(base, table(sound), 2, 2));
    assert!(error.contains("chunks must be 1"), "{error}");
}

#[test]
fn layers_that_are_not_the_models_are_refused() {
    let base = piped(options(llama()), table("0F0, 0F1, 0B0, 0B1\n1F0, 1B0, 1F1, 1B1"), 1, 2);
    for (stages, said) in [
        ("Et|t|ttL", "has 3 stages, and the schedule 2"),
        ("Et|ttL", "the partition Et|ttL must have 4 layers"),
        ("Ett|ttmL", "the partition Ett|ttmL must have 4 layers"),
    ] {
        let error = refused("pp=2", &over(base.clone(), stages));
        assert!(error.contains(said), "{stages}: {error}");
    }
    // A partition that no drawing says: layers out of order would be computed in order, and nobody would notice.
    let mut swapped = Partition::drawn("Ett|ttL").unwrap();
    swapped.stages[0][1] = Layer::Transformer(2);
    swapped.stages[1][0] = Layer::Transformer(1);
    let pipeline = PipelineOptions { partition: Some(swapped), ..base.pipeline.clone() };
    let error = refused("pp=2", &TrainerOptions { pipeline, ..base.clone() });
    assert!(error.contains("4 layers in their order"), "{error}");
    let error = refused("pp=2", &piped(options(llama()), as_table("interleaved", Shape::new(2, 2).chunks(4)), 1, 2));
    assert!(error.contains("4 layers can't be divided among 8 stages"), "{error}");
}

/// One process may give any number of micro-batches with a row; a table says how many.
#[test]
fn a_table_is_for_its_number_of_micro_batches_in_each_step() {
    crate::common::ranks(1, |comm| {
        let mesh = Mesh::new(comm, Layout::single(), MeshOptions::default()).unwrap();
        let options = piped(options(llama()), table("0F0, 0F1, 0B1, 0B0"), 1, 2);
        let mut trainer = Trainer::new(mesh, options, optimizer()).unwrap();
        trainer.step(batches(0, 0, 1, 2)).unwrap();
        let error = trainer.step(batches(1, 0, 1, 4)).unwrap_err().to_string();
        assert!(error.contains("the schedule's table has 2 micro-batches, and each step is to have 4"), "{error}");
    });
}
