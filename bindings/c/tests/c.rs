//! The interface as C sees it: programs in C, built with gcc, plain and with AddressSanitizer, as one process and as several.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder that cargo has put `libpaceline.so` and `libpaceline.a` into, beside this program: it copies them to where they
/// are found only when the library itself is asked for.
fn built() -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    let folder = program.parent().expect("it lies in a folder").to_owned();
    assert!(folder.join("libpaceline.so").exists(), "no libpaceline.so in {}", folder.display());
    folder
}

fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Whether there is such a tool; says what is skipped otherwise.
fn have(tool: &str) -> bool {
    let there = has(tool);
    if !there {
        println!("skipped: no {tool}");
    }
    there
}

fn has_address_sanitizer() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("empty.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let program = folder.path().join("empty");
        let built =
            Command::new("gcc").arg("-fsanitize=address,undefined").arg(&source).arg("-o").arg(&program).output();
        let there = built.is_ok_and(|output| output.status.success()) && succeeds(&program);
        if !there {
            println!("skipped: no AddressSanitizer");
        }
        there
    })
}

fn succeeds(program: &Path) -> bool {
    Command::new(program).status().is_ok_and(|status| status.success())
}

/// Where programs of one test are, with the library by its soname.
struct Workshop {
    folder: TempDir,
}

impl Workshop {
    fn new() -> Workshop {
        let folder = tempfile::tempdir().expect("a folder for programs");
        std::os::unix::fs::symlink(built().join("libpaceline.so"), folder.path().join("libpaceline.so.0")).unwrap();
        Workshop { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a source of this folder, with the library from where cargo has put it.
    fn compile(&self, compiler: &str, source: &str, options: &[&str]) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let program = self.path(&format!("{}-{number}", source.replace(['/', '.'], "-")));
        let include = if source.contains("nccl") { "include/paceline-host" } else { "include" };
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Werror", "-g", "-O1"]).args(options);
        command.arg(format!("-I{}", here().join(include).display())).arg(here().join("tests").join(source));
        command.arg("-o").arg(&program).arg(format!("-L{}", built().display())).args(["-lpaceline", "-lpthread"]);
        if cfg!(feature = "cuda") {
            command.arg("-DPACELINE_WITH_CUDA");
        }
        let output = command.output().expect("the compiler starts");
        assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// As plain C, and with AddressSanitizer where that is there.
    fn both(&self, source: &str) -> Vec<PathBuf> {
        let mut programs = vec![self.compile("gcc", source, &["-std=gnu11"])];
        if has_address_sanitizer() {
            programs.push(self.compile("gcc", source, &["-std=gnu11", "-fsanitize=address,undefined"]));
        }
        programs
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in ["PACELINE_LINKS", "PACELINE_RENDEZVOUS", "PACELINE_RANK", "PACELINE_SIZE", "PACELINE_ALGORITHM"] {
            command.env_remove(name);
        }
        // What a leak at the end of the process means for a library with threads, it says as well of libraries that are sound.
        command.env("UBSAN_OPTIONS", "halt_on_error=1");
        command
    }

    /// A program as so many ranks that meet by the environment; what became of each.
    fn ranks(&self, program: &Path, size: usize, arguments: &[&str], links: &str) -> Vec<Output> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("local://c-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let start = |rank: usize| {
            let mut command = self.command(program);
            command.args(arguments).env("PACELINE_RENDEZVOUS", &name).env("PACELINE_SIZE", size.to_string());
            command.env("PACELINE_RANK", rank.to_string()).env("PACELINE_LINKS", links);
            command.spawn().expect("a program starts")
        };
        wait_for((0..size).map(start).collect())
    }
}

/// What became of processes; those that are there after the limit are killed.
fn wait_for(mut children: Vec<Child>) -> Vec<Output> {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end && !children.iter_mut().all(|child| child.try_wait().is_ok_and(|end| end.is_some())) {
        std::thread::sleep(Duration::from_millis(5));
    }
    children.iter_mut().for_each(|child| drop(child.kill()));
    children.into_iter().map(|child| child.wait_with_output().expect("a child ends")).collect()
}

fn check_all(what: &str, outputs: &[Output]) {
    for (rank, output) in outputs.iter().enumerate() {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}, rank {rank}: {}\n{text}", output.status);
    }
}

