//! Spans, steps and programs as text.

use std::fmt::{self, Display, Formatter, Write as _};

use crate::schedule::{Buffer, Program, Span, Step};

/// Writes `first` or `first..end`.
fn range(f: &mut Formatter<'_>, first: u32, count: u32) -> fmt::Result {
    match count {
        1 => write!(f, "{first}"),
        _ => write!(f, "{first}..{}", u64::from(first) + u64::from(count)),
    }
}

/// As in the table of [`text`](crate::schedule::text). A span that breaks the rules of spans is drawn as if it did not.
impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.buffer {
            Buffer::Output => range(f, self.first, self.count),
            Buffer::Input => {
                f.write_char('i')?;
                range(f, self.first, self.count)
            }
            Buffer::Scratch => {
                write!(f, "s{}[", self.first)?;
                if self.skip > 0 {
                    write!(f, "{}:", self.like.wrapping_sub(self.skip))?;
                }
                range(f, self.like, self.count)?;
                f.write_char(']')
            }
        }
    }
}

/// As in the table of [`text`](crate::schedule::text).
impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Send { to, source } => write!(f, "{source}>{to}"),
            Step::Recv { from, target } => write!(f, "{target}<{from}"),
            Step::RecvReduce { from, source, target } if source == target => write!(f, "{target}+{from}"),
            Step::RecvReduce { from, source, target } => write!(f, "{target}={source}+{from}"),
            Step::Copy { source, target } => write!(f, "{target}={source}"),
            Step::Reduce { source, runs, target } => write!(f, "{target}={source}*{runs}"),
        }
    }
}

/// The drawing of some ranks' programs, all of one set.
///
/// The first line says for how many ranks, which root and how many chunks the set was written; the second which rank
/// each column is; then comes a line for each round. [`parse`](super::parse) reads it.
///
/// # Panics
///
/// When there is no program.
#[must_use]
pub fn draw(programs: &[Program]) -> String {
    let first = programs.first().expect("at least one program");
    let mut text = format!("ranks {} root {} chunks {}\n", first.size, first.root, first.chunks);
    let n_rounds = programs.iter().map(Program::n_rounds).max().unwrap_or(0);
    let columns: Vec<Vec<String>> = programs
        .iter()
        .map(|program| {
            let cell = |steps: &[Step]| steps.iter().map(Step::to_string).collect::<Vec<_>>().join(" ");
            let head = std::iter::once(program.me.to_string());
            let mut cells: Vec<String> = head.chain(program.rounds().map(cell)).collect();
            cells.resize(n_rounds + 1, String::new());
            cells
        })
        .collect();
    let widths: Vec<usize> = columns.iter().map(|column| column.iter().map(String::len).max().unwrap_or(0)).collect();
    for line in 0..=n_rounds {
        match line.checked_sub(1) {
            None => text.push_str("     |"),
            Some(round) => write!(text, "{round:4} |").expect("a string takes everything"),
        }
        for (column, width) in columns.iter().zip(&widths) {
            write!(text, " {:width$} |", column[line]).expect("a string takes everything");
        }
        text.push('\n');
    }
    text
}

impl Program {
    /// The drawing of this program alone: one column.
    #[must_use]
    pub fn to_text(&self) -> String {
        draw(std::slice::from_ref(self))
    }
}
