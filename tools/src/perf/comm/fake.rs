//! A communicator for tests: ranks are threads that lay their inputs on one table and read what they need from it.
//!
//! Results are folded element by element in rank order, in the type itself. Faults can be planted, to see that the tools
//! notice.

use std::sync::{Arc, Condvar, Mutex};

use paceline_comm::{Buffers, Collective, DataType, ReduceOp, Request};

use crate::perf::buffers::Memory;

use super::{Comm, CommError};
use crate::perf::verify::Data;
use crate::perf::verify::format::{Family, Format};

/// What goes wrong in a fake communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Rank 1 gets one bit of the last element wrong.
    WrongBit,
    /// Ranks that are not the root get the result too.
    WritesEverywhere,
    /// Every call fails on rank 1.
    Fails,
    /// Rank 1 never comes.
    Hangs,
    /// Rank 1 panics.
    Panics,
}

/// The table that all ranks share.
#[derive(Default)]
struct Table {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    inputs: Vec<Option<Arc<Vec<u8>>>>,
    left: usize,
    aborted: Option<String>,
}

/// One rank's end.
pub struct Fake {
    rank: usize,
    size: usize,
    fault: Fault,
    table: Arc<Table>,
}

/// `size` ranks.
pub fn set(size: usize, fault: Fault) -> Vec<Fake> {
    let table = Arc::new(Table::default());
    table.state.lock().unwrap().inputs = vec![None; size];
    (0..size).map(|rank| Fake { rank, size, fault, table: Arc::clone(&table) }).collect()
}

impl Fake {
    /// Everybody's bytes, once all have come.
    fn meet(&self, bytes: Vec<u8>) -> Result<Vec<Arc<Vec<u8>>>, CommError> {
        let mut state = self.table.state.lock().unwrap();
        let hangs = self.fault == Fault::Hangs && self.rank == 1;
        while hangs || state.inputs[self.rank].is_some() {
            state = self.wait(state)?;
        }
        state.inputs[self.rank] = Some(Arc::new(bytes));
        self.table.changed.notify_all();
        while state.inputs.iter().any(Option::is_none) {
            state = self.wait(state)?;
        }
        let all = state.inputs.iter().map(|input| Arc::clone(input.as_ref().unwrap())).collect();
        state.left += 1;
        if state.left == self.size {
            state.left = 0;
            state.inputs.fill(None);
            self.table.changed.notify_all();
        }
        Ok(all)
    }

    fn wait<'a>(
        &'a self,
        state: std::sync::MutexGuard<'a, State>,
    ) -> Result<std::sync::MutexGuard<'a, State>, CommError> {
        match &state.aborted {
            Some(reason) => Err(CommError::Follows(reason.clone())),
            None => Ok(self.table.changed.wait(state).unwrap()),
        }
    }
}

impl Comm for Fake {
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.size
    }
    fn local_rank(&self) -> usize {
        self.rank
    }
    fn local_size(&self) -> usize {
        self.size
    }
    fn host(&self, _: usize) -> String {
        "testhost".to_string()
    }
    fn pid(&self, _: usize) -> u32 {
        12345
    }
    fn link(&self, peer: usize) -> &'static str {
        if peer == self.rank { "self" } else { "inproc" }
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, CommError> {
        Ok(Box::new(vec![0; bytes]))
    }

    fn run(&self, request: Request<'_>) -> Result<(), CommError> {
        let Request { collective, data_type, op, root, source, count, buffers, counts } = request;
        let user = collective != Collective::AllGather || data_type != DataType::U64;
        if self.rank == 1 && user {
            match self.fault {
                Fault::Fails => return Err(CommError::Failed("all_reduce #7: lost rank 0".to_string())),
                Fault::Panics => panic!("a planted panic"),
                _ => {}
            }
        }
        let width = Format::of(data_type).bytes;
        let (me, n, block) = (self.rank, self.size, count * width);
        let (input, output): (Vec<u8>, &mut [u8]) = match buffers {
            Buffers::Separate { input, output } => (input.to_vec(), output),
            Buffers::InPlace(buffer) => {
                let own = me * block..(me + 1) * block;
                match collective {
                    Collective::AllGather | Collective::Gather => (buffer[own].to_vec(), buffer),
                    Collective::ReduceScatter | Collective::Scatter => (buffer.to_vec(), &mut buffer[own]),
                    _ => (buffer.to_vec(), buffer),
                }
            }
        };
        let meta: Vec<u8> = match (op, counts) {
            (_, Some(counts)) => counts.send_offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect(),
            (ReduceOp::PreMulSum(factor), _) => factor.to_le_bytes().to_vec(),
            _ => Vec::new(),
        };
        let metas = self.meet(meta)?;
        let inputs = self.meet(input)?;
        let wide = self.fault == Fault::WritesEverywhere;
        match collective {
            Collective::AllReduce => output.copy_from_slice(&fold(data_type, op, &inputs, &metas)),
            Collective::Reduce if me == root || wide => output.copy_from_slice(&fold(data_type, op, &inputs, &metas)),
            Collective::ReduceScatter => {
                output.copy_from_slice(&fold(data_type, op, &inputs, &metas)[me * block..(me + 1) * block]);
            }
            Collective::Broadcast => output.copy_from_slice(&inputs[root]),
            Collective::AllGather => {
                (0..n).for_each(|r| output[r * block..(r + 1) * block].copy_from_slice(&inputs[r]))
            }
            Collective::Gather if me == root => {
                (0..n).for_each(|r| output[r * block..(r + 1) * block].copy_from_slice(&inputs[r]));
            }
            Collective::Scatter => output.copy_from_slice(&inputs[root][me * block..(me + 1) * block]),
            Collective::AllToAll => match counts {
                None => (0..n).for_each(|r| {
                    output[r * block..(r + 1) * block].copy_from_slice(&inputs[r][me * block..(me + 1) * block]);
                }),
                Some(counts) => (0..n).for_each(|r| {
                    let at: [u8; 8] = metas[r][me * 8..me * 8 + 8].try_into().unwrap();
                    let (from, to) = (usize::from_le_bytes(at) * width, counts.recv_offsets[r] * width);
                    let bytes = counts.recv_counts[r] * width;
                    output[to..to + bytes].copy_from_slice(&inputs[r][from..from + bytes]);
                }),
            },
            Collective::SendRecv => output.copy_from_slice(&inputs[source]),
            Collective::Reduce | Collective::Gather => {}
            other => panic!("{other} is not a collective of the perf tools"),
        }
        if self.fault == Fault::WrongBit && me == 1 && user {
            *output.last_mut().unwrap() ^= 0x10;
        }
        Ok(())
    }

    fn run_group(&self, requests: Vec<Request<'_>>) -> Result<(), CommError> {
        requests.into_iter().try_for_each(|request| self.run(request))
    }

    fn barrier(&self) -> Result<(), CommError> {
        self.meet(Vec::new()).map(|_| ())
    }

    fn abort(&self, reason: &str) {
        let mut state = self.table.state.lock().unwrap();
        state.aborted.get_or_insert_with(|| reason.to_string());
        self.table.changed.notify_all();
    }
}

