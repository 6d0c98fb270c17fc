//! The loop, as paceline's ranks run it: page-aligned buffers, out of place, the slowest rank's time per call.

use std::fmt::Debug;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use half::{bf16, f16};
use paceline_comm::{Buffer, Communicator, Element, ReduceOp};

use crate::call::GROUPED;
use crate::matrix::{Call, Cell, ElementType};
use crate::orders::obey;
use crate::overlap;
use crate::pattern::{expected, lengths, value};
use crate::shares::{receives, sends};

/// Where buffers begin.
const PAGE_BYTES: usize = 4096;

/// What a worker runs, and as which ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// What it runs first.
    pub cells: Vec<Cell>,
    /// A folder with a pipe for each rank, by which further cells come; see [`obey`].
    pub orders: Option<PathBuf>,
    /// As how many ranks that are alone; otherwise as one rank of the environment's communicator.
    pub threads: Option<usize>,
    /// Whether buffers are in registered memory.
    pub registered: bool,
}

/// Runs the cells; rank 0 prints `time` and microseconds per call as each is done.
///
/// # Errors
///
/// If the ranks don't meet, a call fails, or its result is wrong.
pub fn worker(work: &Work) -> Result<(), String> {
    // No rank outlives the program that started it.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let comms = match work.threads {
        None => vec![Communicator::from_env().map_err(|error| error.to_string())?],
        Some(threads) => Communicator::from_env_threads(threads).map_err(|error| error.to_string())?,
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = comms.iter().map(|comm| scope.spawn(|| rank(comm, work))).collect();
        ranks.into_iter().try_for_each(|rank| rank.join().map_err(|_| "a rank's thread panicked".to_owned())?)
    })
}

fn rank(comm: &Communicator, work: &Work) -> Result<(), String> {
    let one = |cell: &Cell| one(comm, cell, work.registered);
    work.cells.iter().try_for_each(one)?;
    let pipe = work.orders.as_ref().map(|folder| folder.join(comm.rank().to_string()));
    pipe.map_or(Ok(()), |pipe| obey(&pipe, one))
}

fn one(comm: &Communicator, cell: &Cell, registered: bool) -> Result<(), String> {
    if cell.call == Call::Overlap {
        return overlap::worker::measure(comm, cell);
    }
    let measured = match cell.element {
        ElementType::F32 => measure(comm, cell, registered, |number| number as f32),
        ElementType::F64 => measure(comm, cell, registered, |number| number as f64),
        ElementType::F16 => measure(comm, cell, registered, |number| f16::from_f32(number as f32)),
        ElementType::Bf16 => measure(comm, cell, registered, |number| bf16::from_f32(number as f32)),
    };
    let slowest_us = measured.map_err(|error| format!("rank {}: {cell}: {error}", comm.rank()))?;
    if comm.rank() == 0 {
        println!("time {slowest_us:.4}");
    }
    Ok(())
}

/// Memory of a call, page-aligned.
enum Space<T> {
    Own { memory: Vec<T>, first: usize, length: usize },
    Registered(Buffer<T>),
}

impl<T: Element + Copy> Space<T> {
    fn new(comm: &Communicator, length: usize, registered: bool, zero: T) -> Result<Space<T>, String> {
        if registered {
            return comm.alloc(length).map(Space::Registered).map_err(told);
        }
        let (memory, first) = aligned(length, zero);
        Ok(Space::Own { memory, first, length })
    }

    fn elements(&mut self) -> &mut [T] {
        match self {
            Space::Own { memory, first, length } => &mut memory[*first..*first + *length],
            Space::Registered(buffer) => buffer,
        }
    }
}

/// A vector and where its page-aligned part begins.
fn aligned<T: Copy>(length: usize, zero: T) -> (Vec<T>, usize) {
    let memory = vec![zero; length + PAGE_BYTES / size_of::<T>()];
    let first = memory.as_ptr().align_offset(PAGE_BYTES);
    (memory, first)
}

/// The slowest rank's microseconds per call.
fn measure<T>(comm: &Communicator, cell: &Cell, registered: bool, of: impl Fn(usize) -> T) -> Result<f64, String>
where
    T: Element + Copy + PartialEq + Debug,
{
    let (rank, ranks) = (comm.rank(), comm.size());
    let (inputs, outputs) = lengths(cell, ranks, rank);
    let mut input = Space::new(comm, inputs, registered, of(0))?;
    let input = input.elements();
    input.iter_mut().enumerate().for_each(|(at, element)| *element = of(value(rank, at)));
    let mut output = Space::new(comm, outputs, registered, of(0))?;
    let output = output.elements();
    if cell.call == Call::Broadcast && rank == 0 {
        output.copy_from_slice(input);
    }
    let split = match cell.call {
        Call::SplitAllReduce => Some(made_by_split(comm, 0, ranks)?),
        _ => None,
    };
    let place = Place {
        comm: split.as_ref().unwrap_or(comm),
        cell,
        sends: sends(cell, ranks, rank),
        receives: receives(cell, ranks, rank),
    };
    for _ in 0..cell.iterations / 10 + 2 {
        run(&place, input, output)?;
    }
    for (at, got) in output.iter().enumerate() {
        let want = expected(cell, ranks, rank, at).map(&of);
        if want.is_some_and(|want| want != *got) {
            return Err(format!("a wrong result: element {at} is {got:?}, not {want:?}"));
        }
    }
    comm.barrier().map_err(told)?;
    let start = Instant::now();
    for _ in 0..cell.iterations {
        run(&place, input, output)?;
    }
    let mut slowest = [start.elapsed().as_secs_f64() / cell.iterations as f64 * 1e6];
    comm.all_reduce_in_place(&mut slowest, ReduceOp::Max).map_err(told)?;
    Ok(slowest[0])
}

