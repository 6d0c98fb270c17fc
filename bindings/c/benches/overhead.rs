//! What a call costs through the C interface, against the same call in Rust: both in turn, medians of many rounds.
//!
//! `cargo bench -p paceline-c --bench overhead`. The library is loaded as a C program would, so that calls go through its
//! symbols and its thread-local storage is that of a shared library.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::time::Instant;

use paceline_comm::{Communicator, ReduceOp};

type InitAll = unsafe extern "C" fn(*mut *mut c_void, c_int, *const c_int) -> c_int;
type AllReduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
type Count = unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int;

const ROUNDS: usize = 1001;
const CALLS: usize = 200;

/// Nanoseconds for each call of a round.
fn round(mut call: impl FnMut()) -> f64 {
    let started = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    started.elapsed().as_nanos() as f64 / CALLS as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let program = std::env::current_exe().expect("a program has a path");
    let library = program.with_file_name("libpaceline.so");
    // SAFETY: the library does nothing when it is loaded.
    let library = unsafe { libloading::Library::new(&library) }.expect("cargo has built the library");
    // SAFETY: these are the functions' types.
    let (init_all, all_reduce, count) = unsafe {
        (
            *library.get::<InitAll>(b"pclCommInitAll").expect("it is there"),
            *library.get::<AllReduce>(b"pclAllReduce").expect("it is there"),
            *library.get::<Count>(b"pclCommCount").expect("it is there"),
        )
    };
    for ranks in [1, 2] {
        let comms = Communicator::in_process(ranks).expect("threads can meet");
        let mut handles = vec![std::ptr::null_mut(); ranks];
        // SAFETY: there are so many places.
        assert_eq!(unsafe { init_all(handles.as_mut_ptr(), ranks as c_int, std::ptr::null()) }, 0);
        let handles: Vec<usize> = handles.into_iter().map(<*mut c_void>::addr).collect();
        let measured: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = comms
                .iter()
                .zip(handles)
                .map(|(comm, handle)| scope.spawn(move || measure(comm, handle, all_reduce, count)))
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let (rust, c, lookup) = &measured[0];
        println!(
            "{ranks} ranks, all_reduce of 2 floats: Rust {rust:.1} ns, C {c:.1} ns, C more by {:.1} ns; pclCommCount {lookup:.1} ns",
            c - rust
        );
    }
}

fn measure(comm: &Communicator, handle: usize, all_reduce: AllReduce, count: Count) -> (f64, f64, f64) {
    let handle: *mut c_void = std::ptr::without_provenance_mut(handle);
    let (input, mut output, mut size) = ([1.0f32; 2], [0.0f32; 2], 0);
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(round(|| comm.all_reduce(black_box(&input), &mut output, ReduceOp::Sum).expect("it works")));
        times[1].push(round(|| {
            let (from, to) = (black_box(&input).as_ptr().cast(), output.as_mut_ptr().cast());
            // SAFETY: both have two floats.
            assert_eq!(unsafe { all_reduce(from, to, 2, 7, 0, handle, std::ptr::null_mut()) }, 0);
        }));
        // SAFETY: there is place for the number.
        times[2].push(round(|| assert_eq!(unsafe { count(handle, &raw mut size) }, 0)));
    }
    let [rust, c, lookup] = times.map(median);
    (rust, c, lookup)
}