fn fold(data_type: DataType, op: ReduceOp, inputs: &[Arc<Vec<u8>>], factors: &[Arc<Vec<u8>>]) -> Vec<u8> {
    let format = Format::of(data_type);
    let combine = |left: u64, right: u64| match (op, format.family) {
        (ReduceOp::Prod, Family::Integer { .. }) => left.wrapping_mul(right),
        (ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_), Family::Integer { .. }) => left.wrapping_add(right),
        (_, Family::Float(_)) if data_type == DataType::F32 => {
            let (a, b) = (f32::from_bits(left as u32), f32::from_bits(right as u32));
            u64::from(
                match op {
                    ReduceOp::Prod => a * b,
                    ReduceOp::Max => a.max(b),
                    ReduceOp::Min => a.min(b),
                    _ => a + b,
                }
                .to_bits(),
            )
        }
        _ => unimplemented!("{op:?} of {data_type:?}: the fake knows f32, and sums and products of integers"),
    };
    let scale = |element: u64, rank: usize| match op {
        ReduceOp::PreMulSum(_) => {
            let factor = u64::from_le_bytes(factors[rank][..8].try_into().unwrap());
            match format.family {
                Family::Integer { .. } => element.wrapping_mul(factor),
                Family::Float(_) => {
                    u64::from((f32::from_bits(element as u32) * f32::from_bits(factor as u32)).to_bits())
                }
            }
        }
        _ => element,
    };
    let read = |rank: usize, at: usize| {
        let element = &inputs[rank][at..at + format.bytes];
        scale(element.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)), rank)
    };
    let mut out = Vec::with_capacity(inputs[0].len());
    for at in (0..inputs[0].len()).step_by(format.bytes) {
        let mut total = (1..inputs.len()).fold(read(0, at), |total, rank| combine(total, read(rank, at)));
        if op == ReduceOp::Avg && data_type == DataType::F32 {
            total = u64::from((f32::from_bits(total as u32) / inputs.len() as f32).to_bits());
        }
        out.extend_from_slice(&total.to_le_bytes()[..format.bytes]);
    }
    out
}

/// The fake's own check: data it is given comes out as the data says.
#[test]
fn the_fake_reduces() {
    let data = Data::new(DataType::F32, Some(crate::perf::names::Operator::Sum), 3, 5);
    let handles: Vec<_> = set(3, Fault::None)
        .into_iter()
        .map(|comm| {
            std::thread::spawn(move || {
                let (mut input, mut output, mut want) = (vec![0; 40], vec![0; 40], vec![0; 40]);
                data.input(comm.rank(), 0, &mut input);
                data.result(0, &mut want);
                let buffers = Buffers::Separate { input: &input, output: &mut output };
                comm.run(Request::new(Collective::AllReduce, DataType::F32, 10, buffers)).unwrap();
                assert_eq!(output, want);
            })
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}
