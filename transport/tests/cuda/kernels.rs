//! Kernels: compiled, loaded and started.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use cudarc::nvrtc::sys as nvrtc;
use paceline_transport::cuda::{CudaError, Device, Event, Module, Priority, Shape};

use crate::peer::{Peer, say};
use crate::{device, soon};

/// Adds a number to every word. The argument is as `Arguments` below.
const SOURCE: &CStr = c"
struct Arguments { unsigned *words; unsigned n_words; unsigned addend; };
extern \"C\" __global__ void add(const Arguments arguments) {
    unsigned step = gridDim.x * blockDim.x;
    for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < arguments.n_words; at += step)
        arguments.words[at] += arguments.addend;
}
";

/// What the kernel takes, as bytes.
fn arguments(words: u64, n_words: u32, addend: u32) -> Vec<u8> {
    [&words.to_ne_bytes()[..], &n_words.to_ne_bytes(), &addend.to_ne_bytes()].concat()
}

/// The kernel for the device, if there is a compiler.
fn compiled(device: &Device) -> Option<Vec<u8>> {
    // SAFETY: the library's initializers have no conditions.
    if !unsafe { nvrtc::is_culib_present() } {
        println!("skipped: no NVRTC");
        return None;
    }
    let (major, minor) = device.architecture();
    let options = [format!("--gpu-architecture=sm_{major}{minor}"), "--std=c++17".to_owned()];
    let options = options.map(|option| CString::new(option).expect("no zeros"));
    let pointers = options.each_ref().map(|option| option.as_ptr());
    let mut program = ptr::null_mut();
    // SAFETY: texts end with zeros, counts are those of the arrays, and what the compiler writes has the size that it says.
    unsafe {
        let (source, name) = (SOURCE.as_ptr(), c"add.cu".as_ptr());
        let made = nvrtc::nvrtcCreateProgram(&raw mut program, source, name, 0, ptr::null(), ptr::null());
        made.result().expect("a program");
        let built = nvrtc::nvrtcCompileProgram(program, pointers.len() as i32, pointers.as_ptr());
        let mut log = vec![0_u8; 1];
        let mut bytes = 0;
        if nvrtc::nvrtcGetProgramLogSize(program, &raw mut bytes).result().is_ok() {
            log.resize(bytes.max(1), 0);
            let _ = nvrtc::nvrtcGetProgramLog(program, log.as_mut_ptr().cast::<c_char>());
        }
        built.result().unwrap_or_else(|error| panic!("{error:?}: {}", String::from_utf8_lossy(&log)));
        nvrtc::nvrtcGetCUBINSize(program, &raw mut bytes).result().expect("a size");
        let mut image = vec![0_u8; bytes];
        nvrtc::nvrtcGetCUBIN(program, image.as_mut_ptr().cast::<c_char>()).result().expect("the code");
        nvrtc::nvrtcDestroyProgram(&raw mut program).result().expect("it is gone");
        Some(image)
    }
}

fn loaded(device: &Device) -> Option<Module> {
    compiled(device).map(|image| device.load(&image).expect("code for this device"))
}

#[test]
fn a_kernel_computes() {
    let Some(device) = device() else { return };
    let Some(module) = loaded(&device) else { return };
    let add = module.function("add").expect("the kernel");
    drop(module);
    let n_words = 100_003_u32;
    let memory = device.allocate(4 * n_words as usize).expect("memory");
    memory.write(0, &(0..n_words).flat_map(u32::to_ne_bytes).collect::<Vec<_>>()).expect("written");
    let stream = device.stream(Priority::Normal).expect("a stream");
    for (blocks, threads) in [(1, 1), (3, 32), (50, 256)] {
        let argument = arguments(memory.address(), n_words, 7);
        let shape = Shape { blocks, threads, shared_bytes: 0 };
        // SAFETY: the argument is the kernel's, and the memory is held until the stream is done.
        unsafe { stream.launch(&add, shape, &argument) }.expect("given");
    }
    stream.synchronize(soon()).expect("done");
    let mut read = vec![0; 4 * n_words as usize];
    memory.read(0, &mut read).expect("read");
    let expected: Vec<u8> = (0..n_words).flat_map(|word| (word + 21).to_ne_bytes()).collect();
    assert!(read == expected, "the kernel's sums are wrong");
}

