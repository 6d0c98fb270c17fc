//! The fast reductions against the reference, bit for bit.

use proptest::prelude::*;

use super::{DataType, Kernel, Level, ReduceOp, reference};

/// Numbers that may go wrong, as bits: zeros, subnormals, ones, the largest, infinities, NaNs of all kinds.
fn special(data_type: DataType) -> &'static [u64] {
    match data_type {
        DataType::I8 | DataType::U8 => &[0, 1, 2, 0x7e, 0x7f, 0x80, 0x81, 0xfe, 0xff, 0x55],
        DataType::I32 | DataType::U32 => &[0, 1, 2, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff_ffff, 0x1_0001],
        DataType::I64 | DataType::U64 => &[
            0,
            1,
            2,
            0x7fff_ffff_ffff_ffff,
            0x8000_0000_0000_0000,
            0x8000_0000_0000_0001,
            u64::MAX,
            0x1_0000_0001,
            0xffff_ffff,
            0xffff_ffff_0000_0000,
        ],
        DataType::F16 => &[
            0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x8400, 0x3c00, 0xbc00, 0x3c01, 0x7bff, 0xfbff, 0x7c00, 0xfc00,
            0x7c01, 0x7e00, 0xfe00, 0xffff, 0x0fff,
        ],
        DataType::Bf16 => &[
            0, 0x8000, 1, 0x8001, 0x007f, 0x0080, 0x8080, 0x3f80, 0xbf80, 0x3f81, 0x7f7f, 0xff7f, 0x7f80, 0xff80,
            0x7f81, 0x7fc0, 0xffc0, 0xffff, 0x3eff,
        ],
        DataType::F32 => &[
            0,
            0x8000_0000,
            1,
            0x8000_0001,
            0x007f_ffff,
            0x0080_0000,
            0x3f80_0000,
            0xbf80_0000,
            0x3f80_0001,
            0x7f7f_ffff,
            0xff7f_ffff,
            0x7f80_0000,
            0xff80_0000,
            0x7f80_0001,
            0x7fc0_0000,
            0xffc0_0000,
            0xffff_ffff,
        ],
        DataType::F64 => &[
            0,
            1 << 63,
            1,
            1 << 63 | 1,
            0x000f_ffff_ffff_ffff,
            0x0010_0000_0000_0000,
            0x3ff0_0000_0000_0000,
            0xbff0_0000_0000_0000,
            0x3ff0_0000_0000_0001,
            0x7fef_ffff_ffff_ffff,
            0xffef_ffff_ffff_ffff,
            0x7ff0_0000_0000_0000,
            0xfff0_0000_0000_0000,
            0x7ff0_0000_0000_0001,
            0x7ff8_0000_0000_0000,
            0xfff8_0000_0000_0000,
            u64::MAX,
        ],
        DataType::F8E4M3 => &[0, 0x80, 1, 0x81, 7, 8, 0x38, 0xb8, 0x39, 0x7e, 0xfe, 0x7f, 0xff],
        DataType::F8E5M2 => &[0, 0x80, 1, 0x81, 3, 4, 0x3c, 0xbc, 0x3d, 0x7b, 0xfb, 0x7c, 0xfc, 0x7d, 0x7e, 0x7f, 0xff],
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// `elements` elements: random bits, random numbers of moderate size, and special ones, by a draw for each run of up
/// to 40, so that there are runs without a NaN as well.
fn noise(data_type: DataType, seed: u64, elements: usize) -> Vec<u8> {
    let state = &mut seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
    let size = data_type.size();
    let mut bytes = Vec::with_capacity(elements * size);
    while bytes.len() < elements * size {
        let kind = next(state) % 4;
        for _ in 0..=next(state) % 40 {
            let random = next(state);
            let special = special(data_type)[random as usize % special(data_type).len()];
            // Exponents near that of 1, whatever the width.
            let moderate = (random & !(0x7 << (8 * size - 4))) | 0x3 << (8 * size - 4);
            let bits = [random, moderate, moderate, special][kind as usize];
            bytes.extend_from_slice(&to_bytes(data_type, bits));
        }
    }
    bytes.truncate(elements * size);
    bytes
}

fn to_bytes(data_type: DataType, bits: u64) -> Vec<u8> {
    let size = data_type.size();
    if cfg!(target_endian = "big") {
        bits.to_be_bytes()[8 - size..].to_vec()
    } else {
        bits.to_le_bytes()[..size].to_vec()
    }
}

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.iter().copied().filter(|level| level.is_available())
}

