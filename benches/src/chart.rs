//! Results as drawings: time against bytes, both logarithmic, a line for each library.

use std::path::{Path, PathBuf};

use plotters::prelude::*;

use crate::matrix::Group;
use crate::results::Results;

/// Colours that the colour-blind can tell apart, after Okabe and Ito; paceline's first.
const COLOURS: [RGBColor; 5] =
    [RGBColor(213, 94, 0), RGBColor(0, 114, 178), RGBColor(0, 158, 115), RGBColor(204, 121, 167), RGBColor(90, 90, 90)];

/// Draws a table into `folder`; the file, or nothing where there is nothing to draw.
///
/// # Errors
///
/// If the file can't be written.
pub fn draw(results: &Results, group: Group, folder: &Path) -> Result<Option<PathBuf>, String> {
    let lines: Vec<(usize, Vec<(f64, f64)>)> =
        (0..results.libraries.len()).map(|library| (library, points(results, group, library))).collect();
    let all: Vec<(f64, f64)> = lines.iter().flat_map(|(_, points)| points.iter().copied()).collect();
    if all.is_empty() {
        return Ok(None);
    }
    let Group { wire, ranks, call, element } = group;
    let name = format!("{}-{ranks}-{}-{}.svg", wire.name(), call.name(), element.name());
    let file = folder.join(name);
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    draw_lines(&file, &format!("{group}"), results, &lines, &all).map_err(|error| told(&error))?;
    Ok(Some(file))
}

fn points(results: &Results, group: Group, library: usize) -> Vec<(f64, f64)> {
    let median = |bytes| Some((bytes as f64, results.entry(group, bytes, library)?.median_us()?));
    results.sizes(group).into_iter().filter_map(median).collect()
}

/// A little more than the values cover, so that no point lies on an edge.
fn span(values: impl Iterator<Item = f64> + Clone) -> std::ops::Range<f64> {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(0.0, f64::max);
    least / 1.5..most * 1.5
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw_lines(
    file: &Path,
    title: &str,
    results: &Results,
    lines: &[(usize, Vec<(f64, f64)>)],
    all: &[(f64, f64)],
) -> Drawn {
    let root = SVGBackend::new(file, (900, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let (x, y) = (span(all.iter().map(|point| point.0)), span(all.iter().map(|point| point.1)));
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(74)
        .build_cartesian_2d(x.log_scale().base(2.0), y.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("bytes")
        .y_desc("microseconds per call")
        .x_labels(14)
        .x_label_formatter(&|bytes| size_label(*bytes))
        .y_label_formatter(&|us| format!("{us}"))
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 16))
        .light_line_style(RGBColor(240, 240, 240))
        .bold_line_style(RGBColor(215, 215, 215))
        .draw()?;
    for (library, points) in lines.iter().filter(|(_, points)| !points.is_empty()) {
        let colour = COLOURS[library % COLOURS.len()];
        let style = colour.stroke_width(if *library == 0 { 3 } else { 2 });
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))?
            .label(results.libraries[*library])
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .legend_area_size(28)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(150, 150, 150))
        .label_font(("sans-serif", 15))
        .draw()?;
    root.present()?;
    Ok(())
}

/// Bytes in the unit that makes them a small number.
fn size_label(bytes: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1024.0 * 1024.0, "MiB"), (1024.0, "KiB"), (1.0, "B")];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1.0, "B"));
    format!("{:.0} {name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{GROUP, sample};

    #[test]
    fn a_drawing_has_lines_axes_and_a_legend() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = draw(&sample(), GROUP, folder.path()).expect("drawn").expect("there are times");
        assert_eq!(file.file_name().unwrap(), "shm-2-all_reduce-f32.svg");
        let text = std::fs::read_to_string(file).expect("an svg");
        for part in ["bytes", "microseconds per call", "paceline", "open mpi", "mpich", "polyline"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let nothing = Group { ranks: 4, ..GROUP };
        assert_eq!(draw(&sample(), nothing, folder.path()), Ok(None));
    }

    #[test]
    fn sizes_are_small_numbers() {
        assert_eq!([8.0, 4096.0, 67_108_864.0].map(size_label), ["8 B", "4 KiB", "64 MiB"]);
    }
}
