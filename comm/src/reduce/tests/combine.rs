//! Two operands: every length, every start, every way in which they may coincide.

use super::inputs::noise;
use super::{LENGTHS, Room, levels, operators};
use crate::reduce::{DataType, Kernel, ReduceOp, reference};

#[test]
fn combine_is_the_reference_for_every_length_and_start() {
    for data_type in DataType::ALL {
        let size = data_type.size();
        let [first, second] = [1, 2].map(|seed| noise(data_type, seed, LENGTHS));
        for op in operators(data_type) {
            let want = reference::fold(data_type, op, &[&first, &second]);
            for level in levels() {
                let kernel = Kernel::at(level, data_type, op);
                for n in 0..=LENGTHS {
                    let bytes = n * size;
                    let offset = n % 9;
                    let (mut a, mut b) = (Room::new(offset, &first[..bytes]), Room::new(n / 9 % 8, &second[..bytes]));
                    let mut target = Room::new(n / 5 % 8, &vec![0x77; bytes]);
                    // SAFETY: three rooms of this many bytes.
                    unsafe { kernel.combine(target.pointer(), a.pointer(), b.pointer(), n) };
                    target.check(&want[..bytes], format_args!("{level:?} {data_type} {op} {n} disjoint"));
                    let what = format_args!("{level:?} {data_type} {op} {n}").to_string();
                    a.check(&first[..bytes], &what);
                    let pointer = b.pointer();
                    // SAFETY: as above, with the target exactly one of the sources.
                    unsafe { kernel.combine(pointer, a.pointer(), pointer, n) };
                    b.check(&want[..bytes], format_args!("{what} into the second"));
                    let mut b = Room::new(n / 9 % 8, &second[..bytes]);
                    let pointer = a.pointer();
                    // SAFETY: as above.
                    unsafe { kernel.combine(pointer, pointer, b.pointer(), n) };
                    a.check(&want[..bytes], format_args!("{what} into the first"));
                }
            }
        }
    }
}

#[test]
fn combine_is_the_reference_for_every_pair_of_starts() {
    for data_type in DataType::ALL {
        let size = data_type.size();
        let elements = 75;
        let [first, second] = [3, 4].map(|seed| noise(data_type, seed, elements));
        for op in ReduceOp::PLAIN {
            let want = reference::fold(data_type, op, &[&first, &second]);
            for level in levels() {
                let kernel = Kernel::at(level, data_type, op);
                for offsets in 0..8 * 8 * 8 {
                    let [x, y, z] = [offsets % 8, offsets / 8 % 8, offsets / 64];
                    let (mut a, mut b) = (Room::new(x, &first), Room::new(y, &second));
                    let mut target = Room::new(z, &vec![0x77; elements * size]);
                    // SAFETY: three rooms of this many bytes.
                    unsafe { kernel.combine(target.pointer(), a.pointer(), b.pointer(), elements) };
                    target.check(&want, format_args!("{level:?} {data_type} {op} starts {x} {y} {z}"));
                }
            }
        }
    }
}

#[test]
fn both_sources_may_be_the_target() {
    for data_type in DataType::ALL {
        let source = noise(data_type, 6, 100);
        for op in ReduceOp::PLAIN {
            let want = reference::fold(data_type, op, &[&source, &source]);
            for level in levels() {
                let mut room = Room::new(1, &source);
                let pointer = room.pointer();
                // SAFETY: a room of this many bytes, which is target and both sources.
                unsafe { Kernel::at(level, data_type, op).combine(pointer, pointer, pointer, 100) };
                room.check(&want, format_args!("{level:?} {data_type} {op}"));
            }
        }
    }
}