/// Every operator, with factors that are a moderate number, a special one and any bits.
fn operators(data_type: DataType) -> impl Iterator<Item = ReduceOp> {
    let special = special(data_type);
    let factors = [0x4242_4242_4242_4242, special[special.len() - 2], 0xc3a5_7e31_99d2_be57];
    ReduceOp::PLAIN.into_iter().chain(factors.map(ReduceOp::PreMulSum))
}

/// Where elements lie: `bytes` bytes at `offset` from an address that is a multiple of 64, guarded on both sides.
struct Room {
    storage: Vec<u8>,
    start: usize,
    bytes: usize,
}

const GUARD: u8 = 0xa5;

impl Room {
    fn new(offset: usize, content: &[u8]) -> Room {
        let mut storage = vec![GUARD; content.len() + offset + 256];
        let start = 64 + storage.as_ptr().align_offset(64) + offset;
        storage[start..start + content.len()].copy_from_slice(content);
        Room { storage, start, bytes: content.len() }
    }

    fn pointer(&mut self) -> *mut u8 {
        self.storage[self.start..].as_mut_ptr()
    }

    #[track_caller]
    fn check(&self, want: &[u8], what: impl std::fmt::Display) {
        let end = self.start + self.bytes;
        let have = &self.storage[self.start..end];
        if have != want {
            let at = have.iter().zip(want).position(|(have, want)| have != want);
            panic!("{what}: byte {at:?} of {} differs\n have {have:02x?}\n want {want:02x?}", self.bytes);
        }
        let guards = self.storage[..self.start].iter().chain(&self.storage[end..]);
        assert!(guards.copied().all(|byte| byte == GUARD), "{what}: wrote outside the target");
    }
}

const LENGTHS: usize = 257;

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
                    // SAFETY: as above, with the target exactly one of the sources.
                    unsafe { kernel.combine(b.pointer(), a.pointer(), b.pointer(), n) };
                    b.check(&want[..bytes], format_args!("{what} into the second"));
                    let mut b = Room::new(n / 9 % 8, &second[..bytes]);
                    // SAFETY: as above.
                    unsafe { kernel.combine(a.pointer(), a.pointer(), b.pointer(), n) };
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

