//! Calls as copies, folds and flags of the caller's stream: by a row that is named, or by copy engines alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paceline_transport::cuda::Stream;

use super::buffer::DeviceBuffers;
use super::direct::Direct;
use super::{DeviceCommunicator, refused};
use crate::collective::Collective;
use crate::device::streamed::{self, Also, Base, Bays, Op, Place, Staging, Streamed};
use crate::device::{Arguments, Call, Data, FlagsPlan, Grid, Kernel, Lending, Signals, Straight};
use crate::error::{Error, Result};
use crate::reduce::{DataType, ReduceOp};
use crate::request::{Request, Sound};
use crate::select::Choice;

/// What the names of calls say whose ranks must have their buffers at the same place.
pub(super) const FROM_REGISTERED: &str = " of registered vector";

/// What is known of rows that were used: how the bays are shared out, by the row's number, the root, and whether inputs are
/// staged. `None` where there is no room.
type Known = HashMap<(usize, usize, bool), Option<Arc<Bays>>>;

/// How the bays are shared out.
#[derive(Default)]
pub(super) struct Shared(Mutex<Known>);

/// A call that is to become work of a stream.
pub(super) struct OnStream {
    work: Work,
    data: Data,
    data_type: DataType,
    op: ReduceOp,
    ranks: u32,
    digest: u32,
    name: String,
}

enum Work {
    /// A row's program.
    Row(Box<Streamed>),
    /// Copies, from addresses to addresses.
    Copies(Vec<(u64, u64, u64)>),
}

impl DeviceCommunicator {
    /// The call as work of the stream, if it names an algorithm or is one for copy engines; `None` if it isn't, or can't be done
    /// so. The same way on all ranks.
    pub(super) fn on_stream(
        &self,
        direct: &Direct,
        request: &Request<'_, DeviceBuffers>,
        sound: &Sound,
    ) -> Result<Option<OnStream>> {
        let Request { collective, data_type, op, root, count, counts, .. } = *request;
        let is_uneven_exchange = collective == Collective::AllToAll && counts.is_some();
        if collective.is_message() || is_uneven_exchange {
            return Ok(None);
        }
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        let call = Call { collective, data_type, op, root, count, counts };
        let data = Data { input: sound.input.0.addr() as u64, output: sound.output.0.addr() as u64 };
        let made = |work, digest, name| OnStream { work, data, data_type, op, ranks: ranks as u32, digest, name };
        let choice = match self.comm.wish(collective) {
            Some(_) => self.comm.row_wished_for(collective, counts.is_some())?,
            None if self.leaves_multiprocessors_alone(&call) => {
                let windows = direct.windows.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(straight) = Straight::new(&call, data, &Lending { windows: &windows.places }, rank, ranks) {
                    let (number, at) = straight.lies;
                    let name = format!("{collective} of {count} {data_type} from byte {at}{FROM_REGISTERED} {number}");
                    return Ok(Some(made(Work::Copies(straight.copies), straight.digest, name)));
                }
                self.comm.row_named(collective, "direct")?
            }
            None => return Ok(None),
        };
        let scales = matches!(op, ReduceOp::PreMulSum(_)) && collective.reduces();
        let Some(bays) = self.bays(direct, choice, root, scales || !choice.row.in_place) else { return Ok(None) };
        let plan = self.comm.plan_by(choice.row, sound, (data_type, op));
        if Streamed::is_too_much(&plan, &bays) {
            return Ok(None);
        }
        let size = data_type.size() as u64;
        if let Some(address) = [data.input, data.output].into_iter().find(|address| !address.is_multiple_of(size)) {
            let cause = format!("a buffer of {collective} lies at {address:#x}");
            return Err(Error::invalid(cause).hint(format!("elements of {data_type} lie at multiples of {size}")));
        }
        let staging = match (scales, sound.in_place && !choice.row.in_place) {
            (true, _) => Staging::Scaled,
            (false, true) => Staging::Moved,
            (false, false) => Staging::None,
        };
        let op = if collective.reduces() { op } else { ReduceOp::Sum };
        let digest = streamed::digest(&call, choice.number, &plan, &bays);
        let name = format!("{collective} of {count} {data_type} ({})", choice.row.name);
        Ok(Some(made(Work::Row(Box::new(Streamed::new(&plan, op, &bays, staging))), digest, name)))
    }

