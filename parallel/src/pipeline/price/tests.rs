//! The numbers that papers print, and formulas against runs.

use super::*;
use crate::pipeline::{Row, SCHEDULES, Shape, schedule_row};

fn priced(name: &str, shape: Shape) -> (Price, u32) {
    let schedule = schedule_row(name).unwrap().schedule(shape).unwrap();
    (price(&schedule, &Costs::even(schedule.n_stages())).unwrap(), schedule.n_stages() / shape.n_ranks)
}

fn most_idle(price: &Price) -> f64 {
    price.ranks.iter().map(|rank| rank.idle).fold(0.0, f64::max)
}

/// Percent, with so many places behind the point.
fn percent(ratio: f64, places: usize) -> String {
    format!("{:.places$}", 100.0 * ratio)
}

#[test]
fn gpipe_and_1f1b_take_m_plus_p_less_1_times_3() {
    for (name, p, m, makespan, total, ideal, in_flight) in [
        ("gpipe", 8, 32, 117.0, "17.95", "21.875", 32),
        ("gpipe", 16, 64, 237.0, "18.99", "23.438", 64),
        ("one_f_one_b", 8, 32, 117.0, "17.95", "21.875", 8),
        ("one_f_one_b", 16, 64, 237.0, "18.99", "23.438", 16),
    ] {
        let (price, _) = priced(name, Shape::new(p, m));
        assert_eq!(price.makespan, makespan, "{name} {p} {m}");
        assert_eq!(percent(price.bubble_of_total(), 2), total, "{name} {p} {m}");
        assert_eq!(percent(price.bubble_of_ideal(), 3), ideal, "{name} {p} {m}");
        assert_eq!(price.ranks[0].in_flight, in_flight, "{name} {p} {m}");
    }
    let (price, _) = priced("one_f_one_b", Shape::new(8, 5));
    assert_eq!(price.ranks.iter().map(|rank| rank.in_flight).collect::<Vec<_>>(), [5, 5, 5, 5, 4, 3, 2, 1]);
}

#[test]
fn interleaving_divides_the_bubble() {
    for (p, m, v, makespan, ideal, total, in_flight) in [
        (8, 32, 2, 106.5, "10.94", "9.86", 11.5),
        (16, 64, 2, 214.5, "11.72", "10.49", 23.5),
        (8, 32, 4, 101.25, "5.47", "5.19", 9.75),
        (16, 64, 4, 203.25, "5.86", "5.54", 19.75),
    ] {
        let (price, n_chunks) = priced("interleaved", Shape::new(p, m).chunks(v));
        let v = f64::from(v);
        assert_eq!((price.makespan / v, f64::from(n_chunks)), (makespan, v), "{p} {m}");
        assert_eq!(percent(price.bubble_of_ideal(), 2), ideal, "{p} {m} {v}");
        assert_eq!(percent(price.bubble_of_total(), 2), total, "{p} {m} {v}");
        assert_eq!(f64::from(price.ranks[0].in_flight) / v, in_flight, "{p} {m} {v}");
    }
}

#[test]
fn zero_bubbles_are_as_small_as_the_paper_says() {
    for (p, m, makespan, total) in [(8, 32, 103.0, "6.80"), (16, 64, 207.0, "7.25")] {
        let (price, _) = priced("zb_h1", Shape::new(p, m));
        assert_eq!((price.makespan, percent(price.bubble_of_total(), 2).as_str()), (makespan, total));
        assert!(price.ranks.iter().all(|rank| rank.in_flight == p), "p = {p}: F - W = p on every rank");
        let (plain, _) = priced("one_f_one_b", Shape::new(p, m));
        assert_eq!(3.0 * price.ranks[0].idle, plain.ranks[0].idle);

        let (price, _) = priced("zb_h2", Shape::new(p, m));
        let span = f64::from(3 * m);
        assert!(price.ranks.iter().all(|rank| (rank.span, rank.busy, rank.in_flight) == (span, span, 2 * p - 1)));
        assert_eq!(price.makespan, f64::from(3 * m + p - 1));

        // Two stages of half the size on each rank: spans are of 6m halves, and 2p halves are as many as 1F1B's p.
        let (price, n_chunks) = priced("zbv", Shape::new(p, m));
        let span = f64::from(6 * m);
        assert!(price.ranks.iter().all(|rank| (rank.span, rank.busy) == (span, span)), "p = {p}");
        assert_eq!((price.ranks[0].in_flight, n_chunks), (2 * p, 2));
        assert_eq!(price.makespan, f64::from(6 * m + p - 1));
    }
}

