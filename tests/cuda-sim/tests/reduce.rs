//! The kernels, run on the host, against the host's own reductions: every bit.

use paceline_comm::device::{self, Arguments, Grid};
use paceline_comm::reduce::Kernel;
use paceline_comm::{DataType, ReduceOp};
use paceline_cuda_sim::OPERATORS;
use paceline_cuda_sim::host::Host;
use paceline_cuda_sim::room::Room;
use paceline_tests::noise::noise;
use paceline_tests::{Random, seed};

const LENGTHS: [usize; 6] = [0, 1, 7, 33, 1000, 4099];
const GRIDS: [Grid; 3] =
    [Grid { blocks: 1, threads: 1 }, Grid { blocks: 3, threads: 32 }, Grid { blocks: 7, threads: 13 }];

/// One launch: what is folded, how, and where everything lies.
struct Launch<'a> {
    data_type: DataType,
    op: ReduceOp,
    sources: Vec<&'a [u8]>,
    /// Of a scaled sum, each source's own factor, if it has one.
    factors: Vec<Option<u64>>,
    /// Of an average, what it is divided by, if it is.
    ranks: Option<u32>,
    /// Where each source begins, in elements from an address that is a multiple of 64, and where the target does.
    starts: Vec<usize>,
    target: usize,
    /// The source that is the target, if one is.
    into: Option<usize>,
    grid: Grid,
}

impl Launch<'_> {
    fn new<'a>(data_type: DataType, op: ReduceOp, sources: &[&'a [u8]]) -> Launch<'a> {
        let k = sources.len();
        Launch {
            data_type,
            op,
            sources: sources.to_vec(),
            factors: vec![None; k],
            ranks: None,
            starts: vec![0; k],
            target: 0,
            into: None,
            grid: GRIDS[1],
        }
    }

    /// What the host makes of it.
    fn want(&self) -> Vec<u8> {
        let scaled: Vec<Vec<u8>> = self
            .sources
            .iter()
            .zip(&self.factors)
            .map(|(source, factor)| match factor {
                Some(factor) => {
                    let mut scaled = source.to_vec();
                    Kernel::of(self.data_type, ReduceOp::PreMulSum(*factor)).scale_bytes_in_place(&mut scaled);
                    scaled
                }
                None => source.to_vec(),
            })
            .collect();
        let scaled: Vec<&[u8]> = scaled.iter().map(Vec::as_slice).collect();
        let mut want = vec![0; self.sources[0].len()];
        let kernel = Kernel::of(self.data_type, self.op);
        kernel.fold_bytes(&mut want, &scaled);
        if let Some(ranks) = self.ranks {
            kernel.finish_bytes(ranks, &mut want);
        }
        want
    }

    fn check(&self, host: &Host) {
        let size = self.data_type.size();
        let bytes = self.sources[0].len();
        let mut rooms: Vec<Room> =
            self.sources.iter().zip(&self.starts).map(|(source, start)| Room::new(start * size, source)).collect();
        let mut target = Room::new(self.target * size, &vec![0x77; bytes]);
        let addresses: Vec<u64> = rooms.iter_mut().map(Room::address).collect();
        let to = self.into.map_or_else(|| target.address(), |into| addresses[into]);
        let mut arguments = Arguments::new(to, &addresses, (bytes / size) as u64);
        for (source, factor) in self.factors.iter().enumerate() {
            if let Some(factor) = factor {
                arguments = arguments.scaling(source, *factor);
            }
        }
        if let Some(ranks) = self.ranks {
            arguments = arguments.dividing(ranks);
        }
        // SAFETY: the rooms hold that many elements, and belong to this thread.
        let misaligned = unsafe { host.launch(device::Kernel::Reduce(self.data_type, self.op), &arguments, self.grid) };
        let what = format!(
            "{} {}, {} sources of {} elements at {:?}, target at {} ({:?}), factors {:x?}, ranks {:?}, {:?}",
            self.data_type,
            self.op,
            self.sources.len(),
            bytes / size,
            self.starts,
            self.target,
            self.into,
            self.factors,
            self.ranks,
            self.grid
        );
        assert_eq!(misaligned, 0, "{what}: misaligned accesses");
        for (source, room) in rooms.iter().enumerate().filter(|(source, _)| Some(*source) != self.into) {
            room.check(size, self.sources[source], &format!("{what}: source {source}"));
        }
        let written = self.into.map_or(&target, |into| &rooms[into]);
        written.check(size, &self.want(), &what);
    }
}

/// The kernels, or a line that says why not.
fn host() -> Option<&'static Host> {
    Host::reductions().map_err(|reason| println!("skipped: {reason}")).ok()
}

