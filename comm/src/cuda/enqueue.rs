//! From a call to work of a stream: which way it takes, and what it follows.

use std::sync::{Arc, PoisonError};

use paceline_transport::cuda::{Device, Event, Stream};

use super::buffer::DeviceBuffers;
use super::direct::Direct;
use super::mail::{Mail, is_mail};
use super::passing::Checked;
use super::staging::Block;
use super::streamed::OnStream;
use super::watch::Watch;
use super::work::{Outcome, Teller};
use super::{DeviceCommunicator, DeviceWork, refused};
use crate::communicator::join_own_messages;
use crate::error::{Error, ErrorKind, Result};
use crate::request::Request;

/// Which way calls take.
enum Way<'a> {
    /// By kernels, or as copies, folds and flags of the stream.
    Device(&'a Arc<Watch>, Option<Box<OnStream>>),
    /// By the host.
    Host,
}

impl DeviceCommunicator {
    /// Puts a call into a stream. Other ranks learn of what goes wrong here with a call that can be meant.
    pub(super) fn enqueue(&self, stream: &Stream, request: Request<'_, DeviceBuffers>) -> Result<DeviceWork> {
        self.check()?;
        self.put(stream, vec![request]).map_err(|error| self.told(error))
    }

    /// Puts messages into a stream that go together.
    pub(super) fn enqueue_group(
        &self,
        stream: &Stream,
        requests: Vec<Request<'_, DeviceBuffers>>,
    ) -> Result<DeviceWork> {
        self.check()?;
        let requests = join_own_messages(requests, self.comm.rank(), |send, recv| match (send, recv) {
            (DeviceBuffers::Separate { input, .. }, DeviceBuffers::Separate { output, .. }) => {
                Ok(DeviceBuffers::Separate { input, output })
            }
            apart => Err(apart),
        })?;
        self.put(stream, requests).map_err(|error| self.told(error))
    }

    fn told(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::InvalidArgument => error,
            _ => self.attached.worker.fails(self.comm.failed(error)),
        }
    }

    fn put(&self, stream: &Stream, requests: Vec<Request<'_, DeviceBuffers>>) -> Result<DeviceWork> {
        let device = self.own_device()?;
        let check = |request: Request<'_, DeviceBuffers>| {
            request.over(DeviceBuffers::places).check_places(self.comm.rank(), self.comm.size())
        };
        let calls: Vec<Checked<'_>> =
            requests.into_iter().map(|request| Ok((request, check(request)?))).collect::<Result<_>>()?;
        check_device(device, stream)?;
        let is_captured = stream.is_capturing().map_err(refused)?;
        let way = self.way(&calls)?;
        let mut last = self.attached.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_captured {
            last.lead(stream)?;
        }
        let mut blocks = Vec::new();
        let teller = match way {
            Way::Device(watch, on_stream) => {
                match on_stream {
                    Some(call) => watch.direct.stream(stream, &call, self.timeout())?,
                    None => blocks = self.launch(&watch.direct, stream, &calls)?,
                }
                if watch.begin(is_captured) {
                    self.attached.worker.watch();
                }
                Teller::Device(watch.clone(), self.attached.worker.failure())
            }
            Way::Host => {
                let outcome = Arc::new(Outcome::default());
                blocks = self.pass(stream, &calls, &outcome, is_captured)?;
                Teller::Host(outcome)
            }
        };
        let end = Arc::new(Event::new(device).map_err(refused)?);
        stream.record(&end).map_err(refused)?;
        if is_captured {
            // A graph may use them whenever it is launched, and nobody can know when it is gone.
            blocks.into_iter().for_each(std::mem::forget);
        } else {
            blocks.into_iter().for_each(|block| self.attached.staging.lend(block, end.clone()));
            last.is_now(stream, end.clone());
        }
        Ok(DeviceWork::new(end, is_captured, teller, self.timeout()))
    }

    /// Which way calls take: the same on all ranks that take part in them.
    fn way(&self, calls: &[Checked<'_>]) -> Result<Way<'_>> {
        let Some(watch) = &self.attached.watch else { return Ok(Way::Host) };
        let [(request, sound)] = calls else { return Ok(Way::Device(watch, None)) };
        let on_stream = self.on_stream(&watch.direct, request, sound)?;
        // Whoever names an algorithm gets it; there are none of messages.
        let is_named = !request.collective.is_message() && self.comm.wish(request.collective).is_some();
        if on_stream.is_none() && is_named {
            return Ok(Way::Host);
        }
        Ok(Way::Device(watch, on_stream.map(Box::new)))
    }

    /// Puts launches into a stream. Returns the blocks that the stream uses.
    fn launch(&self, direct: &Direct, stream: &Stream, calls: &[Checked<'_>]) -> Result<Vec<Arc<Block>>> {
        if let [(request, sound)] = calls
            && !is_mail(request)
        {
            return direct.launch(stream, request, sound, self.timeout()).map(|()| Vec::new());
        }
        let mut blocks = Vec::new();
        let mut mail = Mail::default();
        for (request, sound) in calls {
            let mut input = sound.input.0.addr() as u64;
            if sound.in_place && sound.shifts_blocks() {
                // What comes would cover what still has to leave, so that leaves from a copy.
                let (start, bytes) = sound.read(self.comm.rank(), self.comm.size());
                let block = self.attached.staging.take(self.own_device()?, bytes)?;
                input = block.device_address(0);
                // SAFETY: the caller lends the memory until the stream has done the call; the block is kept until then.
                unsafe { stream.copy(input, start as u64, bytes) }.map_err(refused)?;
                blocks.push(block);
            }
            mail.add(request, sound, input, self.comm.rank());
        }
        for (target, source, bytes) in mail.own {
            // SAFETY: as above.
            unsafe { stream.copy(target, source, bytes as usize) }.map_err(refused)?;
        }
        if !mail.messages.is_empty() {
            direct.launch_mail(stream, &mail.messages, (mail.kind, mail.in_place), self.timeout())?;
        }
        Ok(blocks)
    }
}

fn check_device(device: &Device, stream: &Stream) -> Result<()> {
    if stream.device() == device {
        return Ok(());
    }
    let (theirs, ours) = (stream.device().ordinal(), device.ordinal());
    Err(Error::invalid(format!("the stream is of CUDA device {theirs}, and this rank was attached with device {ours}"))
        .hint("make the call on a stream of that device"))
}
