//! Many operands, scaling, averages, and all of it together on random calls.

use proptest::prelude::*;

use super::inputs::noise;
use super::{LENGTHS, Room, levels, operators};
use crate::reduce::{DataType, Kernel, ReduceOp, reference};

#[test]
fn fold_is_the_reference_for_every_number_of_sources() {
    for data_type in DataType::ALL {
        let size = data_type.size();
        let sources: Vec<Vec<u8>> = (0..9).map(|seed| noise(data_type, 20 + seed, LENGTHS)).collect();
        for op in ReduceOp::PLAIN {
            for k in 1..=sources.len() {
                let slices: Vec<&[u8]> = sources[..k].iter().map(Vec::as_slice).collect();
                let want = reference::fold(data_type, op, &slices);
                for level in levels() {
                    let kernel = Kernel::at(level, data_type, op);
                    for n in (0..=LENGTHS).filter(|n| *n < 20 || n % 13 == k || *n == LENGTHS) {
                        let bytes = n * size;
                        let mut rooms: Vec<Room> = slices
                            .iter()
                            .enumerate()
                            .map(|(i, source)| Room::new((n + i) % 8, &source[..bytes]))
                            .collect();
                        let pointers: Vec<*const u8> =
                            rooms.iter_mut().map(|room| room.pointer().cast_const()).collect();
                        let mut target = Room::new(n % 7, &vec![0x77; bytes]);
                        let what = format!("{level:?} {data_type} {op} fold of {k} x {n}");
                        // SAFETY: rooms of this many bytes.
                        unsafe { kernel.fold(target.pointer(), &pointers, n) };
                        target.check(&want[..bytes], &what);
                        let into = n % k;
                        // SAFETY: as above, with the target exactly one of the sources.
                        unsafe { kernel.fold(pointers[into].cast_mut(), &pointers, n) };
                        rooms[into].check(&want[..bytes], format_args!("{what} into source {into}"));
                    }
                }
            }
        }
    }
}

#[test]
fn scale_and_finish_are_the_reference() {
    for data_type in DataType::ALL {
        let size = data_type.size();
        let source = noise(data_type, 40, LENGTHS);
        for op in operators(data_type) {
            let scaled = reference::scale(data_type, op, &source);
            let ranks = [1, 2, 3, 7, 64, 100, 1000, 65_537, 1 << 31, u32::MAX];
            let finished = ranks.map(|ranks| (ranks, reference::finish(data_type, op, ranks, &source)));
            for level in levels() {
                let kernel = Kernel::at(level, data_type, op);
                for n in 0..=LENGTHS {
                    let bytes = n * size;
                    let what = format!("{level:?} {data_type} {op} {n}");
                    let (mut room, mut target) =
                        (Room::new(n % 8, &source[..bytes]), Room::new(n % 7, &vec![1; bytes]));
                    // SAFETY: rooms of this many bytes.
                    unsafe { kernel.scale(target.pointer(), room.pointer(), n) };
                    target.check(&scaled[..bytes], format_args!("{what} scale"));
                    let pointer = room.pointer();
                    // SAFETY: as above, with the target exactly the source.
                    unsafe { kernel.scale(pointer, pointer, n) };
                    room.check(&scaled[..bytes], format_args!("{what} scale in place"));
                    let (ranks, finished) = &finished[n % ranks.len()];
                    let mut room = Room::new(n % 8, &source[..bytes]);
                    // SAFETY: as above.
                    unsafe { kernel.finish(*ranks, room.pointer(), n) };
                    room.check(&finished[..bytes], format_args!("{what} finish {ranks}"));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn any_reduction_is_the_reference(
        code in 0u8..12,
        operator in 0usize..8,
        k in 1usize..=12,
        elements in 0usize..1500,
        offset in 0usize..64,
        ranks in (any::<u32>(), 0u32..32).prop_map(|(ranks, shift): (u32, u32)| (ranks >> shift).max(1)),
        seed in any::<u64>(),
    ) {
        let data_type = DataType::from_code(code).expect("a code");
        let op = operators(data_type).nth(operator).expect("an operator");
        let sources: Vec<Vec<u8>> = (0..k as u64).map(|i| noise(data_type, seed.wrapping_add(i), elements)).collect();
        let scaled: Vec<Vec<u8>> = sources.iter().map(|source| reference::scale(data_type, op, source)).collect();
        let slices: Vec<&[u8]> = scaled.iter().map(Vec::as_slice).collect();
        let want = reference::finish(data_type, op, ranks, &reference::fold(data_type, op, &slices));
        for level in levels() {
            let kernel = Kernel::at(level, data_type, op);
            let mut rooms: Vec<Room> = sources.iter().map(|source| Room::new(offset, source)).collect();
            let pointers: Vec<*mut u8> = rooms.iter_mut().map(Room::pointer).collect();
            for pointer in &pointers {
                // SAFETY: rooms of this many elements.
                unsafe { kernel.scale(*pointer, *pointer, elements) };
            }
            let sources: Vec<*const u8> = pointers.iter().map(|pointer| pointer.cast_const()).collect();
            let into = seed as usize % k;
            // SAFETY: as above; the target is exactly one of the sources.
            unsafe { kernel.fold(pointers[into], &sources, elements) };
            // SAFETY: as above.
            unsafe { kernel.finish(ranks, pointers[into], elements) };
            rooms[into].check(&want, format_args!("{level:?} {data_type} {op:?} k {k} n {elements} seed {seed}"));
        }
    }
}
