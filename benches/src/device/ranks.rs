//! all_reduce between ranks with devices, on the devices and by the host, by turns.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use paceline_comm::cuda::{AttachOptions, Device, DeviceCommunicator, DeviceVec, Event, Priority, Stream};
use paceline_comm::{CallOptions, Communicator, ReduceOp};

use super::rig::told;
use super::{PATIENCE, Sizes};

/// Which way calls go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Way {
    /// Kernels on the devices.
    Direct,
    /// By the host.
    Host,
}

impl Way {
    /// Both, in the order of the numbers.
    pub const ALL: [Way; 2] = [Way::Direct, Way::Host];
    /// Numbers of each size and way: the device's time of a call among others, and the host's from a call until it knows of its
    /// end.
    pub const NUMBERS: usize = 2;

    /// What tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Way::Direct => "on the devices",
            Way::Host => "by the host",
        }
    }
}

/// A call that takes longer than this is made once for each number, and longer vectors aren't measured.
const SLOW: Duration = Duration::from_millis(500);
/// Elements that are written, and compared, at once.
const PIECE: usize = 256 << 10;

/// Runs this process's ranks: the worker of [`super::Part::Ranks`].
///
/// # Errors
///
/// The ranks don't meet, a call fails, or its result is wrong.
pub fn ranks(sizes: &Sizes, threads: Option<usize>) -> Result<(), String> {
    // No rank outlives the program that started it.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let comms = match threads {
        None => vec![Communicator::from_env().map_err(told)?],
        Some(threads) => Communicator::from_env_threads(threads).map_err(told)?,
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = comms.iter().map(|comm| scope.spawn(|| rank(comm, sizes))).collect();
        ranks.into_iter().try_for_each(|rank| rank.join().map_err(|_| "a rank's thread panicked".to_owned())?)
    })
}

struct Rank {
    comm: Communicator,
    ways: [DeviceCommunicator; 2],
    stream: Stream,
    events: [Event; 2],
    input: DeviceVec<f32>,
    output: DeviceVec<f32>,
}

fn rank(comm: &Communicator, sizes: &Sizes) -> Result<(), String> {
    let comm = comm.with(CallOptions { timeout: Some(PATIENCE), ..CallOptions::default() });
    let me = |error: String| format!("rank {}: {error}", comm.rank());
    let mut rank = Rank::new(&comm, sizes).map_err(me)?;
    let vectors = sizes.vectors();
    // Why longer vectors are not measured in a way. It is found in the first round, and holds in all.
    let mut slow: [Option<(usize, String)>; 2] = [None, None];
    for round in 0..sizes.rounds() {
        for bytes in &vectors {
            for (way, slow) in Way::ALL.into_iter().zip(&mut slow) {
                if way == Way::Direct && !rank.ways[0].is_direct() {
                    *slow = Some((0, "the devices don't reach each other's memory".to_owned()));
                }
                if let Some((_, reason)) = slow.as_ref().filter(|(from, _)| from < bytes) {
                    (0..Way::NUMBERS).for_each(|_| rank.say(&format!("refused {reason}")));
                    continue;
                }
                let (device, wall, one) = rank.measure(way, *bytes, round == 0, sizes).map_err(me)?;
                [device, wall].iter().for_each(|us| rank.say(&format!("time {us:.4}")));
                if round == 0 && one > SLOW {
                    *slow = Some((*bytes, format!("a call of {bytes} bytes takes {:.2} s", one.as_secs_f64())));
                }
            }
        }
    }
    rank.finish().map_err(me)
}

impl Rank {
    fn new(comm: &Communicator, sizes: &Sizes) -> Result<Rank, String> {
        let count = Device::count().map_err(told)?;
        let device = Device::open(comm.local_rank() % count).map_err(told)?;
        let attach = |comm: &Communicator, peers| {
            comm.attach_with(Some(&device), &AttachOptions { peers, ..AttachOptions::default() }).map_err(told)
        };
        let other = comm.split(Some(0), comm.rank() as i64).map_err(told)?.ok_or("no communicator for this color")?;
        let other = other.with(CallOptions { timeout: Some(PATIENCE), ..CallOptions::default() });
        let ways = [attach(comm, true)?, attach(&other, false)?];
        let longest = sizes.vectors().into_iter().max().unwrap_or(0) / size_of::<f32>();
        let vector = || DeviceVec::zeroed(&device, longest).map_err(told);
        let (mut input, output) = (vector()?, vector()?);
        let piece: Vec<f32> = (0..PIECE).map(|at| element(at) * (comm.rank() + 1) as f32).collect();
        for at in (0..longest).step_by(PIECE) {
            input.write_at(at, &piece[..PIECE.min(longest - at)]).map_err(told)?;
        }
        let event = || Event::with_timing(&device).map_err(told);
        let stream = device.stream(Priority::Normal).map_err(told)?;
        Ok(Rank { comm: comm.with(CallOptions::default()), ways, stream, events: [event()?, event()?], input, output })
    }

