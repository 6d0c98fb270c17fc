//! NVRTC, looked up at run time: CUDA's compiler, which needs no GPU.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use libloading::Library;
use paceline_comm::device::Source;

type Program = *mut c_void;
type Status = c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> Status;
type Fetch = unsafe extern "C" fn(Program, *mut c_char) -> Status;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> Status;

/// The compiler.
pub struct Nvrtc {
    create: Create,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    log: (Size, Fetch),
    ptx: (Size, Fetch),
    cubin: (Size, Fetch),
    explain: unsafe extern "C" fn(Status) -> *const c_char,
    version: (i32, i32),
    /// The functions are in it.
    _library: Library,
}

/// What came out of a compilation.
pub struct Compiled {
    /// The kernel in NVIDIA's portable assembly.
    pub ptx: String,
    /// The kernel in the instructions of its architecture.
    pub cubin: Vec<u8>,
}

impl Nvrtc {
    /// The library that `PACELINE_TEST_NVRTC` names (a file, or the folder of a wheel), else the one that Python has, else
    /// the system's. Where there is none, why.
    ///
    /// # Panics
    ///
    /// When the variable names something else.
    pub fn find() -> Result<Nvrtc, String> {
        if let Some(place) = std::env::var_os("PACELINE_TEST_NVRTC").filter(|place| !place.is_empty()) {
            let library = library_at(Path::new(&place)).unwrap_or_else(|| place.into());
            return Ok(Nvrtc::load(&library).unwrap_or_else(|error| panic!("PACELINE_TEST_NVRTC: {error}")));
        }
        let ask = "import nvidia.cuda_nvrtc; print(list(nvidia.cuda_nvrtc.__path__)[0])";
        let said = Command::new("python3").args(["-c", ask]).output().ok().filter(|output| output.status.success());
        let place = said.and_then(|output| String::from_utf8(output.stdout).ok());
        let library = place.and_then(|place| library_at(Path::new(place.trim())));
        Nvrtc::load(&library.unwrap_or_else(|| "libnvrtc.so.12".into()))
    }

    fn load(path: &Path) -> Result<Nvrtc, String> {
        let failed = |error: libloading::Error| format!("no NVRTC ({}: {error})", path.display());
        // SAFETY: NVRTC may be loaded and its functions called by anybody; the types are those of nvrtc.h.
        unsafe {
            let library = Library::new(path).map_err(failed)?;
            let mut version = (0, 0);
            let ask: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status =
                *library.get("nvrtcVersion").map_err(failed)?;
            ask(&mut version.0, &mut version.1);
            Ok(Nvrtc {
                create: *library.get("nvrtcCreateProgram").map_err(failed)?,
                compile: *library.get("nvrtcCompileProgram").map_err(failed)?,
                destroy: *library.get("nvrtcDestroyProgram").map_err(failed)?,
                log: (
                    *library.get("nvrtcGetProgramLogSize").map_err(failed)?,
                    *library.get("nvrtcGetProgramLog").map_err(failed)?,
                ),
                ptx: (*library.get("nvrtcGetPTXSize").map_err(failed)?, *library.get("nvrtcGetPTX").map_err(failed)?),
                cubin: (
                    *library.get("nvrtcGetCUBINSize").map_err(failed)?,
                    *library.get("nvrtcGetCUBIN").map_err(failed)?,
                ),
                explain: *library.get("nvrtcGetErrorString").map_err(failed)?,
                version,
                _library: library,
            })
        }
    }

    /// Its name and version, as keys of compiled kernels need them.
    #[must_use]
    pub fn name(&self) -> String {
        format!("nvrtc {}.{}", self.version.0, self.version.1)
    }

    /// Compiles `source`, or says what the compiler said.
    pub fn compile(&self, source: &Source) -> Result<Compiled, String> {
        let [text, name] = [source.text, &source.name].map(|text| CString::new(text).expect("no zero within"));
        let options: Vec<CString> =
            source.options.iter().map(|option| CString::new(option.as_str()).expect("no zero within")).collect();
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = ptr::null_mut();
        // SAFETY: texts end with a zero and outlive the calls; the program is destroyed once, last.
        unsafe {
            self.check((self.create)(&mut program, text.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()))?;
            let compiled = self.check((self.compile)(program, options.len() as c_int, options.as_ptr()));
            let fetched = match compiled {
                Ok(()) => self.fetch(self.ptx, program).and_then(|ptx| {
                    let cubin = self.fetch(self.cubin, program)?;
                    Ok(Compiled { ptx: String::from_utf8_lossy(&ptx).into_owned(), cubin })
                }),
                Err(error) => self
                    .fetch(self.log, program)
                    .and_then(|log| Err(format!("{error}: {}", String::from_utf8_lossy(&log)))),
            };
            (self.destroy)(&mut program);
            fetched
        }
    }

    /// # Safety
    ///
    /// `program` is one of this library's, not yet destroyed.
    unsafe fn fetch(&self, (size, fetch): (Size, Fetch), program: Program) -> Result<Vec<u8>, String> {
        let mut bytes = 0;
        // SAFETY: the caller gives a program; the buffer is as long as the library asks for.
        unsafe {
            self.check(size(program, &mut bytes))?;
            let mut buffer = vec![0u8; bytes];
            self.check(fetch(program, buffer.as_mut_ptr().cast()))?;
            Ok(buffer)
        }
    }

    fn check(&self, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library gives a text of its own for every status.
        let said = unsafe { CStr::from_ptr((self.explain)(status)) };
        Err(said.to_string_lossy().into_owned())
    }
}

/// The library in a folder: that of a wheel as Python installs it, or the one that holds the file.
fn library_at(place: &Path) -> Option<PathBuf> {
    let below = ["", "lib", "nvidia/cuda_nvrtc/lib"].map(|below| place.join(below).join("libnvrtc.so.12"));
    below.into_iter().find(|path| path.is_file())
}
