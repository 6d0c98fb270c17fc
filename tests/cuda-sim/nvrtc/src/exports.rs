//! The functions that programs call. Their names, arguments and numbers are those of NVRTC 12.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::nvrtc::sys::nvrtcResult as Code;

use crate::compile::{CUDA_H, Program};
use crate::options::Options;

/// The version of no NVRTC of NVIDIA's, since what this compiles is of no use there; it follows what stands for the language, so
/// that kept kernels aren't used with another.
const VERSION: (c_int, c_int) = (12, 1000 + (digest(CUDA_H.as_bytes()) % 1_000_000) as c_int);

const fn digest(text: &[u8]) -> u64 {
    let (mut digest, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < text.len() {
        digest = (digest ^ text[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    digest
}

/// The architectures that it says it compiles for.
const ARCHITECTURES: [c_int; 9] = [70, 75, 80, 86, 89, 90, 100, 103, 120];

type Status<T = ()> = Result<T, Code>;

/// A program and what came of it.
struct Entry {
    program: Arc<Program>,
    log: CString,
    /// The library, and whether it is for a device.
    image: Option<(Vec<u8>, bool)>,
    /// Names that were asked for before the compilation.
    names: Vec<CString>,
}

static PROGRAMS: Mutex<Option<HashMap<usize, Entry>>> = Mutex::new(None);

fn programs() -> MutexGuard<'static, Option<HashMap<usize, Entry>>> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(handle: usize, use_it: impl FnOnce(&mut Entry) -> Status<T>) -> Status<T> {
    let mut programs = programs();
    let entry = programs.as_mut().and_then(|programs| programs.get_mut(&handle));
    use_it(entry.ok_or(Code::NVRTC_ERROR_INVALID_PROGRAM)?)
}

macro_rules! api {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unused_unsafe, clippy::redundant_closure_call)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> Code {
            // SAFETY: callers give pointers to what NVRTC's documentation says, or null.
            let body = || -> Status { unsafe { $body } };
            body().err().unwrap_or(Code::NVRTC_SUCCESS)
        }
    )*};
}

/// # Safety
///
/// `place` is null, or a place for a `T`.
unsafe fn put<T>(place: *mut T, value: T) -> Status {
    if place.is_null() {
        return Err(Code::NVRTC_ERROR_INVALID_INPUT);
    }
    // SAFETY: the caller gives a place.
    unsafe { place.write(value) };
    Ok(())
}

