//! The three buffers of a call, as addresses that the engine may read and write while the call lasts.
//!
//! A call lends its buffers until it has ended: a blocking call by its borrow, a started one by owning them. Within that
//! time the engine alone touches them. The schedule's rules keep the engine's own accesses apart: steps of a round touch
//! disjoint chunks, in place or not (`schedule::check` proves it for every row).

use std::ops::Range;

use paceline_transport::{Endpoint, Loan};
use smallvec::SmallVec;

use crate::schedule::Buffer;

/// A buffer's address and length.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: *mut u8,
    bytes: usize,
}

/// Storage of a call's scratch, to be used again.
pub(crate) type Scratch = Vec<u64>;

/// The input, the output and the scratch of one call.
#[derive(Debug)]
pub(crate) struct Memory {
    input: Place,
    output: Place,
    scratch: Place,
    /// The scratch's storage; never touched except through `scratch`.
    storage: Scratch,
    /// An input that the call made itself.
    _own_input: Option<Vec<u8>>,
}

// SAFETY: the addresses are the call's, which stays alive wherever the engine runs (see the module's text).
unsafe impl Send for Memory {}

impl Memory {
    /// The memory of one call.
    ///
    /// # Safety
    /// `input` is readable and `output` writable for their lengths, and nothing else accesses them (other than reading
    /// `input`), until the value is dropped. They may overlap only as the collective's in-place form says.
    ///
    /// `own_input`, if there is one, is what `input` points into; it is kept with the memory.
    pub(crate) unsafe fn new(
        input: (*const u8, usize),
        output: (*mut u8, usize),
        scratch_bytes: usize,
        own_input: Option<Vec<u8>>,
    ) -> Memory {
        // SAFETY: the caller's promise.
        unsafe { Memory::with_scratch(input, output, (Scratch::new(), scratch_bytes), own_input) }
    }

    /// As [`Memory::new`], with storage that may have been another call's: what it held means nothing.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(crate) unsafe fn with_scratch(
        input: (*const u8, usize),
        output: (*mut u8, usize),
        (mut storage, scratch_bytes): (Scratch, usize),
        own_input: Option<Vec<u8>>,
    ) -> Memory {
        let words = scratch_bytes.div_ceil(8);
        if storage.len() < words {
            storage = vec![0; words];
        }
        let scratch = Place { start: storage.as_mut_ptr().cast(), bytes: scratch_bytes };
        Memory {
            input: Place { start: input.0.cast_mut(), bytes: input.1 },
            output: Place { start: output.0, bytes: output.1 },
            scratch,
            storage,
            _own_input: own_input,
        }
    }

    /// The scratch's storage; the call has ended.
    pub(crate) fn into_scratch(self) -> Scratch {
        self.storage
    }

    /// Lends input and output to the links, as far as these gain from it.
    ///
    /// # Safety
    /// The loans are dropped before the value is; before that the links are to forget them, if a message is unfinished.
    #[inline]
    pub(crate) unsafe fn lend(&self, endpoint: &mut Endpoint) -> SmallVec<[Loan; 2]> {
        let lend = |(place, is_target): (&Place, bool)| {
            // SAFETY: both buffers stay as they are until the value is dropped (`new`).
            unsafe { endpoint.lend(place.start, place.bytes, is_target) }
        };
        // An input that is the output is lent already when its turn comes.
        [(&self.output, true), (&self.input, false)].into_iter().filter_map(lend).collect()
    }

    #[inline(always)]
    fn place(&self, buffer: Buffer) -> &Place {
        match buffer {
            Buffer::Input => &self.input,
            Buffer::Output => &self.output,
            Buffer::Scratch => &self.scratch,
        }
    }

    /// How long a buffer is.
    #[inline]
    pub(crate) fn bytes(&self, buffer: Buffer) -> usize {
        self.place(buffer).bytes
    }

    /// The address of a range of a buffer; only to be used within the range.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    #[inline]
    pub(crate) fn address(&self, buffer: Buffer, range: &Range<usize>) -> *mut u8 {
        let place = self.place(buffer);
        assert!(
            range.start <= range.end && range.end <= place.bytes,
            "bytes {range:?} of the {buffer:?} buffer, which has {}",
            place.bytes
        );
        // SAFETY: the start of the range is inside the buffer.
        unsafe { place.start.add(range.start) }
    }

    /// A range to read.
    ///
    /// # Safety
    /// Nothing writes the range while the slice lives.
    #[inline]
    pub(crate) unsafe fn read(&self, buffer: Buffer, range: Range<usize>) -> &[u8] {
        let start = self.address(buffer, &range);
        // SAFETY: inside the buffer (`address`), which is readable (`new`), and not written (the caller).
        unsafe { std::slice::from_raw_parts(start, range.len()) }
    }

    /// A range to write.
    ///
    /// # Safety
    /// Nothing else accesses the range while the slice lives, and `buffer` is not the input of a call whose input is
    /// borrowed for reading only.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the schedule's rules keep the ranges apart, not the borrow checker")]
    pub(crate) unsafe fn write(&self, buffer: Buffer, range: Range<usize>) -> &mut [u8] {
        let start = self.address(buffer, &range);
        // SAFETY: inside the buffer (`address`), which is writable and not accessed otherwise (the caller).
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }
}
