//! From a communicator to one whose ranks have devices.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use paceline_transport::Environment;
use paceline_transport::cuda::{Device, PeerFacts, PeerMemory, Priority};

use super::direct::{Direct, Own};
use super::order::LastStream;
use super::staging::Pool;
use super::watch::Watch;
use super::worker::Worker;
use super::{Attached, DeviceCommunicator, refused};
use crate::Communicator;
use crate::device::Board;
use crate::error::{Error, ErrorKind, Result};

/// How ranks with devices come together. The same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttachOptions {
    /// Whether calls run on the devices, where these reach each other's memory; otherwise they pass by the host. If one rank
    /// says no, it is no.
    pub peers: bool,
    /// Bytes of each rank's device that others read, for calls that run on the devices; half as many more are for messages, and
    /// as many again for what streams copy.
    pub scratch_bytes: u64,
    /// Calls that pass by the host are cut into calls of so many bytes, where every rank has a device: the streams copy one
    /// while the hosts run another.
    pub segment_bytes: u64,
    /// From how many bytes on, of the blocks of all ranks, an all_gather or all_to_all that names no algorithm is left to the
    /// devices' copy engines, so that it takes no multiprocessor from what computes; `None` leaves all to kernels.
    /// [`AttachOptions::COPY_ENGINES_BYTES`] is a good number. Over registered vectors all ranks then bring buffers at the same place
    /// of the same ones: see [`DeviceCommunicator::register`].
    pub copy_engines: Option<u64>,
}

impl Default for AttachOptions {
    fn default() -> AttachOptions {
        AttachOptions { peers: true, scratch_bytes: 16 << 20, segment_bytes: 2 << 20, copy_engines: None }
    }
}

impl AttachOptions {
    /// From how many bytes on copy engines are worth while: beginning a copy takes some two microseconds for each other rank, and
    /// two launches that only meet take some eight; a kernel has moved 1 MiB before, and gives its multiprocessors back.
    pub const COPY_ENGINES_BYTES: u64 = 1 << 20;

    /// What the environment says: `PACELINE_CUDA_PEERS` and `PACELINE_CUDA_COPY_ENGINES`.
    ///
    /// # Errors
    ///
    /// A variable has a value that means nothing.
    pub fn from_env(environment: &Environment) -> Result<AttachOptions> {
        let switch = |name: &str, default: bool| {
            let text = environment.text(name).map_err(|error| Error::invalid(error.to_string()))?;
            match text {
                None => Ok(default),
                Some("1") => Ok(true),
                Some("0") => Ok(false),
                Some(other) => Err(Error::invalid(format!("{name} is {other:?}")).hint("set it to 0 or 1")),
            }
        };
        let peers = switch("PACELINE_CUDA_PEERS", true)?;
        let copy_engines = switch("PACELINE_CUDA_COPY_ENGINES", false)?.then_some(AttachOptions::COPY_ENGINES_BYTES);
        Ok(AttachOptions { peers, copy_engines, ..AttachOptions::default() })
    }
}

/// What a rank tells the others of its device.
#[derive(serde::Serialize, serde::Deserialize)]
struct Introduction {
    has_device: bool,
    can_wait: bool,
    /// The most blocks of its launches: those of all ranks on its device are there at once.
    multiprocessors: u32,
    uuid: [u8; 16],
    scratch_bytes: u64,
    segment_bytes: u64,
    copy_engines: Option<u64>,
    /// How to reach its board, or why nobody can.
    board: std::result::Result<Vec<u8>, String>,
}

impl Communicator {
    /// Gives this rank its device, so that its calls may take memory there. Every rank calls it, those without a device with
    /// `None`; several ranks may have the same device.
    ///
    /// ```no_run
    /// # use paceline_comm::{Communicator, ReduceOp};
    /// use paceline_comm::cuda::{Device, DeviceVec, Priority};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let comm = Communicator::from_env()?;
    /// let device = Device::open(comm.local_rank() % Device::count()?)?;
    /// let stream = device.stream(Priority::Normal)?;
    /// let mut gradients = DeviceVec::of(&device, &[1.0f32; 1000])?;
    /// let devices = comm.attach(Some(&device))?;
    /// devices.on(&stream).all_reduce_in_place(&mut gradients, ReduceOp::Sum)?.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The streams of some rank's device can't wait for values in memory; or as any call.
    pub fn attach(&self, device: Option<&Device>) -> Result<DeviceCommunicator> {
        self.attach_with(device, &AttachOptions::from_env(&Environment::from_process())?)
    }

