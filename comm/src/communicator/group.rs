//! Several calls that run as one.

use super::{Communicator, Started};
use crate::collective::Collective;
use crate::error::{Error, Result};
use crate::reduce::{DataType, Element, ReduceOp, as_bytes, as_bytes_mut};
use crate::request::{Buffers, Request};

/// Calls collected to run together: all are under way at the same time, and [`Group::run`] returns when all have ended.
///
/// Messages in a group can't block each other, whatever the order in which their ranks add them.
///
/// ```
/// # use paceline_comm::Communicator;
/// # let ranks = Communicator::in_process(2)?;
/// # std::thread::scope(|scope| for comm in &ranks { scope.spawn(move || {
/// let peer = 1 - comm.rank();
/// let (mine, mut theirs) = ([comm.rank() as i32; 4], [0i32; 4]);
/// let mut group = comm.group();
/// group.send(&mine, peer).recv(&mut theirs, peer);
/// group.run().unwrap();
/// assert_eq!(theirs, [peer as i32; 4]);
/// # }); });
/// # Ok::<(), paceline_comm::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a group does nothing until it is run"]
pub struct Group<'c, 'b> {
    comm: &'c Communicator,
    requests: Vec<Request<'b>>,
}

impl<'c, 'b> Group<'c, 'b> {
    pub(super) fn new(comm: &'c Communicator) -> Group<'c, 'b> {
        Group { comm, requests: Vec::new() }
    }

    /// Adds any call.
    pub fn add(&mut self, request: Request<'b>) -> &mut Self {
        self.requests.push(request);
        self
    }

    /// Adds a message to rank `to`.
    pub fn send<T: Element>(&mut self, message: &'b [T], to: usize) -> &mut Self {
        let buffers = Buffers::Separate { input: as_bytes(message), output: &mut [] };
        self.add(Request::new(Collective::Send, T::DATA_TYPE, message.len(), buffers).root(to))
    }

    /// Adds a message from rank `from`.
    pub fn recv<T: Element>(&mut self, message: &'b mut [T], from: usize) -> &mut Self {
        let count = message.len();
        let buffers = Buffers::Separate { input: &[], output: as_bytes_mut(message) };
        self.add(Request::new(Collective::Recv, T::DATA_TYPE, count, buffers).root(from))
    }

    /// Adds an all-reduce.
    pub fn all_reduce<T: Element>(&mut self, input: &'b [T], output: &'b mut [T], op: ReduceOp) -> &mut Self {
        let count = input.len();
        let buffers = Buffers::Separate { input: as_bytes(input), output: as_bytes_mut(output) };
        self.add(Request::new(Collective::AllReduce, T::DATA_TYPE, count, buffers).op(op))
    }

    /// Adds an all-reduce in place.
    pub fn all_reduce_in_place<T: Element>(&mut self, buffer: &'b mut [T], op: ReduceOp) -> &mut Self {
        let count = buffer.len();
        let buffers = Buffers::InPlace(as_bytes_mut(buffer));
        self.add(Request::new(Collective::AllReduce, T::DATA_TYPE, count, buffers).op(op))
    }

    /// Adds a broadcast from rank `root`.
    pub fn broadcast<T: Element>(&mut self, buffer: &'b mut [T], root: usize) -> &mut Self {
        let count = buffer.len();
        let buffers = Buffers::InPlace(as_bytes_mut(buffer));
        self.add(Request::new(Collective::Broadcast, T::DATA_TYPE, count, buffers).root(root))
    }

    /// How many calls there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Starts all calls and returns at once.
    ///
    /// ```
    /// # use paceline_comm::{Communicator, ReduceOp};
    /// // One thread drives both ranks.
    /// let ranks = Communicator::in_process(2)?;
    /// let mut values = [[1i32; 4], [2; 4]];
    /// let mut works = Vec::new();
    /// for (comm, values) in ranks.iter().zip(&mut values) {
    ///     let mut group = comm.group();
    ///     group.all_reduce_in_place(values, ReduceOp::Sum);
    ///     // SAFETY: the works are waited for before anyone looks at the values.
    ///     works.extend(unsafe { group.start() }?);
    /// }
    /// works.iter().try_for_each(|work| work.wait())?;
    /// assert_eq!(values, [[3; 4]; 2]);
    /// # Ok::<(), paceline_comm::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Group::run`], where a call can't be meant or the communicator has failed.
    ///
    /// # Safety
    ///
    /// As [`Communicator::start_request`], for each call.
    pub unsafe fn start(self) -> Result<Vec<Started>> {
        // SAFETY: passed on from the caller.
        let started = unsafe { Group::start_all([self]) }?;
        Ok(started.into_iter().map(|(_, work)| work).collect())
    }

