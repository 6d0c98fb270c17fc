//! Errors that stay in a context, and images and launches that are refused.

use std::ffi::{CStr, c_void};
use std::ptr;

use cudarc::driver::sys::{self, CUresult};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};
use paceline_comm::device::Arguments;
use paceline_comm::{DataType, ReduceOp};

use crate::kernel::{compiled, launch, loaded};
use crate::{Setting, allocate, alone, fill, free, new_stream, ok, settle};

/// All calls of a context that failed return `code`; another device's context, and a new one, are as they should be.
fn check_failed(code: CUresult) {
    // SAFETY: the places are of these types.
    unsafe {
        let (mut address, mut other) = (0, ptr::null_mut());
        assert_eq!(sys::cuCtxSynchronize(), code);
        assert_eq!(sys::cuMemAlloc_v2(&mut address, 16), code);
        assert_eq!(sys::cuStreamSynchronize(ptr::null_mut()), code);
        assert_eq!(sys::cuMemFree_v2(0), code);
        ok(sys::cuDevicePrimaryCtxRetain(&mut other, 1));
        ok(sys::cuCtxPushCurrent_v2(other));
        free(allocate(16));
        ok(sys::cuCtxPopCurrent_v2(&mut other));
        ok(sys::cuDevicePrimaryCtxReset_v2(0));
    }
    let Some(_) = Setting::new() else { unreachable!("there is one") };
    let stream = new_stream();
    let address = allocate(16);
    ok(fill(address, 1, 16, stream));
    settle(stream);
}

#[test]
fn a_misaligned_access_ends_its_context() {
    alone(
        "failure::a_misaligned_access_ends_its_context",
        |simulated| simulated,
        || {
            let Some(_) = Setting::new() else { return };
            let (name, image) = compiled(DataType::F32, ReduceOp::Sum);
            let (_, function) = loaded(&name, &image);
            let (address, stream, waiting) = (allocate(64), new_stream(), new_stream());
            // SAFETY: the address and the handle are the driver's to check.
            ok(unsafe { sys::cuStreamWaitValue32_v2(waiting, address, 0x1234, 1) });
            ok(launch(function, &Arguments::new(address + 1, &[address + 1], 4), 1, stream));
            let misaligned = CUresult::CUDA_ERROR_MISALIGNED_ADDRESS;
            // SAFETY: as above.
            unsafe {
                assert_eq!(sys::cuStreamSynchronize(stream), misaligned);
                assert_eq!(sys::cuStreamSynchronize(waiting), misaligned, "it waits no more");
            }
            check_failed(misaligned);
        },
    );
}

#[test]
fn a_kernel_that_uses_freed_memory_ends_its_context() {
    alone(
        "failure::a_kernel_that_uses_freed_memory_ends_its_context",
        |simulated| simulated,
        || {
            let Some(_) = Setting::new() else { return };
            let (name, image) = compiled(DataType::F32, ReduceOp::Sum);
            let (_, function) = loaded(&name, &image);
            let (address, freed, stream) = (allocate(64), allocate(64), new_stream());
            free(freed);
            ok(launch(function, &Arguments::new(address, &[address, freed], 16), 8, stream));
            let illegal = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
            // SAFETY: the handle is the driver's to check.
            assert_eq!(unsafe { sys::cuStreamSynchronize(stream) }, illegal);
            check_failed(illegal);
            let (_, function) = loaded(&name, &image);
            let (address, stream) = (allocate(64), new_stream());
            ok(launch(function, &Arguments::new(address, &[address + 4096], 16), 8, stream));
            // SAFETY: as above.
            assert_eq!(unsafe { sys::cuStreamSynchronize(stream) }, illegal, "beyond the allocation's last page");
        },
    );
}

#[test]
fn a_launch_that_is_meant_to_fails() {
    let failing = |simulated: paceline_cuda_sim::Simulated| simulated.with("PACELINE_TEST_CUDA_FAIL_LAUNCH", "2");
    alone("failure::a_launch_that_is_meant_to_fails", failing, || {
        let Some(_) = Setting::new() else { return };
        let (name, image) = compiled(DataType::U8, ReduceOp::Sum);
        let (_, function) = loaded(&name, &image);
        let (address, stream) = (allocate(64), new_stream());
        let arguments = Arguments::new(address, &[address], 64);
        ok(launch(function, &arguments, 8, stream));
        settle(stream);
        ok(launch(function, &arguments, 8, stream));
        // SAFETY: the handle is the driver's to check.
        assert_eq!(unsafe { sys::cuStreamSynchronize(stream) }, CUresult::CUDA_ERROR_LAUNCH_FAILED);
        check_failed(CUresult::CUDA_ERROR_LAUNCH_FAILED);
    });
}

