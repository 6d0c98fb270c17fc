//! What is promised, said without the reference.

use super::inputs::to_bytes;
use super::levels;
use crate::reduce::{DataType, Kernel, ReduceOp, reference};

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
