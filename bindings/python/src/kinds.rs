//! What the elements of an array are, and how paceline moves and reduces them.

use paceline_comm::{DataType, ReduceOp};

/// Which operators make sense of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reduces {
    /// All: they are elements of the library.
    Numbers,
    /// Those of two truth values that give one: 0 or 1.
    Truths,
    /// Those that take the real and the imaginary part each by itself.
    Complex,
    /// None: they can only be moved.
    Never,
}

/// The elements of an array: each is some of the library's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// What the library takes their parts for.
    pub data_type: DataType,
    /// How many parts each has.
    pub parts: usize,
    reduces: Reduces,
}

const fn number(data_type: DataType) -> Kind {
    Kind { data_type, parts: 1, reduces: Reduces::Numbers }
}

const TRUTH: Kind = Kind { reduces: Reduces::Truths, ..number(DataType::U8) };

impl Kind {
    /// Bytes that can only be moved, `bytes` of them for each element.
    pub const fn opaque(bytes: usize) -> Kind {
        Kind { data_type: DataType::U8, parts: bytes, reduces: Reduces::Never }
    }

    /// The bytes of one element.
    pub const fn bytes(self) -> usize {
        self.data_type.size() * self.parts
    }

    fn complex(bytes: usize) -> Option<Kind> {
        let data_type = match bytes {
            8 => DataType::F32,
            16 => DataType::F64,
            _ => return None,
        };
        Some(Kind { data_type, parts: 2, reduces: Reduces::Complex })
    }

    /// By a format of the module `struct`, as the buffer protocol has them; `None` if elements mean something only here.
    pub fn from_format(format: &str, bytes: usize) -> Option<Kind> {
        let native = if cfg!(target_endian = "little") { '<' } else { '>' };
        let code = format.strip_prefix(['@', '=', '|', native]).unwrap_or(format);
        let kind = match code {
            "?" => Some(TRUTH),
            "c" => Some(number(DataType::U8)),
            "b" | "h" | "i" | "l" | "q" | "n" => whole(true, bytes),
            "B" | "H" | "I" | "L" | "Q" | "N" => whole(false, bytes),
            "e" | "f" | "d" => float(bytes),
            "Zf" | "Zd" => Kind::complex(bytes),
            // Objects and addresses. The names of a structure's fields stand between colons.
            _ if code.split(':').step_by(2).any(|codes| codes.contains(['O', 'P', '&', 'X'])) => return None,
            _ => None,
        };
        Some(kind.unwrap_or(Kind::opaque(bytes)))
    }

    /// By DLPack's code, bits and lanes; `None` if elements don't fill bytes.
    pub fn from_dlpack(code: u8, bits: u8, lanes: u16) -> Option<Kind> {
        let all = usize::from(bits) * usize::from(lanes);
        if all == 0 || !all.is_multiple_of(8) || bits < 8 {
            return None;
        }
        let bytes = all / 8;
        let kind = match (code, lanes) {
            (0, 1) => whole(true, bytes),
            (1, 1) => whole(false, bytes),
            (2, 1) => float(bytes),
            (4, 1) if bits == 16 => Some(number(DataType::Bf16)),
            (5, 1) => Kind::complex(bytes),
            (6, 1) if bits == 8 => Some(TRUTH),
            (10, 1) if bits == 8 => Some(number(DataType::F8E4M3)),
            (12, 1) if bits == 8 => Some(number(DataType::F8E5M2)),
            _ => None,
        };
        Some(kind.unwrap_or(Kind::opaque(bytes)))
    }

    /// By the name of a numpy type that has no format, as those of ml_dtypes.
    pub fn from_name(name: &str, bytes: usize) -> Kind {
        let known = DataType::named(name).filter(|data_type| data_type.size() == bytes);
        known.map_or(Kind::opaque(bytes), number)
    }

    /// What they are called.
    pub fn name(self) -> String {
        match self.reduces {
            Reduces::Numbers => name(self.data_type).to_owned(),
            Reduces::Truths => "bool".to_owned(),
            Reduces::Complex => format!("complex{}", 16 * self.data_type.size()),
            Reduces::Never => format!("{} opaque bytes", self.parts),
        }
    }

    /// Why elements can't be combined so, if they can't.
    pub fn refuses(self, op: ReduceOp) -> Option<String> {
        let (fits, instead) = match self.reduces {
            Reduces::Numbers => (true, ""),
            Reduces::Truths => {
                (matches!(op, ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max), "take max for or, min for and")
            }
            Reduces::Complex => {
                (matches!(op, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_)), "take sum or avg")
            }
            Reduces::Never => (false, "convert them to a type that paceline reduces"),
        };
        (!fits).then(|| format!("elements that are {} have no {op}; {instead}", self.name()))
    }
}

/// As numpy and torch call it.
fn name(data_type: DataType) -> &'static str {
    match data_type {
        DataType::F16 => "float16",
        DataType::F32 => "float32",
        DataType::F64 => "float64",
        DataType::F8E4M3 => "float8_e4m3fn",
        DataType::F8E5M2 => "float8_e5m2",
        _ => data_type.name(),
    }
}

fn whole(signed: bool, bytes: usize) -> Option<Kind> {
    let data_type = match (signed, bytes) {
        (true, 1) => DataType::I8,
        (true, 4) => DataType::I32,
        (true, 8) => DataType::I64,
        (false, 1) => DataType::U8,
        (false, 4) => DataType::U32,
        (false, 8) => DataType::U64,
        _ => return None,
    };
    Some(number(data_type))
}

fn float(bytes: usize) -> Option<Kind> {
    let data_type = match bytes {
        2 => DataType::F16,
        4 => DataType::F32,
        8 => DataType::F64,
        _ => return None,
    };
    Some(number(data_type))
}
