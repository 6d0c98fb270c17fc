//! NVRTC, CUDA's compiler as a library: looked for at run time, and only where something has to be compiled.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::Library;

type Program = *mut c_void;
type Status = c_int;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> Status;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status;
type Destroy = unsafe extern "C" fn(*mut Program) -> Status;
type Size = unsafe extern "C" fn(Program, *mut usize) -> Status;
type Fetch = unsafe extern "C" fn(Program, *mut c_char) -> Status;
type Explain = unsafe extern "C" fn(Status) -> *const c_char;
type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status;

/// `NVRTC_ERROR_INVALID_OPTION`: of an option that names an architecture, that the compiler doesn't know it.
const INVALID_OPTION: Status = 5;

/// The names that the library goes by, the newest first.
const NAMES: [&str; 5] =
    ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"];

/// NVRTC, loaded.
#[derive(Debug)]
pub struct Compiler {
    create: Create,
    compile: Compile,
    destroy: Destroy,
    log: (Size, Fetch),
    ptx: (Size, Fetch),
    cubin: (Size, Fetch),
    explain: Explain,
    version: (c_int, c_int),
    /// The functions are in it.
    _library: Library,
}

/// What came of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// For the driver to compile.
    pub ptx: Vec<u8>,
    /// For the device that was named.
    pub cubin: Vec<u8>,
}

/// Why nothing was compiled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CompilerError {
    /// The library isn't there, or is no NVRTC.
    #[error(
        "no NVRTC, CUDA's compiler ({reason}): install the CUDA toolkit or `pip install nvidia-cuda-nvrtc-cu12`, and name the \
         library or its folder in PACELINE_NVRTC"
    )]
    Missing {
        /// What was looked for, and what was found instead.
        reason: String,
    },
    /// It doesn't know an option, such as the device's architecture.
    #[error("NVRTC {version} doesn't know an option of {options}: {log}")]
    InvalidOption {
        /// Its version.
        version: String,
        /// What it was given.
        options: String,
        /// What it says.
        log: String,
    },
    /// It has refused the text.
    #[error("NVRTC could not compile {name}: {log}")]
    Refused {
        /// The kernel.
        name: String,
        /// What it says.
        log: String,
    },
}

impl Compiler {
    /// Loads the library: the one that is named, or the one in the folder that is named, or what the system finds.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(named: Option<&Path>) -> Result<Compiler, CompilerError> {
        let Some(named) = named else {
            let tried = NAMES.iter().map(|name| Compiler::load(Path::new(name)));
            let mut reasons = Vec::new();
            for found in tried {
                match found {
                    Ok(compiler) => return Ok(compiler),
                    Err(reason) => reasons.push(reason),
                }
            }
            return Err(CompilerError::Missing { reason: reasons.swap_remove(1) });
        };
        let path = if named.is_dir() { library_below(named) } else { Some(named.to_owned()) };
        let path = path.ok_or_else(|| format!("there is no libnvrtc.so in {}", named.display()));
        path.and_then(|path| Compiler::load(&path)).map_err(|reason| CompilerError::Missing { reason })
    }

    fn load(path: &Path) -> Result<Compiler, String> {
        let failed = |error: libloading::Error| match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        // SAFETY: NVRTC may be loaded and its functions called by anybody; the types are those of nvrtc.h.
        unsafe {
            let library = Library::new(path).map_err(failed)?;
            let ask: Version = *library.get("nvrtcVersion").map_err(failed)?;
            let size_and_fetch = |size: &str, fetch: &str| {
                Ok::<(Size, Fetch), String>((*library.get(size).map_err(failed)?, *library.get(fetch).map_err(failed)?))
            };
            let mut compiler = Compiler {
                create: *library.get("nvrtcCreateProgram").map_err(failed)?,
                compile: *library.get("nvrtcCompileProgram").map_err(failed)?,
                destroy: *library.get("nvrtcDestroyProgram").map_err(failed)?,
                log: size_and_fetch("nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?,
                ptx: size_and_fetch("nvrtcGetPTXSize", "nvrtcGetPTX")?,
                cubin: size_and_fetch("nvrtcGetCUBINSize", "nvrtcGetCUBIN")?,
                explain: *library.get("nvrtcGetErrorString").map_err(failed)?,
                version: (0, 0),
                _library: library,
            };
            ask(&mut compiler.version.0, &mut compiler.version.1);
            Ok(compiler)
        }
    }

    /// Its name and version.
    #[must_use]
    pub fn name(&self) -> String {
        format!("nvrtc {}.{}", self.version.0, self.version.1)
    }

    /// Compiles a text of CUDA C++ that needs no header.
    ///
    /// # Errors
    /// If the compiler doesn't know an option, or refuses the text.
    pub fn compile(&self, text: &str, name: &str, options: &[String]) -> Result<Compiled, CompilerError> {
        let refused = |log: String| CompilerError::Refused { name: name.to_owned(), log };
        let terminated = |text: &str| CString::new(text).map_err(|error| refused(error.to_string()));
        let (source, program_name) = (terminated(text)?, terminated(name)?);
        let owned = options.iter().map(|option| terminated(option)).collect::<Result<Vec<CString>, _>>()?;
        let pointers: Vec<*const c_char> = owned.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = ptr::null_mut();
        // SAFETY: texts end with a zero and outlive the calls; the program is destroyed once, last.
        unsafe {
            let created =
                (self.create)(&mut program, source.as_ptr(), program_name.as_ptr(), 0, ptr::null(), ptr::null());
            self.check(created).map_err(refused)?;
            let status = (self.compile)(program, pointers.len() as c_int, pointers.as_ptr());
            let fetched = match self.check(status) {
                Ok(()) => self.fetch(self.ptx, program).and_then(|ptx| {
                    let cubin = self.fetch(self.cubin, program)?;
                    Ok(Compiled { ptx, cubin })
                }),
                Err(error) => {
                    let log = self.fetch(self.log, program).unwrap_or_default();
                    Err(format!("{error}: {}", String::from_utf8_lossy(&log).trim_end_matches('\0').trim_end()))
                }
            };
            (self.destroy)(&mut program);
            fetched.map_err(|log| match status {
                INVALID_OPTION => {
                    let version = format!("{}.{}", self.version.0, self.version.1);
                    CompilerError::InvalidOption { version, options: options.join(" "), log }
                }
                _ => refused(log),
            })
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
fn library_below(place: &Path) -> Option<PathBuf> {
    let below = ["", "lib", "lib64", "nvidia/cuda_nvrtc/lib", "nvidia/cu13/lib"];
    let paths = below.iter().flat_map(|below| NAMES[..4].iter().map(move |name| place.join(below).join(name)));
    paths.into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_where_wheels_and_toolkits_have_them() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(library_below(folder.path()), None);
        let lib = folder.path().join("nvidia/cuda_nvrtc/lib");
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(lib.join("libnvrtc.so.12"), "").unwrap();
        assert_eq!(library_below(folder.path()), Some(lib.join("libnvrtc.so.12")));
        assert_eq!(library_below(&lib), Some(lib.join("libnvrtc.so.12")));
    }

    #[test]
    fn what_is_no_compiler_is_named_with_what_to_install() {
        let folder = tempfile::tempdir().unwrap();
        let error = Compiler::find(Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains("there is no libnvrtc.so in") && error.contains("pip install"), "{error}");
        let file = folder.path().join("libnvrtc.so");
        std::fs::write(&file, "no library").unwrap();
        let error = Compiler::find(Some(&file)).unwrap_err().to_string();
        assert!(error.contains("libnvrtc.so"), "{error}");
    }
}
