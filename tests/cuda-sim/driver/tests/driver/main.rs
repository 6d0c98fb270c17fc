//! The software driver as its callers see it: through cudarc, in this process and in others.

mod capture;
mod device;
mod event;
mod failure;
mod ipc;
mod kernel;
mod memory;
mod race;
mod slice;
mod stream;
mod value;

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUresult, CUstream};
use paceline_cuda_sim::Simulated;

/// The variable that names the test that a process was started for.
const ALONE: &str = "PACELINE_TEST_CUDA_ALONE";

/// What most tests begin with: the driver in this process, and a context of a device that is current.
struct Setting {
    device: CUdevice,
    context: CUcontext,
}

impl Setting {
    /// A device's primary context; none, and a line that says why, where there is no C++ compiler.
    fn of(device: i32) -> Option<Setting> {
        watch();
        Simulated::load().map_err(|reason| println!("skipped: {reason}")).ok()?;
        let mut context = ptr::null_mut();
        // SAFETY: the places are of these types.
        unsafe {
            ok(sys::cuInit(0));
            ok(sys::cuDevicePrimaryCtxRetain(&mut context, device));
            ok(sys::cuCtxSetCurrent(context));
        }
        Some(Setting { device, context })
    }

    fn new() -> Option<Setting> {
        Setting::of(0)
    }
}

/// Runs `body` in a process of its own on the machine that `configure` makes: knobs are read once, and errors stay.
fn alone(name: &str, configure: impl FnOnce(Simulated) -> Simulated, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some_and(|alone| alone == name) {
        watch();
        return body();
    }
    let simulated = match Simulated::here() {
        Ok(simulated) => configure(simulated),
        Err(reason) => return println!("skipped: {reason}"),
    };
    let output = simulated.test(name).env(ALONE, name).output().expect("this program starts again");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{name} in a process of its own:\n{said}");
}

/// Ends this process if it takes too long: a stream that waits for ever holds up whoever waits for it.
fn watch() {
    static WATCH: std::sync::Once = std::sync::Once::new();
    WATCH.call_once(|| {
        let _ = std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::from_secs(60));
            eprintln!("the tests take more than 60 s: a stream waits for something that doesn't come");
            std::process::exit(1);
        });
    });
}

#[track_caller]
fn ok(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

/// A stream that doesn't wait for the legacy stream.
fn new_stream() -> CUstream {
    stream_with(1)
}

fn stream_with(flags: u32) -> CUstream {
    let mut stream = ptr::null_mut();
    // SAFETY: the place is of this type.
    ok(unsafe { sys::cuStreamCreate(&mut stream, flags) });
    stream
}

fn allocate(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    // SAFETY: the place is of this type.
    ok(unsafe { sys::cuMemAlloc_v2(&mut address, bytes) });
    address
}

/// Pinned memory of the host.
fn allocate_host(bytes: usize) -> *mut c_void {
    let mut address = ptr::null_mut();
    // SAFETY: the place is of this type.
    ok(unsafe { sys::cuMemHostAlloc(&mut address, bytes, 0) });
    address
}

fn free(address: CUdeviceptr) {
    // SAFETY: the address is the driver's to check.
    ok(unsafe { sys::cuMemFree_v2(address) });
}

fn write(address: CUdeviceptr, bytes: &[u8]) {
    // SAFETY: the bytes are there; the address is the driver's to check.
    ok(unsafe { sys::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()) });
}

fn read(address: CUdeviceptr, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    // SAFETY: as above.
    ok(unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, n) });
    bytes
}

/// Waits for a stream.
#[track_caller]
fn settle(stream: CUstream) {
    // SAFETY: the handle is the driver's to check.
    ok(unsafe { sys::cuStreamSynchronize(stream) });
}

/// Whether a stream has done all that it was given.
fn is_idle(stream: CUstream) -> bool {
    // SAFETY: the handle is the driver's to check.
    match unsafe { sys::cuStreamQuery(stream) } {
        CUresult::CUDA_ERROR_NOT_READY => false,
        code => {
            ok(code);
            true
        }
    }
}

fn fill(address: CUdeviceptr, byte: u8, n: usize, stream: CUstream) -> CUresult {
    // SAFETY: the address and the handle are the driver's to check.
    unsafe { sys::cuMemsetD8Async(address, byte, n, stream) }
}

fn copy(to: CUdeviceptr, from: CUdeviceptr, n: usize, stream: CUstream) -> CUresult {
    // SAFETY: as above.
    unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, n, stream) }
}

fn new_event(flags: u32) -> CUevent {
    let mut event = ptr::null_mut();
    // SAFETY: the place is of this type.
    ok(unsafe { sys::cuEventCreate(&mut event, flags) });
    event
}

/// Makes one stream wait for what another was given.
fn order(first: CUstream, then: CUstream) {
    let event = new_event(2);
    // SAFETY: the handles are the driver's to check.
    unsafe {
        ok(sys::cuEventRecord(event, first));
        ok(sys::cuStreamWaitEvent(then, event, 0));
        ok(sys::cuEventDestroy_v2(event));
    }
}

/// Holds a stream up until it is let go: 4 bytes of pinned memory that it waits for.
struct Gate(*mut u32);

impl Gate {
    fn before(stream: CUstream) -> Gate {
        let place = allocate_host(4).cast::<u32>();
        // SAFETY: the place is pinned, and nobody else's yet.
        unsafe {
            place.write(0);
            ok(sys::cuStreamWaitValue32_v2(stream, place as u64, 1, 0));
        }
        Gate(place)
    }

    fn open(&self) {
        // SAFETY: the place is pinned, and read by atomic operations.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(self.0).store(1, std::sync::atomic::Ordering::Release) };
    }
}
