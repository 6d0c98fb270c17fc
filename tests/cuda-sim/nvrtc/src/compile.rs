//! Compilation by the host's C++ compiler.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::kernels::launchers;
use crate::options::Options;

/// What stands for the language.
pub const CUDA_H: &str = include_str!("../../host/cuda.h");

/// What counts misaligned accesses.
const MISALIGNED: &str = include_str!("../../host/misaligned.cpp");

/// What ends a launch that touches memory that it may not.
const GUARD: &str = include_str!("../../host/guard.cpp");

/// Options for kernels: products are not joined with sums, as the kernels ask of NVRTC; bits are read as numbers and the
/// other way round; a library can be unloaded.
const OPTIONS: [&str; 7] = [
    "-O1",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fPIC",
    "-fsanitize=alignment",
    "-fno-gnu-unique",
    // Its checks take a jump off another stack for a mistake.
    "-U_FORTIFY_SOURCE",
];

/// The host's C++ compiler, `CXX` or `c++`, or why there is none.
pub fn compiler() -> Result<String, String> {
    let compiler = std::env::var("CXX").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "c++".to_owned());
    match Command::new(&compiler).arg("--version").output() {
        Ok(_) => Ok(compiler),
        Err(error) => Err(format!("no C++ compiler ({compiler}: {error})")),
    }
}

/// A text to compile.
pub struct Program {
    pub text: String,
    /// What the compiler calls it in messages.
    pub name: String,
    /// Names and texts of headers.
    pub headers: Vec<(String, String)>,
}

/// What came out.
pub struct Compiled {
    pub library: Vec<u8>,
    pub log: String,
}

impl Program {
    /// The library, or what went wrong.
    pub fn compile(&self, options: &Options) -> Result<Compiled, String> {
        let compiler = compiler()?;
        let room = tempfile::tempdir().map_err(|error| format!("no folder to compile in: {error}"))?;
        let write = |name: &str, text: &str| write(room.path(), name, text);
        write("paceline-cuda.h", CUDA_H)?;
        write("misaligned.cpp", MISALIGNED)?;
        write("guard.cpp", GUARD)?;
        for (name, text) in &self.headers {
            write(name, text)?;
        }
        let (launchers, left_out) = launchers(&self.text);
        let architecture = options.architecture;
        let file = self.name.replace(['"', '\\', '\n'], "_");
        let unit = format!(
            "#include \"paceline-cuda.h\"\n#line 1 \"{file}\"\n{}\n#line 1 \"launchers of {file}\"\n{launchers}\n\
             extern \"C\" {{ extern const unsigned long paceline_architecture; \
             const unsigned long paceline_architecture = {architecture}; }}\n",
            self.text
        );
        write("program.cpp", &unit)?;
        let mut log: String = left_out.iter().map(|why| format!("warning: {why}\n")).collect();
        let mut compile = Command::new(&compiler);
        compile.args(&options.host).args(OPTIONS).args(["-I.", "-c", "program.cpp", "misaligned.cpp", "guard.cpp"]);
        log += &run(compile.current_dir(room.path()))?;
        let mut link = Command::new(&compiler);
        link.args(["-shared", "-Wl,-Bsymbolic", "-o", "program.so", "program.o", "misaligned.o", "guard.o"]);
        log += &run(link.current_dir(room.path()))?;
        let library = fs::read(room.path().join("program.so")).map_err(|error| error.to_string())?;
        Ok(Compiled { library, log })
    }
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let is_inside = Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if !is_inside {
        return Err(format!("{name} is no name for a header"));
    }
    let path = folder.join(name);
    let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
    made.map_err(|error| format!("{}: {error}", path.display()))
}

/// What the compiler says, which is an error if it fails.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}