    /// As [`Communicator::attach`], with options.
    ///
    /// # Errors
    ///
    /// As [`Communicator::attach`], and if ranks have different options.
    pub fn attach_with(&self, device: Option<&Device>, options: &AttachOptions) -> Result<DeviceCommunicator> {
        let stream = device.map(|device| device.stream(Priority::High)).transpose().map_err(refused)?;
        let own = self.own_board(device, options);
        let introduction = Introduction {
            has_device: device.is_some(),
            can_wait: device.is_none_or(Device::can_wait_on_values),
            multiprocessors: device.map_or(0, Device::multiprocessors),
            uuid: device.map_or([0; 16], Device::uuid),
            scratch_bytes: options.scratch_bytes,
            segment_bytes: options.segment_bytes,
            copy_engines: options.copy_engines,
            board: self.facts_of(&own),
        };
        let all = self.introduce(&introduction)?;
        let unable: Vec<usize> = (0..self.size()).filter(|rank| !all[*rank].can_wait).collect();
        if !unable.is_empty() {
            let cause = format!("the streams of the devices of ranks {unable:?} can't wait for values in memory");
            return Err(Error::new(ErrorKind::System, cause)
                .blaming(unable)
                .hint("a virtual GPU may lack stream memory operations; attach these ranks without a device"));
        }
        let mine = (options.scratch_bytes, options.segment_bytes, options.copy_engines);
        let of = |it: &Introduction| (it.scratch_bytes, it.segment_bytes, it.copy_engines);
        if let Some(other) = (0..self.size()).find(|rank| of(&all[*rank]) != mine) {
            let theirs = of(&all[other]);
            let cause = format!(
                "rank {other} was attached with bytes of scratch, of segments and for copy engines {theirs:?}, and {mine:?} here"
            );
            let error = Error::new(ErrorKind::Mismatch, cause).blaming([other]);
            return Err(error.hint("attach with the same options on all ranks"));
        }
        let has_all = all.iter().all(|it| it.has_device);
        let segment_bytes = has_all.then(|| usize::try_from(options.segment_bytes).unwrap_or(usize::MAX));
        let last = Arc::new(Mutex::new(LastStream::default()));
        let direct = self.reach_boards(device, own.ok(), &all)?;
        let watch = direct.map(|direct| Arc::new(Watch::new(direct, self.downgrade(), last.clone())));
        let attached = Attached {
            device: device.cloned(),
            own: stream,
            worker: Worker::start(watch.clone())?,
            staging: Pool::default(),
            segment_bytes,
            last,
            copy_engines: options.copy_engines,
            watch,
        };
        Ok(DeviceCommunicator { comm: self.again(), attached: Arc::new(attached) })
    }

    /// This rank's board, or why it has none.
    fn own_board(&self, device: Option<&Device>, options: &AttachOptions) -> std::result::Result<Own, String> {
        match device {
            None => Err("it has no device".to_owned()),
            Some(_) if !options.peers => Err("it is not to run them on devices".to_owned()),
            Some(_) if self.size() > Board::RANKS_MAX => Err(format!("there are more than {} ranks", Board::RANKS_MAX)),
            Some(device) => Own::new(device, options.scratch_bytes).map_err(|error| error.to_string()),
        }
    }

    fn facts_of(&self, own: &std::result::Result<Own, String>) -> std::result::Result<Vec<u8>, String> {
        let own = own.as_ref().map_err(String::clone)?;
        let facts = PeerFacts::of(&own.memory, &self.host()).map_err(|error| error.to_string())?;
        Ok(facts.encode())
    }

    /// What tells this rank's host from others of the communicator.
    pub(super) fn host(&self) -> Vec<u8> {
        self.peer(self.rank()).house.to_le_bytes().to_vec()
    }

