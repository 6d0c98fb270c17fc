//! The kernels' text and the options that make a kernel of it: one for each kind, element type, operator and architecture.
//!
//! Only what is used is compiled, so the text is one for all and the options choose. A [`Key`] names what comes out.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::reduce::{DataType, ReduceOp};

/// The kernels' text. It includes nothing: the parts simply follow each other.
const TEXT: &str = concat!(
    include_str!("kernels/elements.cuh"),
    include_str!("kernels/operators.cuh"),
    include_str!("kernels/pack.cuh"),
    include_str!("kernels/fold.cuh"),
    include_str!("kernels/system.cuh"),
    include_str!("kernels/board.cuh"),
    include_str!("kernels/peers.cuh"),
    include_str!("kernels/mail.cuh"),
    include_str!("kernels/lent.cuh"),
    include_str!("kernels/flags.cuh"),
    include_str!("kernels/entry.cu"),
);

/// What a kernel does. A factor is an argument of the launch, and no part of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kernel {
    /// Folds arrays that one GPU can read. Its argument is [`Arguments`](super::Arguments).
    Reduce(DataType, ReduceOp),
    /// Every rank folds the pieces that all ranks have for it. Its argument, as that of the others below, is
    /// [`PeerArguments`](super::PeerArguments).
    Fold(DataType, ReduceOp),
    /// Every rank folds its part of a vector, and gathers the parts of the others.
    TwoShot(DataType, ReduceOp),
    /// Every rank copies the pieces that the others have for it.
    Copy,
    /// As the three before, from the ranks' own arrays if all have lent them. The argument of these is
    /// [`LentArguments`](super::LentArguments).
    FoldLent(DataType, ReduceOp),
    /// As above.
    TwoShotLent(DataType, ReduceOp),
    /// As above.
    CopyLent,
    /// Messages between pairs of ranks. Its argument is [`MailArguments`](super::MailArguments).
    Mail,
    /// What a stream that copies by itself tells other ranks, and waits for. Its argument is
    /// [`FlagsArguments`](super::FlagsArguments).
    Flags,
}

impl Kernel {
    /// The most threads that a block of any kernel may have.
    pub const THREADS_MAX: u32 = 512;

    /// The kind as names and `kernels/` call it, and what it is made for.
    const fn parts(self) -> (&'static str, &'static str, DataType, ReduceOp) {
        match self {
            Kernel::Reduce(data_type, op) => ("reduce", "Reduce", data_type, op),
            Kernel::Fold(data_type, op) => ("fold", "Fold", data_type, op),
            Kernel::TwoShot(data_type, op) => ("two_shot", "TwoShot", data_type, op),
            Kernel::Copy => ("copy", "Copy", DataType::U8, ReduceOp::Sum),
            Kernel::FoldLent(data_type, op) => ("fold_lent", "FoldLent", data_type, op),
            Kernel::TwoShotLent(data_type, op) => ("two_shot_lent", "TwoShotLent", data_type, op),
            Kernel::CopyLent => ("copy_lent", "CopyLent", DataType::U8, ReduceOp::Sum),
            Kernel::Mail => ("mail", "Mail", DataType::U8, ReduceOp::Sum),
            Kernel::Flags => ("flags", "Flags", DataType::U8, ReduceOp::Sum),
        }
    }

    /// The name of the entry point: the same for the same kernel, and for no other.
    #[must_use]
    pub fn name(self) -> String {
        let (kind, _, data_type, op) = self.parts();
        match self {
            Kernel::Copy | Kernel::CopyLent | Kernel::Mail | Kernel::Flags => format!("paceline_{kind}"),
            _ => format!("paceline_{kind}_{op}_{data_type}"),
        }
    }
}

/// What NVRTC is given to compile one kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// CUDA C++ that needs no header.
    pub text: &'static str,
    /// The kernel's entry point. It takes one argument, which [`Kernel`] says.
    pub name: String,
    /// The compiler's options.
    pub options: Vec<String>,
}

/// A GPU's compute capability.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Architecture {
    /// 9 of 9.0.
    pub major: u32,
    /// 0 of 9.0.
    pub minor: u32,
}

impl Architecture {
    /// Compute capability `major`.`minor`.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Architecture {
        Architecture { major, minor }
    }
}

/// `sm_90`, as compilers call it.
impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

/// `kernel` for `architecture`.
#[must_use]
pub fn source(kernel: Kernel, architecture: Architecture) -> Source {
    let (name, (_, kind, data_type, op)) = (kernel.name(), kernel.parts());
    let options = vec![
        "--std=c++17".to_owned(),
        format!("--gpu-architecture={architecture}"),
        // A product that is added without being rounded, a flushed subnormal or an approximate quotient would be other
        // bits than the host's.
        "--fmad=false".to_owned(),
        "--ftz=false".to_owned(),
        "--prec-div=true".to_owned(),
        format!("--define-macro=PACELINE_KIND={kind}"),
        format!("--define-macro=PACELINE_ELEMENT={}", element(data_type)),
        format!("--define-macro=PACELINE_OPERATOR={}", operator(op)),
        format!("--define-macro=PACELINE_KERNEL={name}"),
    ];
    Source { text: TEXT, name, options }
}

