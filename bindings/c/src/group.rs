//! Groups: what a thread calls between `pclGroupStart` and `pclGroupEnd` is noted and then made together.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::{Arc, Weak};

use paceline_comm::{Communicator, Counts, Group, Started};

use crate::call::{Call, Sound};
use crate::comm::{self, Comm};
use crate::error::{Failure, SUCCESS, pclResult};
use crate::guard;
use crate::last;
use crate::work::{self, Part};

/// A call noted: its counts are copied.
struct Noted {
    handle: usize,
    call: Call<'static>,
    counts: Option<[Box<[usize]>; 4]>,
}

// SAFETY: the addresses are C's, which answers for them; nothing is read through them before the call is made.
unsafe impl Send for Noted {}

/// The making of a communicator, noted.
pub(crate) type Making = Box<dyn FnOnce() -> pclResult + Send>;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static CALLS: RefCell<Vec<Noted>> = const { RefCell::new(Vec::new()) };
    #[cfg(feature = "cuda")]
    static MESSAGES: RefCell<Vec<crate::device::Message>> = const { RefCell::new(Vec::new()) };
    static MAKINGS: RefCell<Vec<Making>> = const { RefCell::new(Vec::new()) };
}

/// Whether the thread is in a group.
#[inline]
pub(crate) fn is_open() -> bool {
    DEPTH.get() > 0
}

pub(crate) fn open() -> Result<(), Failure> {
    let depth = DEPTH.get().checked_add(1).ok_or_else(|| Failure::usage("too many groups are nested"))?;
    DEPTH.set(depth);
    Ok(())
}

/// Notes a call for the end of the group.
pub(crate) fn note(handle: *mut c_void, call: Call<'_>) {
    let counts = call.counts.map(|Counts { send_counts, send_offsets, recv_counts, recv_offsets }| {
        [send_counts, send_offsets, recv_counts, recv_offsets].map(Box::from)
    });
    let Call { collective, send, recv, count, recv_count, data_type, op, root, source, counts: _ } = call;
    let call = Call { collective, send, recv, count, recv_count, data_type, op, root, source, counts: None };
    CALLS.with_borrow_mut(|calls| calls.push(Noted { handle: handle.addr(), call, counts }));
}

/// Notes a message over memory of a device.
#[cfg(feature = "cuda")]
pub(crate) fn note_message(handle: *mut c_void, stream: *mut c_void, call: Call<'_>) {
    let call = Call { counts: None, ..call };
    MESSAGES.with_borrow_mut(|messages| messages.push((handle.addr(), stream.addr(), call)));
}

/// Puts the messages over memory of devices into their streams, in an order in which none waits for ever.
#[cfg(feature = "cuda")]
fn put_messages(name: &'static str) -> Result<pclResult, Failure> {
    let mut left = MESSAGES.take();
    while let Some((handle, ..)) = left.first().copied() {
        let (mine, others) = left.into_iter().partition(|(of, ..)| *of == handle);
        left = others;
        let comm = comm::find(std::ptr::without_provenance_mut(handle))?;
        // SAFETY: C lends the buffers until their streams have done the group's calls.
        if let Err(failure) = unsafe { crate::device::put_messages(&comm, &mine) } {
            return Ok(guard::tell(name, failure, Some(&comm)));
        }
    }
    Ok(SUCCESS)
}

/// Notes the making of a communicator.
pub(crate) fn note_making(making: Making) {
    MAKINGS.with_borrow_mut(|makings| makings.push(making));
}

/// What was noted in a group.
struct Contents {
    calls: Vec<Noted>,
    makings: Vec<Making>,
}

/// Closes a group. The outermost one gives what was noted.
fn close() -> Result<Option<Contents>, Failure> {
    match DEPTH.get() {
        0 => Err(Failure::usage("there is no group: pclGroupStart comes first")),
        1 => {
            DEPTH.set(0);
            Ok(Some(Contents { calls: CALLS.take(), makings: MAKINGS.take() }))
        }
        depth => {
            DEPTH.set(depth - 1);
            Ok(None)
        }
    }
}

/// `pclGroupEnd`.
pub(crate) fn end(name: &'static str) -> Result<pclResult, Failure> {
    let Some(Contents { calls, makings }) = close()? else { return Ok(SUCCESS) };
    let made = make_all(makings);
    #[cfg(feature = "cuda")]
    let made = if made == SUCCESS { put_messages(name)? } else { made };
    if made != SUCCESS || calls.is_empty() {
        return Ok(made);
    }
    let all = Calls::of(&calls)?;
    if let [one] = &all.groups[..] {
        let result = one.group().run().map_err(Failure::from);
        return Ok(result.map_or_else(|failure| guard::tell(name, failure, Some(&one.comm)), |()| SUCCESS));
    }
    let parts = all.start()?;
    let mut outcome = SUCCESS;
    for (work, comm) in parts {
        if let Err(error) = work.wait()
            && outcome == SUCCESS
        {
            outcome = guard::tell(name, error.into(), Some(&comm));
        }
    }
    Ok(outcome)
}