#[test]
fn no_rank_idles_between_its_first_action_and_its_last() {
    for name in ["zb_h2", "zbv"] {
        for (p, m) in (1..=8).flat_map(|p| (2 * p - 1..=32).map(move |m| (p, m))) {
            let (price, _) = priced(name, Shape::new(p, m));
            assert!(price.ranks.iter().all(|rank| rank.span == rank.busy), "{name} {p} {m}");
        }
    }
}

#[test]
fn dual_pipe_idles_as_deepseek_says() {
    for (p, m, pair, bubble) in [
        (8, 32, 3.0, 6.0),
        (8, 32, 2.5, 4.5),
        (8, 32, 2.0, 3.0),
        (16, 64, 3.0, 14.0),
        (16, 64, 2.5, 10.5),
        (16, 64, 2.0, 7.0),
    ] {
        let costs = |n_stages| Costs { overlap: Overlap::Time(pair), ..Costs::even(n_stages) };
        // The two ranks where the directions meet have the most pairs and idle longest; others make up for it by being
        // busy.
        let schedule = schedule_row("dual_pipe").unwrap().schedule(Shape::new(p, m)).unwrap();
        let price_of = price(&schedule, &costs(schedule.n_stages())).unwrap();
        assert_eq!(most_idle(&price_of), bubble, "p = {p}, pair = {pair}");
        assert_eq!(price_of.ranks[p as usize / 2].idle, bubble);
        assert_eq!(price_of.ranks[0].in_flight, p + 1);
        assert_eq!(schedule.stages_of(0), [0, p - 1], "twice the parameters");

        // DualPipeV on half of the ranks has as many stages, and the same bubble.
        let schedule = schedule_row("dual_pipe_v").unwrap().schedule(Shape::new(p / 2, m)).unwrap();
        let price_of = price(&schedule, &costs(schedule.n_stages())).unwrap();
        assert_eq!(most_idle(&price_of), bubble, "V, p = {p}, pair = {pair}");
        assert_eq!(price_of.ranks[0].in_flight, p + 1);
    }
}

/// DualPipe's table writes ZB1P as (p-1)(F + B - 2W) with the whole backward, the paper (p-1)(F + I - W).
#[test]
fn both_ways_to_write_the_bubble_of_zb_h1_are_one_number() {
    let (price, _) = priced("zb_h1", Shape::new(8, 32));
    let StageCost { forward, backward, input, weight } = StageCost::UNIT;
    assert_eq!(price.ranks[0].idle, 7.0 * (forward + backward - 2.0 * weight));
    assert_eq!(price.ranks[0].idle, 7.0 * (forward + input - weight));
}

#[test]
fn a_bubble_of_a_tenth_needs_nine_micro_batches_a_rank() {
    for p in 2..=8 {
        let bubble = |m| priced("one_f_one_b", Shape::new(p, m)).0.bubble_of_total();
        let enough = 9 * (p - 1);
        assert!(bubble(enough) <= 0.1 + 1e-12 && bubble(enough - 1) > 0.1, "p = {p}");
    }
}

/// Every shape of the tests that fits the row.
pub(super) fn shapes(row: &Row) -> Vec<Shape> {
    let ranks = (1..=8).chain([16]);
    let all =
        ranks.flat_map(|p| (1..=32).chain([64]).flat_map(move |m| (1..=4).map(move |v| Shape::new(p, m).chunks(v))));
    let grouped = [(3, 7, 4), (4, 10, 5), (8, 12, 12), (2, 9, 3)].map(|(p, m, g)| Shape::new(p, m).chunks(2).group(g));
    all.chain(grouped).filter(|&shape| row.check_shape(shape).is_ok()).collect()
}