    /// Whether a call that names no algorithm is left to copy engines.
    fn leaves_multiprocessors_alone(&self, call: &Call<'_>) -> bool {
        let is_such = matches!(call.collective, Collective::AllGather | Collective::AllToAll) && call.counts.is_none();
        let bytes = (call.count * call.data_type.size()) as u64 * self.comm.size() as u64;
        is_such && self.comm.size() > 1 && self.attached.copy_engines.is_some_and(|least| bytes >= least.max(1))
    }

    /// How a row shares out the bays. It is found out once.
    fn bays(&self, direct: &Direct, choice: Choice, root: usize, stages: bool) -> Option<Arc<Bays>> {
        let root = if choice.row.collective.has_root() { root } else { 0 };
        let mut known = direct.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let make =
            || Bays::new(&self.comm.programs(choice.row, root), stages, direct.own.board.bay_bytes()).map(Arc::new);
        known.entry((choice.number, root, stages)).or_insert_with(make).clone()
    }
}

impl Direct {
    /// Puts the work of a call into a stream, between two meetings of all ranks.
    pub(super) fn stream(&self, stream: &Stream, call: &OnStream, limit: Duration) -> Result<()> {
        let OnStream { work, digest, .. } = call;
        let fold = Kernel::Reduce(call.data_type, call.op);
        let folds = matches!(work, Work::Row(row) if row.ops.iter().any(|op| matches!(op, Op::Reduce { .. })));
        // Before anything is begun: whoever loads a kernel may have to wait for what runs, and the others wait for this rank.
        for kernel in [Kernel::Flags].into_iter().chain(folds.then_some(fold)) {
            self.own.kernels.get(kernel)?;
        }
        self.tell(stream, call, &Signals::default(), true, *digest, limit)?;
        let last = match work {
            Work::Copies(copies) => {
                for (target, source, bytes) in copies {
                    // SAFETY: the caller's buffers are there until the stream has done the call, and what other ranks have lent
                    // until all have deregistered it.
                    unsafe { stream.copy(*target, *source, *bytes as usize) }.map_err(refused)?;
                }
                Signals::default()
            }
            Work::Row(row) => {
                row.ops.iter().try_for_each(|op| self.enqueue(stream, call, op, limit))?;
                row.last
            }
        };
        self.tell(stream, call, &last, true, !*digest, limit)
    }

    fn enqueue(&self, stream: &Stream, call: &OnStream, op: &Op, limit: Duration) -> Result<()> {
        let address = |place: &Place| {
            place.at
                + match place.base {
                    Base::Input => call.data.input,
                    Base::Output => call.data.output,
                    Base::Bay(rank) => self.addresses[rank] + self.own.board.bay_at(),
                }
        };
        match op {
            Op::Tell(signals) => self.tell(stream, call, signals, false, call.digest, limit),
            Op::Copy { target, source, bytes } => {
                let (target, source) = (address(target), address(source));
                if target == source {
                    return Ok(());
                }
                // SAFETY: the caller's buffers are there until the stream has done the call, and boards live as long as this.
                unsafe { stream.copy(target, source, *bytes as usize) }.map_err(refused)
            }
            Op::Reduce { target, sources, elements, also } => {
                let sources: Vec<u64> = sources.iter().map(address).collect();
                let arguments = Arguments::new(address(target), &sources, *elements);
                let arguments = match (also, call.op) {
                    (Also::Scales, ReduceOp::PreMulSum(factor)) => arguments.scaling(0, factor),
                    (Also::Divides, _) => arguments.dividing(call.ranks),
                    _ => arguments,
                };
                let bytes = *elements * call.data_type.size() as u64;
                let at_once = u64::from(Kernel::THREADS_MAX) * 16;
                let blocks = bytes.div_ceil(at_once).clamp(1, u64::from(self.tuning.blocks)) as u32;
                let grid = Grid { blocks, threads: Kernel::THREADS_MAX };
                // SAFETY: the arguments are the kernel's, plain numbers without padding; the rest as above.
                unsafe { self.start(stream, Kernel::Reduce(call.data_type, call.op), grid, &arguments) }
            }
        }
    }

    fn tell(
        &self,
        stream: &Stream,
        call: &OnStream,
        signals: &Signals,
        meets: bool,
        digest: u32,
        limit: Duration,
    ) -> Result<()> {
        let plan = FlagsPlan::new(signals, meets, digest, &self.site(limit))?;
        self.remember(plan.given(), || call.name.clone());
        // SAFETY: the arguments are the kernel's, plain numbers without padding, and name nothing of the caller's.
        unsafe { self.start(stream, Kernel::Flags, FlagsPlan::GRID, &plan.arguments) }
    }
}
