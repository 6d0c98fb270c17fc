//! The claim that the data rests on: whatever the order and the grouping, the result has exactly the expected bits.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use paceline_comm::{DataType, ReduceOp};

use super::format::{Family, Format};
use super::{Data, compare, hash};
use crate::perf::names::{OPERATORS, Operator, TYPES};

const COUNT: usize = 96;

fn elements(bytes: &[u8], width: usize) -> Vec<u64> {
    bytes.chunks(width).map(|e| e.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))).collect()
}

fn value(data_type: DataType, bits: u64) -> f64 {
    match data_type {
        DataType::F16 => f16::from_bits(bits as u16).to_f64(),
        DataType::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        DataType::F32 => f32::from_bits(bits as u32).into(),
        DataType::F64 => f64::from_bits(bits),
        DataType::F8E4M3 => F8E4M3::from_bits(bits as u8).to_f32().into(),
        DataType::F8E5M2 => F8E5M2::from_bits(bits as u8).to_f32().into(),
        other => panic!("{other:?} is no float"),
    }
}

fn signed(format: Format, bits: u64) -> i128 {
    match format.family {
        Family::Integer { signed: true } if bits & format.sign() != 0 => {
            i128::from(bits) - (1i128 << (8 * format.bytes))
        }
        _ => i128::from(bits),
    }
}

/// One combination in the type itself, rounded at once: the least exact way there is.
fn combine(data_type: DataType, operator: Operator, left: u64, right: u64) -> u64 {
    let format = Format::of(data_type);
    let Family::Float(float) = format.family else {
        return format.mask()
            & match operator {
                Operator::Sum | Operator::Avg | Operator::MulSum => left.wrapping_add(right),
                Operator::Prod => left.wrapping_mul(right),
                Operator::Max if signed(format, left) < signed(format, right) => right,
                Operator::Min if signed(format, left) > signed(format, right) => right,
                Operator::Max | Operator::Min => left,
            };
    };
    let (a, b) = (value(data_type, left), value(data_type, right));
    match operator {
        Operator::Sum | Operator::Avg | Operator::MulSum => (float.encode)(a + b),
        Operator::Prod => (float.encode)(a * b),
        Operator::Max => (float.encode)(a.max(b)),
        Operator::Min => (float.encode)(a.min(b)),
    }
}

fn multiply(data_type: DataType, element: u64, factor: u64) -> u64 {
    match Format::of(data_type).family {
        Family::Integer { .. } => element.wrapping_mul(factor) & Format::of(data_type).mask(),
        Family::Float(float) => (float.encode)(value(data_type, element) * value(data_type, factor)),
    }
}

fn divide(data_type: DataType, sum: u64, n: usize) -> u64 {
    let format = Format::of(data_type);
    match format.family {
        Family::Integer { .. } => (signed(format, sum) / n as i128) as u64 & format.mask(),
        Family::Float(float) => (float.encode)(value(data_type, sum) / n as f64),
    }
}

/// Combines in a random tree over a random order.
fn fold(data_type: DataType, operator: Operator, mut parts: Vec<u64>, seed: u64) -> u64 {
    let mut draw = 0;
    while parts.len() > 1 {
        draw += 1;
        let left = parts.swap_remove(hash::of(seed, draw, 0) as usize % parts.len());
        let at = hash::of(seed, draw, 1) as usize % parts.len();
        parts[at] = combine(data_type, operator, left, parts[at]);
    }
    parts[0]
}

