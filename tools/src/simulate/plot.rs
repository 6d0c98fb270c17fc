//! Answers as a drawing: time against bytes, a line for each row.

use std::collections::BTreeMap;
use std::path::Path;

use plotters::prelude::*;

use super::Answers;
use crate::picture;

/// Colours that the colour-blind can tell apart, after Okabe and Ito.
const COLOURS: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];

pub(super) fn draw(answers: &Answers, file: &Path) -> Result<(), String> {
    let svg = lines(answers).map_err(|error| format!("{}: {error}", file.display()))?;
    picture::write(&svg, file)
}

/// The drawing as SVG.
fn lines(answers: &Answers) -> Result<String, Box<dyn std::error::Error>> {
    if answers.answers.len() < 2 {
        return Err("one size is no line: ask for more with --to".into());
    }
    let mut rows: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for answer in &answers.answers {
        for estimate in &answer.rows {
            rows.entry(estimate.row).or_default().push((answer.bytes.max(1) as f64, estimate.seconds * 1e6));
        }
    }
    let all = || rows.values().flatten();
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let least = all().map(of).fold(f64::INFINITY, f64::min);
        let most = all().map(of).fold(0.0, f64::max);
        least / 1.5..most * 1.5
    };
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (900, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("{} of {} ranks, predicted", answers.collective, answers.cluster.size());
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(74)
        .build_cartesian_2d(ends(|point| point.0).log_scale().base(2.0), ends(|point| point.1).log_scale())?;
    chart.configure_mesh().x_desc("bytes").y_desc("microseconds").x_labels(12).draw()?;
    for (number, (row, points)) in rows.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let width = if number < COLOURS.len() { 2 } else { 1 };
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(width)))?
            .label(*row)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(width)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    root.present()?;
    drop((chart, root));
    Ok(svg)
}
