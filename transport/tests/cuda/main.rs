//! The layer over the CUDA driver, on whatever driver there is: a GPU's, or one in software.
//!
//! Without a driver the tests say `skipped`; with `PACELINE_TEST_CUDA=1` that is a failure.

mod devices;
mod graphs;
mod kernels;
mod memory;
mod peer;
mod processes;
mod streams;

use std::time::{Duration, Instant};

use paceline_transport::cuda::Device;

/// The devices that are tested: the first two, if there are so many; none where there is no driver.
fn all_devices() -> Vec<Device> {
    match Device::count() {
        Ok(count) => (0..count.min(2)).map(|ordinal| Device::open(ordinal).expect("a device that is there")).collect(),
        Err(error) if std::env::var("PACELINE_TEST_CUDA").is_ok_and(|value| value == "1") => panic!("{error}"),
        Err(error) => {
            println!("skipped: no CUDA driver ({error})");
            Vec::new()
        }
    }
}

/// The first device, if there is one.
fn device() -> Option<Device> {
    all_devices().into_iter().next()
}

/// The first device, if there is one whose streams can wait for values.
fn waiting_device() -> Option<Device> {
    let device = device()?;
    if !device.can_wait_on_values() {
        println!("skipped: {device:?} has no stream memory operations");
        return None;
    }
    Some(device)
}

/// When whatever should have happened has not.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Bytes that tell where they are from.
fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(37).wrapping_add((at >> 8) as u8).wrapping_add(seed)).collect()
}