/// What the numbers are to be, said without the reference.
#[test]
fn known_answers() {
    use DataType::*;
    use ReduceOp::*;
    let cases: &[(DataType, ReduceOp, u64, u64, u64)] = &[
        (I8, Sum, 0x7f, 1, 0x80),
        (U8, Sum, 0xff, 2, 1),
        (I32, Prod, 0x8000_0000, 0xffff_ffff, 0x8000_0000),
        (I8, Min, 0x80, 0x7f, 0x80),
        (U8, Min, 0x80, 0x7f, 0x7f),
        (I64, Max, u64::MAX, 0, 0),
        (U64, Max, u64::MAX, 0, u64::MAX),
        (F16, Sum, 0x7bff, 0x4bff, 0x7bff),
        (F16, Sum, 0x7bff, 0x4c00, 0x7c00),
        (F16, Sum, 0x0001, 0x0001, 0x0002),
        (F16, Sum, 0x3c00, 0x1000, 0x3c00),
        (F16, Sum, 0x3c01, 0x1000, 0x3c02),
        (F32, Sum, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000),
        (F32, Sum, 0xffc1_2345, 0x3f80_0000, 0x7fc0_0000),
        (F32, Min, 0xff80_0001, 0xff80_0000, 0x7fc0_0000),
        (F32, Min, 0, 0x8000_0000, 0x8000_0000),
        (F32, Max, 0x8000_0000, 0, 0),
        (F64, Max, 0x7ff8_0000_0000_0001, 0, 0x7ff8_0000_0000_0000),
        (F64, Prod, 0, 0x7ff0_0000_0000_0000, 0x7ff8_0000_0000_0000),
        (Bf16, Sum, 0x3f80, 0x3b80, 0x3f80),
        (Bf16, Sum, 0x3f81, 0x3b80, 0x3f82),
        (Bf16, Sum, 0x7f7f, 0x7f7f, 0x7f80),
        (Bf16, Max, 0xff81, 0x7f80, 0x7fc0),
        (F8E4M3, Sum, 0x7e, 0x59, 0x7e),
        (F8E4M3, Sum, 0x7e, 0x7e, 0x7e),
        (F8E4M3, Sum, 0xfe, 0xfe, 0xfe),
        (F8E4M3, Min, 0xff, 0x00, 0x7f),
        (F8E5M2, Sum, 0x7b, 0x7b, 0x7b),
        (F8E5M2, Sum, 0x7c, 0xfb, 0x7c),
        (F8E5M2, Sum, 0x7c, 0xfc, 0x7e),
        (F8E5M2, Max, 0x7c, 0x7b, 0x7c),
        (F8E5M2, Min, 0xfd, 0x7b, 0x7e),
    ];
    for &(data_type, op, a, b, want) in cases {
        let [a, b, want] = [a, b, want].map(|bits| to_bytes(data_type, bits));
        assert_eq!(reference::fold(data_type, op, &[&a, &b]), want, "reference {data_type} {op} {a:02x?} {b:02x?}");
        for level in levels() {
            // Long enough for vectors and what they leave.
            let (long_a, long_b, mut target) = (a.repeat(77), b.repeat(77), want.repeat(77));
            Kernel::at(level, data_type, op).combine_bytes(&mut target, &long_a, &long_b);
            assert_eq!(target, want.repeat(77), "{level:?} {data_type} {op} {a:02x?} {b:02x?}");
        }
    }
    for (data_type, ranks, sum, want) in [
        (I8, 2, 0xf9, 0xfd),
        (I8, 200, 0x80, 0),
        (U64, 3, u64::MAX, 0x5555_5555_5555_5555),
        (I64, 1, 1 << 63, 1 << 63),
        (I32, 1, 0x8000_0000, 0x8000_0000),
        (U32, 1, 0xffff_ffff, 0xffff_ffff),
        (F32, 3, 0x3f80_0000, 0x3eaa_aaab),
        (F16, 2, 0xfe01, 0x7e00),
    ] {
        let mut target = to_bytes(data_type, sum).repeat(77);
        Kernel::of(data_type, Avg).finish_bytes(ranks, &mut target);
        assert_eq!(target, to_bytes(data_type, want).repeat(77), "{data_type} {sum:x} / {ranks}");
    }
}

/// Adding them one after the other would round away each of the small ones.
#[test]
fn narrow_floats_round_once() {
    for (data_type, one, tiny, want) in [
        (DataType::F16, 0x3c00, 0x1000, 0x3c02),
        (DataType::Bf16, 0x3f80, 0x3b80, 0x3f82),
        (DataType::F8E4M3, 0x38, 0x18, 0x3a),
        (DataType::F8E5M2, 0x3c, 0x30, 0x3e),
    ] {
        let [one, tiny] = [one, tiny].map(|bits| to_bytes(data_type, bits).repeat(50));
        for level in levels() {
            let mut target = one.clone();
            Kernel::at(level, data_type, ReduceOp::Sum).fold_bytes(&mut target, &[&one, &tiny, &tiny, &tiny, &tiny]);
            assert_eq!(target, to_bytes(data_type, want).repeat(50), "{level:?} {data_type}");
        }
    }
}

#[test]
fn slices_that_do_not_fit_are_refused() {
    let kernel = Kernel::of(DataType::F32, ReduceOp::Avg);
    let refused = |call: &mut dyn FnMut()| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).expect_err("refused");
    };
    let bytes = [0; 12];
    refused(&mut || kernel.combine_bytes(&mut [0; 8], &bytes[..8], &bytes));
    refused(&mut || kernel.combine_bytes(&mut [0; 8], &bytes, &bytes[..8]));
    refused(&mut || kernel.combine_bytes(&mut [0; 6], &bytes[..6], &bytes[..6]));
    refused(&mut || kernel.accumulate_bytes(&mut [0; 8], &bytes));
    refused(&mut || kernel.fold_bytes(&mut [0; 8], &[&bytes[..8], &bytes]));
    refused(&mut || kernel.fold_bytes(&mut [0; 8], &[]));
    refused(&mut || kernel.scale_bytes(&mut [0; 8], &bytes));
    refused(&mut || kernel.scale_bytes_in_place(&mut [0; 7]));
    refused(&mut || kernel.finish_bytes(0, &mut [0; 8]));
    refused(&mut || kernel.finish_bytes(2, &mut [0; 7]));
}