/// Sixteen sources of arbitrary elements.
fn sources(data_type: DataType) -> Vec<Vec<u8>> {
    let random = &mut Random::new(seed() ^ u64::from(data_type.code()));
    (0..Arguments::SOURCES_MAX).map(|_| noise(data_type, random, 4099)).collect()
}

/// What an operator may be told, as factors and numbers of ranks, for `k` sources; `turn` chooses.
fn set(launch: &mut Launch<'_>, random: &mut Random, turn: usize) {
    match launch.op {
        ReduceOp::Avg => {
            let ranks = [None, Some(1), Some(2), Some(3), Some(8), Some(1000), Some(65_537), Some(u32::MAX)];
            launch.ranks = ranks[turn % ranks.len()];
        }
        ReduceOp::PreMulSum(_) => {
            let drawn = noise(launch.data_type, random, launch.sources.len());
            for (source, bytes) in drawn.chunks(launch.data_type.size()).enumerate() {
                let mut low = [0; 8];
                low[..bytes.len()].copy_from_slice(bytes);
                // What lies above the element's bits means nothing.
                let above = if bytes.len() < 8 { u64::MAX << (8 * bytes.len()) } else { 0 };
                launch.factors[source] = (random.below(4) > 0).then_some(u64::from_le_bytes(low) | above);
            }
        }
        _ => {}
    }
}

#[test]
fn every_kernel_folds_as_the_host_does() {
    let Some(host) = host() else { return };
    let random = &mut Random::new(seed());
    let mut turn = 0;
    for data_type in DataType::ALL {
        let sources = sources(data_type);
        for op in OPERATORS {
            for k in [1, 2, 3, 8, 16] {
                for n in LENGTHS {
                    let cut: Vec<&[u8]> = sources[..k].iter().map(|source| &source[..n * data_type.size()]).collect();
                    let per_pack = 16 / data_type.size() as u64;
                    // All alike and aligned; all alike; each anywhere.
                    for kind in 0..3 {
                        let mut launch = Launch::new(data_type, op, &cut);
                        let alike = random.below(per_pack) as usize;
                        let mut start = || match kind {
                            0 => 0,
                            1 => alike + (random.below(4) * per_pack) as usize,
                            _ => random.below(3 * per_pack) as usize,
                        };
                        launch.target = start();
                        launch.starts = (0..k).map(|_| start()).collect();
                        launch.grid = GRIDS[turn % GRIDS.len()];
                        launch.into = (turn % 5 == 4).then(|| turn / 5 % k);
                        set(&mut launch, random, turn);
                        launch.check(host);
                        turn += 1;
                    }
                }
            }
        }
    }
}

/// Every start within 16 bytes and every short length, so that every head, body and tail occurs.
#[test]
fn every_start_and_length() {
    let Some(host) = host() else { return };
    let random = &mut Random::new(seed());
    for data_type in DataType::ALL {
        let sources = sources(data_type);
        let (size, per_pack) = (data_type.size(), 16 / data_type.size());
        for op in OPERATORS {
            for start in 0..per_pack {
                for n in 0..=3 * per_pack {
                    let cut: Vec<&[u8]> = sources[..2].iter().map(|source| &source[..n * size]).collect();
                    let mut launch = Launch::new(data_type, op, &cut);
                    (launch.starts, launch.target) = (vec![start; 2], start);
                    launch.grid = GRIDS[n % GRIDS.len()];
                    set(&mut launch, random, n);
                    launch.check(host);
                    // One of the three pointers lies otherwise.
                    match n % 3 {
                        0 => launch.target = (start + 1) % per_pack,
                        other => launch.starts[other - 1] = (start + 1) % per_pack,
                    }
                    launch.check(host);
                }
            }
        }
    }
}

/// Every 8- and 16-bit element, copied, widened and rounded again, with every operator.
#[test]
fn every_value_of_the_narrow_types() {
    let Some(host) = host() else { return };
    let random = &mut Random::new(seed());
    for data_type in DataType::ALL.into_iter().filter(|data_type| data_type.size() <= 2) {
        let size = data_type.size();
        let all: Vec<u8> = (0..1u32 << (8 * size)).flat_map(|bits| bits.to_le_bytes()[..size].to_vec()).collect();
        let elements = all.len() / size;
        // The partners: all values in every 8-bit type, special ones and noise in the others.
        let partners: Vec<Vec<u8>> = match size {
            1 => all.chunks(1).map(<[u8]>::to_vec).collect(),
            _ => noise(data_type, random, 40).chunks(size).map(<[u8]>::to_vec).collect(),
        };
        for op in OPERATORS {
            Launch::new(data_type, op, &[&all]).check(host);
            Launch::new(data_type, op, &[&all, &all]).check(host);
            for partner in &partners {
                let partners = partner.repeat(elements);
                let mut launch = Launch::new(data_type, op, &[&all, &partners]);
                set(&mut launch, random, partner[0].into());
                launch.check(host);
                let mut launch = Launch::new(data_type, op, &[&all]);
                set(&mut launch, random, partner[0].into());
                launch.check(host);
            }
        }
    }
}

