//! Kernels: compiled by the software NVRTC through cudarc, launched, and compared with the host's reductions.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUresult};
use cudarc::nvrtc::result as nvrtc;
use paceline_comm::device::{self, Architecture, Arguments, source};
use paceline_comm::reduce::Kernel;
use paceline_comm::{DataType, ReduceOp};
use paceline_tests::noise::noise;
use paceline_tests::{Random, seed};

use crate::{Setting, allocate, free, new_stream, ok, read, settle, write};

/// What NVRTC makes of one of paceline's kernels: its name and its image.
pub fn compiled(data_type: DataType, op: ReduceOp) -> (std::ffi::CString, Vec<u8>) {
    let source = source(device::Kernel::Reduce(data_type, op), Architecture::new(9, 0));
    let text = std::ffi::CString::new(source.text).expect("a text");
    let program = nvrtc::create_program(&text, None).expect("a program");
    // SAFETY: the program is not destroyed before its image is taken.
    let image = unsafe {
        nvrtc::compile_program(program, &source.options).unwrap_or_else(|error| {
            let log = nvrtc::get_program_log(program).expect("a log");
            panic!("{error:?}: {}", std::ffi::CStr::from_ptr(log.as_ptr()).to_string_lossy())
        });
        let image = nvrtc::get_ptx(program).expect("an image");
        nvrtc::destroy_program(program).expect("it is there");
        image
    };
    let name = std::ffi::CString::new(source.name).expect("a text");
    (name, image.into_iter().map(|byte| byte as u8).collect())
}

pub fn loaded(name: &std::ffi::CStr, image: &[u8]) -> (sys::CUmodule, sys::CUfunction) {
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the image is one, and the places are of these types.
    unsafe {
        ok(sys::cuModuleLoadData(&mut module, image.as_ptr().cast()));
        ok(sys::cuModuleGetFunction(&mut function, module, name.as_ptr()));
    }
    (module, function)
}

pub fn launch(function: sys::CUfunction, arguments: &Arguments, threads: u32, stream: sys::CUstream) -> CUresult {
    let mut parameters = [&raw const *arguments as *mut c_void];
    // SAFETY: the kernel takes these arguments, and the addresses in them are a device's.
    unsafe {
        sys::cuLaunchKernel(function, 3, 1, 1, threads, 1, 1, 0, stream, parameters.as_mut_ptr(), std::ptr::null_mut())
    }
}

#[test]
fn kernels_fold_as_the_host_does() {
    let Some(_) = Setting::new() else { return };
    let (stream, random) = (new_stream(), &mut Random::new(seed()));
    let cases = [(DataType::F32, ReduceOp::Sum), (DataType::Bf16, ReduceOp::Max), (DataType::I8, ReduceOp::Prod)];
    let mut modules = Vec::new();
    for (data_type, op) in cases {
        let (name, image) = compiled(data_type, op);
        let (module, function) = loaded(&name, &image);
        let n = 1003;
        let sources: Vec<Vec<u8>> = (0..3).map(|_| noise(data_type, random, n)).collect();
        let bytes = sources[0].len();
        let addresses: Vec<u64> = sources.iter().map(|_| allocate(bytes)).collect();
        addresses.iter().zip(&sources).for_each(|(address, source)| write(*address, source));
        let target = allocate(bytes);
        ok(launch(function, &Arguments::new(target, &addresses, n as u64), 32, stream));
        settle(stream);
        let (mut want, folded) = (vec![0; bytes], sources.iter().map(Vec::as_slice).collect::<Vec<_>>());
        Kernel::of(data_type, op).fold_bytes(&mut want, &folded);
        assert_eq!(read(target, bytes), want, "{data_type} {op} (seed {})", seed());
        addresses.into_iter().chain([target]).for_each(free);
        // Loaded until the end: each module is another than those that are there.
        modules.push((module, function));
    }
    for (module, function) in modules {
        // SAFETY: the module is the driver's to check.
        unsafe {
            ok(sys::cuModuleUnload(module));
            assert_eq!(sys::cuModuleUnload(module), CUresult::CUDA_ERROR_INVALID_HANDLE, "twice");
        }
        let gone = launch(function, &Arguments::new(0, &[0], 0), 32, stream);
        assert_eq!(gone, CUresult::CUDA_ERROR_INVALID_HANDLE, "its module is unloaded");
    }
}