#[test]
fn headers_compile_as_c_and_cpp() {
    if !have("gcc") {
        return;
    }
    let workshop = Workshop::new();
    let strict = ["-pedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes"];
    for standard in ["-std=c99", "-std=c11", "-std=c17"] {
        workshop.compile("gcc", "headers.c", &[&[standard][..], &strict].concat());
        workshop.compile("gcc", "nccl_headers.c", &[standard, "-pedantic"]);
    }
    if have("g++") {
        for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
            let program = workshop.compile("g++", "headers.c", &["-x", "c++", standard, "-pedantic", "-Wconversion"]);
            check_all("headers", &wait_for(vec![workshop.command(&program).spawn().unwrap()]));
            workshop.compile("g++", "nccl_headers.c", &["-x", "c++", standard, "-pedantic"]);
        }
    }
}

#[test]
fn every_collective() {
    if !have("gcc") {
        return;
    }
    let workshop = Workshop::new();
    for program in workshop.both("collectives.c") {
        for (size, links) in [(1, "shm"), (2, "shm"), (3, "tcp"), (4, "shm,tcp")] {
            let what = format!("{} with {size} ranks over {links}", program.display());
            check_all(&what, &workshop.ranks(&program, size, &[], links));
        }
    }
}

#[test]
fn one_process() {
    if !have("gcc") {
        return;
    }
    let workshop = Workshop::new();
    for source in ["misuse.c", "groups.c", "log.c"] {
        for program in workshop.both(source) {
            check_all(source, &wait_for(vec![workshop.command(&program).spawn().unwrap()]));
        }
    }
}

/// By a unique id that one process writes to a file, be it rank 0's or another's, and by a URL.
#[test]
fn processes_meet() {
    if !have("gcc") {
        return;
    }
    let workshop = Workshop::new();
    for program in workshop.both("making.c") {
        for (size, maker) in [(2, 0), (3, 2)] {
            let meet = tempfile::tempdir().unwrap();
            let (id, url) = (meet.path().join("id"), format!("file://{}", meet.path().join("url").display()));
            let start = |rank: usize| {
                let mut command = workshop.command(&program);
                command.args([rank, size, maker].map(|number: usize| number.to_string())).arg(&id).arg(&url);
                command.spawn().unwrap()
            };
            check_all(&format!("{size} ranks, id of {maker}"), &wait_for((0..size).map(start).collect()));
        }
    }
}

#[test]
fn what_goes_wrong_is_told() {
    if !have("gcc") {
        return;
    }
    let workshop = Workshop::new();
    for program in workshop.both("faults.c") {
        let faults = ["late", "late_work", "killed", "killed_unseen", "mismatch", "aborted"];
        std::thread::scope(|scope| {
            for fault in faults {
                let (workshop, program) = (&workshop, &program);
                scope.spawn(move || {
                    let mut outputs = workshop.ranks(program, 3, &[fault], "shm,tcp");
                    if fault.starts_with("killed") {
                        use std::os::unix::process::ExitStatusExt;
                        assert_eq!(outputs.pop().unwrap().status.signal(), Some(9), "{fault}");
                    }
                    check_all(fault, &outputs);
                });
            }
        });
    }
}

/// Programs for NCCL, unchanged, over memory of the host.
#[test]
fn programs_for_nccl() {
    if !have("gcc") {
        return;
    }
    let workshop = Workshop::new();
    let mut single = workshop.both("nccl_single.c");
    let mut ranks = workshop.both("nccl_ranks.c");
    if have("g++") {
        single.push(workshop.compile("g++", "nccl_single.c", &["-x", "c++", "-std=c++17"]));
        ranks.push(workshop.compile("g++", "nccl_ranks.c", &["-x", "c++", "-std=c++17"]));
    }
    for program in single {
        let outputs = wait_for(vec![workshop.command(&program).spawn().unwrap()]);
        check_all("nccl_single", &outputs);
        assert_eq!(outputs[0].stdout, b"Success\n");
    }
    for program in ranks {
        let meet = tempfile::tempdir().unwrap();
        let start = |rank: usize| {
            let mut command = workshop.command(&program);
            command.args([rank, 3].map(|number: usize| number.to_string())).arg(meet.path().join("id"));
            command.spawn().unwrap()
        };
        check_all("nccl_ranks", &wait_for((0..3).map(start).collect()));
    }
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(here().join("include/paceline.h")).unwrap();
    let code: String = header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let words = code.split(|char: char| !char.is_alphanumeric() && char != '(');
    let names = words.filter_map(|word| word.split_once('(')).map(|(name, _)| name);
    names.filter(|name| name.starts_with("pcl")).map(str::to_owned).collect()
}

