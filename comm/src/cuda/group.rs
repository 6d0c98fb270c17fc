//! Messages between devices that go together.

use super::DeviceWork;
use super::buffer::{DeviceBuffers, DeviceInput, DeviceOutput, Lent};
use super::calls::OnStream;
use crate::collective::Collective;
use crate::error::Result;
use crate::reduce::Element;
use crate::request::Request;

/// Messages collected to go together: see [`OnStream::group`].
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use paceline_comm::{Communicator, cuda::{Device, DeviceVec, Priority}};
/// # let comm = Communicator::from_env()?;
/// # let device = Device::open(0)?;
/// # let (devices, stream) = (comm.attach(Some(&device))?, device.stream(Priority::Normal)?);
/// # let (mine, mut theirs) = (DeviceVec::of(&device, &[1.0f32; 4])?, DeviceVec::<f32>::zeroed(&device, 4)?);
/// let peer = comm.size() - 1 - comm.rank();
/// let on = devices.on(&stream);
/// let mut group = on.group();
/// group.send(&mine, peer)?.recv(&mut theirs, peer)?;
/// group.run()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a group does nothing until it is run"]
pub struct DeviceGroup<'a> {
    on: OnStream<'a>,
    requests: Vec<Request<'a, DeviceBuffers>>,
    /// Until the stream has been given all.
    lent: Vec<Lent<'a>>,
}

impl<'a> DeviceGroup<'a> {
    pub(super) fn new(on: OnStream<'a>) -> DeviceGroup<'a> {
        DeviceGroup { on, requests: Vec::new(), lent: Vec::new() }
    }

    /// Adds a message to rank `to`.
    ///
    /// # Errors
    ///
    /// The message can't be used in the group's stream.
    pub fn send<T: Element>(&mut self, message: &'a (impl DeviceInput<T> + ?Sized), to: usize) -> Result<&mut Self> {
        let message = message.lend(self.on.stream())?;
        let buffers = DeviceBuffers::Separate { input: (message.address, message.bytes), output: (0, 0) };
        self.add::<T>(Collective::Send, buffers, message, to)
    }

    /// Adds the next message from rank `from`, which is as long as `message`.
    ///
    /// # Errors
    ///
    /// As of [`DeviceGroup::send`].
    pub fn recv<T: Element>(
        &mut self,
        message: &'a mut (impl DeviceOutput<T> + ?Sized),
        from: usize,
    ) -> Result<&mut Self> {
        let message = message.lend_mut(self.on.stream())?;
        let buffers = DeviceBuffers::Separate { input: (0, 0), output: (message.address, message.bytes) };
        self.add::<T>(Collective::Recv, buffers, message, from)
    }

    fn add<T: Element>(
        &mut self,
        collective: Collective,
        buffers: DeviceBuffers,
        message: Lent<'a>,
        peer: usize,
    ) -> Result<&mut Self> {
        let count = message.bytes / size_of::<T>();
        self.requests.push(Request::new(collective, T::DATA_TYPE, count, buffers).root(peer));
        self.lent.push(message);
        Ok(self)
    }

    /// How many messages there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Gives all messages to the stream.
    ///
    /// A message of this rank to itself takes a `send` and a `recv` in the same group.
    ///
    /// # Errors
    ///
    /// As of every call of [`OnStream`]; on devices that reach each other's memory, if there are more than 128 messages.
    pub fn run(self) -> Result<DeviceWork> {
        self.on.give(self.requests)
    }
}
