//! Inputs whose reduction is the same bits in every order, and the results.
//!
//! Sums are of numbers so small that no partial sum is rounded; products are of powers of two, and at most one three.
//! Integers, minima and maxima are of any bits. Now and then all of it is spoilt by an infinity or a NaN, or is made of
//! signed zeros. A *column* is what all ranks bring to one place of a vector; there are some dozens of them, whose results
//! the scalar reference gives, and a vector's places draw their columns from a seed.

use paceline_comm::reduce::reference;
use paceline_comm::{DataType, ReduceOp};

use crate::{Random, mix};

/// The operators, with a factor that stands for any.
pub const OPERATORS: [ReduceOp; 6] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg, ReduceOp::PreMulSum(0)];

const COLUMNS: usize = 61;

/// Columns for one type, operator and number of ranks.
#[derive(Clone, Debug)]
pub struct Columns {
    data_type: DataType,
    ops: Vec<ReduceOp>,
    /// By rank, the bytes of all columns' elements.
    inputs: Vec<Vec<u8>>,
    results: Vec<u8>,
}

impl Columns {
    /// Draws columns for `ranks` ranks.
    ///
    /// # Panics
    ///
    /// If there are no ranks, or so many that sums must be rounded (beyond 64).
    #[must_use]
    pub fn new(data_type: DataType, op: ReduceOp, ranks: usize, seed: u64) -> Columns {
        assert!((1..=64).contains(&ranks));
        let random = &mut Random::new(mix(seed ^ (ranks as u64) << 32 ^ u64::from(data_type.code()) << 8));
        let factors: Vec<Factor> = (0..ranks).map(|_| Factor::draw(data_type, random)).collect();
        let scales = matches!(op, ReduceOp::PreMulSum(_));
        let mut inputs = vec![Vec::new(); ranks];
        for _ in 0..COLUMNS {
            for (rank, bits) in column(data_type, op, ranks, random).into_iter().enumerate() {
                let bits = match bits {
                    Bits::Any(bits) => bits,
                    Bits::Number(number) if scales => encode(data_type, number / factors[rank].value),
                    Bits::Number(number) => encode(data_type, number),
                };
                inputs[rank].extend_from_slice(&bits.to_le_bytes()[..data_type.size()]);
            }
        }
        let op_of = |factor: &Factor| if scales { ReduceOp::PreMulSum(factor.bits) } else { op };
        let ops: Vec<ReduceOp> = factors.iter().map(op_of).collect();
        let scaled: Vec<Vec<u8>> =
            inputs.iter().zip(&ops).map(|(input, op)| reference::scale(data_type, *op, input)).collect();
        let sources: Vec<&[u8]> = scaled.iter().map(Vec::as_slice).collect();
        let sum = reference::fold(data_type, op, &sources);
        let results = reference::finish(data_type, op, ranks as u32, &sum);
        Columns { data_type, ops, inputs, results }
    }

    /// The operator as rank `rank` must pass it.
    #[must_use]
    pub fn op(&self, rank: usize) -> ReduceOp {
        self.ops[rank]
    }

    /// What `rank` brings to `count` places from the place `first` on, in the vector that `salt` draws.
    #[must_use]
    pub fn input(&self, rank: usize, salt: u64, first: usize, count: usize) -> Vec<u8> {
        self.pick(&self.inputs[rank], salt, first, count)
    }

    /// The reduction of the same places.
    #[must_use]
    pub fn result(&self, salt: u64, first: usize, count: usize) -> Vec<u8> {
        self.pick(&self.results, salt, first, count)
    }

    fn pick(&self, from: &[u8], salt: u64, first: usize, count: usize) -> Vec<u8> {
        let size = self.data_type.size();
        let mut picked = vec![0; count * size];
        for (place, element) in picked.chunks_exact_mut(size).enumerate() {
            let column = mix(salt ^ (first + place) as u64) as usize % COLUMNS;
            element.copy_from_slice(&from[column * size..][..size]);
        }
        picked
    }
}

/// One rank's factor for the pre-multiplied sum: a power of two where elements are floats.
struct Factor {
    value: f64,
    bits: u64,
}

impl Factor {
    fn draw(data_type: DataType, random: &mut Random) -> Factor {
        if data_type.is_float() {
            let value = [1.0, -1.0, 2.0, -2.0, 0.5, 4.0][random.below(6) as usize];
            return Factor { value, bits: encode(data_type, value) };
        }
        Factor { value: 1.0, bits: random.next() & (u64::MAX >> (64 - 8 * data_type.size())) }
    }
}

/// One element: a number, or bits that mean whatever they mean.
#[derive(Clone, Copy)]
enum Bits {
    Number(f64),
    Any(u64),
}

fn column(data_type: DataType, op: ReduceOp, ranks: usize, random: &mut Random) -> Vec<Bits> {
    if !data_type.is_float() || matches!(op, ReduceOp::Min | ReduceOp::Max) {
        return (0..ranks).map(|_| Bits::Any(random.next())).collect();
    }
    let mut column: Vec<Bits> = match op {
        ReduceOp::Prod => powers(ranks, random),
        _ => small_numbers(data_type, ranks, random),
    };
    let anyone = random.below(ranks as u64) as usize;
    let format = Format::of(data_type);
    match random.below(12) {
        0 => column[anyone] = Bits::Any(format.nan(random)),
        1 => column[anyone] = format.infinity().map_or(column[anyone], Bits::Any),
        2 => column.fill(Bits::Number(-0.0)),
        3 => column[anyone] = Bits::Number(-0.0),
        _ => {}
    }
    column
}

