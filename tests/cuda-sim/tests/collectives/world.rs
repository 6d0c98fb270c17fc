//! Ranks with devices.

use std::sync::Mutex;
use std::time::Duration;

use paceline_comm::cuda::{AttachOptions, Device, DeviceBuffers, DeviceCommunicator, DeviceVec, Priority, Stream};
use paceline_comm::{Buffers, Communicator, Request, Result};
use paceline_cuda_sim::{Loaded, Simulated, is_on_gpus, turn};

/// How long a call may take before it counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Which way calls take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Kernels on the devices.
    Direct,
    /// By the host.
    Host,
}

/// Whether there is a driver; otherwise says that the test is skipped.
pub fn is_there() -> bool {
    if is_on_gpus() {
        Device::count().unwrap_or_else(|error| panic!("suites are to run on GPUs: {error}"));
        return true;
    }
    Simulated::load().map_err(|reason| println!("skipped: {reason}")).is_ok()
}

/// The software driver, if that is the one.
pub fn simulated() -> Option<&'static Loaded> {
    if is_on_gpus() { None } else { Simulated::load().ok() }
}

/// The device of a rank.
pub fn device_of(rank: usize) -> Device {
    let count = Device::count().expect("a driver");
    Device::open(rank % count).expect("a device")
}

/// One rank of a world of threads.
pub struct Rank {
    pub comm: Communicator,
    pub devices: DeviceCommunicator,
    pub device: Device,
    pub stream: Stream,
    /// Where calls of [`Rank::run`] have their buffers: freeing some after each call would wait for all that the device does,
    /// which may be waiting for this rank.
    memory: [Mutex<DeviceVec<u8>>; 2],
}

/// The longest buffer of a call of [`Rank::run`].
const ROOM: usize = 4 << 20;

impl Rank {
    pub fn new(comm: &Communicator, way: Way) -> Result<Rank> {
        Rank::attached(comm, way, None)
    }

    /// The same, with all_gathers and all_to_alls of so many bytes left to copy engines.
    pub fn attached(comm: &Communicator, way: Way, copy_engines: Option<u64>) -> Result<Rank> {
        let device = device_of(comm.rank());
        // Little of both, so that calls of some hundred kilobytes take several steps, or segments.
        let (peers, scratch_bytes, segment_bytes) = (way == Way::Direct, 256 << 10, 48 << 10);
        let options = AttachOptions { peers, scratch_bytes, segment_bytes, copy_engines };
        let devices = comm.attach_with(Some(&device), &options)?;
        assert_eq!(devices.is_direct(), way == Way::Direct, "{way:?}");
        let stream = device.stream(Priority::Normal).expect("a stream");
        let comm = comm.with(paceline_comm::CallOptions::default());
        let room = || DeviceVec::zeroed(&device, ROOM).map(Mutex::new);
        let memory = [room()?, room()?];
        Ok(Rank { comm, devices, device, stream, memory })
    }

    /// Makes a call whose buffers are copied to the device before and back after it, to addresses that are `shift` bytes
    /// further than they might be.
    pub fn run(&self, request: Request<'_>, shift: usize) -> Result<()> {
        self.run_on(&self.devices, request, shift)
    }

    /// The same, by another handle.
    pub fn run_on(&self, devices: &DeviceCommunicator, request: Request<'_>, shift: usize) -> Result<()> {
        let Request { collective, data_type, op, root, source, count, buffers, counts } = request;
        let lend = |memory: &mut DeviceVec<u8>, bytes: &[u8]| {
            let mut whole = vec![0xa5; shift];
            whole.extend_from_slice(bytes);
            memory.write(&whole)?;
            Ok::<_, paceline_comm::Error>((memory.address() + shift as u64, bytes.len()))
        };
        let [mut first, mut second] = self.memory.each_ref().map(|memory| memory.lock().expect("a call at a time"));
        let (buffers, target) = match buffers {
            Buffers::Separate { input, output } => {
                let (from, to) = (lend(&mut first, input)?, lend(&mut second, output)?);
                (DeviceBuffers::Separate { input: from, output: to }, output)
            }
            Buffers::InPlace(buffer) => (DeviceBuffers::InPlace(lend(&mut second, buffer)?), buffer),
        };
        let request = Request { collective, data_type, op, root, source, count, buffers, counts };
        // SAFETY: the memory lives until the call is over.
        let work = unsafe { devices.on(&self.stream).run(request) }?;
        work.wait()?;
        let mut after = vec![0; shift + target.len()];
        second.read_at(0, &mut after)?;
        assert!(after[..shift].iter().all(|byte| *byte == 0xa5), "bytes before the output were written");
        target.copy_from_slice(&after[shift..]);
        Ok(())
    }
}

/// Runs ranks as threads.
pub fn ranks<R: Send>(n: usize, way: Way, body: impl Fn(Rank) -> R + Sync) -> Vec<R> {
    ranks_attached(n, way, None, body)
}

/// The same, with all_gathers and all_to_alls of so many bytes left to copy engines.
pub fn ranks_attached<R: Send>(
    n: usize,
    way: Way,
    copy_engines: Option<u64>,
    body: impl Fn(Rank) -> R + Sync,
) -> Vec<R> {
    let ends = ranks_that_may_race(n, way, copy_engines, body);
    if let Some(loaded) = simulated() {
        assert_eq!(loaded.races(), 0, "copies of two streams have no order");
    }
    ends
}

/// The same for streams whose calls fail: they go on copying, unordered. For processes of their own, which don't look at races.
pub fn ranks_that_may_race<R: Send>(
    n: usize,
    way: Way,
    copy_engines: Option<u64>,
    body: impl Fn(Rank) -> R + Sync,
) -> Vec<R> {
    let _turn = turn();
    let comms = Communicator::in_process(n).expect("ranks of one process");
    std::thread::scope(|scope| {
        let threads: Vec<_> = comms
            .iter()
            .map(|comm| {
                let body = &body;
                scope.spawn(move || {
                    let options = paceline_comm::CallOptions { timeout: Some(PATIENCE), ..Default::default() };
                    body(Rank::attached(&comm.with(options), way, copy_engines).expect("devices are attached"))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank")).collect()
    })
}