#[test]
fn the_library_exports_what_the_header_declares() {
    let declared = declared();
    assert!(declared.len() > 70 && declared.contains("pclAllReduce"), "{declared:?}");
    let map = std::fs::read_to_string(here().join("paceline.map")).unwrap();
    let listed = map.lines().filter_map(|line| line.trim().strip_suffix(';')).filter(|name| name.starts_with("pcl"));
    assert_eq!(listed.map(str::to_owned).collect::<BTreeSet<_>>(), declared);
    if !have("nm") {
        return;
    }
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(built().join("libpaceline.so")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let exported = text.lines().filter_map(|line| line.rsplit(' ').next()).filter(|name| name.starts_with("pcl"));
    assert_eq!(exported.map(str::to_owned).collect::<BTreeSet<_>>(), declared);
}

/// Installed, found by pkg-config and by CMake, and with versions on its symbols.
#[test]
fn installed() {
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("prefix");
    let mut install = Command::new("bash");
    install.arg(here().join("install.sh")).arg(&prefix).arg("--from").arg(built());
    let output = install.output().expect("bash starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let library = std::fs::canonicalize(prefix.join("lib/libpaceline.so.0")).unwrap();
    assert!(library.ends_with(format!("libpaceline.so.{}", env!("CARGO_PKG_VERSION"))), "{}", library.display());
    if have("nm") {
        let output = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = text.lines().filter_map(|line| line.rsplit(' ').next()).filter(|name| *name != "PACELINE_0.1");
        let versioned: Option<BTreeSet<_>> = names.map(|name| name.strip_suffix("@@PACELINE_0.1")).collect();
        let versioned = versioned.unwrap_or_else(|| panic!("{text}"));
        assert_eq!(versioned.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), declared());
    }
    let run = |program: &Path| {
        let outputs = wait_for(vec![
            Command::new(program)
                .env("LD_LIBRARY_PATH", prefix.join("lib"))
                .env("PACELINE_LAUNCHER", "none")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        ]);
        check_all("the example", &outputs);
        assert_eq!(String::from_utf8_lossy(&outputs[0].stdout), "rank 0 of 1: the sum of 1 to 1 is 1\n");
    };
    if have("pkg-config") {
        for (name, way) in [("shared", "pkg-config --cflags --libs paceline"), ("fixed", STATIC)] {
            let program = folder.path().join(name);
            // As the example's first comment says.
            let line = format!(
                "gcc -Wall -Werror {}/examples/all_reduce.c $({way}) -o {}",
                here().display(),
                program.display()
            );
            let output = Command::new("bash")
                .args(["-c", &line])
                .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
                .output()
                .unwrap();
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
            run(&program);
        }
    }
    if have("cmake") {
        let project = folder.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let source = here().join("examples/all_reduce.c");
        let text = format!(
            "cmake_minimum_required(VERSION 3.13)\nproject(example C)\nfind_package(Paceline 0.1 REQUIRED)\n\
             add_executable(shared {0})\ntarget_link_libraries(shared Paceline::paceline)\n\
             add_executable(fixed {0})\ntarget_link_libraries(fixed Paceline::static)\n\
             add_executable(nccl {1})\ntarget_link_libraries(nccl Paceline::nccl_host)\n",
            source.display(),
            here().join("tests/nccl_single.c").display(),
        );
        std::fs::write(project.join("CMakeLists.txt"), text).unwrap();
        let line = "cmake -S project -B build -DCMAKE_PREFIX_PATH=$PWD/prefix && cmake --build build";
        let output = Command::new("bash").args(["-c", line]).current_dir(folder.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        run(&folder.path().join("build/shared"));
        run(&folder.path().join("build/fixed"));
        assert!(succeeds(&folder.path().join("build/nccl")));
    }
}

const STATIC: &str =
    "pkg-config --cflags paceline; pkg-config --static --libs paceline | sed 's/-lpaceline/-l:libpaceline.a/'";

/// With a driver, be it the one in software: `cargo run -p paceline-cuda-sim --example simulated -- cargo test -p paceline-c
/// --features cuda --target-dir target/c-cuda devices`.
#[cfg(feature = "cuda")]
#[test]
fn devices() {
    if !have("gcc") {
        return;
    }
    let workshop = Workshop::new();
    let program = workshop.compile("gcc", "device.c", &["-std=gnu11", "-ldl"]);
    let mut paths = vec![workshop.folder.path().to_owned()];
    paths.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    let mut command = workshop.command(&program);
    command.env("LD_LIBRARY_PATH", std::env::join_paths(paths).unwrap());
    let outputs = wait_for(vec![command.spawn().unwrap()]);
    if outputs[0].status.code() == Some(77) {
        return println!("skipped: no CUDA driver");
    }
    check_all("device", &outputs);
}
