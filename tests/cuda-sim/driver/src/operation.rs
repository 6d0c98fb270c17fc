//! Operations: what streams do, one after the other. A graph keeps them and does them again.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::Clock;
use crate::context::as_host_function;
use crate::driver::Driver;
use crate::error::{Code, Status, refuse};
use crate::event::Shared;
use crate::graph::Node;
use crate::handle::lock;
use crate::memory::{Allocation, Kind};
use crate::module::Launch;
use crate::point::Point;
use crate::race::{Access, found};
use crate::stream::Stream;
use crate::value::{WaitValue, WriteValue};

/// A piece of a stream's work.
#[derive(Clone)]
pub enum Operation {
    Copy {
        to: End,
        from: Source,
        bytes: usize,
    },
    Fill {
        to: End,
        pattern: Pattern,
        count: usize,
    },
    Launch(Launch),
    Call(Call),
    /// The end of an event's record; nothing to do.
    Record,
    /// The event of a record that another stream, or this one, does.
    Await(Arc<Point>),
    /// Other processes see that the event's record was reached.
    Announce(Arc<Shared>, u64),
    /// Until another process's, or this one's, record is reached.
    AwaitShared(Arc<Shared>, u64),
    WaitValue(WaitValue),
    WriteValue(WriteValue),
    Graph(Arc<Vec<Node>>),
    Free(Arc<Allocation>),
}

/// Where bytes lie: in an allocation, or in memory of the host that the driver doesn't know.
#[derive(Clone)]
pub struct End {
    pub address: u64,
    pub allocation: Option<Arc<Allocation>>,
}

/// Where bytes come from: the end, or what was there when the call was made.
#[derive(Clone)]
pub enum Source {
    End(End),
    Staged(Arc<[u8]>),
}

/// What memory is filled with.
#[derive(Clone, Copy)]
pub enum Pattern {
    Byte(u8),
    Half(u16),
    Word(u32),
}

impl Pattern {
    pub fn bytes(self) -> usize {
        match self {
            Pattern::Byte(_) => 1,
            Pattern::Half(_) => 2,
            Pattern::Word(_) => 4,
        }
    }
}

/// A function of the host and its argument.
#[derive(Clone)]
pub struct Call {
    pub function: unsafe extern "C" fn(*mut c_void),
    pub data: usize,
}

/// What is written at once and is no longer than this may be what a kernel or another stream waits for, in bytes.
const FLAG: usize = 16;

/// A stream at one of its operations.
pub struct Turn<'a> {
    pub driver: &'static Driver,
    pub stream: &'a Stream,
    /// The number of the operation in its stream, from 1.
    pub nth: u64,
    /// What came before it, itself included.
    pub clock: Clock,
}

impl Operation {
    /// Does it.
    ///
    /// # Errors
    ///
    /// What ends the context.
    pub fn run(&self, turn: &mut Turn<'_>) -> Status {
        match self {
            Operation::Copy { .. } | Operation::Fill { .. } => {
                self.accesses(|end, bytes, writes| {
                    turn.note(end, bytes, writes);
                    if writes && bytes <= FLAG {
                        turn.may_be_a_flag(end.address, bytes);
                    }
                });
                self.move_bytes();
                Ok(())
            }
            Operation::Launch(launch) => {
                // Kernels may wait for each other, and for those of other processes.
                lock(&turn.driver.order.outward).join(&turn.clock);
                let done = launch.run(turn.driver);
                turn.clock.join(&lock(&turn.driver.order.outward));
                done
            }
            Operation::Call(call) => {
                lock(&turn.driver.order.host).join(&turn.clock);
                // SAFETY: who enqueued it keeps the function and what it is given until it has run.
                as_host_function(|| unsafe { (call.function)(call.data as *mut c_void) });
                turn.clock.join(&lock(&turn.driver.order.host));
                Ok(())
            }
            Operation::Record => Ok(()),
            Operation::Await(point) => {
                turn.clock.join(&point.wait().clock);
                Ok(())
            }
            Operation::Announce(shared, generation) => {
                lock(&turn.driver.order.outward).join(&turn.clock);
                shared.complete(*generation);
                Ok(())
            }
            Operation::AwaitShared(shared, generation) => {
                shared.wait(*generation, &turn.stream.context);
                turn.clock.join(&lock(&turn.driver.order.outward));
                Ok(())
            }
            Operation::WaitValue(wait) => wait.run(turn),
            Operation::WriteValue(write) => {
                write.run(turn);
                Ok(())
            }
            Operation::Graph(nodes) => nodes.iter().try_for_each(|node| {
                node.operation.check_memory(turn.driver)?;
                node.operation.run(turn)
            }),
            Operation::Free(allocation) => {
                free(turn.driver, allocation);
                Ok(())
            }
        }
    }

