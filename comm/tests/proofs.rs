//! Every row is proved: for every number of ranks from 1 to 64, in every mode that it declares.

use paceline_comm::algorithm::{ROWS, Row, row};
use paceline_comm::collective::Collective;
use paceline_comm::schedule::check::{Mode, prove};
use paceline_comm::schedule::{Groups, Program};
use paceline_comm::topology::{Layout, Spot};

/// All roots for few ranks; for many, those next to the ends, in the middle, and one that is nothing in particular.
fn roots(has_root: bool, n: u32) -> Vec<u32> {
    let mut roots = match n {
        _ if !has_root => vec![0],
        0..=9 => (0..n).collect(),
        _ => vec![0, 1, n / 2, n / 3 + 1, n - 1],
    };
    roots.sort_unstable();
    roots.dedup();
    roots
}

fn prove_all(sizes: impl Iterator<Item = u32> + Clone) {
    let mut failures = Vec::new();
    for row in ROWS {
        for n in sizes.clone().filter(|n| (row.fits)(*n)) {
            for root in roots(row.collective.has_root(), n) {
                if let Err((mode, error)) = row.prove(n, root) {
                    failures.push(format!("{} {}, n = {n}, root {root}, {mode:?}: {error}", row.collective, row.name));
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} proofs fail, the first:\n{}",
        failures.len(),
        failures[..failures.len().min(20)].join("\n")
    );
}

#[test]
fn every_row_for_1_to_64_ranks() {
    prove_all(1..=64);
}

#[test]
fn every_row_for_some_larger_numbers_of_ranks() {
    prove_all([65, 96, 100, 127, 128, 129].into_iter());
}

fn prove_in_levels(groups: &Groups) {
    for row in ROWS.iter().filter(|row| row.in_levels) {
        for root in roots(row.collective.has_root(), groups.size()) {
            let proof = row.prove_in(groups, root);
            assert!(proof.is_ok(), "{} {}, root {root}, {groups:?}: {proof:?}", row.collective, row.name);
        }
    }
}

#[test]
fn levels_of_every_group_size() {
    for n in 1..=36 {
        for group in (1..=n).filter(|group| n % group == 0) {
            prove_in_levels(&Groups::even(n, group));
        }
    }
}

#[test]
fn levels_of_groups_of_different_sizes() {
    let few = |sizes: &[u32]| prove_in_levels(&Groups::of_sizes(sizes));
    for sizes in [&[7, 8][..], &[1, 3], &[3, 1], &[13], &[15, 2], &[4, 4, 5], &[8, 8, 3], &[1, 1, 5], &[2, 7, 4, 6]] {
        few(sizes);
    }
    let random = &mut Numbers(7);
    for n in (2..=21).chain([32, 48]) {
        for _ in 0..3 {
            prove_in_levels(&groups(random, n));
        }
    }
}

#[test]
fn ranks_dealt_out_to_hosts_in_any_order() {
    let random = &mut Numbers(11);
    for n in (2..=13).chain([15, 17, 19, 21]) {
        for hosts in [2, 3, 5] {
            let spot = |host, domain| Spot { host, domain, adapter: 0 };
            let spots: Vec<Spot> = (0..n).map(|_| spot(random.below(hosts), random.below(2) as u16)).collect();
            let layout = Layout::of(&spots);
            for row in ROWS.iter().filter(|row| (row.fits)(n)) {
                for root in roots(row.collective.has_root(), n) {
                    let programs: Vec<_> = (0..n).map(|me| layout.program(row, me, root)).collect();
                    for in_place in [false, row.in_place] {
                        let mode = Mode { in_place, uneven: row.uneven };
                        let proof = prove(row.collective, &programs, mode);
                        assert!(proof.is_ok(), "{} {}, root {root}, {spots:?}: {proof:?}", row.collective, row.name);
                    }
                }
            }
        }
    }
}

/// Groups of random sizes, within larger ones or not.
fn groups(random: &mut Numbers, n: u32) -> Groups {
    let mut cut = |n: u32, most: u32| {
        let mut sizes = Vec::new();
        while sizes.iter().sum::<u32>() < n {
            sizes.push((1 + random.below(most)).min(n - sizes.iter().sum::<u32>()));
        }
        sizes
    };
    let (most, is_nested) = (1 + n / 2, n.is_multiple_of(2));
    let inner = cut(n, most);
    let groups = Groups::of_sizes(&inner);
    if !is_nested {
        return groups;
    }
    let mut rest = &inner[..];
    let outer = cut(inner.len() as u32, 3).into_iter().map(|n| {
        let (these, others) = rest.split_at(n as usize);
        rest = others;
        these.iter().sum()
    });
    groups.around(&outer.collect::<Vec<u32>>())
}

/// Numbers that look random (Knuth's linear congruence).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(n)) as u32
    }
}

#[test]
fn a_ring_of_256_is_proved_in_seconds() {
    let ring = row(Collective::AllReduce, "ring").expect("there is a ring");
    let start = std::time::Instant::now();
    let proof = ring.prove(256, 0).expect("the ring is right");
    assert_eq!((proof.n_rounds, proof.n_messages), (510, 256 * 510));
    println!("a ring of 256, out of place and in place: {:?}", start.elapsed());
    assert!(start.elapsed().as_secs() < 30, "took {:?}", start.elapsed());
}

/// Whether a row's programs have a number of steps that grows with the logarithm of the number of ranks.
fn is_logarithmic(row: &Row) -> bool {
    const LOGARITHMIC: [&str; 7] =
        ["recursive_doubling", "halving_doubling", "circulant", "double_tree", "binomial", "bruck", "dissemination"];
    LOGARITHMIC.contains(&row.name) && !(row.name == "bruck" && row.collective == Collective::AllToAll)
}

#[test]
fn one_rank_writes_its_program_without_looking_at_the_others() {
    let least_of = |write: &dyn Fn() -> usize| {
        let time = |_| {
            let start = std::time::Instant::now();
            let n_steps = write();
            (start.elapsed(), n_steps)
        };
        (0..5).map(time).min().expect("five tries")
    };
    let n_steps = |program: &Program| program.rounds().map(<[_]>::len).sum::<usize>();
    for row in ROWS {
        let (n, most) = if is_logarithmic(row) { (131_072 - 3, 150) } else { (16_384, 9 * 16_384) };
        for me in [0, n / 3, n - 1].into_iter().filter(|_| !(row.name == "bruck" && n == 16_384)) {
            let (took, n_steps) = least_of(&|| n_steps(&row.program(me, n, 0)));
            println!("{} {}, n = {n}, rank {me}: {n_steps} steps, {took:?}", row.collective, row.name);
            assert!(n_steps <= most, "{} {}, n = {n}, rank {me}: {n_steps} steps", row.collective, row.name);
            assert!(took.as_millis() < 50, "{} {}, n = {n}, rank {me}: took {took:?}", row.collective, row.name);
        }
    }
}
