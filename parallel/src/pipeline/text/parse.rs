//! Reads schedules.

use crate::pipeline::action::{Step, read_step};
use crate::pipeline::cursor::{Cursor, ParseError};
use crate::pipeline::placement::Placement;
use crate::pipeline::schedule::Schedule;

/// The schedule that a text in the format of this module describes.
///
/// Nothing is promised of it: [`check`](crate::pipeline::check()) says whether it is one.
///
/// # Errors
///
/// The first place where the text is not a table.
pub fn parse(text: &str) -> Result<Schedule, ParseError> {
    let (mut header, mut ranks) = (Header::default(), Vec::new());
    for (line, text) in (1..).zip(text.lines()) {
        let mut cursor = Cursor::new(text.split('#').next().unwrap_or(""), line);
        if cursor.is_at_end() {
            continue;
        }
        match cursor.peek() {
            Some('a'..='z') if ranks.is_empty() && header == Header::default() => header = read_header(&mut cursor)?,
            _ => ranks.push(read_rank(&mut cursor)?),
        }
    }
    if ranks.is_empty() {
        let end = Cursor::new("", text.lines().count().max(1));
        return Err(end.error("expected a line of actions for each rank"));
    }
    let named = || ranks.iter().flatten().flat_map(|step: &Step| step.actions());
    let n_micro_batches = header
        .n_micro_batches
        .unwrap_or_else(|| named().map(|action| action.micro_batch.saturating_add(1)).max().unwrap_or(1));
    let placement = header.placement.unwrap_or_else(|| {
        let n_stages = named().map(|action| action.stage.saturating_add(1)).max().unwrap_or(1);
        Placement::Loop { n_chunks: n_stages.div_ceil(ranks.len() as u32) }
    });
    Ok(Schedule { placement, n_micro_batches, ranks })
}

#[derive(Default, PartialEq)]
struct Header {
    placement: Option<Placement>,
    n_micro_batches: Option<u32>,
}

fn read_header(cursor: &mut Cursor<'_>) -> Result<Header, ParseError> {
    let mut header = Header::default();
    while !cursor.is_at_end() {
        let at = cursor.clone();
        match cursor.word() {
            "placement" if header.placement.is_none() => header.placement = Some(read_placement(cursor)?),
            "micro_batches" if header.n_micro_batches.is_none() => {
                cursor.blanks();
                header.n_micro_batches = Some(cursor.number("how many micro-batches")?);
            }
            word @ ("placement" | "micro_batches") => return Err(at.error(format!("{word} is named twice"))),
            _ => return at.expected("placement, micro_batches or an action"),
        }
    }
    Ok(header)
}

fn read_placement(cursor: &mut Cursor<'_>) -> Result<Placement, ParseError> {
    cursor.blanks();
    let at = cursor.clone();
    match cursor.word() {
        "loop" => {
            cursor.blanks();
            Ok(Placement::Loop { n_chunks: cursor.number("how many stages a rank holds")? })
        }
        "v" => Ok(Placement::V),
        "mirrored" => Ok(Placement::Mirrored),
        _ => at.expected("loop, v or mirrored"),
    }
}

fn read_rank(cursor: &mut Cursor<'_>) -> Result<Vec<Step>, ParseError> {
    let mut steps = Vec::new();
    if cursor.take('-') {
        return cursor.end().map(|()| steps);
    }
    loop {
        cursor.blanks();
        if !matches!(cursor.peek(), None | Some(',')) {
            steps.push(read_step(cursor)?);
            cursor.blanks();
        }
        if !cursor.take(',') {
            return if cursor.is_at_end() { Ok(steps) } else { cursor.expected("',' or the end of the line") };
        }
    }
}
