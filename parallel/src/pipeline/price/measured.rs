//! Prices and costs of a run that was measured.

use std::collections::BTreeMap;

use super::costs::{Costs, StageCost};
use super::run::{Timed, run_by};
use super::{Price, PriceError, of_timelines};
use crate::pipeline::action::{Kind, Step};
use crate::pipeline::check::check;
use crate::pipeline::schedule::Schedule;

impl Price {
    /// What a run took whose ranks did this, by rank, in one unit of time and from one beginning, which is 0.
    ///
    /// ```
    /// use paceline_parallel::pipeline::price::{Costs, Price, price};
    /// use paceline_parallel::pipeline::{Shape, schedule_row};
    ///
    /// let schedule = schedule_row("zb_h1").unwrap().schedule(Shape::new(2, 4))?;
    /// let priced = price(&schedule, &Costs::even(2))?;
    /// assert_eq!(Price::measured(priced.timelines.clone()), priced);
    /// assert_eq!(Costs::measured(2, &priced.timelines).stages, Costs::even(2).stages);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn measured(timelines: Vec<Vec<Timed>>) -> Price {
        of_timelines(timelines, |timed| timed.end - timed.start)
    }

    /// What a schedule would have taken in a run with these timelines, if each computation took as long as it did and what it
    /// made was on another rank `send` later.
    ///
    /// It differs from the price by [`Costs::measured`] by how unevenly computations ran, and from [`Price::measured`] by what
    /// transfers took beyond `send`.
    ///
    /// # Errors
    ///
    /// When it is no schedule, when the timelines lack a computation of it, or when a time is negative or not finite.
    pub fn replayed(schedule: &Schedule, timelines: &[Vec<Timed>], send: f64) -> Result<Price, PriceError> {
        check(schedule)?;
        let mut took = BTreeMap::new();
        for timed in timelines.iter().flatten() {
            // Of a pair, the first is given the time of both.
            let times = std::iter::once(timed.end - timed.start).chain(std::iter::repeat(0.0));
            took.extend(timed.step.actions().zip(times));
        }
        for action in schedule.ranks.iter().flatten().flat_map(|step| step.actions()) {
            match took.get(&action) {
                None => return Err(PriceError::Costs(format!("{action} is not in the timelines"))),
                Some(time) if *time >= 0.0 && time.is_finite() => {}
                Some(time) => return Err(PriceError::Costs(format!("{action} took {time}, which is no time"))),
            }
        }
        if !(send >= 0.0 && send.is_finite()) {
            return Err(PriceError::Costs(format!("a send costs {send}, which is no time")));
        }
        let cost = |step: Step| step.actions().map(|action| took[&action]).sum::<f64>();
        let timelines = run_by(schedule, send, cost).expect("what waits for nobody for ever does so at any cost");
        Ok(of_timelines(timelines, |timed| cost(timed.step)))
    }
}

impl Costs {
    /// What stages cost in a run: medians over micro-batches. Sends take no time in them, and pairs as long as their parts.
    ///
    /// What wasn't done costs 0, and so does what was done within pairs only; but a whole backward costs its two halves if
    /// those were done, and it wasn't.
    #[must_use]
    pub fn measured(n_stages: u32, timelines: &[Vec<Timed>]) -> Costs {
        let took = |stage: u32, kind: Kind| {
            let of_it = timelines.iter().flatten().filter_map(|timed| match timed.step {
                Step::One(action) if action.stage == stage && action.kind == kind => Some(timed.end - timed.start),
                _ => None,
            });
            median(of_it.collect())
        };
        let cost = |stage| {
            let [forward, backward, input, weight] = Kind::ALL.map(|kind| took(stage, kind));
            let (input, weight) = (input.unwrap_or(0.0), weight.unwrap_or(0.0));
            StageCost { forward: forward.unwrap_or(0.0), backward: backward.unwrap_or(input + weight), input, weight }
        };
        Costs { stages: (0..n_stages).map(cost).collect(), ..Costs::even(0) }
    }
}

fn median(mut times: Vec<f64>) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    let upper = *times.get(times.len() / 2)?;
    Some((times[(times.len() - 1) / 2] + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Shape, schedule_row};

    fn timed(step: &str, start: f64, end: f64) -> Timed {
        Timed { step: step.parse().expect("a step"), start, end }
    }

    #[test]
    fn idle_is_what_is_left_of_the_makespan() {
        let first = vec![timed("0F0", 0.0, 2.0), timed("0B0", 6.0, 9.0)];
        let price = Price::measured(vec![first, vec![timed("1F0", 2.5, 4.0), timed("1B0", 4.0, 6.0)]]);
        assert_eq!((price.makespan, price.ranks[0].busy, price.ranks[1].idle), (9.0, 5.0, 5.5));
        assert_eq!((price.ranks[1].span, price.bubble_of_total()), (3.5, 9.5 / 18.0));
    }

    #[test]
    fn a_replay_keeps_each_time_and_drops_other_waiting() {
        let schedule = schedule_row("gpipe").unwrap().schedule(Shape::new(2, 1)).unwrap();
        let first = vec![timed("0F0", 5.0, 7.0), timed("0B0", 20.0, 23.0)];
        let mut run = vec![first, vec![timed("1F0", 9.0, 10.5), timed("1B0", 11.0, 13.0)]];
        let price = Price::replayed(&schedule, &run, 0.25).unwrap();
        assert_eq!((price.makespan, price.ranks[0].busy, price.ranks[1].busy), (9.0, 5.0, 3.5));
        run[1].pop();
        let error = Price::replayed(&schedule, &run, 0.25).unwrap_err().to_string();
        assert_eq!(error, "1B0 is not in the timelines");
        assert!(Price::replayed(&schedule, &[], f64::NAN).is_err());
    }

    #[test]
    fn costs_are_medians() {
        let times = [1.0, 9.0, 2.0, 3.0];
        let line: Vec<Timed> = (0..).zip(times).map(|(at, time)| timed(&format!("1F{at}"), 0.0, time)).collect();
        let halves = vec![timed("1I0", 0.0, 4.0), timed("1W0", 4.0, 5.0)];
        let costs = Costs::measured(2, &[line, halves]);
        assert_eq!(costs.stages[1], StageCost { forward: 2.5, backward: 5.0, input: 4.0, weight: 1.0 });
        assert_eq!(costs.stages[0], StageCost::UNIT.times(0.0));
    }
}
