//! Pairs of numbers: all special ones, all 8-bit floats, every 16-bit float, in both orders.

use super::inputs::{noise, special, to_bytes};
use super::levels;
use crate::reduce::{DataType, Kernel, ReduceOp, reference};

#[test]
fn every_pair_of_special_numbers_gives_the_same_bits_in_both_orders() {
    for data_type in DataType::ALL {
        let special = special(data_type);
        let pairs = special.iter().flat_map(|a| special.iter().map(move |b| (*a, *b)));
        let first: Vec<u8> = pairs.clone().flat_map(|(a, _)| to_bytes(data_type, a)).collect();
        let second: Vec<u8> = pairs.flat_map(|(_, b)| to_bytes(data_type, b)).collect();
        check_pairs(data_type, &first, &second);
    }
}

#[test]
fn every_pair_of_8_bit_floats_is_the_reference() {
    let first: Vec<u8> = (0..=255).flat_map(|a| [a; 256]).collect();
    let second: Vec<u8> = (0..=255u8).cycle().take(first.len()).collect();
    for data_type in [DataType::F8E4M3, DataType::F8E5M2] {
        check_pairs(data_type, &first, &second);
    }
}

#[test]
fn every_16_bit_float_is_the_reference_with_several_partners() {
    for data_type in [DataType::F16, DataType::Bf16] {
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
        for partner in 0..4 {
            check_pairs(data_type, &all, &noise(data_type, 100 + partner, 1 << 16));
        }
    }
}

fn check_pairs(data_type: DataType, first: &[u8], second: &[u8]) {
    for op in ReduceOp::PLAIN {
        let want = reference::fold(data_type, op, &[first, second]);
        for level in levels() {
            let kernel = Kernel::at(level, data_type, op);
            let size = data_type.size();
            let mut target = vec![0; first.len()];
            for (order, sources) in [[first, second], [second, first]].into_iter().enumerate() {
                kernel.combine_bytes(&mut target, sources[0], sources[1]);
                if let Some(at) =
                    (0..first.len()).step_by(size).find(|at| target[*at..at + size] != want[*at..at + size])
                {
                    let [a, b, have, want] = [first, second, &target, &want].map(|bytes| &bytes[at..at + size]);
                    panic!(
                        "{level:?} {data_type} {op}, order {order}: {a:02x?}, {b:02x?}: {have:02x?}, not {want:02x?}"
                    );
                }
            }
        }
    }
}
