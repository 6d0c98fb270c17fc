//! Which cases run: a sample that misses no interesting pair, or all of them.

use std::collections::BTreeSet;

use paceline_comm::algorithm::{ROWS, Row};
use paceline_comm::{Collective, DataType, ReduceOp};
use paceline_tests::case::Case;
use paceline_tests::exact::OPERATORS;
use paceline_tests::world::Wire;
use paceline_tests::{Random, mix};

/// The most ranks.
pub const RANKS_MAX: usize = 9;

/// Lengths around those of ranks, vectors, cache lines and inline frames; few are even.
const COUNTS: [usize; 20] = [0, 1, 2, 3, 5, 7, 8, 9, 17, 23, 25, 63, 64, 65, 127, 257, 511, 1000, 1023, 4099];

/// Those of them that the product uses.
const COUNTS_FULL: [usize; 10] = [0, 1, 2, 3, 7, 25, 64, 65, 257, 1023];

/// A case and the links it runs on.
pub type Placed = (Wire, Case);

/// The operators that a row can be asked for.
pub fn operators(row: &Row) -> &'static [ReduceOp] {
    if row.collective.reduces() { &OPERATORS } else { &OPERATORS[..1] }
}

/// The types that a row can be asked for.
pub fn data_types(row: &Row) -> &'static [DataType] {
    if row.collective == Collective::Barrier { &DataType::ALL[..1] } else { &DataType::ALL }
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

struct Draw {
    random: Random,
    wires: Vec<Wire>,
    cases: Vec<Placed>,
}

impl Draw {
    fn case(&mut self, row: &'static Row) -> Case {
        let random = &mut self.random;
        let ranks = 1 + random.below(RANKS_MAX as u64) as usize;
        Case {
            row,
            ranks,
            data_type: pick(random, data_types(row)),
            op: pick(random, operators(row)),
            count: if row.collective == Collective::Barrier { 0 } else { pick(random, &COUNTS) },
            root: random.below(ranks as u64) as usize,
            in_place: random.chance(500),
            uneven: Case::may_be_uneven(row) && random.chance(300),
            seed: random.next() >> 32,
        }
    }

    fn push(&mut self, wire: Wire, mut case: Case) {
        if !(case.row.fits)(case.ranks as u32) {
            return;
        }
        case.root %= case.ranks;
        self.cases.push((wire, fit(wire, case)));
    }

    fn wire(&mut self) -> Wire {
        pick(&mut self.random, &self.wires)
    }
}

/// The case as it can be run on such links.
fn fit(wire: Wire, case: Case) -> Case {
    use Collective::{AllReduce, Broadcast, Reduce};
    // Simulated ranks can't wait in calls, and started ones own their buffers.
    match wire {
        Wire::Sim => {
            Case { in_place: matches!(case.row.collective, AllReduce | Reduce | Broadcast), uneven: false, ..case }
        }
        _ => case,
    }
}

/// The sample.
pub fn sample(seed: u64) -> Vec<Placed> {
    let wires = Wire::all();
    let mut draw = Draw { random: Random::new(mix(seed)), wires: Wire::all(), cases: Vec::new() };
    for row in ROWS {
        for ranks in 1..=RANKS_MAX {
            // Turn by turn, so that every row meets every link at several numbers of ranks.
            let wire = wires[(ranks + seed as usize) % wires.len()];
            let case = draw.case(row);
            draw.push(wire, Case { ranks, ..case });
            let case = draw.case(row);
            draw.push(wires[0], Case { ranks, uneven: Case::may_be_uneven(row), ..case });
        }
        for data_type in data_types(row) {
            for op in operators(row) {
                let (wire, case) = (draw.wire(), draw.case(row));
                let count = case.count + usize::from(case.row.collective != Collective::Barrier);
                draw.push(wire, Case { data_type: *data_type, op: *op, count, ..case });
            }
        }
        for root in (0..5).filter(|_| row.collective.has_root()) {
            for ranks in root + 1..=5 {
                let (wire, case) = (draw.wire(), draw.case(row));
                draw.push(wire, Case { ranks, root, ..case });
            }
        }
        for wire in Wire::all() {
            for least in [2, 4] {
                let case = draw.case(row);
                draw.push(wire, Case { ranks: least + case.ranks % 3, ..sliced(wire, case) });
            }
        }
    }
    draw.cases
}

/// Numbers of ranks of the few.
const RANKS_FEW: [usize; 4] = [2, 3, 4, 8];

