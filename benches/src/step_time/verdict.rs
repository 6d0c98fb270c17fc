//! What a step may cost, and whether it does.

use std::fmt::{self, Display, Formatter};

use super::{Case, Samples};

/// How much of communication must be hidden behind computing.
const HIDDEN: f64 = 0.85;
/// How much longer than computing, communication and a bucket a step over a link may take.
const OVER_LINK: f64 = 0.10;
/// How much longer than computing a step over shared memory may take, besides the time of a copy.
const OVER_SHM: f64 = 0.05;
/// How much longer than a step of DDP one of ZeRO-3 may take.
const OVER_DDP: f64 = 0.15;
/// How far a pipeline's bubble may be from the priced one.
const OFF_PRICE: f64 = 0.10;

/// A requirement, and what was measured of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// What is required.
    pub what: &'static str,
    /// What was measured.
    pub is: f64,
    /// What it must reach, or mustn't exceed.
    pub bound: f64,
    /// Whether it does.
    pub is_met: bool,
}

impl Verdict {
    fn at_least(what: &'static str, is: f64, bound: f64) -> Verdict {
        Verdict { what, is, bound, is_met: is >= bound }
    }

    fn at_most(what: &'static str, is: f64, bound: f64) -> Verdict {
        Verdict { what, is, bound, is_met: is <= bound }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Verdict { what, is, bound, is_met } = self;
        let met = if *is_met { "met" } else { "MISSED" };
        write!(f, "{what}: {is:.3}, bound {bound:.3}: {met}")
    }
}

/// The share of communication's time that doesn't lengthen the step.
pub(super) fn hidden(samples: &Samples) -> f64 {
    samples.within(|of| 1.0 - (of("ddp") - of("compute")) / of("communication"))
}

/// The share of a step's time that is lost to communication.
pub(super) fn lost(samples: &Samples) -> f64 {
    samples.within(|of| 1.0 - of("compute") / of("ddp"))
}

/// The share of all ranks' time in which they idle: measured, priced, and priced with each computation as long as it was.
pub(super) fn bubbles(samples: &Samples) -> [f64; 3] {
    BUBBLES.map(|times| samples.within(|of| bubble(of, times)))
}

/// What all ranks compute, and how long it takes them: measured, priced, and priced with each computation as long as it was.
const BUBBLES: [[&str; 2]; 3] =
    [["busy", "makespan"], ["priced busy", "priced makespan"], ["replayed busy", "replayed makespan"]];

fn bubble(of: &dyn Fn(&str) -> f64, [busy, makespan]: [&str; 2]) -> f64 {
    1.0 - of(busy) / of(makespan)
}

/// What a case must reach; with what PyTorch reached in the same case, also that.
#[must_use]
pub fn verdicts(case: Case, samples: &Samples, peer: Option<&Samples>) -> Vec<Verdict> {
    let mut verdicts = match case {
        Case::DdpLink => {
            let over_ideal = |of: &dyn Fn(&str) -> f64| {
                let (compute, communication) = (of("compute"), of("communication"));
                of("ddp") / (compute.max(communication) + communication / of("buckets"))
            };
            vec![
                Verdict::at_least("share of communication that is hidden", hidden(samples), HIDDEN),
                Verdict::at_most(
                    "step / (max(compute, communication) + one bucket)",
                    samples.within(over_ideal),
                    1.0 + OVER_LINK,
                ),
            ]
        }
        Case::DdpShm => {
            let over_allowed = |of: &dyn Fn(&str) -> f64| of("ddp") / ((1.0 + OVER_SHM) * of("compute") + of("copy"));
            vec![Verdict::at_most("step / (1.05 compute + one copy)", samples.within(over_allowed), 1.0)]
        }
        Case::Zero3 | Case::Zero3Link => {
            let over = |name| samples.within(|of| of(name) / of("ddp"));
            vec![
                Verdict::at_most("ZeRO-3 / DDP", over("zero3"), 1.0 + OVER_DDP),
                Verdict::at_most("ZeRO-3 that keeps values / DDP", over("zero3, values kept"), 1.0 + OVER_DDP),
            ]
        }
        Case::Pipeline => {
            let [measured, priced, replayed] = BUBBLES;
            let off = |price| (samples.within(|of| bubble(of, measured) / bubble(of, price)) - 1.0).abs();
            vec![
                Verdict::at_most("|bubble / priced bubble - 1|", off(priced), OFF_PRICE),
                Verdict::at_most("the same, priced with each computation as long as it was", off(replayed), OFF_PRICE),
            ]
        }
    };
    verdicts.extend(
        peer.map(|peer| {
            Verdict::at_most("share of the step that is lost, against PyTorch's", lost(samples), lost(peer))
        }),
    );
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step_time::samples::tests::sample;

    fn is_met(case: Case, row: &[f64]) -> Vec<bool> {
        verdicts(case, &sample(case, &[row]), None).iter().map(|verdict| verdict.is_met).collect()
    }

    fn data(ddp: f64) -> [f64; 10] {
        [200., 60., 120., 60., 5., ddp, 130., 0., 0., 10.]
    }

    #[test]
    fn each_bound_has_two_sides() {
        // 85 % of 60 hidden: 9 more than computing; 1.1 (200 + 6) = 226.6.
        assert_eq!(is_met(Case::DdpLink, &data(208.9)), [true, true]);
        assert_eq!(is_met(Case::DdpLink, &data(209.1)), [false, true]);
        assert_eq!(is_met(Case::DdpLink, &data(226.7)), [false, false]);
        assert_eq!(is_met(Case::DdpShm, &data(214.9)), [true]);
        assert_eq!(is_met(Case::DdpShm, &data(215.1)), [false]);
        assert_eq!(is_met(Case::Zero3, &[&data(200.)[..], &[229., 231.]].concat()), [true, false]);
        // Priced: a fifth. 22 % is the most, 18 % the least.
        for (busy, met) in [(78.1, true), (77.9, false), (81.9, true), (82.1, false)] {
            assert_eq!(is_met(Case::Pipeline, &[100., busy, 100., 80., 100., 80., 1.]), [met, met], "{busy}");
        }
    }

    #[test]
    fn a_peer_that_loses_less_is_a_miss() {
        let (ours, theirs) = (sample(Case::DdpShm, &[&data(210.)]), sample(Case::DdpShm, &[&data(209.)]));
        let last = |peer: &Samples| verdicts(Case::DdpShm, &ours, Some(peer)).pop().expect("a verdict");
        assert!(!last(&theirs).is_met && last(&ours).is_met);
        assert!(last(&theirs).to_string().ends_with("bound 0.043: MISSED"), "{}", last(&theirs));
    }
}