/// # Safety
///
/// `place` is null, or has room for the bytes.
unsafe fn put_bytes(place: *mut c_char, bytes: &[u8]) -> Status {
    if place.is_null() {
        return Err(Code::NVRTC_ERROR_INVALID_INPUT);
    }
    // SAFETY: the caller gives the room.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// # Safety
///
/// `text` is null, or a text.
unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: the caller gives a text, which ends with a zero.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// # Safety
///
/// `list` is null, or has `count` texts.
unsafe fn texts(list: *const *const c_char, count: c_int) -> Status<Vec<String>> {
    let count = usize::try_from(count).map_err(|_| Code::NVRTC_ERROR_INVALID_INPUT)?;
    if count > 0 && list.is_null() {
        return Err(Code::NVRTC_ERROR_INVALID_INPUT);
    }
    // SAFETY: the caller gives that many texts.
    (0..count).map(|at| unsafe { text(*list.add(at)) }.ok_or(Code::NVRTC_ERROR_INVALID_INPUT)).collect()
}

fn compile(handle: usize, options: &[String]) -> Status {
    let log = |log: &str| CString::new(log.replace('\0', " ")).expect("no zero within");
    let options = Options::read(options).map_err(|option| {
        let why = log(&format!("nvrtc: error: unrecognized option {option} found\n"));
        let _ = with(handle, |entry| {
            entry.log = why;
            Ok(())
        });
        Code::NVRTC_ERROR_INVALID_OPTION
    })?;
    let program = with(handle, |entry| Ok(entry.program.clone()))?;
    // Other programs are compiled meanwhile.
    let compiled = program.compile(&options);
    with(handle, |entry| match compiled {
        Ok(compiled) => {
            entry.log = log(&compiled.log);
            entry.image = Some((compiled.library, options.is_real));
            Ok(())
        }
        Err(why) => {
            entry.log = log(&why);
            Err(Code::NVRTC_ERROR_COMPILATION)
        }
    })
}

fn image<T>(handle: usize, use_it: impl FnOnce(&[u8], bool) -> Status<T>) -> Status<T> {
    with(handle, |entry| match &entry.image {
        Some((library, is_real)) => use_it(library, *is_real),
        None => Err(Code::NVRTC_ERROR_INVALID_PROGRAM),
    })
}

api! {
    fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) {
        put(major, VERSION.0)?;
        put(minor, VERSION.1)
    }

    fn nvrtcGetNumSupportedArchs(count: *mut c_int) {
        put(count, ARCHITECTURES.len() as c_int)
    }

    fn nvrtcGetSupportedArchs(architectures: *mut c_int) {
        if architectures.is_null() {
            return Err(Code::NVRTC_ERROR_INVALID_INPUT);
        }
        architectures.copy_from_nonoverlapping(ARCHITECTURES.as_ptr(), ARCHITECTURES.len());
        Ok(())
    }

    fn nvrtcCreateProgram(
        program: *mut usize,
        source: *const c_char,
        name: *const c_char,
        count: c_int,
        headers: *const *const c_char,
        include_names: *const *const c_char,
    ) {
        let source = text(source).ok_or(Code::NVRTC_ERROR_INVALID_INPUT)?;
        let name = text(name).filter(|name| !name.is_empty()).unwrap_or_else(|| "default_program".to_owned());
        let headers = texts(include_names, count)?.into_iter().zip(texts(headers, count)?).collect();
        let program_of = Program { text: source, name, headers };
        let entry = Entry { program: Arc::new(program_of), log: CString::default(), image: None, names: Vec::new() };
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0x1000);
        let handle = NEXT.fetch_add(0x10, std::sync::atomic::Ordering::Relaxed);
        put(program, handle)?;
        programs().get_or_insert_default().insert(handle, entry);
        Ok(())
    }

    fn nvrtcDestroyProgram(program: *mut usize) {
        if program.is_null() {
            return Err(Code::NVRTC_ERROR_INVALID_PROGRAM);
        }
        let removed = programs().get_or_insert_default().remove(&*program);
        removed.map(|_| *program = 0).ok_or(Code::NVRTC_ERROR_INVALID_PROGRAM)
    }

    fn nvrtcCompileProgram(program: usize, count: c_int, options: *const *const c_char) {
        compile(program, &texts(options, count)?)
    }

    fn nvrtcGetPTXSize(program: usize, bytes: *mut usize) {
        image(program, |library, _| put(bytes, library.len()))
    }

    fn nvrtcGetPTX(program: usize, ptx: *mut c_char) {
        image(program, |library, _| put_bytes(ptx, library))
    }

    fn nvrtcGetCUBINSize(program: usize, bytes: *mut usize) {
        image(program, |library, is_real| put(bytes, if is_real { library.len() } else { 0 }))
    }

    fn nvrtcGetCUBIN(program: usize, cubin: *mut c_char) {
        image(program, |library, is_real| {
            if is_real { put_bytes(cubin, library) } else { Err(Code::NVRTC_ERROR_INVALID_PROGRAM) }
        })
    }

    fn nvrtcGetProgramLogSize(program: usize, bytes: *mut usize) {
        with(program, |entry| put(bytes, entry.log.as_bytes_with_nul().len()))
    }

    fn nvrtcGetProgramLog(program: usize, log: *mut c_char) {
        with(program, |entry| put_bytes(log, entry.log.as_bytes_with_nul()))
    }

    fn nvrtcAddNameExpression(program: usize, name: *const c_char) {
        let name = text(name).ok_or(Code::NVRTC_ERROR_INVALID_INPUT)?;
        with(program, |entry| {
            if entry.image.is_some() {
                return Err(Code::NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION);
            }
            entry.names.push(CString::new(name).expect("it was a text"));
            Ok(())
        })
    }

    fn nvrtcGetLoweredName(program: usize, name: *const c_char, lowered: *mut *const c_char) {
        let name = text(name).ok_or(Code::NVRTC_ERROR_INVALID_INPUT)?;
        with(program, |entry| {
            let found = entry.names.iter().find(|known| known.to_bytes() == name.as_bytes());
            put(lowered, found.ok_or(Code::NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID)?.as_ptr())
        })
    }
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
extern "C" fn nvrtcGetErrorString(number: c_int) -> *const c_char {
    let text = match number {
        0 => c"NVRTC_SUCCESS",
        1 => c"NVRTC_ERROR_OUT_OF_MEMORY",
        2 => c"NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
        3 => c"NVRTC_ERROR_INVALID_INPUT",
        4 => c"NVRTC_ERROR_INVALID_PROGRAM",
        5 => c"NVRTC_ERROR_INVALID_OPTION",
        6 => c"NVRTC_ERROR_COMPILATION",
        7 => c"NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        8 => c"NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        9 => c"NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        10 => c"NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
        _ => c"NVRTC_ERROR_INTERNAL_ERROR",
    };
    text.as_ptr()
}