/// `pclGroupEndStart`: a work for all calls of the group.
pub(crate) fn end_start(name: &'static str) -> Result<*mut c_void, Failure> {
    if DEPTH.get() > 1 {
        return Err(Failure::usage("this group is within another one, which makes its calls"));
    }
    if MAKINGS.with_borrow(|makings| !makings.is_empty()) {
        return Err(Failure::usage("the group makes communicators: pclGroupEnd ends it"));
    }
    #[cfg(feature = "cuda")]
    if MESSAGES.with_borrow(|messages| !messages.is_empty()) {
        return Err(Failure::usage("the group has messages with a stream: pclGroupEnd ends it"));
    }
    let Some(Contents { calls, .. }) = close()? else { return Err(Failure::usage("there is no group")) };
    let parts = Calls::of(&calls)?.start()?;
    let mut whole: Vec<(Part, Weak<Comm>)> = Vec::with_capacity(parts.len());
    for (work, comm) in parts {
        comm.note_started([work.clone()]);
        whole.push((Part::Host(work), Arc::downgrade(&comm)));
    }
    Ok(work::admit(name, whole))
}

/// Makes communicators, each in a thread of its own: they may be ranks that wait for each other.
fn make_all(mut makings: Vec<Making>) -> pclResult {
    let Some(last) = makings.pop() else { return SUCCESS };
    std::thread::scope(|scope| {
        let others: Vec<_> = makings.into_iter().map(|making| scope.spawn(move || (making(), last::kept()))).collect();
        let mut outcome = last();
        for other in others {
            let (code, failure) = other.join().expect("panics are caught inside");
            if outcome == SUCCESS && code != SUCCESS {
                outcome = code;
                failure.iter().for_each(last::keep);
            }
        }
        outcome
    })
}

/// The calls of one communicator, in the order made.
struct OfOne<'n> {
    comm: Arc<Comm>,
    /// With the timeout that C has set.
    patient: Communicator,
    calls: Vec<Sound<'n>>,
}

struct Calls<'n> {
    groups: Vec<OfOne<'n>>,
}

impl<'n> Calls<'n> {
    /// Checks all calls, by communicator.
    fn of(noted: &'n [Noted]) -> Result<Calls<'n>, Failure> {
        let mut groups: Vec<(usize, OfOne<'n>)> = Vec::new();
        for (number, Noted { handle, call, counts }) in noted.iter().enumerate() {
            let place = match groups.iter().position(|(known, _)| known == handle) {
                Some(place) => place,
                None => {
                    let comm = comm::find(std::ptr::without_provenance_mut(*handle))?;
                    let patient = comm.patient(None, None);
                    groups.push((*handle, OfOne { comm, patient, calls: Vec::new() }));
                    groups.len() - 1
                }
            };
            let counts = counts.as_ref().map(|[send_counts, send_offsets, recv_counts, recv_offsets]| Counts {
                send_counts,
                send_offsets,
                recv_counts,
                recv_offsets,
            });
            let one = &mut groups[place].1;
            let sound = Call { counts, ..*call }.check(&one.comm).map_err(|failure| Failure {
                text: format!("call {number} of the group, {}: {}", one.comm.whose(), failure.text),
                ..failure
            })?;
            one.calls.push(sound);
        }
        Ok(Calls { groups: groups.into_iter().map(|(_, one)| one).collect() })
    }
}

impl OfOne<'_> {
    fn group(&self) -> Group<'_, '_> {
        let mut group = self.patient.group();
        for call in &self.calls {
            // SAFETY: C lends the buffers until the group, or the work that it becomes, has ended.
            let request = unsafe { call.request() };
            group.add(request);
        }
        group
    }
}

impl Calls<'_> {
    /// Starts all calls: none, if one can't be meant.
    fn start(&self) -> Result<Vec<(Started, Arc<Comm>)>, Failure> {
        let mut groups = Vec::new();
        let mut owners = Vec::new();
        for one in &self.groups {
            groups.push(one.group());
            owners.push(&one.comm);
        }
        // SAFETY: as above.
        let started = unsafe { Group::start_all(groups) }?;
        Ok(started.into_iter().map(|(group, work)| (work, owners[group].clone())).collect())
    }
}