    /// Tells of each range that a copy or a fill touches: where it is, how long, and whether it is written.
    pub fn accesses(&self, mut tell: impl FnMut(&End, usize, bool)) {
        match self {
            Operation::Copy { to, from, bytes } => {
                if let Source::End(from) = from {
                    tell(from, *bytes, false);
                }
                tell(to, *bytes, true);
            }
            Operation::Fill { to, pattern, count } => tell(to, pattern.bytes() * count, true),
            _ => {}
        }
    }

    /// Finds out whether what a graph uses was freed since it was captured.
    fn check_memory(&self, driver: &Driver) -> Status {
        let mut used: Vec<End> = Vec::new();
        self.accesses(|end, _, _| used.push(end.clone()));
        if let Operation::WaitValue(WaitValue { place, .. }) | Operation::WriteValue(WriteValue { place, .. }) = self {
            used.push(End { address: place.address, allocation: Some(place.allocation.clone()) });
        }
        let is_there = |allocation: &Arc<Allocation>| {
            driver.memory.at(allocation.address).is_some_and(|found| Arc::ptr_eq(&found, allocation))
        };
        match used.iter().find(|end| end.allocation.as_ref().is_some_and(|allocation| !is_there(allocation))) {
            Some(end) => refuse(
                Code::CUDA_ERROR_ILLEGAL_ADDRESS,
                format_args!("a graph uses {:#x}, which was freed since it was captured", end.address),
            ),
            None => Ok(()),
        }
    }

    fn move_bytes(&self) {
        match self {
            Operation::Copy { to, from, bytes } => {
                let from = match from {
                    Source::End(from) => from.address as *const u8,
                    Source::Staged(staged) => staged.as_ptr(),
                };
                // SAFETY: the call found both ends in allocations that this operation keeps, or the caller keeps them.
                unsafe { std::ptr::copy(from, to.address as *mut u8, *bytes) };
            }
            Operation::Fill { to, pattern, count } => {
                let to = to.address as *mut u8;
                // SAFETY: as above; a pattern's address is a multiple of its size, which the call checked.
                unsafe {
                    match pattern {
                        Pattern::Byte(byte) => to.write_bytes(*byte, *count),
                        Pattern::Half(half) => std::slice::from_raw_parts_mut(to.cast::<u16>(), *count).fill(*half),
                        Pattern::Word(word) => std::slice::from_raw_parts_mut(to.cast::<u32>(), *count).fill(*word),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Gives an allocation's memory back that nobody uses any more.
pub fn free(driver: &Driver, allocation: &Allocation) {
    if allocation.is_leaving.load(Ordering::Acquire) {
        driver.memory.remove_leaving(allocation);
    }
    if matches!(allocation.kind, Kind::Device | Kind::Pooled) {
        let pages = crate::mapping::in_pages(allocation.bytes).expect("it was allocated");
        driver.devices[allocation.device].give_back(pages as u64);
    }
    let end = allocation.address + allocation.bytes as u64;
    let mut values = lock(&driver.order.values);
    let mut rest = values.split_off(&allocation.address);
    values.append(&mut rest.split_off(&end));
}

impl Turn<'_> {
    /// Who waits for what is written there comes after this operation.
    fn may_be_a_flag(&self, address: u64, bytes: usize) {
        lock(&self.driver.order.outward).join(&self.clock);
        let mut values = lock(&self.driver.order.values);
        for word in (address..address + bytes as u64).step_by(4) {
            values.entry(word).or_default().join(&self.clock);
        }
    }

    fn note(&self, end: &End, bytes: usize, writes: bool) {
        let Some(allocation) = end.allocation.as_ref().filter(|_| bytes > 0) else { return };
        let addresses = end.address..end.address + bytes as u64;
        let access = Access { addresses, stream: self.stream.handle, nth: self.nth, writes };
        if let Some(other) = lock(&allocation.accesses).note(access.clone(), &self.clock) {
            found(&other, &access);
        }
    }
}
