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
    chart
        .configure_mesh()
        .x_desc("bytes")
        .y_desc("microseconds")
        .x_labels(12)
        .x_label_formatter(&binary)
        .y_label_formatter(&f64::to_string)
        .draw()?;
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

/// Bytes in the largest unit that they fill.
fn binary(bytes: &f64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| *unit as f64 <= *bytes) {
        Some((unit, name)) => format!("{} {name}", bytes / *unit as f64),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use paceline_comm::topology::{Cluster, Trouble};

    use super::*;
    use crate::simulate::Answer;

    fn answers(bytes: &[u64]) -> Answers {
        let cluster = Cluster { hosts: 2, ..Cluster::named("cpu").unwrap() };
        let rows = |bytes| cluster.estimate(paceline_comm::Collective::AllReduce, bytes, &Trouble::default()).unwrap();
        let answers = bytes.iter().map(|bytes| Answer { bytes: *bytes, rows: rows(*bytes) }).collect();
        Answers {
            collective: "all_reduce",
            cluster,
            trouble: Trouble::default(),
            groups: 1,
            answers,
            played: Vec::new(),
        }
    }

    #[test]
    fn a_drawing_has_its_labels() {
        let svg = lines(&answers(&[8, 64 << 10, 64 << 20])).unwrap();
        for label in ["all_reduce of", "microseconds", "\nring\n", "KiB\n", "MiB\n"] {
            assert!(svg.contains(label), "{label:?} in {svg}");
        }
        assert!(svg.ends_with("</svg>\n"));
        assert!(lines(&answers(&[8])).unwrap_err().to_string().contains("--to"));
    }

    #[test]
    fn the_ending_says_how_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("times.svg");
        draw(&answers(&[8, 64]), &file).unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), lines(&answers(&[8, 64])).unwrap());
        assert!(draw(&answers(&[8, 64]), &folder.path().join("times.pdf")).unwrap_err().contains(".png"));
    }
}
