//! What passes between stages: over the group, or from hand to hand on one rank.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use candle_core::Tensor;
use paceline_comm::Collective;

use super::stage::{Stage, Wire};
use crate::error::{Doing, Error, Result};
use crate::group::{Elements, Group, Started};
use crate::pipeline::lower::{Lowered, Payload, Transfer};

/// Receives that are begun before their turn.
const AHEAD: usize = 2;

pub(super) struct Transfers<'a> {
    group: &'a Group,
    stages: &'a BTreeMap<u32, Arc<dyn Stage>>,
    /// Receives that have not been begun.
    due: VecDeque<(usize, Transfer)>,
    /// Receives under way.
    coming: Vec<(Transfer, Wire, Started)>,
    sending: VecDeque<(Transfer, Started)>,
    /// What was made here.
    here: BTreeMap<Transfer, Tensor>,
}

impl<'a> Transfers<'a> {
    pub(super) fn new(group: &'a Group, list: &[Lowered], stages: &'a BTreeMap<u32, Arc<dyn Stage>>) -> Transfers<'a> {
        let receive = |item: &Lowered| match *item {
            Lowered::Recv { from, transfer } => Some((from as usize, transfer)),
            _ => None,
        };
        let due = list.iter().filter_map(receive).collect();
        let (coming, sending) = (Vec::new(), VecDeque::new());
        Transfers { group, stages, due, coming, sending, here: BTreeMap::new() }
    }

    pub(super) fn send(&mut self, to: usize, transfer: Transfer) -> Result<()> {
        while self.sending.front().is_some_and(|(_, started)| started.is_ready()) {
            self.finish_one_send()?;
        }
        let tensor = self.here.remove(&transfer).ok_or_else(|| missing(transfer))?;
        self.sending.push_back((transfer, start_send(self.group, to, transfer, &tensor)?));
        Ok(())
    }

    /// Begins the receives up to that of `transfer`, and a few more.
    pub(super) fn begin_receiving(&mut self, transfer: Transfer) -> Result<()> {
        let behind = self.due.iter().position(|(_, next)| *next == transfer).map_or(0, |place| place + 1);
        for _ in 0..behind + AHEAD.saturating_sub(self.coming.len()) {
            let Some((from, next)) = self.due.pop_front() else { break };
            let wire = self.wire(next)?;
            let started = start_receive(self.group, from, next, &wire)?;
            self.coming.push((next, wire, started));
        }
        Ok(())
    }

    /// How a transfer that comes in looks.
    fn wire(&self, transfer: Transfer) -> Result<Wire> {
        let model = &self.stages[&transfer.consumer()];
        match transfer.payload {
            Payload::Activation => model.incoming(transfer.micro_batch),
            Payload::Gradient => model.outgoing(transfer.micro_batch),
        }
    }

    fn finish_one_send(&mut self) -> Result<()> {
        self.sending.pop_front().map_or(Ok(()), finish_send)
    }

    /// Waits until all that was sent is on its way.
    pub(super) fn finish(mut self) -> Result<()> {
        while !self.sending.is_empty() {
            self.finish_one_send()?;
        }
        Ok(())
    }

    /// The activation that a stage takes in.
    pub(super) fn take_activation(&mut self, stage: u32, micro_batch: u32) -> Result<Tensor> {
        self.take(Transfer { payload: Payload::Activation, stage: stage - 1, micro_batch })
    }

    /// The gradient of what a stage has put out.
    pub(super) fn take_gradient(&mut self, stage: u32, micro_batch: u32) -> Result<Tensor> {
        self.take(Transfer { payload: Payload::Gradient, stage: stage + 1, micro_batch })
    }

    pub(super) fn give_activation(&mut self, stage: u32, micro_batch: u32, tensor: Tensor) {
        self.here.insert(Transfer { payload: Payload::Activation, stage, micro_batch }, tensor);
    }

    pub(super) fn give_gradient(&mut self, stage: u32, micro_batch: u32, tensor: Tensor) {
        self.here.insert(Transfer { payload: Payload::Gradient, stage, micro_batch }, tensor);
    }

    /// What was made here, or comes: then it is waited for.
    fn take(&mut self, transfer: Transfer) -> Result<Tensor> {
        if let Some(place) = self.coming.iter().position(|(coming, ..)| *coming == transfer) {
            let (_, wire, started) = self.coming.remove(place);
            return finish_receive((transfer, wire, started));
        }
        let tensor = self.here.remove(&transfer).ok_or_else(|| missing(transfer))?;
        self.fits(transfer, &tensor)?;
        Ok(tensor)
    }

    /// Refuses what isn't as the stage that needs it says.
    fn fits(&self, transfer: Transfer, tensor: &Tensor) -> Result<()> {
        let wire = self.wire(transfer)?;
        if tensor.dims() == wire.dims && tensor.dtype() == wire.dtype {
            return Ok(());
        }
        let (is, of, stage) = (tensor.dims(), tensor.dtype(), transfer.consumer());
        let (dims, dtype) = (&wire.dims, wire.dtype);
        Err(Error::invalid(format!("{transfer} is {is:?}, {of:?}, and stage {stage} takes {dims:?}, {dtype:?}")))
    }
}

pub(super) fn start_send(group: &Group, to: usize, transfer: Transfer, tensor: &Tensor) -> Result<Started> {
    let elements = Elements::of(tensor)?;
    group.count(Collective::Send, elements.bytes());
    elements.start_send(group.comm(), to).doing(|| format!("sending {transfer} to stage rank {to}"))
}

pub(super) fn finish_send((transfer, started): (Transfer, Started)) -> Result<()> {
    started.wait(|| format!("sending {transfer}")).map(drop)
}

pub(super) fn start_receive(group: &Group, from: usize, transfer: Transfer, wire: &Wire) -> Result<Started> {
    let buffer = Elements::zeros(wire.dtype, wire.dims.iter().product())?;
    buffer.start_recv(group.comm(), from).doing(|| format!("receiving {transfer} from stage rank {from}"))
}

pub(super) fn finish_receive((transfer, wire, started): (Transfer, Wire, Started)) -> Result<Tensor> {
    started.wait(|| format!("receiving {transfer}"))?.into_tensor(wire.dims)
}

fn missing(transfer: Transfer) -> Error {
    Error::invalid(format!("{transfer} isn't here"))
}
