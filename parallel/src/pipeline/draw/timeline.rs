//! A timeline in letters.

use crate::pipeline::price::{Price, Timed};

/// The most columns of a drawing: what lies behind is cut off.
pub const COLUMNS_MAX: usize = 1 << 14;

/// A line for each rank; `unit` is how much time a cell stands for.
///
/// A step begins with its name and goes on with `=`; a cell in which the rank idles is a dot. A step that is shorter
/// than a cell, or does not begin with one, is rounded to it, and left out where nothing remains.
///
/// # Panics
///
/// When `unit` is not above 0.
///
/// ```
/// use paceline_parallel::pipeline::{Shape, draw, schedule_row};
/// use paceline_parallel::pipeline::price::{Costs, price};
///
/// let schedule = schedule_row("one_f_one_b").unwrap().schedule(Shape::new(3, 3)).unwrap();
/// let price = price(&schedule, &Costs::even(3)).unwrap();
/// assert_eq!(
///     draw::timeline(&price, 1.0),
///     "\
/// 0 | 0F0 0F1 0F2 .   .   .   .   0B0 === .   0B1 === .   0B2 ===
/// 1 | .   1F0 1F1 .   .   1B0 === 1F2 1B1 === .   1B2 === .   .
/// 2 | .   .   2F0 2B0 === 2F1 2B1 === 2F2 2B2 === .   .   .   .
/// "
/// );
/// ```
#[must_use]
pub fn timeline(price: &Price, unit: f64) -> String {
    assert!(unit > 0.0, "a cell of {unit}");
    let cell = |time: f64| ((time / unit).round() as usize).min(COLUMNS_MAX);
    let span = |timed: &Timed| (cell(timed.start), cell(timed.end), timed.step.to_string());
    let spans: Vec<Vec<_>> = price.timelines.iter().map(|list| list.iter().map(span).collect()).collect();
    let shown = spans.iter().flatten().filter(|(start, end, _)| start < end);
    let width = shown.map(|(start, end, name)| (name.len() + 1).div_ceil(end - start)).max().unwrap_or(1).max(2);
    let digits = (spans.len().max(1) - 1).to_string().len();
    let mut text = String::new();
    for (rank, spans) in spans.iter().enumerate() {
        let (mut line, mut at) = (String::new(), 0);
        let idle = format!("{:width$}", ".");
        for (start, end, name) in spans.iter().filter(|(start, end, _)| start < end) {
            line += &idle.repeat(start - at);
            let room = (end - start) * width;
            line += name;
            // The last place stays blank, and one behind the name, in cells of the usual width.
            let mut behind = name.len();
            while behind < room {
                line.push(if behind % width == width - 1 || behind < width { ' ' } else { '=' });
                behind += 1;
            }
            at = *end;
        }
        line += &idle.repeat(cell(price.makespan) - at);
        text += format!("{rank:digits$} | {line}").trim_end();
        text.push('\n');
    }
    text
}
