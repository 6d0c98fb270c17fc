//! What is compared: wires, ranks, collectives, element types and sizes, and how often each is run in a row.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

pub use crate::call::Call;

/// The sizes where nothing else is asked for, in bytes.
pub const SIZES: [usize; 9] = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20];

/// How the ranks reach each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Wire {
    /// Processes of one host.
    Shm,
    /// Processes in two network namespaces, half of the ranks in each, over TCP alone.
    Tcp,
    /// paceline's ranks are threads of one process; the others' are processes of one host.
    Threads,
}

/// What the elements are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum ElementType {
    /// IEEE single.
    F32,
    /// IEEE double.
    F64,
    /// IEEE half.
    F16,
    /// The upper half of a single.
    Bf16,
}

/// One table: the sizes are its rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Group {
    /// How the ranks reach each other.
    pub wire: Wire,
    /// How many ranks there are.
    pub ranks: usize,
    /// What they call.
    pub call: Call,
    /// On what.
    pub element: ElementType,
}

/// One row: a call at a size, as the loops are told it (`all_reduce:f32:4096:24900`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// What is called.
    pub call: Call,
    /// On what.
    pub element: ElementType,
    /// The size as nccl-tests counts it: the vector, all ranks' blocks together, or the message.
    pub bytes: usize,
    /// Calls that are timed together.
    pub iterations: usize,
}

impl Wire {
    /// Its name in options and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["shm", "tcp", "threads"][self as usize]
    }
}

impl ElementType {
    /// Its name in options and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["f32", "f64", "f16", "bf16"][self as usize]
    }

    /// Bytes of one element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            ElementType::F64 => 8,
            ElementType::F32 => 4,
            ElementType::F16 | ElementType::Bf16 => 2,
        }
    }
}

impl Cell {
    /// Elements of the smaller buffer: of a block, or of the vector. Rounded down, as nccl-tests does; 0 if there is no
    /// whole one. Of blocks of different lengths, all together.
    #[must_use]
    pub fn count(&self, ranks: usize) -> usize {
        let elements = self.bytes / self.element.bytes();
        if self.call.has_blocks() { elements / ranks } else { elements }
    }

    /// What the timed calls move between the two halves of the ranks at least, both ways together, in bytes.
    #[must_use]
    pub fn crossing_bytes(&self, ranks: usize) -> u64 {
        let times = if self.call.has_blocks() { ranks } else { self.call.at_once() };
        (self.count(ranks) * times * self.element.bytes() * self.iterations) as u64
    }
}

impl Group {
    /// The rows at these sizes, and the sizes at which a block would have no element.
    #[must_use]
    pub fn cells(&self, sizes: &[usize], cores: usize) -> (Vec<Cell>, Vec<usize>) {
        let cell = |&bytes: &usize| {
            let iterations = iterations(self.wire, self.ranks, bytes * self.call.at_once(), cores);
            let iterations = iterations.min(self.call.iterations_max());
            Cell { call: self.call, element: self.element, bytes, iterations }
        };
        if !self.call.has_sizes() {
            return (vec![cell(&0)], Vec::new());
        }
        let (cells, skipped): (Vec<_>, Vec<_>) = sizes.iter().map(cell).partition(|cell| cell.count(self.ranks) > 0);
        (cells, skipped.iter().map(|cell| cell.bytes).collect())
    }
}

/// As many calls as take a few tenths of a second: fewer where each has more to move, farther, or must wait for a core.
#[must_use]
pub fn iterations(wire: Wire, ranks: usize, bytes: usize, cores: usize) -> usize {
    let crowd = ranks.div_ceil(cores.max(1));
    let (start, slowness) = match wire {
        Wire::Tcp => (600_000, 4),
        Wire::Shm | Wire::Threads if crowd > 1 => (60_000, 2),
        Wire::Shm | Wire::Threads => (20_000, 1),
    };
    (600_000_000 / (bytes * slowness * ranks.div_ceil(2) + start * crowd)).clamp(5, 30_000)
}