fn check(data_type: DataType, operator: Operator, n: usize, seed: u64) {
    let data = Data::new(data_type, Some(operator), n, seed);
    let width = data.element();
    let first = 1000 * n;
    let inputs: Vec<Vec<u64>> = (0..n)
        .map(|rank| {
            let mut bytes = vec![0; COUNT * width];
            data.input(rank, first, &mut bytes);
            let input = elements(&bytes, width);
            match data.reduce_op(rank) {
                ReduceOp::PreMulSum(factor) => input.into_iter().map(|e| multiply(data_type, e, factor)).collect(),
                _ => input,
            }
        })
        .collect();
    let mut want = vec![0; COUNT * width];
    data.result(first, &mut want);
    for order in 0..3 {
        let mut got = Vec::new();
        for index in 0..COUNT {
            let parts = inputs.iter().map(|input| input[index]).collect();
            let folded = fold(data_type, operator, parts, hash::of(seed, index as u64, 99 + order));
            let folded = if operator == Operator::Avg { divide(data_type, folded, n) } else { folded };
            got.extend_from_slice(&folded.to_le_bytes()[..width]);
        }
        let mismatch = compare(&got, &want, width, data.tolerance());
        assert_eq!(mismatch.wrong, 0, "{data_type:?} {operator:?} n = {n} seed {seed}: {:x?}", mismatch.first);
    }
}

#[test]
fn every_type_and_operator_is_exact_in_any_order() {
    for row in TYPES {
        for (_, operator) in OPERATORS {
            for n in [1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 63, 64] {
                check(row.data_type, operator, n, hash::of(7, n as u64, 0));
            }
        }
    }
}

#[test]
fn inputs_are_worth_checking() {
    for row in TYPES {
        for (name, operator) in OPERATORS {
            let data = Data::new(row.data_type, Some(operator), 4, 11);
            let mut inputs = vec![vec![0; 256 * row.bytes]; 4];
            let mut result = vec![0; 256 * row.bytes];
            inputs.iter_mut().enumerate().for_each(|(rank, input)| data.input(rank, 0, input));
            data.result(0, &mut result);
            let differ = |a: &[u8], b: &[u8]| compare(a, b, row.bytes, 0).wrong;
            for left in 0..4 {
                assert!(differ(&inputs[left], &result) > 128, "{} {name}: rank {left} holds the result", row.name);
                for right in 0..left {
                    let apart = differ(&inputs[left], &inputs[right]);
                    assert!(apart > 100, "{} {name}: ranks {left} and {right} differ in {apart}", row.name);
                }
            }
        }
    }
}

#[test]
fn a_missing_or_doubled_rank_shows() {
    for row in TYPES {
        for (name, operator) in OPERATORS {
            let n = 5;
            let data = Data::new(row.data_type, Some(operator), n, 3);
            let inputs: Vec<Vec<u64>> = (0..n)
                .map(|rank| {
                    let mut bytes = vec![0; 512 * row.bytes];
                    data.input(rank, 0, &mut bytes);
                    elements(&bytes, row.bytes)
                })
                .collect();
            let fold_of = |ranks: &[usize]| -> Vec<u64> {
                let one = |i: usize| fold(row.data_type, operator, ranks.iter().map(|r| inputs[*r][i]).collect(), 1);
                (0..512).map(one).collect()
            };
            let right = fold_of(&[0, 1, 2, 3, 4]);
            let differ = |other: Vec<u64>| right.iter().zip(other).filter(|(a, b)| **a != *b).count();
            assert!(differ(fold_of(&[0, 1, 2, 4])) > 50, "{} {name}: rank 3 is not missed", row.name);
            if !matches!(operator, Operator::Max | Operator::Min) {
                assert!(differ(fold_of(&[0, 1, 2, 3, 3, 4])) > 50, "{} {name}: rank 3 may count twice", row.name);
            }
        }
    }
}

#[test]
fn moved_data_differs_by_rank_and_index_and_seed() {
    for row in TYPES {
        let get = |seed, rank, first| {
            let mut bytes = vec![0; 64 * row.bytes];
            Data::new(row.data_type, None, 3, seed).input(rank, first, &mut bytes);
            bytes
        };
        assert_eq!(get(1, 0, 10)[row.bytes..], get(1, 0, 11)[..63 * row.bytes], "index counts elements");
        for other in [get(1, 1, 0), get(2, 0, 0), get(1, 0, 1)] {
            assert!(compare(&get(1, 0, 0), &other, row.bytes, 0).wrong > 56, "{}", row.name);
        }
    }
}
