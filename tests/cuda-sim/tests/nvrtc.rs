//! The kernels, compiled by CUDA's own compiler, for every architecture.

use std::sync::atomic::{AtomicUsize, Ordering};

use paceline_comm::device::{Architecture, Cache, Kernel, Source, source};
use paceline_comm::{DataType, ReduceOp};
use paceline_cuda_sim::{collectives, nvrtc, reductions};
use paceline_tests::is_asked_for;
use paceline_transport::cuda::{Compiled, Compiler};

const ARCHITECTURES: [Architecture; 7] = [
    Architecture::new(7, 0),
    Architecture::new(7, 5),
    Architecture::new(8, 0),
    Architecture::new(8, 6),
    Architecture::new(8, 9),
    Architecture::new(9, 0),
    Architecture::new(10, 0),
];

/// The one that every kernel is compiled for.
const WHOLE: usize = 5;

/// The compiler, or a line that says why not.
fn compiler() -> Option<Compiler> {
    nvrtc::find().map_err(|reason| println!("skipped: {reason}")).ok()
}

fn compile(compiler: &Compiler, source: &Source) -> Result<Compiled, String> {
    compiler.compile(source.text, &source.name, &source.options).map_err(|error| error.to_string())
}

/// The reductions for one architecture and for one of the others each; of the collectives' kernels, which are made of the same
/// parts, some of every kind, element type, operator and architecture. With `PACELINE_FULL` all for all.
fn sample() -> Vec<Source> {
    let is_full = is_asked_for("PACELINE_FULL");
    let mut sample = Vec::new();
    for (number, kernel) in reductions().enumerate() {
        for (place, architecture) in ARCHITECTURES.into_iter().enumerate() {
            // Seven architectures and six operators: in the rows one after the other each meets each.
            if is_full || place == WHOLE || place == number % ARCHITECTURES.len() {
                sample.push(source(kernel, architecture));
            }
        }
    }
    for (number, kernel) in collectives().enumerate() {
        // Six operators to each type, twelve types to each kind.
        let (operator, data_type, kind) = (number % 6, number / 6 % 12, number / 72);
        let is_drawn = operator == (data_type + 3 * kind) % 6;
        for (place, architecture) in ARCHITECTURES.into_iter().enumerate() {
            let is_place = place == (data_type + 4 * kind) % ARCHITECTURES.len();
            if is_full
                || matches!(kernel, Kernel::Copy | Kernel::CopyLent | Kernel::Mail | Kernel::Flags)
                || (is_drawn && is_place)
            {
                sample.push(source(kernel, architecture));
            }
        }
    }
    sample
}

#[test]
fn every_kernel_compiles() {
    let Some(nvrtc) = compiler() else { return };
    let (sample, next) = (sample(), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(source) = sample.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let compiled =
                        compile(&nvrtc, source).unwrap_or_else(|error| panic!("{:?}: {error}", source.options));
                    check(source, &compiled);
                }
            });
        }
    });
    println!("{} kernels compiled by {}", sample.len(), nvrtc.name());
}

fn check(source: &Source, Compiled { ptx, cubin }: &Compiled) {
    let ptx = String::from_utf8_lossy(ptx);
    let what = format!("{:?}", source.options);
    assert!(ptx.contains(&format!(".visible .entry {}(", source.name)), "{what}: no entry point");
    assert!(cubin.starts_with(b"\x7fELF"), "{what}: no object");
    for (word, why) in [
        ("fma.", "a product is added without being rounded"),
        (".ftz", "subnormals are flushed"),
        (".approx", "something is approximate"),
        (".local", "elements went to memory of the thread's own"),
        ("call", "something is a function"),
    ] {
        let line = ptx.lines().find(|line| line.contains(word) && !line.trim_start().starts_with("//"));
        assert!(line.is_none(), "{what}: {why}: {line:?}");
    }
    for access in ["ld.", "st."] {
        let is_whole = |line: &str| line.trim_start().starts_with(access) && line.contains(".v2.");
        let moves = source.name != "paceline_flags";
        assert!(!moves || ptx.lines().any(is_whole), "{what}: {access} of 16 bytes is missing");
    }
    // What ranks tell each other, and no more often than it must be.
    let meets = !source.name.starts_with("paceline_reduce");
    for order in ["st.release.sys", "ld.acquire.sys"] {
        assert_eq!(ptx.contains(order), meets, "{what}: {order}");
    }
    let counts = meets && source.name != "paceline_mail";
    assert_eq!(ptx.contains("atom.acq_rel.gpu"), counts, "{what}: blocks count those that have ended");
}

#[test]
fn what_does_not_compile_is_reported_with_the_compilers_words() {
    let Some(nvrtc) = compiler() else { return };
    let sound = source(Kernel::Reduce(DataType::F32, ReduceOp::Sum), Architecture::new(9, 0));
    let broken = Source { text: "extern \"C\" __global__ void f() { missing(); }", ..sound.clone() };
    let error = compile(&nvrtc, &broken).expect_err("it can't be compiled");
    assert!(error.contains("missing"), "{error}");
    let unknown = Source { options: vec!["--gpu-architecture=sm_1".to_owned()], ..sound };
    assert!(compile(&nvrtc, &unknown).is_err());
}

#[test]
fn a_compiled_kernel_is_kept() {
    let Some(nvrtc) = compiler() else { return };
    let room = tempfile::tempdir().expect("a folder");
    let source = source(Kernel::Reduce(DataType::Bf16, ReduceOp::Avg), Architecture::new(8, 0));
    let key = source.key(&nvrtc.name());
    let cubin = compile(&nvrtc, &source).expect("it compiles").cubin;
    Cache::at(room.path()).put(&key, &cubin);
    assert_eq!(Cache::at(room.path()).get(&key), Some(cubin));
}
