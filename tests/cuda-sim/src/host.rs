//! The kernels built for the host: the text that NVRTC gets, through the C++ compiler, once for each kernel.
//!
//! `host/cuda.h` stands for the language. Each kernel's text lies in a namespace of its own, with the macros that its
//! options define. The alignment sanitizer counts what would end a launch on a GPU.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use libloading::Library;
use paceline_comm::device::{Architecture, Grid, Kernel, Source, source};
use paceline_comm::{DataType, ReduceOp};

use crate::{LENT, collectives, reductions};

/// A kernel's launch: its argument, the number of blocks and the threads of each. Returns how many addresses were
/// misaligned.
type Launch = unsafe extern "C" fn(*const c_void, u32, u32) -> usize;

/// Kernels, loaded.
pub struct Host {
    /// Each kernel's launch, and the bytes of its argument, by its name.
    launches: BTreeMap<String, (Launch, usize)>,
    /// The functions are in it.
    _library: Library,
}

/// How many sources the kernels are spread over.
const UNITS: usize = 12;

impl Host {
    /// The kernels that need no peers, built when they are first asked for, or why they can't be: there is no C++ compiler.
    ///
    /// # Panics
    ///
    /// When there is a compiler, and it refuses the kernels.
    pub fn reductions() -> Result<&'static Host, String> {
        static HOST: LazyLock<Result<Host, String>> = LazyLock::new(|| Host::build(reductions().collect()));
        HOST.as_ref().map_err(Clone::clone)
    }

    /// The kernels of collectives, likewise.
    ///
    /// # Panics
    ///
    /// As [`Host::reductions`].
    pub fn collectives() -> Result<&'static Host, String> {
        static HOST: LazyLock<Result<Host, String>> = LazyLock::new(|| {
            let is_tried = |kernel: &Kernel| match kernel {
                Kernel::FoldLent(data_type, _) | Kernel::TwoShotLent(data_type, _) => LENT.contains(data_type),
                _ => true,
            };
            Host::build(collectives().filter(is_tried).collect())
        });
        HOST.as_ref().map_err(Clone::clone)
    }

    /// The kernels of messages and of flags, and those of an all_reduce of sums of `u64`.
    ///
    /// # Errors
    ///
    /// As of [`Host::collectives`].
    pub fn messages() -> Result<&'static Host, String> {
        static HOST: LazyLock<Result<Host, String>> = LazyLock::new(|| {
            let of = (DataType::U64, ReduceOp::Sum);
            Host::build(vec![Kernel::Mail, Kernel::Flags, Kernel::Fold(of.0, of.1), Kernel::TwoShot(of.0, of.1)])
        });
        HOST.as_ref().map_err(Clone::clone)
    }

    fn build(kernels: Vec<Kernel>) -> Result<Host, String> {
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        if let Err(error) = Command::new(&compiler).arg("--version").output() {
            return Err(format!("no C++ compiler ({compiler}: {error})"));
        }
        let room = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, text: &str| fs::write(room.path().join(name), text).expect("a source is written");
        write("cuda.h", include_str!("../host/cuda.h"));
        write("misaligned.cpp", include_str!("../host/misaligned.cpp"));
        let sources: Vec<Source> = kernels.iter().map(|kernel| source(*kernel, Architecture::new(9, 0))).collect();
        write("kernels.cuh", sources[0].text);
        let mut objects = vec!["misaligned".to_owned()];
        for (number, share) in sources.chunks(sources.len().div_ceil(UNITS)).enumerate() {
            let units: String = share.iter().map(unit).collect();
            write(&format!("unit{number}.cpp"), &format!("#include \"cuda.h\"\n{units}"));
            objects.push(format!("unit{number}"));
        }
        compile(&compiler, room.path(), &objects);
        let objects: Vec<String> = objects.iter().map(|name| format!("{name}.o")).collect();
        let mut link = Command::new(&compiler);
        finish(link.current_dir(room.path()).args(["-shared", "-o", "kernels.so"]).args(objects));
        // SAFETY: nothing runs when this library is loaded.
        let library = unsafe { Library::new(room.path().join("kernels.so")) }.expect("what was linked can be loaded");
        let launches = sources.into_iter().map(|Source { name, .. }| {
            // SAFETY: `PACELINE_LAUNCH` in `host/cuda.h` defines the two with these types.
            let (launch, bytes) = unsafe {
                let launch = library.get::<Launch>(format!("launch_{name}")).expect("every kernel is there");
                let bytes = library.get::<*const usize>(format!("size_{name}")).expect("and its argument's size");
                (*launch, **bytes)
            };
            (name, (launch, bytes))
        });
        Ok(Host { launches: launches.collect(), _library: library })
    }

    /// Runs a kernel. Returns how many of the addresses that it used were misaligned.
    ///
    /// # Safety
    ///
    /// `arguments` are the kernel's, the addresses in it are those of memory of this process, as long as the arguments say,
    /// and nobody uses it meanwhile but launches of the same collective.
    ///
    /// # Panics
    ///
    /// When the kernel's argument has another size.
    pub unsafe fn launch<A>(&self, kernel: Kernel, arguments: &A, grid: Grid) -> usize {
        let (launch, bytes) = self.launches[&kernel.name()];
        assert_eq!(bytes, size_of::<A>(), "the argument of {}", kernel.name());
        // SAFETY: the caller keeps what the kernel asks.
        unsafe { launch((&raw const *arguments).cast(), grid.blocks, grid.threads) }
    }
}

/// One kernel and the function that launches it.
fn unit(source: &Source) -> String {
    let macros: Vec<(&str, &str)> = source
        .options
        .iter()
        .filter_map(|option| option.strip_prefix("--define-macro="))
        .map(|definition| definition.split_once('=').expect("a macro has a value"))
        .collect();
    let name = &source.name;
    let mut unit = String::new();
    for (name, value) in &macros {
        writeln!(unit, "#define {name} {value}").expect("a string takes everything");
    }
    write!(unit, "namespace in_{name} {{\n#include \"kernels.cuh\"\nPACELINE_LAUNCH({name})\n}}\n")
        .expect("a string takes everything");
    for (name, _) in &macros {
        writeln!(unit, "#undef {name}").expect("a string takes everything");
    }
    unit
}

/// Compiles the sources, two at a time.
fn compile(compiler: &str, folder: &Path, names: &[String]) {
    // Products are not joined with sums, as on the GPU; bits are read as numbers and the other way round.
    const OPTIONS: [&str; 7] =
        ["-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-fsanitize=alignment", "-c"];
    std::thread::scope(|scope| {
        for share in names.chunks(names.len().div_ceil(2)) {
            scope.spawn(move || {
                for name in share {
                    let mut command = Command::new(compiler);
                    finish(command.current_dir(folder).args(OPTIONS).arg(format!("{name}.cpp")));
                }
            });
        }
    });
}

fn finish(command: &mut Command) {
    let output = command.output().expect("the compiler starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