/// So few that slow machines run them: every row at the number of ranks that have it, and in several slices.
pub fn few(seed: u64) -> Vec<Placed> {
    let wires = Wire::all();
    let mut draw = Draw { random: Random::new(mix(seed)), wires: Wire::all(), cases: Vec::new() };
    for (turn, row) in ROWS.iter().enumerate() {
        for (more, ranks) in RANKS_FEW.into_iter().enumerate() {
            let case = draw.case(row);
            draw.push(wires[(turn + more) % wires.len()], Case { ranks, ..case });
        }
        let (wire, case) = (wires[turn % wires.len()], draw.case(row));
        draw.push(wire, Case { ranks: 2 + turn % 3, ..sliced(wire, case) });
    }
    draw.cases
}

/// The same case with so many elements that they are moved in several slices.
fn sliced(wire: Wire, case: Case) -> Case {
    if case.row.collective == Collective::Barrier {
        return case;
    }
    let chunk_bytes = if matches!(wire, Wire::Inproc | Wire::Shm) { 256 << 10 } else { 1 << 20 };
    let chunks = if case.row.collective.has_blocks() {
        1
    } else {
        (case.row.chunks)(&paceline_comm::schedule::Groups::assumed(2)).max(2) as usize
    };
    // Cases at random lengths have narrow types; here they would only take longer to draw.
    let data_type = if case.data_type.is_float() { DataType::F64 } else { DataType::U64 };
    let chunks = chunks.min(8);
    Case { data_type, count: chunk_bytes * chunks / 8 * 5 / 4 + 3, ..case }
}

/// Every row, type, operator, length, number of ranks and kind of link. The rest is drawn.
pub fn product(seed: u64) -> Vec<Placed> {
    let mut draw = Draw { random: Random::new(mix(seed)), wires: Wire::all(), cases: Vec::new() };
    for row in ROWS {
        for wire in Wire::all() {
            for ranks in 1..=RANKS_MAX {
                for data_type in data_types(row) {
                    for op in operators(row) {
                        let counts =
                            if row.collective == Collective::Barrier { &COUNTS_FULL[..1] } else { &COUNTS_FULL };
                        for count in counts {
                            let case = draw.case(row);
                            draw.push(wire, Case { ranks, data_type: *data_type, op: *op, count: *count, ..case });
                        }
                    }
                }
            }
        }
    }
    draw.cases
}

#[test]
fn the_sample_misses_nothing_that_it_promises() {
    let cases = sample(paceline_tests::seed());
    for row in ROWS {
        let mine: Vec<&Placed> = cases.iter().filter(|(_, case)| std::ptr::eq(case.row, row)).collect();
        let ranks: BTreeSet<usize> = mine.iter().map(|(_, case)| case.ranks).collect();
        let fitting: BTreeSet<usize> = (1..=RANKS_MAX).filter(|ranks| (row.fits)(*ranks as u32)).collect();
        assert_eq!(ranks, fitting, "{} {}", row.collective, row.name);
        let wires: BTreeSet<Wire> = mine.iter().map(|(wire, _)| *wire).collect();
        assert_eq!(wires.len(), Wire::all().len(), "{} {}", row.collective, row.name);
        let reduced: BTreeSet<(DataType, ReduceOp)> = mine.iter().map(|(_, case)| (case.data_type, case.op)).collect();
        let all = data_types(row).len() * operators(row).len();
        assert_eq!(reduced.len(), all, "{} {}", row.collective, row.name);
        if row.collective.has_root() {
            let roots: BTreeSet<_> = mine.iter().map(|(_, case)| (case.ranks, case.root)).collect();
            for ranks in 1..=5 {
                assert!((0..ranks).all(|root| roots.contains(&(ranks, root))), "{} {}", row.collective, row.name);
            }
        }
        let both: BTreeSet<bool> = mine.iter().map(|(_, case)| case.in_place).collect();
        assert_eq!(both.len(), 2, "{} {}", row.collective, row.name);
        let uneven = mine.iter().filter(|(_, case)| case.uneven).count();
        assert!((uneven >= RANKS_MAX) == Case::may_be_uneven(row), "{} {}: {uneven} uneven", row.collective, row.name);
    }
}

#[test]
fn the_few_hold_every_row() {
    let cases = few(paceline_tests::seed());
    for row in ROWS {
        let mine = cases.iter().filter(|(_, case)| std::ptr::eq(case.row, row));
        let ranks: BTreeSet<usize> = mine.map(|(_, case)| case.ranks).collect();
        let mut fitting = RANKS_FEW.into_iter().filter(|ranks| (row.fits)(*ranks as u32));
        assert!(fitting.all(|size| ranks.contains(&size)), "{} {}: {ranks:?}", row.collective, row.name);
    }
}
