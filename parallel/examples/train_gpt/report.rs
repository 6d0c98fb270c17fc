//! What is shown: a bar on a terminal, lines elsewhere, and a table in the end.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::curve::Row;

/// How many lines there are without a terminal.
const LINES: u64 = 20;

/// Shows steps as they come.
pub enum Report {
    Bar(ProgressBar),
    /// A line every so many steps.
    Lines(u64),
    Nothing,
}

impl Report {
    /// What suits where standard error goes; nothing where nothing is wanted.
    pub fn new(is_wanted: bool, done: u64, steps: u64) -> Report {
        if !is_wanted {
            return Report::Nothing;
        }
        if !std::io::stderr().is_terminal() {
            return Report::Lines((steps - done).div_ceil(LINES).max(1));
        }
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len}, {eta} left | {msg}");
        bar.set_style(style.expect("a template that is there").progress_chars("=> "));
        bar.set_position(done);
        Report::Bar(bar)
    }

    /// Shows something that isn't a step.
    pub fn say(&self, text: &str) {
        match self {
            Report::Bar(bar) => bar.println(text),
            Report::Lines(_) => eprintln!("{text}"),
            Report::Nothing => {}
        }
    }

    /// Shows a step.
    pub fn step(&self, row: &Row, is_last: bool) {
        match self {
            Report::Bar(bar) => {
                bar.set_message(line(row));
                bar.set_position(row.step);
            }
            Report::Lines(every) if is_last || row.step.is_multiple_of(*every) => {
                eprintln!("step {:>5}: {}", row.step, line(row));
            }
            Report::Lines(_) | Report::Nothing => {}
        }
        if let Some(validation) = row.validation {
            self.say(&format!("step {:>5}: validation loss {validation:.4}", row.step));
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Report::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn line(row: &Row) -> String {
    format!(
        "loss {:.4}, norm {}, rate {:.2e}, {} tokens/s, MFU {}, hidden {}",
        row.loss,
        row.norm.map_or("- (skipped)".to_owned(), |norm| format!("{norm:.3}")),
        row.learning_rate,
        number(row.tokens_per_second),
        percent(Some(row.mfu)),
        percent(row.hidden),
    )
}

/// A share in percent; a dash for none.
pub fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

/// A number with three digits and its thousands.
pub fn number(number: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| number >= *unit).unwrap_or((1.0, ""));
    let scaled = number / unit;
    let digits = if scaled < 10.0 { 2 } else { usize::from(scaled < 100.0) };
    format!("{scaled:.digits$}{name}")
}

/// Names and what they are, in two columns.
pub fn table(rows: &[(&str, String)]) {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().for_each(|(name, what)| println!("{name:width$}  {what}"));
}
