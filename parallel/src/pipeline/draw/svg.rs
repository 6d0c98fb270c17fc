//! A timeline as a picture.

use std::fmt::Write;

use crate::pipeline::action::{Kind, Step};
use crate::pipeline::price::Price;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 24.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;

const fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Forward => "#7fb2e5",
        Kind::Backward => "#8fcf8f",
        Kind::Input => "#f2c14e",
        Kind::Weight => "#d99fd0",
    }
}

/// An SVG with a row for each rank, and one colour for each kind of action. Of an overlapped pair, the forward is the
/// upper half.
#[must_use]
pub fn svg(price: &Price, title: &str) -> String {
    let scale = if price.makespan > 0.0 { WIDTH / price.makespan } else { 0.0 };
    let height = TOP + ROW * price.timelines.len() as f64 + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"11\">\n",
        LEFT + WIDTH + 10.0
    );
    text(&mut out, 10.0, 16.0, &escape(title));
    for (rank, timeline) in price.timelines.iter().enumerate() {
        let y = TOP + ROW * rank as f64;
        text(&mut out, 10.0, y + 15.0, &format!("rank {rank}"));
        rect(&mut out, [LEFT, y, WIDTH, ROW - 2.0], "#eeeeee", "idle");
        for timed in timeline {
            let (x, width) = (LEFT + timed.start * scale, (timed.end - timed.start) * scale);
            let parts = timed.step.actions().count() as f64;
            for (part, action) in (0..).map(f64::from).zip(timed.step.actions()) {
                let high = (ROW - 2.0) / parts;
                let about = format!("{} {}..{}", timed.step, timed.start, timed.end);
                rect(&mut out, [x, y + part * high, width, high], colour(action.kind), &about);
            }
            let label = timed.step.to_string();
            if matches!(timed.step, Step::One(_)) && width >= 7.0 * label.len() as f64 {
                text(&mut out, x + 2.0, y + 15.0, &label);
            }
        }
    }
    for (place, kind) in (0..).map(f64::from).zip(Kind::ALL) {
        let (x, y) = (LEFT + 120.0 * place, height - 22.0);
        rect(&mut out, [x, y, 12.0, 12.0], colour(kind), kind_name(kind));
        text(&mut out, x + 18.0, y + 10.0, kind_name(kind));
    }
    out += "</svg>\n";
    out
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Forward => "forward",
        Kind::Backward => "backward",
        Kind::Input => "input",
        Kind::Weight => "weight",
    }
}

fn rect(out: &mut String, [x, y, width, height]: [f64; 4], fill: &str, title: &str) {
    writeln!(
        out,
        "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\" \
         stroke=\"white\" stroke-width=\"0.5\"><title>{title}</title></rect>"
    )
    .expect("strings take what is written");
}

fn text(out: &mut String, x: f64, y: f64, text: &str) {
    writeln!(out, "<text x=\"{x:.2}\" y=\"{y:.2}\">{text}</text>").expect("strings take what is written");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
