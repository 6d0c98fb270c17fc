//! Registered memory: buffers that the ranks of a host can reach directly.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use paceline_transport::{LinkKind, Region};

use super::Communicator;
use crate::engine::Window;
use crate::error::{Error, Result};
use crate::reduce::Element;

/// A buffer of `len` elements on every rank, which ranks of the same host map from each other.
///
/// It is a slice like any other: every call takes it. Calls of 1 MiB and more whose buffers are registered memory on every
/// rank of one host, out of the same allocations, don't copy through links: ranks read each other's buffers where they lie
/// (all_reduce, reduce_scatter, all_gather, all_to_all out of place, broadcast). Reductions then fold in rank order. An
/// algorithm that the call or the environment names is kept to.
///
/// It may be dropped at any time, before or after the communicator and
/// without the other ranks.
pub struct Buffer<T> {
    window: Arc<Window>,
    me: usize,
    len: usize,
    elements: std::marker::PhantomData<T>,
}

impl Communicator {
    /// Registered memory of `len` zeroed elements on each rank. Every rank calls it, with a `len` of its own.
    ///
    /// ```
    /// # use paceline_comm::{Communicator, ReduceOp};
    /// # let ranks = Communicator::in_process(2)?;
    /// # std::thread::scope(|scope| for comm in &ranks { scope.spawn(move || {
    /// let mut buffer = comm.alloc::<f32>(1000).unwrap();
    /// buffer.fill(1.0);
    /// comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum).unwrap();
    /// assert_eq!(buffer[999], 2.0);
    /// # }); });
    /// # Ok::<(), paceline_comm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// There is no memory for it, or a neighbour doesn't make the call within the timeout.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| *bytes < isize::MAX as usize - (1 << 16));
        let bytes = bytes.ok_or_else(|| Error::invalid(format!("{len} elements are more than memory can hold")))?;
        let inner = &self.inner;
        inner.engine.check_process()?;
        let number = inner.next_memory();
        let deadline = Instant::now() + self.patience();
        let through_memory = |rank: &usize| matches!(inner.links[*rank], Some(LinkKind::Inproc | LinkKind::Shm));
        let neighbours: Vec<usize> = (0..inner.size).filter(through_memory).collect();
        let shared = inner.roots.fabric.share(inner.group, &inner.members, (number, bytes), &neighbours, deadline);
        let all = shared.map_err(|error| self.failed(error.into()))?;
        let window = Arc::new(Window { number, all });
        inner.registry.admit(&window);
        Ok(Buffer { window, me: inner.rank, len, elements: std::marker::PhantomData })
    }
}

impl<T> Buffer<T> {
    fn mine(&self) -> &Region {
        self.window.all[self.me].as_ref().expect("a rank reaches its own")
    }
}

impl<T: Element> Buffer<T> {
    /// How many ranks have such a buffer.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.window.all.len()
    }

    /// Whether this rank can reach a rank's buffer directly.
    ///
    /// # Panics
    ///
    /// If `rank` is not below the size.
    #[must_use]
    pub fn reaches(&self, rank: usize) -> bool {
        self.window.all[rank].is_some()
    }

    /// The first `len` elements of a rank's buffer, where they lie; `None` if it can't be reached or is shorter.
    ///
    /// # Safety
    ///
    /// Nobody, on any rank, writes these elements while the slice lives. Barriers can see to that.
    ///
    /// # Panics
    ///
    /// If `rank` is not below the size.
    #[must_use]
    pub unsafe fn of(&self, rank: usize, len: usize) -> Option<&[T]> {
        let region = self.window.all[rank].as_ref().filter(|region| len * size_of::<T>() <= region.bytes())?;
        // SAFETY: the mapping is that long and page-aligned, any bits are elements, and nobody writes them (the caller).
        Some(unsafe { std::slice::from_raw_parts(region.start().cast::<T>(), len) })
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping is that long and page-aligned, any bits are elements, and only this value writes them.
        unsafe { std::slice::from_raw_parts(self.mine().start().cast::<T>(), self.len) }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as `deref`; the exclusive borrow is of the only value that writes, and readers of other ranks have
        // promised to read only while it isn't written (`of`).
        unsafe { std::slice::from_raw_parts_mut(self.mine().start().cast::<T>(), self.len) }
    }
}

impl<T> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer {{ len: {}, ranks: {} }}", self.len, self.window.all.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_reads_every_other() {
        let ranks = Communicator::in_process(3).unwrap();
        std::thread::scope(|scope| {
            for comm in &ranks {
                scope.spawn(move || {
                    let mut buffer = comm.alloc::<u64>(5).unwrap();
                    let more = comm.alloc::<u8>(0).unwrap();
                    assert!(more.is_empty());
                    buffer.fill(comm.rank() as u64);
                    comm.barrier().unwrap();
                    for rank in 0..3 {
                        // SAFETY: everyone has written before the barrier, and nobody writes before the next.
                        let theirs = unsafe { buffer.of(rank, 5) };
                        assert_eq!(theirs, Some(&[rank as u64; 5][..]));
                        // SAFETY: as above.
                        assert_eq!(unsafe { buffer.of(rank, 1 << 20) }, None);
                    }
                    comm.barrier().unwrap();
                });
            }
        });
    }
}