fn load(image: &[u8]) -> CUresult {
    let mut module = ptr::null_mut();
    // SAFETY: the image is one, or ends with a zero.
    unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast()) }
}

#[test]
fn what_is_no_image_is_refused() {
    let Some(_) = Setting::new() else { return };
    let (name, image) = compiled(DataType::F32, ReduceOp::Sum);
    assert_eq!(load(b".version 8.4\n.target sm_90\n\0"), CUresult::CUDA_ERROR_INVALID_PTX);
    let mut cubin = image.clone();
    cubin[18..20].copy_from_slice(&190u16.to_le_bytes());
    assert_eq!(load(&cubin), CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, "code for a GPU");
    let (module, function) = loaded(&name, &image);
    let mut none = ptr::null_mut();
    let arguments = Arguments::new(0, &[0], 0);
    let mut parameters = [&raw const arguments as *mut c_void];
    // SAFETY: the kernel takes these arguments, and does nothing to no elements.
    unsafe {
        assert_eq!(sys::cuModuleGetFunction(&mut none, module, c"other".as_ptr()), CUresult::CUDA_ERROR_NOT_FOUND);
        let mut launched = |blocks: [u32; 2], threads, shared| {
            let [x, y] = blocks;
            let stream = ptr::null_mut();
            let parameters = parameters.as_mut_ptr();
            sys::cuLaunchKernel(function, x, y, 1, threads, 1, 1, shared, stream, parameters, ptr::null_mut())
        };
        ok(launched([1, 1], 1024, 0));
        assert_eq!(launched([1, 1], 1025, 0), CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(launched([0, 1], 1, 0), CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(launched([1, 1], 1, 50_000), CUresult::CUDA_ERROR_INVALID_VALUE, "more than is permitted");
        assert_eq!(launched([1, 2], 1, 0), CUresult::CUDA_ERROR_NOT_SUPPORTED);
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        ok(sys::cuFuncSetAttribute(function, attribute, 50_000));
        ok(launched([1, 1], 1, 50_000));
        let mut blocks = 0;
        ok(sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 512, 0));
        assert_eq!(blocks, 4);
        ok(sys::cuCtxSynchronize());
    }
}

#[test]
fn what_doesnt_compile_is_refused_with_the_reason() {
    let Some(_) = Setting::new() else { return };
    let refused = |text: &str, options: &[&str]| {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        compile_ptx_with_opts(text, CompileOptions { options, ..CompileOptions::default() })
    };
    match refused("extern \"C\" __global__ void broken(int n) { n = nothing; }", &[]) {
        Err(CompileError::CompileError { log, .. }) => {
            let log = log.to_string_lossy().into_owned();
            assert!(log.contains("nothing") && log.contains("error"), "{log}");
        }
        other => panic!("{other:?}"),
    }
    assert!(refused("extern \"C\" __global__ void kernel(int n) {}", &["--warp-speed"]).is_err());
    let newer = refused("extern \"C\" __global__ void kernel(int n) {}", &["--gpu-architecture=sm_100"]);
    assert_eq!(load(newer.expect("it compiles").as_bytes().expect("it is an image")), {
        CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
    });
}

/// The argument is copied when the kernel is enqueued, whatever it is.
#[test]
fn an_argument_may_be_any_value() {
    let Some(_) = Setting::new() else { return };
    let text = "struct Words { unsigned *to; unsigned value; };\n\
                extern \"C\" __global__ void put(const Words words) { words.to[threadIdx.x] = words.value + threadIdx.x; }";
    let image = compile_ptx_with_opts(text, CompileOptions::default()).expect("it compiles");
    let name: &CStr = c"put";
    let (_, function) = loaded(name, image.as_bytes().expect("it is an image"));
    let (address, stream) = (allocate(16), new_stream());
    let gate = crate::Gate::before(stream);
    let mut words = (address, 40u32);
    let mut parameters = [(&raw mut words).cast::<c_void>()];
    // SAFETY: the kernel takes a pointer and a number, laid out like these, and writes 4 numbers.
    unsafe {
        let parameters = parameters.as_mut_ptr();
        ok(sys::cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, stream, parameters, ptr::null_mut()));
    }
    words.1 = 90;
    gate.open();
    settle(stream);
    assert_eq!(crate::read(address, 16), [40u32, 41, 42, 43].map(u32::to_le_bytes).concat());
    assert_eq!(words.1, 90);
    free(address);
}