#[test]
fn formulas_are_what_runs_take() {
    let mut wrong = Vec::new();
    for row in &SCHEDULES {
        let (mut n_shapes, mut n_exact) = (0, 0);
        for shape in shapes(row) {
            let schedule = row.schedule(shape).unwrap();
            let per_rank = f64::from(schedule.stages_of(0).len() as u32);
            let cost = |forward, input, weight| StageCost { forward, backward: input + weight, input, weight };
            for (unit, overlap, pair) in [
                (StageCost::UNIT, Overlap::Sum, 3.0),
                (StageCost::UNIT.times(4.0), Overlap::Time(10.0), 10.0),
                (cost(3.0, 3.0, 2.0), Overlap::Sum, 8.0),
                (cost(4.0, 5.0, 2.0), Overlap::Longer, 7.0),
                (cost(4.0, 3.0, 3.0), Overlap::Time(8.0), 8.0),
            ] {
                let costs = Costs { overlap, ..Costs::even(schedule.n_stages()).each(unit) };
                let price = price(&schedule, &costs).unwrap();
                for (rank, taken) in (0..).zip(&price.ranks) {
                    assert_eq!(taken.in_flight, (row.in_flight)(shape, rank), "{} {shape:?} rank {rank}", row.name);
                }
                n_shapes += 1;
                if let Some(bubble) = (row.bubble)(shape, &unit, pair) {
                    n_exact += 1;
                    if most_idle(&price) != bubble {
                        let idle = most_idle(&price);
                        wrong.push(format!("{} {shape:?} {unit:?} {overlap:?}: {idle}, not {bubble}", row.name));
                    }
                }
                let plain = f64::from(shape.n_micro_batches) * per_rank * (unit.forward + unit.backward);
                let is_paired = row.name.starts_with("dual");
                let of_two = if row.name == "dual_pipe" { 2.0 } else { 1.0 };
                assert!(is_paired || price.ranks.iter().all(|rank| rank.busy == plain / of_two), "{}", row.name);
            }
        }
        assert!(n_exact * 3 > n_shapes, "{}: exact in {n_exact} of {n_shapes}", row.name);
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn sends_and_stages_cost_what_is_said() {
    let schedule = schedule_row("gpipe").unwrap().schedule(Shape::new(2, 1)).unwrap();
    let slow = StageCost { forward: 10.0, backward: 20.0, input: 0.0, weight: 0.0 };
    let costs = Costs { stages: vec![StageCost::UNIT, slow], send: 0.5, overlap: Overlap::Sum };
    let price_of = price(&schedule, &costs).unwrap();
    assert_eq!(price_of.makespan, 1.0 + 0.5 + 10.0 + 20.0 + 0.5 + 2.0);
    assert_eq!(price_of.timelines[1][0].start, 1.5);
    let RankPrice { busy, idle, span, in_flight } = price_of.ranks[1];
    assert_eq!((busy, idle, span, in_flight), (30.0, 4.0, 30.0, 1));
    assert_eq!(price_of.bubble_of_total(), (4.0 + 31.0) / 68.0);
    assert_eq!(price_of.bubble_of_ideal(), 35.0 / 33.0);

    let fault = |costs: &Costs| price(&schedule, costs).unwrap_err().to_string();
    assert_eq!(fault(&Costs::even(3)), "there are costs for 3 stages, but the schedule has 2");
    assert_eq!(fault(&Costs { send: -1.0, ..Costs::even(2) }), "a send costs -1, which is no time");
    let nan = StageCost { input: f64::NAN, ..StageCost::UNIT };
    assert_eq!(fault(&Costs::even(2).each(nan)), "stage 0: Input costs NaN, which is no time");
    let overlap = Overlap::Time(f64::INFINITY);
    assert_eq!(fault(&Costs { overlap, ..Costs::even(2) }), "a pair costs inf, which is no time");
}

#[test]
fn a_send_on_one_rank_takes_no_time() {
    let schedule = schedule_row("zbv").unwrap().schedule(Shape::new(1, 1)).unwrap();
    let costs = Costs { send: 100.0, ..Costs::even(2) };
    assert_eq!(price(&schedule, &costs).unwrap().makespan, 6.0);
}

/// What may be done soonest, backwards first: near the hand-made order, and never better.
#[test]
fn greedy_is_no_better_than_zb_h1() {
    for (p, m, by_hand, greedy) in [(8, 32, 103.0, 105.0), (16, 64, 207.0, 213.0)] {
        assert_eq!(priced("zb_h1", Shape::new(p, m)).0.makespan, by_hand);
        assert_eq!(greedy_makespan(p as usize, m as usize), greedy, "p = {p}");
    }
}

/// Unit times: each rank does the first it can of input's gradient, forward (below p activations), weights' gradient.
fn greedy_makespan(p: usize, m: usize) -> f64 {
    let (mut forward, mut input, mut weight) = (vec![0; p], vec![0; p], vec![0; p]);
    let mut time = 0;
    while weight.iter().any(|&done| done < m) {
        let (f, i) = (forward.clone(), input.clone());
        for r in 0..p {
            if i[r] < f[r] && (r + 1 == p || i[r] < i[r + 1]) {
                input[r] += 1;
            } else if f[r] < m && (r == 0 || f[r] < f[r - 1]) && f[r] - weight[r] < p {
                forward[r] += 1;
            } else if weight[r] < input[r] {
                weight[r] += 1;
            }
        }
        time += 1;
        assert!(time < 10 * (m + p), "stuck");
    }
    f64::from(time as u32)
}