    /// The device's and the host's time of a call in microseconds, those of the slowest rank, and what one call took at first.
    fn measure(&mut self, way: Way, bytes: usize, check: bool, sizes: &Sizes) -> Result<(f64, f64, Duration), String> {
        let len = bytes / size_of::<f32>();
        // The first call compiles.
        self.call(way, len)?.wait().map_err(told)?;
        if check {
            self.check(len)?;
        }
        self.comm.barrier().map_err(told)?;
        let began = Instant::now();
        self.call(way, len)?.wait().map_err(told)?;
        let one = Duration::from_secs_f64(self.slowest(began.elapsed().as_secs_f64())?);
        let iterations = sizes.iterations(one);

        self.comm.barrier().map_err(told)?;
        self.stream.record(&self.events[0]).map_err(told)?;
        for _ in 0..iterations {
            self.call(way, len)?;
        }
        self.stream.record(&self.events[1]).map_err(told)?;
        self.events[1].synchronize(Instant::now() + PATIENCE).map_err(told)?;
        self.ways[way as usize].check().map_err(told)?;
        let device = self.events[0].elapsed(&self.events[1]).map_err(told)?;
        let device = self.slowest(device.as_secs_f64() / iterations as f64)?;

        self.comm.barrier().map_err(told)?;
        let began = Instant::now();
        for _ in 0..iterations {
            self.call(way, len)?.wait().map_err(told)?;
        }
        let wall = self.slowest(began.elapsed().as_secs_f64() / iterations as f64)?;
        Ok((1e6 * device, 1e6 * wall, one))
    }

    fn call(&mut self, way: Way, len: usize) -> Result<paceline_comm::cuda::DeviceWork, String> {
        let on = self.ways[way as usize].on(&self.stream);
        let (input, mut output) = (self.input.slice(0..len), self.output.slice_mut(0..len));
        on.all_reduce(&input, &mut output, ReduceOp::Sum).map_err(told)
    }

    /// Compares the first and the last elements, and clears them for the next call.
    fn check(&mut self, len: usize) -> Result<(), String> {
        let ranks = self.comm.size();
        let factor = (ranks * (ranks + 1) / 2) as f32;
        let last = len.saturating_sub(1) / PIECE * PIECE;
        for at in [0].into_iter().chain((last > 0).then_some(last)) {
            let mut got = vec![0.0; PIECE.min(len - at)];
            self.output.read_at(at, &mut got).map_err(told)?;
            if let Some(wrong) = (0..got.len()).find(|i| got[*i] != element(*i) * factor) {
                let want = element(wrong) * factor;
                return Err(format!("a wrong result: element {} is {}, not {want}", at + wrong, got[wrong]));
            }
            got.fill(0.0);
            self.output.write_at(at, &got).map_err(told)?;
        }
        Ok(())
    }

    fn slowest(&self, seconds: f64) -> Result<f64, String> {
        let mut slowest = [seconds];
        self.comm.all_reduce_in_place(&mut slowest, ReduceOp::Max).map_err(told)?;
        Ok(slowest[0])
    }

    fn say(&self, line: &str) {
        if self.comm.rank() == 0 {
            println!("{line}");
        }
    }

    fn finish(self) -> Result<(), String> {
        self.stream.synchronize(Instant::now() + PATIENCE).map_err(told)?;
        self.ways.into_iter().try_for_each(DeviceCommunicator::detach).map_err(told)
    }
}

/// What rank 0 brings; rank `r` brings `r + 1` times as much.
fn element(at: usize) -> f32 {
    (at % 100) as f32
}