    /// As [`Group::start`], groups of several communicators, of which none begins if a call of any can't be meant. Each work
    /// comes with its group's place among them.
    ///
    /// # Errors
    ///
    /// As [`Group::start`].
    ///
    /// # Safety
    ///
    /// As [`Group::start`].
    pub unsafe fn start_all(groups: impl IntoIterator<Item = Group<'c, 'b>>) -> Result<Vec<(usize, Started)>> {
        let mut ready = Vec::new();
        for (place, Group { comm, requests }) in groups.into_iter().enumerate() {
            comm.after_devices()?;
            for request in join_own_messages(requests, comm.rank(), one_message)? {
                ready.push((place, comm, comm.prepare(request)?));
            }
        }
        ready.into_iter().map(|(place, comm, call)| Ok((place, comm.start_prepared(call, None)?))).collect()
    }

    /// Runs all calls and returns when all have ended.
    ///
    /// A message of this rank to itself takes a `send` and a `recv` in the same group.
    ///
    /// # Errors
    ///
    /// The first error of any call. If a call can't be meant as it stands, none has begun.
    pub fn run(self) -> Result<()> {
        self.comm.after_devices()?;
        self.run_now()
    }

    /// As [`Group::run`], for who knows that no call over memory of devices comes before.
    pub(crate) fn run_now(self) -> Result<()> {
        let Group { comm, requests } = self;
        let mut requests = join_own_messages(requests, comm.rank(), one_message)?;
        if requests.is_empty() {
            return Ok(());
        }
        // Calls over the boards follow each other anyway.
        if let Some(ended) = comm.run_all_quick(&mut requests) {
            return ended;
        }
        let prepared =
            requests.into_iter().map(|request| comm.prepare_and_keep(request)).collect::<Result<Vec<_>>>()?;
        if let Some(ended) = comm.run_all_prepared(&prepared) {
            return ended;
        }
        let calls: Vec<_> = prepared.into_iter().map(|call| comm.activate(call, None)).collect();
        comm.inner.engine.run(calls)
    }
}

/// The buffers of a message whose two halves have these.
fn one_message<'b>(
    send: Buffers<'b>,
    recv: Buffers<'b>,
) -> std::result::Result<Buffers<'b>, (Buffers<'b>, Buffers<'b>)> {
    match (send, recv) {
        (Buffers::Separate { input, .. }, Buffers::Separate { output, .. }) => Ok(Buffers::Separate { input, output }),
        apart => Err(apart),
    }
}

/// Joins each message of a rank to itself with the one that receives it, where `join` can join their buffers.
pub(crate) fn join_own_messages<'b, B>(
    requests: Vec<Request<'b, B>>,
    me: usize,
    join: impl Fn(B, B) -> std::result::Result<B, (B, B)>,
) -> Result<Vec<Request<'b, B>>> {
    let mine = |request: &Request<'_, B>, collective| request.collective == collective && request.root == me;
    let (mut sends, mut rest) = (std::collections::VecDeque::new(), Vec::with_capacity(requests.len()));
    let mut receives = std::collections::VecDeque::new();
    for request in requests {
        if mine(&request, Collective::Send) {
            sends.push_back(request);
        } else if mine(&request, Collective::Recv) {
            receives.push_back(request);
        } else {
            rest.push(request);
        }
    }
    while !sends.is_empty() && !receives.is_empty() {
        let (send, recv) = (sends.pop_front().expect("looked at"), receives.pop_front().expect("looked at"));
        let data_type: DataType = send.data_type;
        if data_type != recv.data_type {
            let cause = format!("rank {me} sends itself elements of {data_type} but expects {}", recv.data_type);
            return Err(Error::invalid(cause).hint("make both halves of a message to oneself of one type"));
        }
        let (count, recv_count) = (send.count, recv.count);
        match join(send.buffers, recv.buffers) {
            Ok(buffers) => {
                rest.push(Request::new(Collective::SendRecv, data_type, count, buffers).root(me).source(me));
            }
            Err((send, recv)) => {
                rest.push(Request::new(Collective::Send, data_type, count, send).root(me));
                rest.push(Request::new(Collective::Recv, data_type, recv_count, recv).root(me));
            }
        }
    }
    rest.extend(sends);
    rest.extend(receives);
    Ok(rest)
}