/// Numbers whose positive and negative sums are exact, and with them all partial sums.
fn small_numbers(data_type: DataType, ranks: usize, random: &mut Random) -> Vec<Bits> {
    let exact = 2f64.powi(Format::of(data_type).mantissa_bits.min(30) + 1);
    let most = (exact / ranks as f64).max(1.0);
    let (mut above, mut below) = (0.0, 0.0);
    let mut draw = || {
        let size = 1.0 + random.below(most as u64) as f64;
        let number = if random.chance(500) { size } else { -size };
        let sum = if number > 0.0 { &mut above } else { &mut below };
        if random.chance(100) || *sum + size > exact {
            return Bits::Number(0.0);
        }
        *sum += size;
        Bits::Number(number)
    };
    (0..ranks).map(|_| draw()).collect()
}

/// Powers of two, and one three, whose products stay far from both ends of every type.
fn powers(ranks: usize, random: &mut Random) -> Vec<Bits> {
    let (mut twos, mut halves, mut threes) = (4, 4, 1);
    let mut draw = || {
        let (left, value) = match random.below(6) {
            0 => (&mut twos, 2.0),
            1 => (&mut halves, 0.5),
            2 => (&mut threes, 3.0),
            _ => return if random.chance(500) { 1.0 } else { -1.0 },
        };
        if *left == 0 {
            return 1.0;
        }
        *left -= 1;
        value
    };
    (0..ranks).map(|_| Bits::Number(draw())).collect()
}

/// How a float is made up.
struct Format {
    bits: u32,
    mantissa_bits: i32,
    has_infinity: bool,
}

impl Format {
    fn of(data_type: DataType) -> Format {
        let (mantissa_bits, has_infinity) = match data_type {
            DataType::F16 => (10, true),
            DataType::Bf16 => (7, true),
            DataType::F32 => (23, true),
            DataType::F64 => (52, true),
            DataType::F8E4M3 => (3, false),
            DataType::F8E5M2 => (2, true),
            _ => unreachable!("{data_type} is no float"),
        };
        Format { bits: 8 * data_type.size() as u32, mantissa_bits, has_infinity }
    }

    fn bias(&self) -> i32 {
        (1 << (self.bits as i32 - self.mantissa_bits - 2)) - 1
    }

    /// The bits of an infinity, or of the largest exponent where there is none.
    fn top(&self) -> u64 {
        (1 << (self.bits - 1)) - (1 << self.mantissa_bits)
    }

    fn infinity(&self) -> Option<u64> {
        self.has_infinity.then(|| self.top())
    }

    /// Any NaN, of any sign.
    fn nan(&self, random: &mut Random) -> u64 {
        let payload = if self.has_infinity { 1 + random.below((1 << self.mantissa_bits) - 1) } else { 7 };
        self.top() | payload | random.below(2) << (self.bits - 1)
    }
}

/// The bits of a number that the type holds exactly: of a float, zero or a normal one.
///
/// # Panics
///
/// If it doesn't.
#[must_use]
pub fn encode(data_type: DataType, number: f64) -> u64 {
    if !data_type.is_float() {
        assert_eq!(number.fract(), 0.0, "{number} as {data_type}");
        return number as i64 as u64;
    }
    let format = Format::of(data_type);
    let sign = u64::from(number.is_sign_negative()) << (format.bits - 1);
    if number == 0.0 {
        return sign;
    }
    let wide = number.abs().to_bits();
    let exponent = (wide >> 52) as i32 - 1023 + format.bias();
    let (mantissa, lost) = ((wide & ((1 << 52) - 1)) >> (52 - format.mantissa_bits), 52 - format.mantissa_bits);
    assert!(exponent > 0 && wide & ((1 << lost) - 1) == 0, "{number} is no {data_type}");
    let bits = (exponent as u64) << format.mantissa_bits | mantissa;
    assert!(bits < format.top() || !format.has_infinity && bits < format.top() + 7, "{number} is no {data_type}");
    sign | bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_encoded_as_the_types_say() {
        for (data_type, number, bits) in [
            (DataType::F16, 1.0, 0x3c00),
            (DataType::F16, -2048.0, 0xe800),
            (DataType::Bf16, 3.0, 0x4040),
            (DataType::F32, -0.0, 0x8000_0000),
            (DataType::F64, 0.5, 0x3fe0_0000_0000_0000),
            (DataType::F8E4M3, 448.0, 0x7e),
            (DataType::F8E4M3, 1.0, 0x38),
            (DataType::F8E5M2, -1.5, 0xbe),
            (DataType::I32, -1.0, u64::MAX),
        ] {
            assert_eq!(encode(data_type, number), bits, "{number} as {data_type}");
        }
    }

    /// Folds in another order, rounding every time, as some algorithm or other does.
    fn fold_pairwise(data_type: DataType, op: ReduceOp, mut sources: Vec<Vec<u8>>, random: &mut Random) -> Vec<u8> {
        while sources.len() > 1 {
            let one = sources.swap_remove(random.below(sources.len() as u64) as usize);
            let two = sources.swap_remove(random.below(sources.len() as u64) as usize);
            sources.push(reference::fold(data_type, op, &[&one, &two]));
        }
        sources.remove(0)
    }

    #[test]
    fn no_order_gives_another_result() {
        let random = &mut Random::new(3);
        for data_type in DataType::ALL {
            for op in OPERATORS {
                for ranks in [1, 2, 3, 5, 9, 16, 33] {
                    let columns = Columns::new(data_type, op, ranks, 17);
                    for _ in 0..3 {
                        let scale = |rank: usize| reference::scale(data_type, columns.op(rank), &columns.inputs[rank]);
                        let sum = fold_pairwise(data_type, op, (0..ranks).map(scale).collect(), random);
                        let result = reference::finish(data_type, op, ranks as u32, &sum);
                        assert_eq!(result, columns.results, "{data_type} {op} over {ranks} ranks");
                    }
                }
            }
        }
    }
}
