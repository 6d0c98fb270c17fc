//! Values in memory that streams wait for and write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::context::Context;
use crate::error::{Code, Status};
use crate::handle::lock;
use crate::memory::{Allocation, Kind};
use crate::operation::Turn;

/// A place for a number.
#[derive(Clone)]
pub struct Place {
    pub address: u64,
    /// It lies in it.
    pub allocation: Arc<Allocation>,
    /// Whether it has 64 bits, and not 32.
    pub is_wide: bool,
}

/// A stream waits until the number compares to `value`.
#[derive(Clone)]
pub struct WaitValue {
    pub place: Place,
    pub value: u64,
    pub until: Until,
}

/// A stream writes `value`.
#[derive(Clone)]
pub struct WriteValue {
    pub place: Place,
    pub value: u64,
}

/// How a number compares to the value that is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// It is not before it, on the circle of all numbers.
    Reached,
    Equal,
    /// A bit of the value is set in it.
    And,
    /// A bit of neither is set.
    Nor,
}

impl Until {
    /// By the flags of a call, without the one that flushes.
    pub fn of(flags: u32) -> Status<Until> {
        match flags & !(1 << 30) {
            0 => Ok(Until::Reached),
            1 => Ok(Until::Equal),
            2 => Ok(Until::And),
            3 => Ok(Until::Nor),
            _ => Err(Code::CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn holds(self, number: u64, value: u64, is_wide: bool) -> bool {
        let mask = if is_wide { u64::MAX } else { u64::from(u32::MAX) };
        match self {
            Until::Reached if is_wide => number.wrapping_sub(value) as i64 >= 0,
            Until::Reached => (number as u32).wrapping_sub(value as u32) as i32 >= 0,
            Until::Equal => (number ^ value) & mask == 0,
            Until::And => number & value & mask != 0,
            Until::Nor => !(number | value) & mask != 0,
        }
    }
}

impl Place {
    fn read(&self) -> u64 {
        // SAFETY: the place is aligned and lies in the allocation, both of which the call checked.
        unsafe {
            if self.is_wide {
                AtomicU64::from_ptr(self.address as *mut u64).load(Ordering::Acquire)
            } else {
                u64::from(AtomicU32::from_ptr(self.address as *mut u32).load(Ordering::Acquire))
            }
        }
    }

    fn write(&self, value: u64) {
        // SAFETY: as above.
        unsafe {
            if self.is_wide {
                AtomicU64::from_ptr(self.address as *mut u64).store(value, Ordering::Release);
            } else {
                AtomicU32::from_ptr(self.address as *mut u32).store(value as u32, Ordering::Release);
            }
        }
    }

    fn is_of_others(&self) -> bool {
        self.allocation.is_shared.load(Ordering::Relaxed)
    }
}

impl WaitValue {
    /// Waits, however long it takes, unless the context is over.
    pub fn run(&self, turn: &mut Turn<'_>) -> Status {
        poll(&turn.stream.context, || self.until.holds(self.place.read(), self.value, self.place.is_wide));
        let order = &turn.driver.order;
        if let Some(before) = lock(&order.values).get(&self.place.address) {
            turn.clock.join(before);
        }
        // The host, a kernel or another process may have written it, after what they had seen.
        turn.clock.join(&lock(&order.host));
        turn.clock.join(&lock(&order.outward));
        Ok(())
    }
}

impl WriteValue {
    pub fn run(&self, turn: &mut Turn<'_>) {
        let order = &turn.driver.order;
        lock(&order.values).entry(self.place.address).or_default().join(&turn.clock);
        if matches!(self.place.allocation.kind, Kind::Pinned | Kind::Registered) {
            lock(&order.host).join(&turn.clock);
        }
        if self.place.is_of_others() {
            lock(&order.outward).join(&turn.clock);
        }
        self.place.write(self.value);
    }
}

/// Asks again and again, less and less often, until it holds or the context is over.
pub fn poll(context: &Context, holds: impl Fn() -> bool) {
    let mut turns = 0u32;
    while !holds() && !context.is_over() {
        turns = turns.saturating_add(1);
        match turns {
            ..64 => std::hint::spin_loop(),
            64..2000 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_as_the_driver_says() {
        let cases = [
            (Until::Reached, 5, 5, false, true),
            (Until::Reached, 4, 5, false, false),
            (Until::Reached, 1, u64::from(u32::MAX), false, true),
            (Until::Reached, 1, u64::from(u32::MAX), true, false),
            (Until::Reached, 0x1_0000_0004, 5, false, false),
            (Until::Equal, 0x1_0000_0005, 5, false, true),
            (Until::Equal, 0x1_0000_0005, 5, true, false),
            (Until::And, 6, 4, false, true),
            (Until::And, 3, 4, true, false),
            (Until::Nor, 0xffff_fff0, 0xf, false, false),
            (Until::Nor, 0xffff_fff0, 0xf, true, true),
        ];
        for (until, number, value, is_wide, want) in cases {
            assert_eq!(until.holds(number, value, is_wide), want, "{until:?} {number:#x} {value:#x} {is_wide}");
        }
        assert_eq!(Until::of(1 << 30 | 1), Ok(Until::Equal));
        assert!(Until::of(4).is_err());
    }
}