#[test]
fn a_kernel_that_can_not_start_is_named() {
    let Some(device) = device() else { return };
    let Some(module) = loaded(&device) else { return };
    let missing = module.function("subtract").expect_err("there is none").to_string();
    assert!(missing.contains("\"subtract\"") && missing.contains("no kernel of this name"), "{missing}");
    assert!(module.function("a\0b").is_err());
    let add = module.function("add").expect("the kernel");
    let memory = device.allocate(4).expect("memory");
    let stream = device.stream(Priority::Normal).expect("a stream");
    for (blocks, threads, shared_bytes) in [(0, 1, 0), (1, 0, 0), (1, 100_000, 0), (1, 1, 1 << 24)] {
        let shape = Shape { blocks, threads, shared_bytes };
        // SAFETY: the argument is the kernel's, and the memory is held until the stream is done.
        let error = unsafe { stream.launch(&add, shape, &arguments(memory.address(), 1, 1)) };
        let error = error.expect_err("no device has that");
        let expected = format!("add with {blocks} blocks of {threads} threads and {shared_bytes} shared bytes");
        assert!(error.to_string().contains(&expected) && !error.is_fatal(), "{error}");
    }
    stream.synchronize(soon()).expect("the context is as it was");
}

/// Starts a kernel that uses an address which is no word's, and says what comes of it.
pub fn loses_its_context() {
    let device = device().expect("the other process has one");
    let add = loaded(&device).expect("the other process can").function("add").expect("the kernel");
    let memory = device.allocate(64).expect("memory");
    let (stream, event) = (device.stream(Priority::Normal).expect("a stream"), Event::new(&device).expect("an event"));
    let shape = Shape { blocks: 1, threads: 1, shared_bytes: 0 };
    // SAFETY: the argument is the kernel's, and what it does wrong is found by the device.
    unsafe { stream.launch(&add, shape, &arguments(memory.address() + 1, 1, 1)) }.expect("given");
    let lost = stream.synchronize(soon()).expect_err("a word's address is a multiple of 4");
    assert!(lost.is_fatal() && lost.to_string().contains("the context is lost"), "{lost}");
    for later in [stream.record(&event), device.allocate(16).map(drop), memory.zero(), event.is_done().map(drop)] {
        assert!(later.as_ref().is_err_and(CudaError::is_fatal), "{later:?}");
    }
    drop((add, memory, stream, event));
    say("lost");
}

#[test]
fn a_lost_context_is_told_and_what_it_had_can_be_dropped() {
    let Some(device) = device() else { return };
    if compiled(&device).is_none() {
        return;
    }
    let peer = Peer::start("loses its context");
    assert_eq!(peer.hear(), "lost");
    peer.end();
    device.allocate(16).expect("memory").zero().expect("it was another process's context");
}

#[test]
fn what_is_no_code_for_the_device_is_refused() {
    let Some(device) = device() else { return };
    for image in [&b"this is no PTX"[..], b"", b"\x7fELF", b".version 7.0\n.target sm_999\n.address_size 64\n"] {
        let error = device.load(image).expect_err("it is no code");
        assert!(!error.is_fatal(), "{error}");
        println!("{error}");
    }
    let Some(image) = compiled(&device) else { return };
    let cut = device.load(&image[..image.len() - 1]).expect_err("it is cut").to_string();
    assert!(cut.contains("ends before"), "{cut}");
}

#[test]
fn ptx_is_compiled_by_the_driver() {
    let Some(device) = device() else { return };
    let text = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n ret;\n}\n";
    let module = match device.load(text.as_bytes()) {
        Err(error) if error.code() == Some(218) && device.name().contains("software") => {
            return println!("skipped: {error}");
        }
        other => other.expect("PTX for every device since Volta"),
    };
    let nothing = module.function("nothing").expect("the kernel");
    let stream = device.stream(Priority::Normal).expect("a stream");
    // SAFETY: the kernel takes and does nothing.
    unsafe { stream.launch(&nothing, Shape { blocks: 1, threads: 1, shared_bytes: 0 }, &[]) }.expect("given");
    stream.synchronize(soon()).expect("done");
}
