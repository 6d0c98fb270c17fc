//! Writing one rank's program: what a first call of a kind costs before anything moves.
//!
//! Of the rows, those around a ring at 16,384 ranks, and those whose messages grow with the logarithm of the number of
//! ranks at 131,072: of the latter, Bruck's all-to-all packs about half of the blocks in each round, copy by copy.

#![allow(missing_docs, reason = "what the macros of criterion make has none")]
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use paceline_comm::algorithm::{ROWS, Row};

const RING_RANKS: u32 = 16_384;
const LOGARITHMIC_RANKS: u32 = 131_072;

fn write(criterion: &mut Criterion, what: &str, size: u32, rows: impl Fn(&Row) -> bool) {
    let mut group = criterion.benchmark_group(format!("program/{what}, {size} ranks"));
    for row in ROWS.iter().filter(|row| (row.fits)(size) && rows(row)) {
        // The root of a tree has the most to write, another rank of everything else.
        for (place, me) in [("root", 0), ("inside", size / 3)] {
            if place == "root" && !row.collective.has_root() {
                continue;
            }
            let name = format!("{} {} {place}", row.collective, row.name);
            group.bench_function(BenchmarkId::from_parameter(name), |b| b.iter(|| row.program(me, size, 0)));
        }
    }
    group.finish();
}

fn ring(criterion: &mut Criterion) {
    write(criterion, "ring", RING_RANKS, |row| row.name == "ring");
}

fn logarithmic(criterion: &mut Criterion) {
    let most = 4.0 * f64::from(LOGARITHMIC_RANKS.ilog2());
    write(criterion, "logarithmic", LOGARITHMIC_RANKS, |row| {
        row.name != "ring" && row.work(LOGARITHMIC_RANKS).path.messages <= most
    });
}

criterion_group!(benches, ring, logarithmic);
criterion_main!(benches);
