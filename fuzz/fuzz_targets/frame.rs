//! Bytes from a stranger, to the parser of TCP frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paceline_tests::corpus::frame(bytes));
