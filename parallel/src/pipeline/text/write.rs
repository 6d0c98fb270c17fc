//! Writes schedules.

use crate::pipeline::action::Step;
use crate::pipeline::schedule::Schedule;

/// The schedule, in the format of this module, with its header.
#[must_use]
pub fn write(schedule: &Schedule) -> String {
    let mut text = format!("placement {} micro_batches {}\n", schedule.placement, schedule.n_micro_batches);
    for list in &schedule.ranks {
        let line: Vec<String> = list.iter().map(Step::to_string).collect();
        text += if line.is_empty() { "-" } else { "" };
        text += &line.join(", ");
        text.push('\n');
    }
    text
}
