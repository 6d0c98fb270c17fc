//! How the text of a variable becomes a value.

use std::ops::RangeInclusive;
use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

pub(super) fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if !digits.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let unit = match &text[digits.len()..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let seconds = digits.parse::<f64>().ok()? * unit;
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    Some(duration).filter(|duration| Duration::ZERO < *duration && *duration <= LONGEST)
}

pub(super) fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
    Some(low..=high).filter(|_| 1 <= low && low <= high)
}

pub(super) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Option<T> {
    words.iter().find(|(name, _)| name.eq_ignore_ascii_case(text.trim())).map(|(_, value)| *value)
}

pub(super) fn list<T: Copy + PartialEq>(text: &str, words: &[(&str, T)]) -> Option<Vec<T>> {
    let mut values = Vec::new();
    for item in text.split(',') {
        let value = word(item, words)?;
        if values.contains(&value) {
            return None;
        }
        values.push(value);
    }
    Some(values)
}

pub(super) fn names<T>(words: &[(&str, T)]) -> String {
    words.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The candidate that `name` is most likely a slip of, if it is one: a third of it wrong, or words put before or after.
pub(super) fn nearest(name: &str, candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let tail = |name: &'_ str| name.trim_start_matches("PACELINE_").to_owned();
    let given = tail(name);
    let score = |candidate: &str| {
        let wanted = tail(candidate);
        let wordy = given.ends_with(&format!("_{wanted}")) || given.starts_with(&format!("{wanted}_"));
        if wordy { 1 } else { edits(&given, &wanted) }
    };
    let (score, candidate) = candidates.map(|candidate| (score(candidate), candidate)).min()?;
    (score <= (given.len() / 3).max(1)).then_some(candidate)
}

/// Levenshtein's distance: how many bytes must be put in, taken out or exchanged.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.bytes().enumerate() {
            let exchanged = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
