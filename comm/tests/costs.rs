//! What the rows say they cost, against a clock over their programs.

use paceline_comm::algorithm::ROWS;
use paceline_comm::schedule::cost::{Costs, Load, clock};

const COSTS: [(&str, Costs); 5] = [
    ("latency", Costs { latency_s: 1.0, message_s: 0.0, byte_s: 0.0, fold_byte_s: 0.0, copy_byte_s: 0.0 }),
    ("messages", Costs { latency_s: 0.0, message_s: 1.0, byte_s: 0.0, fold_byte_s: 0.0, copy_byte_s: 0.0 }),
    ("bytes", Costs { latency_s: 0.0, message_s: 0.0, byte_s: 1.0, fold_byte_s: 0.0, copy_byte_s: 0.0 }),
    ("folds", Costs { latency_s: 0.0, message_s: 0.0, byte_s: 0.0, fold_byte_s: 1.0, copy_byte_s: 0.0 }),
    ("all", Costs { latency_s: 5e-6, message_s: 5e-7, byte_s: 1e-10, fold_byte_s: 5e-11, copy_byte_s: 5e-11 }),
];

#[test]
fn explore() {
    for row in ROWS {
        for (name, costs) in COSTS {
            let mut line = String::new();
            for n in [2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 31, 32, 33, 64] {
                let bytes = match name {
                    _ if row.collective == paceline_comm::collective::Collective::Barrier => 0,
                    "all" => 1 << 16,
                    _ => 1,
                };
                let got = clock(&row.programs(n, 0), bytes, &costs).unwrap().seconds;
                let want = row.price(n, bytes, &costs);
                if (got - want).abs() <= 1e-9 * got.max(want) {
                    line += "    = ";
                    continue;
                }
                line += &format!(" {:.3}", want / got);
            }
            if line.contains('.') {
                println!("{:14} {:18} {name:8} {line}", row.collective, row.name);
            }
        }
        let mut line = String::new();
        for n in [2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 31, 32, 33, 64] {
            let got = clock(&row.programs(n, 0), 1, &COSTS[0].1).unwrap().loads;
            let most = |of: fn(&Load) -> f64| got.iter().map(of).fold(0.0, f64::max);
            let got = [most(|l| l.messages), most(|l| l.sent), most(|l| l.folded), most(|l| l.copied)];
            let b = row.work(n).busiest;
            let want = [b.messages, b.sent, b.folded, b.copied];
            if got.iter().zip(&want).any(|(a, b)| (a - b).abs() > 1e-9) {
                line += &format!(" {n}: {got:.2?} {want:.2?}");
            }
        }
        if !line.is_empty() {
            println!("{:14} {:18} busiest {line}", row.collective, row.name);
        }
    }
}
