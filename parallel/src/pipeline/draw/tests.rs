//! Drawings against what they should show.

use super::*;
use crate::pipeline::price::{Costs, Overlap, price};
use crate::pipeline::{Kind, Placement, SCHEDULES, Shape, schedule_row};

/// The drawings in the documentation.
#[test]
fn the_documentation_shows_what_is_drawn() {
    let text = include_str!("../../../../docs/pipeline.md");
    let mut missing = String::new();
    for row in &SCHEDULES {
        let shape = match row.name {
            "interleaved" => Shape::new(2, 4).chunks(2),
            "dual_pipe" => Shape::new(4, 8),
            "dual_pipe_v" => Shape::new(2, 4),
            _ => Shape::new(3, 6),
        };
        let schedule = row.schedule(shape).unwrap();
        let drawing = timeline(&price(&schedule, &Costs::even(schedule.n_stages())).unwrap(), 1.0);
        let is_shown =
            text.contains(&format!("### {}\n", row.name)) && text.contains(&format!("```text\n{drawing}```"));
        if !is_shown {
            missing += &format!("### {}\n\n{drawing}", row.name);
        }
        assert!(text.contains(row.source), "docs/pipeline.md must name {}", row.source);
    }
    assert!(missing.is_empty(), "docs/pipeline.md must show:\n{missing}");
}

#[test]
fn cells_are_as_wide_as_names_need() {
    let schedule = crate::pipeline::text::parse(
        "placement v\n0F0, 0F1, 3F0, 0F2+3B0, 0B0, 3F1, 3B1, 3F2, 3B2, 0B1, 0B2\n\
         1F0, 2F0, 1F1, 2F1, 2B0, 1B0, 2B1, 1B1, 1F2, 2F2, 2B2, 1B2",
    )
    .unwrap();
    assert_eq!(schedule.placement, Placement::V);
    let costs = Costs { overlap: Overlap::Time(2.0), ..Costs::even(4) };
    let drawing = timeline(&price(&schedule, &costs).unwrap(), 1.0);
    assert!(drawing.starts_with("0 | 0F0 0F1 .   3F0 0F2+3B0 "), "{drawing}");
    let coarse = timeline(&price(&schedule, &costs).unwrap(), 1e9);
    assert_eq!(coarse, "0 |\n1 |\n");
}

#[test]
fn pictures_have_a_box_for_each_action() {
    for row in &SCHEDULES {
        let shape = Shape::new(4, 8).chunks(if row.name == "interleaved" { 2 } else { 1 });
        let schedule = row.schedule(shape).unwrap();
        let picture = svg(&price(&schedule, &Costs::even(schedule.n_stages())).unwrap(), "<a & b>");
        let actions: Vec<_> = schedule.ranks.iter().flatten().flat_map(|step| step.actions()).collect();
        let count = |what: &str| picture.matches(what).count();
        // One for each action, one idle row for each rank, one for each kind in the legend.
        assert_eq!((count("<rect "), count("</rect>")), (actions.len() + 4 + Kind::ALL.len(), count("<rect ")));
        for (kind, colour) in [(Kind::Forward, "#7fb2e5"), (Kind::Weight, "#d99fd0")] {
            let n = actions.iter().filter(|action| action.kind == kind).count();
            assert_eq!(count(&format!("fill=\"{colour}\"")), n + 1, "{} {kind:?}", row.name);
        }
        assert!(picture.contains("&lt;a &amp; b&gt;") && !picture.contains("<a"), "titles are escaped");
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert_eq!((count("<text "), count("<title>")), (count("</text>"), count("</title>")));
    }
    let schedule = schedule_row("gpipe").unwrap().schedule(Shape::new(1, 1)).unwrap();
    let costs = Costs::even(1).each(crate::pipeline::price::StageCost::UNIT.times(0.0));
    assert!(!svg(&price(&schedule, &costs).unwrap(), "").contains("NaN"));
}