/// What is run, and where.
struct Place<'a> {
    comm: &'a Communicator,
    cell: &'a Cell,
    /// Elements to and from each rank, where blocks have different lengths.
    sends: Vec<usize>,
    receives: Vec<usize>,
}

fn told(error: paceline_comm::Error) -> String {
    error.to_string()
}

fn run<T: Element + Copy>(place: &Place, input: &[T], output: &mut [T]) -> Result<(), String> {
    let Place { comm, cell, sends, receives } = place;
    let (rank, ranks) = (comm.rank(), comm.size());
    let ended = match cell.call {
        Call::AllReduce | Call::SplitAllReduce | Call::Overlap => comm.all_reduce(input, output, ReduceOp::Sum),
        Call::ReduceScatter => comm.reduce_scatter(input, output, ReduceOp::Sum),
        Call::AllGather => comm.all_gather(input, output),
        Call::AllToAll => comm.all_to_all(input, output),
        Call::Broadcast => comm.broadcast(output, 0),
        Call::Reduce => comm.reduce(input, output, ReduceOp::Sum, 0),
        Call::SendRecv => comm.send_recv(input, (rank + 1) % ranks, output, (rank + ranks - 1) % ranks),
        Call::PingPong | Call::OneWay if rank ^ 1 >= ranks => Ok(()),
        Call::OneWay if rank % 2 == 0 => comm.send(input, rank + 1),
        Call::OneWay => comm.recv(output, rank - 1),
        Call::PingPong if rank % 2 == 0 => comm.send(input, rank + 1).and_then(|()| comm.recv(output, rank + 1)),
        Call::PingPong => comm.recv(output, rank - 1).and_then(|()| comm.send(input, rank - 1)),
        Call::ReduceScatterV => comm.reduce_scatter_v(input, output, sends, ReduceOp::Sum),
        Call::AllGatherV => comm.all_gather_v(input, output, sends),
        Call::AllToAllV => comm.all_to_all_v(input, sends, output, receives),
        Call::GroupOf50 => {
            let mut group = comm.group();
            let count = input.len() / GROUPED;
            for (input, output) in input.chunks(count).zip(output.chunks_mut(count)) {
                group.all_reduce(input, output, ReduceOp::Sum);
            }
            group.run()
        }
        Call::Split => return made_by_split(comm, 0, ranks).map(drop),
        Call::SplitHalves => {
            let first = ranks.div_ceil(2);
            let (color, size) = if rank < first { (0, first) } else { (1, ranks - first) };
            return made_by_split(comm, color, size).map(drop);
        }
        Call::Copy => {
            black_box(&mut *output).copy_from_slice(black_box(input));
            Ok(())
        }
    };
    ended.map_err(told)
}

/// A communicator of the ranks of this color, of which there are `size`.
fn made_by_split(comm: &Communicator, color: u64, size: usize) -> Result<Communicator, String> {
    let made = comm.split(Some(color), comm.rank() as i64).map_err(told)?.ok_or("no communicator for this color")?;
    if made.size() == size { Ok(made) } else { Err(format!("a split into {} ranks, not {size}", made.size())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_and_type_between_threads() {
        let comms = Communicator::in_process(3).expect("three ranks");
        let calls = [
            Call::AllReduce,
            Call::ReduceScatter,
            Call::AllGather,
            Call::AllToAll,
            Call::Broadcast,
            Call::Reduce,
            Call::SendRecv,
            Call::PingPong,
            Call::OneWay,
            Call::ReduceScatterV,
            Call::AllGatherV,
            Call::AllToAllV,
            Call::GroupOf50,
            Call::Split,
            Call::SplitHalves,
            Call::SplitAllReduce,
            Call::Copy,
        ];
        let types = [ElementType::F32, ElementType::F64, ElementType::F16, ElementType::Bf16];
        let cell = |(call, element)| Cell { call, element, bytes: 480, iterations: 3 };
        let cells: Vec<Cell> = calls.iter().flat_map(|&call| types.map(|element| cell((call, element)))).collect();
        let run = |work: &Work| {
            std::thread::scope(|scope| {
                let ranks: Vec<_> = comms.iter().map(|comm| scope.spawn(|| rank(comm, work))).collect();
                ranks.into_iter().for_each(|rank| rank.join().expect("no panic").expect("right results"));
            });
        };
        run(&Work { cells: cells.clone(), ..Work::default() });
        run(&Work { cells, registered: true, ..Work::default() });
    }

    #[test]
    fn buffers_begin_at_a_page() {
        let (memory, first) = aligned(10, 0f32);
        assert!(first + 10 <= memory.len());
        assert_eq!(memory[first..].as_ptr().addr() % PAGE_BYTES, 0);
    }
}