/// What an element type is called in `kernels/elements.cuh`.
const fn element(data_type: DataType) -> &'static str {
    match data_type {
        DataType::I8 => "I8",
        DataType::U8 => "U8",
        DataType::I32 => "I32",
        DataType::U32 => "U32",
        DataType::I64 => "I64",
        DataType::U64 => "U64",
        DataType::F16 => "F16",
        DataType::F32 => "F32",
        DataType::F64 => "F64",
        DataType::Bf16 => "Bf16",
        DataType::F8E4M3 => "F8E4M3",
        DataType::F8E5M2 => "F8E5M2",
    }
}

/// What an operator is called in `kernels/operators.cuh`.
const fn operator(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Sum => "Sum",
        ReduceOp::Prod => "Prod",
        ReduceOp::Min => "Min",
        ReduceOp::Max => "Max",
        ReduceOp::Avg => "Avg",
        ReduceOp::PreMulSum(_) => "PreMulSum",
    }
}

/// What names a compiled kernel: a digest of all that it depends on, the same in every process and build.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

impl Source {
    /// The key of what `compiler` makes of this: its name and version, such as `nvrtc 12.9`.
    #[must_use]
    pub fn key(&self, compiler: &str) -> Key {
        let mut digest = Sha256::new();
        let options = self.options.iter().map(String::as_str);
        for part in [compiler, self.text, &self.name].into_iter().chain(options) {
            // With its length before it no part can pass for the end of the one before.
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Key(digest.finalize().into())
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const OPERATORS: [ReduceOp; 6] =
        [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg, ReduceOp::PreMulSum(0)];

    #[test]
    fn every_kernel_has_a_name_and_a_key_of_its_own() {
        let (mut names, mut keys) = (BTreeSet::new(), BTreeSet::new());
        let architectures = [Architecture::new(8, 0), Architecture::new(10, 0)];
        let pairs = DataType::ALL.into_iter().flat_map(|data_type| OPERATORS.map(|op| (data_type, op)));
        let kernels = pairs
            .flat_map(|(data_type, op)| {
                let lent = [Kernel::FoldLent(data_type, op), Kernel::TwoShotLent(data_type, op)];
                [Kernel::Reduce(data_type, op), Kernel::Fold(data_type, op), Kernel::TwoShot(data_type, op)]
                    .into_iter()
                    .chain(lent)
            })
            .chain([Kernel::Copy, Kernel::CopyLent, Kernel::Mail, Kernel::Flags]);
        for kernel in kernels {
            for architecture in architectures {
                let source = source(kernel, architecture);
                keys.insert(source.key("nvrtc 12.9").to_string());
                keys.insert(source.key("nvrtc 12.8").to_string());
                names.insert(source.name);
            }
        }
        assert_eq!((names.len(), keys.len()), (12 * 6 * 5 + 4, (12 * 6 * 5 + 4) * 2 * 2));
        assert!(names.iter().all(|name| name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')));
    }

    #[test]
    fn a_key_depends_on_every_part_and_on_nothing_else() {
        let made = || Source { text: "text", name: "name".into(), options: vec!["-a".into(), "-b".into()] };
        let key = made().key("compiler");
        assert_eq!(key.to_string(), "bcdd32fd1a0e53c6380af048733858fc361056fce1ce9b5b868f204ef13c90a4");
        assert_ne!(Source { text: "texts", ..made() }.key("compiler"), key);
        assert_ne!(Source { name: "names".into(), ..made() }.key("compiler"), key);
        assert_ne!(Source { options: vec!["-a-b".into()], ..made() }.key("compiler"), key);
        assert_ne!(Source { options: vec!["-a".into(), "-b".into(), String::new()], ..made() }.key("compiler"), key);
        assert_ne!(made().key("compiler "), key);
        let scaled = |factor| Kernel::TwoShot(DataType::F32, ReduceOp::PreMulSum(factor));
        assert_eq!(source(scaled(1), Architecture::new(8, 6)), source(scaled(2), Architecture::new(8, 6)));
    }

    #[test]
    fn the_text_includes_nothing_and_nothing_is_computed_fast_and_loose() {
        assert!(!TEXT.contains("#include"));
        let source = source(Kernel::Reduce(DataType::Bf16, ReduceOp::Avg), Architecture::new(10, 0));
        for option in ["--gpu-architecture=sm_100", "--fmad=false", "--ftz=false", "--prec-div=true"] {
            assert!(source.options.iter().any(|given| given == option), "{option}");
        }
        assert!(source.options.iter().all(|option| !option.contains("fast")));
        assert_eq!(source.name, "paceline_reduce_avg_bfloat16");
    }
}