/// The tables of a matrix: element types other than f32 are compared in all_reduce alone, where they mean arithmetic.
#[must_use]
pub fn groups(wires: &[Wire], ranks: &[usize], calls: &[Call], elements: &[ElementType]) -> Vec<Group> {
    let mut groups = Vec::new();
    for &wire in wires {
        for &ranks in ranks {
            for &call in calls {
                let fits = |element: &&ElementType| call == Call::AllReduce || **element == ElementType::F32;
                let group = |&element| Group { wire, ranks, call, element };
                groups.extend(elements.iter().filter(fits).map(group));
            }
        }
    }
    groups
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.call.name(), self.element.name(), self.bytes, self.iterations)
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Cell, String> {
        let wrong = || format!("{text:?} is not call:type:bytes:iterations, such as all_reduce:f32:4096:1000");
        let [call, element, bytes, iterations] = text.split(':').collect::<Vec<_>>()[..] else { return Err(wrong()) };
        let call = Call::named(call).ok_or_else(wrong)?;
        let element = ElementType::from_str(element, false).map_err(|_| wrong())?;
        let number = |text: &str| text.parse().map_err(|_| wrong());
        Ok(Cell { call, element, bytes: number(bytes)?, iterations: number(iterations)? })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Group { wire, ranks, call, element } = self;
        write!(f, "{}, {ranks} ranks, {} {}", wire.name(), call.name(), element.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_options() {
        for element in ElementType::value_variants() {
            assert_eq!(element.to_possible_value().unwrap().get_name(), element.name());
        }
        for wire in Wire::value_variants() {
            assert_eq!(wire.to_possible_value().unwrap().get_name(), wire.name());
        }
    }

    #[test]
    fn cells_are_read_back() {
        let cell = Cell { call: Call::AllToAll, element: ElementType::Bf16, bytes: 512, iterations: 7 };
        assert_eq!(cell.to_string(), "all_to_all:bf16:512:7");
        assert_eq!(cell.to_string().parse(), Ok(cell));
        for wrong in ["", "all_reduce", "all_reduce:f32:8", "all_reduce:f8:8:1", "gather:f32:8:1", "all_reduce:f32:x:1"]
        {
            assert!(wrong.parse::<Cell>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn blocks_of_less_than_an_element_are_skipped() {
        let of = |call, ranks, element| {
            let group = Group { wire: Wire::Shm, ranks, call, element };
            let (cells, skipped) = group.cells(&[2, 8, 64], 2);
            (cells.iter().map(|cell| cell.count(ranks)).collect::<Vec<_>>(), skipped)
        };
        assert_eq!(of(Call::AllReduce, 8, ElementType::F32), (vec![2, 16], vec![2]));
        assert_eq!(of(Call::AllReduce, 8, ElementType::F16), (vec![1, 4, 32], vec![]));
        assert_eq!(of(Call::AllGather, 2, ElementType::F32), (vec![1, 8], vec![2]));
        assert_eq!(of(Call::AllToAll, 4, ElementType::F32), (vec![4], vec![2, 8]));
    }

    #[test]
    fn more_work_is_run_less_often() {
        assert_eq!(iterations(Wire::Shm, 2, 8, 2), 29_988);
        assert_eq!(iterations(Wire::Shm, 2, 64 << 20, 2), 8);
        assert_eq!(iterations(Wire::Tcp, 8, 64 << 20, 2), 5);
        for bytes in SIZES {
            assert!(iterations(Wire::Tcp, 2, bytes, 2) <= iterations(Wire::Shm, 2, bytes, 2));
            assert!(iterations(Wire::Shm, 8, bytes, 2) <= iterations(Wire::Shm, 4, bytes, 2));
            assert!(iterations(Wire::Shm, 4, bytes, 2) <= iterations(Wire::Shm, 4, bytes, 8));
        }
    }

    #[test]
    fn what_has_no_size_is_one_row() {
        let group = Group { wire: Wire::Shm, ranks: 2, call: Call::Split, element: ElementType::F32 };
        let (cells, skipped) = group.cells(&[8, 64], 2);
        assert_eq!((cells.len(), cells[0].bytes, cells[0].crossing_bytes(2)), (1, 0, 0));
        assert!(skipped.is_empty());
    }

    #[test]
    fn other_types_are_for_all_reduce() {
        let calls = [Call::AllReduce, Call::AllGather];
        let groups = groups(&[Wire::Shm], &[2, 4], &calls, ElementType::value_variants());
        assert_eq!(groups.len(), 2 * (4 + 1));
        assert!(groups.iter().all(|group| group.call == Call::AllReduce || group.element == ElementType::F32));
    }
}
