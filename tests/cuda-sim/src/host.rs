//! The kernels built for the host: the text that NVRTC gets, through the C++ compiler, once for each kernel.
//!
//! `host/cuda.h` stands for the language. Each kernel's text lies in a namespace of its own, with the macros that its
//! options define. The alignment sanitizer counts what would end a launch on a GPU.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use libloading::Library;
use paceline_comm::device::{Architecture, Arguments, Source, source};
use paceline_comm::{DataType, ReduceOp};

use crate::{OPERATORS, kernels};

/// A kernel's launch: its argument, the number of blocks and the threads of each. Returns how many addresses were
/// misaligned.
type Launch = unsafe extern "C" fn(*const Arguments, u32, u32) -> usize;

/// All kernels, loaded.
pub struct Host {
    launches: BTreeMap<String, Launch>,
    /// The functions are in it.
    _library: Library,
}

/// How many threads a launch has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// The blocks.
    pub blocks: u32,
    /// The threads of each block.
    pub threads: u32,
}

impl Host {
    /// The kernels, built when they are first asked for, or why they can't be: there is no C++ compiler.
    ///
    /// # Panics
    ///
    /// When there is a compiler, and it refuses the kernels.
    pub fn get() -> Result<&'static Host, String> {
        static HOST: LazyLock<Result<Host, String>> = LazyLock::new(Host::build);
        HOST.as_ref().map_err(Clone::clone)
    }

    fn build() -> Result<Host, String> {
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        if let Err(error) = Command::new(&compiler).arg("--version").output() {
            return Err(format!("no C++ compiler ({compiler}: {error})"));
        }
        let room = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, text: &str| fs::write(room.path().join(name), text).expect("a source is written");
        write("cuda.h", include_str!("../host/cuda.h"));
        write("misaligned.cpp", include_str!("../host/misaligned.cpp"));
        let of = |data_type, op| source(data_type, op, Architecture::new(9, 0));
        write("kernels.cuh", of(DataType::F32, ReduceOp::Sum).text);
        let mut objects = vec!["misaligned".to_owned()];
        for data_type in DataType::ALL {
            let units = OPERATORS.map(|op| unit(&of(data_type, op)));
            write(&format!("{data_type}.cpp"), &format!("#include \"cuda.h\"\n{}", units.concat()));
            objects.push(data_type.to_string());
        }
        compile(&compiler, room.path(), &objects);
        let objects: Vec<String> = objects.iter().map(|name| format!("{name}.o")).collect();
        let mut link = Command::new(&compiler);
        finish(link.current_dir(room.path()).args(["-shared", "-o", "kernels.so"]).args(objects));
        // SAFETY: nothing runs when this library is loaded.
        let library = unsafe { Library::new(room.path().join("kernels.so")) }.expect("what was linked can be loaded");
        let launches = kernels().map(|(data_type, op)| {
            let name = of(data_type, op).name;
            // SAFETY: `unit` defines the function with these arguments.
            let launch = *unsafe { library.get::<Launch>(format!("launch_{name}")) }.expect("every kernel is there");
            (name, launch)
        });
        Ok(Host { launches: launches.collect(), _library: library })
    }

    /// Runs a kernel. Returns how many of the addresses that it used were misaligned.
    ///
    /// # Safety
    ///
    /// The addresses in `arguments` are those of arrays of this process, as long as `arguments` says, of elements of
    /// `data_type`, and nobody else uses them meanwhile.
    pub unsafe fn launch(&self, data_type: DataType, op: ReduceOp, arguments: &Arguments, grid: Grid) -> usize {
        let launch = self.launches[&source(data_type, op, Architecture::new(9, 0)).name];
        // SAFETY: the caller keeps what the kernel asks.
        unsafe { launch(arguments, grid.blocks, grid.threads) }
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
    write!(
        unit,
        "namespace in_{name} {{\n#include \"kernels.cuh\"\n\
         extern \"C\" unsigned long launch_{name}(const paceline::Arguments *arguments, unsigned blocks, unsigned threads) {{\n\
         return launched(blocks, threads, [=] {{ {name}(*arguments); }});\n}}\n}}\n"
    )
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