/// The quotient of every sum that is special, by many numbers of ranks.
#[test]
fn averages_are_divided_as_the_host_does() {
    let Some(host) = host() else { return };
    for data_type in DataType::ALL {
        let sources = sources(data_type);
        for ranks in [1, 2, 3, 5, 7, 64, 100, 127, 128, 255, 256, 1000, 65_537, 1 << 24 | 1, 1 << 31, u32::MAX] {
            let mut launch = Launch::new(data_type, ReduceOp::Avg, &[&sources[0]]);
            launch.ranks = Some(ranks);
            launch.check(host);
        }
    }
}

/// One element of each source, what an average is divided by, and the element that comes out.
type Known = (DataType, ReduceOp, &'static [u64], Option<u32>, u64);

/// Answers that are known without the host's reductions: what is added when, and where it is rounded.
#[test]
fn known_answers() {
    let Some(host) = host() else { return };
    let run = |data_type: DataType, op, elements: &[u64], ranks: Option<u32>| {
        let size = data_type.size();
        let mut rooms: Vec<Room> =
            elements.iter().map(|bits| Room::new(0, &bits.to_le_bytes()[..size].repeat(35))).collect();
        let mut target = Room::new(0, &vec![0; 35 * size]);
        let addresses: Vec<u64> = rooms.iter_mut().map(Room::address).collect();
        let mut arguments = Arguments::new(target.address(), &addresses, 35);
        if let Some(ranks) = ranks {
            arguments = arguments.dividing(ranks);
        }
        // SAFETY: the rooms hold 35 elements, and belong to this thread.
        let misaligned = unsafe { host.launch(device::Kernel::Reduce(data_type, op), &arguments, GRIDS[1]) };
        assert_eq!(misaligned, 0, "{data_type} {op}: misaligned accesses");
        target
    };
    let cases: &[Known] = &[
        // 2^24 + 1 + 1 in this order loses both ones; the other way round it does not.
        (DataType::F32, ReduceOp::Sum, &[0x4b80_0000, 0x3f80_0000, 0x3f80_0000], None, 0x4b80_0000),
        (DataType::F32, ReduceOp::Sum, &[0x3f80_0000, 0x3f80_0000, 0x4b80_0000], None, 0x4b80_0001),
        // 1 and four times half of its last bit, rounded once.
        (DataType::F16, ReduceOp::Sum, &[0x3c00, 0x1000, 0x1000, 0x1000, 0x1000], None, 0x3c02),
        (DataType::Bf16, ReduceOp::Sum, &[0x3f80, 0x3b80, 0x3b80, 0x3b80, 0x3b80], None, 0x3f82),
        // A sum that overflows before it is divided is lost.
        (DataType::F16, ReduceOp::Avg, &[0x7bff, 0x7bff], Some(2), 0x7c00),
        (DataType::F8E4M3, ReduceOp::Avg, &[0x7e, 0x7e], Some(2), 0x76),
        // The sum is rounded before it is divided: 2049 is 2048 in f16, and a third of that is not a third of 2049.
        (DataType::F16, ReduceOp::Avg, &[0x6800, 0x3c00], Some(3), 0x6155),
        (DataType::I32, ReduceOp::Avg, &[0xffff_fff9, 0], Some(2), 0xffff_fffd),
        (DataType::I8, ReduceOp::Sum, &[0x7f, 1], None, 0x80),
        (DataType::F32, ReduceOp::Min, &[0x0000_0000, 0x8000_0000], None, 0x8000_0000),
        (DataType::F32, ReduceOp::Max, &[0xff80_0001, 0x7f80_0000], None, 0x7fc0_0000),
        (DataType::F8E4M3, ReduceOp::Sum, &[0x7e, 0x7e], None, 0x7e),
        (DataType::F8E5M2, ReduceOp::Sum, &[0x7c, 0xfc], None, 0x7e),
        (DataType::F64, ReduceOp::Max, &[0x7ff0_0000_0000_0001], None, 0x7ff0_0000_0000_0001),
    ];
    for (data_type, op, elements, ranks, want) in cases {
        let size = data_type.size();
        let what = format!("{data_type} {op} of {elements:x?}, ranks {ranks:?}");
        run(*data_type, *op, elements, *ranks).check(size, &want.to_le_bytes()[..size].repeat(35), &what);
    }
}
