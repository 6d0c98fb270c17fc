//! Steps as lines of a file, and losses as a drawing.

use std::fs::File;
use std::path::Path;

use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The step, the first being 1.
    pub step: u64,
    /// The mean loss over all tokens of the step, in nats.
    pub loss: f64,
    /// The norm of the gradient before clipping; none if the step was skipped.
    pub norm: Option<f64>,
    pub learning_rate: f64,
    pub tokens_per_second: f64,
    /// The model's operations, as a share of what there could be.
    pub mfu: f64,
    /// The share of rank 0's sending of gradients and values during which it computed; none if nothing was sent.
    pub hidden: Option<f64>,
    /// The mean loss over the validation samples, after some steps.
    pub validation: Option<f64>,
}

/// Steps, in memory and perhaps in a file.
pub struct Rows {
    pub rows: Vec<Row>,
    file: Option<csv::Writer<File>>,
}

impl Rows {
    /// Rows that go to a file; those up to a step that are there already are kept.
    pub fn new(file: Option<&Path>, after: u64) -> Result<Rows, Failure> {
        let Some(path) = file else { return Ok(Rows { rows: Vec::new(), file: None }) };
        let doing = |error: &dyn std::fmt::Display| format!("--csv {}: {error}", path.display());
        let mut rows = if after > 0 && path.exists() { read(path).map_err(|error| doing(&error))? } else { Vec::new() };
        rows.retain(|row| row.step <= after);
        let mut writer = csv::Writer::from_path(path).map_err(|error| doing(&error))?;
        rows.iter().try_for_each(|row| writer.serialize(row))?;
        writer.flush()?;
        Ok(Rows { rows, file: Some(writer) })
    }

    /// Adds a step. What is in the file survives whatever happens next.
    pub fn push(&mut self, row: Row) -> Result<(), Failure> {
        if let Some(file) = &mut self.file {
            file.serialize(&row)?;
            file.flush()?;
        }
        self.rows.push(row);
        Ok(())
    }
}

/// The steps in a file.
pub fn read(path: &Path) -> Result<Vec<Row>, csv::Error> {
    csv::Reader::from_path(path)?.deserialize().collect()
}

/// Colours that the colour-blind can tell apart, after Okabe and Ito.
const COLOURS: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

/// Draws the losses of runs by name: lines for training, circles for validation.
pub fn draw(file: &Path, runs: &[(String, Vec<Row>)]) -> Result<(), Failure> {
    let points =
        |rows: &[Row]| rows.iter().flat_map(|row| [Some(row.loss), row.validation]).flatten().collect::<Vec<_>>();
    let losses: Vec<f64> = runs.iter().flat_map(|(_, rows)| points(rows)).filter(|loss| loss.is_finite()).collect();
    let last = runs.iter().flat_map(|(_, rows)| rows.last()).map(|row| row.step).max().unwrap_or(1);
    let most = losses.iter().copied().fold(0.0, f64::max);
    let root = SVGBackend::new(file, (900, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(60)
        .build_cartesian_2d(0..last + 1, 0.0..most * 1.05 + f64::MIN_POSITIVE)?;
    chart
        .configure_mesh()
        .x_desc("step")
        .y_desc("loss per token, nats (circles: validation)")
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 16))
        .light_line_style(RGBColor(240, 240, 240))
        .bold_line_style(RGBColor(215, 215, 215))
        .draw()?;
    for (place, (name, rows)) in runs.iter().enumerate() {
        // Equal runs lie on top of each other: the ones below are wider.
        let style = COLOURS[place % COLOURS.len()].stroke_width(2 + 3 * (runs.len() - 1 - place) as u32);
        let line = rows.iter().filter(|row| row.loss.is_finite()).map(|row| (row.step, row.loss));
        chart
            .draw_series(LineSeries::new(line, style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
        let validated = rows.iter().filter_map(|row| Some((row.step, row.validation?)));
        chart.draw_series(validated.map(|point| Circle::new(point, 4, style.color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .legend_area_size(28)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(150, 150, 150))
        .label_font(("sans-serif", 15))
        .draw()?;
    root.present()?;
    Ok(())
}