    /// Reaches the boards of all ranks. `None`, on all ranks alike, if some rank can't reach some board.
    fn reach_boards(&self, device: Option<&Device>, own: Option<Own>, all: &[Introduction]) -> Result<Option<Direct>> {
        if let Some((rank, reason)) =
            all.iter().enumerate().find_map(|(rank, it)| Some((rank, it.board.as_ref().err()?)))
        {
            tracing::info!("calls over memory of devices pass by the host: rank {rank}: {reason}");
            return Ok(None);
        }
        let (device, own) = device.zip(own).expect("every rank has told of its board");
        let reached: std::result::Result<Vec<_>, String> =
            (0..self.size()).map(|rank| self.reach_board(device, rank, all)).collect();
        if let Some(reason) = self.first_reason(reached.as_ref().err())? {
            tracing::info!("calls over memory of devices pass by the host: {reason}");
            return Ok(None);
        }
        // All have read what proves that it is this board; now it begins.
        let cleared = own.memory.zero().map_err(|error| error.to_string());
        if let Some(reason) = self.first_reason(cleared.as_ref().err())? {
            tracing::warn!("calls over memory of devices pass by the host: {reason}");
            return Ok(None);
        }
        let sharing = |it: &Introduction| all.iter().filter(|other| other.uuid == it.uuid).count() as u32;
        let blocks = all.iter().map(|it| it.multiprocessors / sharing(it)).min().unwrap_or(1);
        let blocks = blocks.clamp(1, Board::BLOCKS_MAX);
        Ok(Some(Direct::new(self.rank(), own, reached.expect("looked at above"), blocks)))
    }

    fn reach_board(
        &self,
        device: &Device,
        rank: usize,
        all: &[Introduction],
    ) -> std::result::Result<Option<PeerMemory>, String> {
        if rank == self.rank() {
            return Ok(None);
        }
        let facts = all[rank].board.as_ref().map_err(String::clone)?;
        let facts = PeerFacts::decode(facts).map_err(|error| error.to_string())?;
        let peer = PeerMemory::reach(device, &self.host(), &facts);
        peer.map(Some).map_err(|error| format!("rank {} doesn't reach rank {rank}: {error}", self.rank()))
    }

    /// The first rank's reason, of those that have one.
    pub(super) fn first_reason(&self, mine: Option<&String>) -> Result<Option<String>> {
        let said = self.tell_all(mine.map_or(&[][..], |reason| reason.as_bytes()))?;
        let first = said.into_iter().find(|reason| !reason.is_empty());
        Ok(first.map(|reason| String::from_utf8_lossy(&reason).into_owned()))
    }

    fn introduce(&self, mine: &Introduction) -> Result<Vec<Introduction>> {
        let said = self.tell_all(&postcard::to_allocvec(mine).expect("plain data"))?;
        let read = |(rank, bytes): (usize, Vec<u8>)| {
            postcard::from_bytes(&bytes).map_err(|error| {
                let cause = format!("what rank {rank} tells of its device can't be read: {error}");
                Error::new(ErrorKind::Mismatch, cause)
                    .blaming([rank])
                    .hint("run the same version of paceline on all ranks")
            })
        };
        said.into_iter().enumerate().map(read).collect()
    }

    /// What every rank says.
    pub(super) fn tell_all(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut lengths = vec![0u64; self.size()];
        self.all_gather(&[mine.len() as u64], &mut lengths)?;
        let counts: Vec<usize> = lengths.iter().map(|length| *length as usize).collect();
        let mut all = vec![0; counts.iter().sum()];
        self.all_gather_v(mine, &mut all, &counts)?;
        let mut rest = &all[..];
        let said = counts.iter().map(|count| {
            let (said, after) = rest.split_at(*count);
            rest = after;
            said.to_vec()
        });
        Ok(said.collect())
    }
}

impl DeviceCommunicator {
    /// Waits until this rank's streams have done their calls, and gives back what the ranks share of their devices. Every
    /// rank calls it. A communicator that is dropped instead leaves its board (some MiB of its device) allocated if other
    /// processes have mapped it, because nobody says when they no longer do.
    ///
    /// # Errors
    ///
    /// Another handle is still there; a stream doesn't get to its calls within the timeout; or as any call. Graphs that have
    /// captured calls must be gone.
    pub fn detach(self) -> Result<()> {
        let DeviceCommunicator { comm, attached } = self;
        let attached = Arc::into_inner(attached).ok_or_else(|| {
            Error::invalid("another handle of the device communicator is still there")
                .hint("drop what with() has made first")
        })?;
        let deadline = Instant::now() + comm.timeout();
        attached.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner).wait(deadline)?;
        attached.worker.check()?;
        let Some(watch) = &attached.watch else { return Ok(()) };
        let lent = watch.direct.part();
        comm.barrier().inspect_err(|_| {
            watch.direct.leave();
            std::mem::forget(lent);
        })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.worker.outlive(self.staging.leave());
    }
}
