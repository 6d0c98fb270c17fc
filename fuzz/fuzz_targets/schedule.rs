//! Texts, to the parser and the checker of schedules.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paceline_tests::corpus::schedule(bytes));
