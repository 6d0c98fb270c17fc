//! Every collective once, as one call each that checks its own result.
//!
//! Where all ranks must hold equal bits the result goes into a digest, which the ranks compare afterwards. The floats
//! are such that the order of additions shows in the last bits.

use paceline_comm::{Communicator, Element, LinkKind, ReduceOp, Result};

/// What all ranks must hold alike, folded to one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest(u64);

impl Digest {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    /// Folds in the bits of some elements, and how many they are.
    pub fn add<T: Element>(&mut self, elements: &[T]) {
        let bits = elements.iter().map(|element| element.to_bits64());
        self.0 = bits.chain([elements.len() as u64]).fold(self.0, |hash, word| {
            let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 29)
        });
    }
}

impl Default for Digest {
    fn default() -> Digest {
        Digest::new()
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A call, given how many elements to move.
pub type Call = fn(&Communicator, usize, &mut Digest) -> Result<()>;

/// How many elements the calls move: none, few, some that don't divide evenly, and enough for several chunks.
pub const LENGTHS: [usize; 5] = [0, 1, 13, 1000, 40_003];

/// Every collective, by name.
pub const CALLS: [(&str, Call); 24] = [
    ("barrier", barrier),
    ("all_reduce of floats", all_reduce_of_floats),
    ("all_reduce by each operator", all_reduce_by_each_operator),
    ("all_reduce in place", all_reduce_in_place),
    ("reduce", reduce),
    ("broadcast", broadcast),
    ("broadcast from input", broadcast_from),
    ("all_gather", all_gather),
    ("all_gather in place", all_gather_in_place),
    ("all_gather_v", all_gather_v),
    ("reduce_scatter", reduce_scatter),
    ("reduce_scatter_v", reduce_scatter_v),
    ("all_to_all", all_to_all),
    ("all_to_all_v", all_to_all_v),
    ("gather", gather),
    ("gather_v", gather_v),
    ("scatter", scatter),
    ("scatter_v", scatter_v),
    ("send and recv", send_and_recv),
    ("send_recv", send_recv),
    ("started calls", started),
    ("group", group),
    ("registered memory", registered),
    ("split", split),
];

/// What rank `rank` brings as element `i`.
fn brings(rank: usize, i: usize) -> i64 {
    (rank as i64 + 2) * 1009 + (i as i64 % 257) * 7 - (i as i64 % 5) * 300
}

fn vector(rank: usize, len: usize) -> Vec<i64> {
    (0..len).map(|i| brings(rank, i)).collect()
}

fn fraction(rank: usize, i: usize) -> f32 {
    1.0 / (rank as f32 + 3.0) + (i % 101) as f32 * 0.013
}

/// The sum over all ranks of element `i`.
fn sum(size: usize, i: usize) -> i64 {
    (0..size).map(|rank| brings(rank, i)).sum()
}

fn root_of(comm: &Communicator, len: usize) -> usize {
    len % comm.size()
}

fn same(what: &str, len: usize, found: &[i64], want: impl Iterator<Item = i64>) {
    let wrong = found.iter().zip(want).enumerate().find(|(_, (found, want))| *found != want);
    assert!(wrong.is_none(), "{what} of {len}: element, (found, wanted) is {wrong:?}");
}

fn barrier(comm: &Communicator, _: usize, _: &mut Digest) -> Result<()> {
    comm.barrier()
}

fn all_reduce_of_floats(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let input: Vec<f32> = (0..len).map(|i| fraction(comm.rank(), i)).collect();
    let mut output = vec![f32::NAN; len];
    comm.all_reduce(&input, &mut output, ReduceOp::Sum)?;
    for (i, found) in output.iter().enumerate() {
        let want: f64 = (0..comm.size()).map(|rank| f64::from(fraction(rank, i))).sum();
        assert!((f64::from(*found) - want).abs() <= 1e-5 * want, "all_reduce of {len}: element {i}: {found}, {want}");
    }
    digest.add(&output);
    Ok(())
}

fn all_reduce_by_each_operator(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let input = vector(comm.rank(), len);
    let mut output = vec![0i64; len];
    let all = |i: usize| (0..comm.size()).map(move |rank| brings(rank, i));
    comm.all_reduce(&input, &mut output, ReduceOp::Sum)?;
    same("sum", len, &output, (0..len).map(|i| all(i).sum()));
    comm.all_reduce(&input, &mut output, ReduceOp::Max)?;
    same("max", len, &output, (0..len).map(|i| all(i).max().unwrap_or(0)));
    comm.all_reduce(&input, &mut output, ReduceOp::Min)?;
    same("min", len, &output, (0..len).map(|i| all(i).min().unwrap_or(0)));
    comm.all_reduce(&input, &mut output, ReduceOp::Prod)?;
    same("prod", len, &output, (0..len).map(|i| all(i).fold(1, i64::wrapping_mul)));
    digest.add(&output);
    Ok(())
}

fn all_reduce_in_place(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let mut buffer = vector(comm.rank(), len);
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum)?;
    same("all_reduce in place", len, &buffer, (0..len).map(|i| sum(comm.size(), i)));
    digest.add(&buffer);
    Ok(())
}

fn reduce(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let root = root_of(comm, len);
    let mut output = vec![0i64; if comm.rank() == root { len } else { 0 }];
    comm.reduce(&vector(comm.rank(), len), &mut output, ReduceOp::Sum, root)?;
    same("reduce", len, &output, (0..len).map(|i| sum(comm.size(), i)));
    Ok(())
}

fn broadcast(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let root = root_of(comm, len);
    let mut buffer = vector(comm.rank(), len);
    comm.broadcast(&mut buffer, root)?;
    same("broadcast", len, &buffer, (0..len).map(|i| brings(root, i)));
    digest.add(&buffer);
    Ok(())
}

fn broadcast_from(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let root = root_of(comm, len + 1);
    let input = vector(comm.rank(), if comm.rank() == root { len } else { 0 });
    let mut output = vec![0i64; len];
    comm.broadcast_from(&input, &mut output, root)?;
    same("broadcast from input", len, &output, (0..len).map(|i| brings(root, i)));
    digest.add(&output);
    Ok(())
}

/// All ranks' vectors of `len` elements, one behind the other.
fn everyone(size: usize, len: usize) -> impl Iterator<Item = i64> {
    (0..size).flat_map(move |rank| (0..len).map(move |i| brings(rank, i)))
}

fn all_gather(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let mut output = vec![0i64; len * comm.size()];
    comm.all_gather(&vector(comm.rank(), len), &mut output)?;
    same("all_gather", len, &output, everyone(comm.size(), len));
    digest.add(&output);
    Ok(())
}

fn all_gather_in_place(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let mut buffer = vec![0i64; len * comm.size()];
    buffer[comm.rank() * len..][..len].copy_from_slice(&vector(comm.rank(), len));
    comm.all_gather_in_place(&mut buffer)?;
    same("all_gather in place", len, &buffer, everyone(comm.size(), len));
    digest.add(&buffer);
    Ok(())
}

/// Blocks of different lengths, some empty.
fn uneven(size: usize, len: usize) -> Vec<usize> {
    (0..size).map(|rank| if rank % 3 == 1 { 0 } else { len / 2 + rank * usize::from(len > 0) }).collect()
}

/// The places of blocks of different lengths that lie one behind the other.
fn places(counts: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    counts.iter().enumerate().flat_map(|(rank, count)| (0..*count).map(move |i| (rank, i)))
}

fn all_gather_v(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let counts = uneven(comm.size(), len);
    let mut output = vec![0i64; counts.iter().sum()];
    comm.all_gather_v(&vector(comm.rank(), counts[comm.rank()]), &mut output, &counts)?;
    same("all_gather_v", len, &output, places(&counts).map(|(rank, i)| brings(rank, i)));
    digest.add(&output);
    Ok(())
}

fn reduce_scatter(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let mut output = vec![0i64; len];
    comm.reduce_scatter(&vector(comm.rank(), len * comm.size()), &mut output, ReduceOp::Sum)?;
    let first = comm.rank() * len;
    same("reduce_scatter", len, &output, (first..first + len).map(|i| sum(comm.size(), i)));
    Ok(())
}

fn reduce_scatter_v(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let counts = uneven(comm.size(), len);
    let first: usize = counts[..comm.rank()].iter().sum();
    let mut output = vec![0i64; counts[comm.rank()]];
    comm.reduce_scatter_v(&vector(comm.rank(), counts.iter().sum()), &mut output, &counts, ReduceOp::Sum)?;
    same("reduce_scatter_v", len, &output, (first..first + output.len()).map(|i| sum(comm.size(), i)));
    Ok(())
}

/// What `source` sends `target` as element `i`.
fn sends(source: usize, target: usize, i: usize) -> i64 {
    brings(source * 31 + target, i)
}

fn all_to_all(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    let input: Vec<i64> = (0..size).flat_map(|target| (0..len).map(move |i| sends(me, target, i))).collect();
    let mut output = vec![0i64; len * size];
    comm.all_to_all(&input, &mut output)?;
    same("all_to_all", len, &output, (0..size).flat_map(|source| (0..len).map(move |i| sends(source, me, i))));
    Ok(())
}

fn all_to_all_v(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    let count = |source: usize, target: usize| (source * 5 + target * 3 + len) % (len + 1);
    let send_counts: Vec<usize> = (0..size).map(|target| count(me, target)).collect();
    let recv_counts: Vec<usize> = (0..size).map(|source| count(source, me)).collect();
    let input: Vec<i64> = places(&send_counts).map(|(target, i)| sends(me, target, i)).collect();
    let mut output = vec![0i64; recv_counts.iter().sum()];
    comm.all_to_all_v(&input, &send_counts, &mut output, &recv_counts)?;
    same("all_to_all_v", len, &output, places(&recv_counts).map(|(source, i)| sends(source, me, i)));
    Ok(())
}

fn gather(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let root = root_of(comm, len);
    let mut output = vec![0i64; if comm.rank() == root { len * comm.size() } else { 0 }];
    comm.gather(&vector(comm.rank(), len), &mut output, root)?;
    same("gather", len, &output, everyone(comm.size(), len));
    Ok(())
}

fn gather_v(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let (root, counts) = (root_of(comm, len), uneven(comm.size(), len));
    let mut output = vec![0i64; if comm.rank() == root { counts.iter().sum() } else { 0 }];
    comm.gather_v(&vector(comm.rank(), counts[comm.rank()]), &mut output, &counts, root)?;
    same("gather_v", len, &output, places(&counts).map(|(rank, i)| brings(rank, i)));
    Ok(())
}

fn scatter(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let root = root_of(comm, len);
    let input: Vec<i64> = if comm.rank() == root { everyone(comm.size(), len).collect() } else { Vec::new() };
    let mut output = vec![0i64; len];
    comm.scatter(&input, &mut output, root)?;
    same("scatter", len, &output, (0..len).map(|i| brings(comm.rank(), i)));
    Ok(())
}

fn scatter_v(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let (root, counts) = (root_of(comm, len), uneven(comm.size(), len));
    let is_root = comm.rank() == root;
    let all = places(&counts).map(|(rank, i)| brings(rank, i));
    let input: Vec<i64> = if is_root { all.collect() } else { Vec::new() };
    let mut output = vec![0i64; counts[comm.rank()]];
    comm.scatter_v(&input, &counts, &mut output, root)?;
    same("scatter_v", len, &output, (0..output.len()).map(|i| brings(comm.rank(), i)));
    Ok(())
}

/// Round the ranks; even ranks send first, and a rank alone has nobody to send to.
fn send_and_recv(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    if size == 1 {
        return Ok(());
    }
    let (next, last) = ((me + 1) % size, (me + size - 1) % size);
    let (message, mut arrived) = (vector(me, len), vec![0i64; len]);
    if me % 2 == 0 {
        comm.send(&message, next)?;
        comm.recv(&mut arrived, last)?;
    } else {
        comm.recv(&mut arrived, last)?;
        comm.send(&message, next)?;
    }
    same("recv", len, &arrived, (0..len).map(|i| brings(last, i)));
    Ok(())
}

fn send_recv(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    let (next, last) = ((me + 1) % size, (me + size - 1) % size);
    let mut arrived = vec![0i64; len];
    comm.send_recv(&vector(me, len), next, &mut arrived, last)?;
    same("send_recv", len, &arrived, (0..len).map(|i| brings(last, i)));
    Ok(())
}

fn started(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let reduced = comm.start_all_reduce(vector(comm.rank(), len), ReduceOp::Sum)?;
    let gathered = comm.start_all_gather(vector(comm.rank(), len), vec![0i64; len * comm.size()])?;
    let (gathered, reduced) = (gathered.wait()?, reduced.wait()?);
    same("started all_reduce", len, &reduced, (0..len).map(|i| sum(comm.size(), i)));
    same("started all_gather", len, &gathered, everyone(comm.size(), len));
    digest.add(&gathered);
    Ok(())
}

fn group(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    let message = vector(me, len);
    let mut total = vector(me, len);
    let mut arrived = vec![vec![0i64; len]; size];
    let mut group = comm.group();
    group.all_reduce_in_place(&mut total, ReduceOp::Sum);
    for (rank, place) in arrived.iter_mut().enumerate() {
        group.send(&message, rank).recv(place, rank);
    }
    group.run()?;
    same("all_reduce in a group", len, &total, (0..len).map(|i| sum(size, i)));
    let arrived: Vec<i64> = arrived.concat();
    same("messages in a group", len, &arrived, everyone(size, len));
    digest.add(&arrived);
    Ok(())
}

/// In memory that the ranks of a host map from each other. They are those that a rank has a link through memory with.
fn registered(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let mut buffer = comm.alloc::<i64>(len)?;
    let through_memory = |peer: usize| matches!(comm.link_kind(peer), None | Some(LinkKind::Inproc | LinkKind::Shm));
    for peer in 0..comm.size() {
        assert_eq!(buffer.reaches(peer), through_memory(peer), "rank {} reaches rank {peer}", comm.rank());
    }
    buffer.copy_from_slice(&vector(comm.rank(), len));
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum)?;
    same("all_reduce in registered memory", len, &buffer, (0..len).map(|i| sum(comm.size(), i)));
    digest.add(&buffer);
    Ok(())
}

/// Odd and even ranks apart, backwards; the digest takes only what all hold alike.
fn split(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let color = comm.rank() as u64 % 2;
    let part = comm.split(Some(color), -(comm.rank() as i64))?.expect("every rank has a color");
    let mut members: Vec<usize> = (0..comm.size()).filter(|rank| *rank as u64 % 2 == color).collect();
    members.reverse();
    assert_eq!((part.size(), members[part.rank()]), (members.len(), comm.rank()), "split");
    let mut buffer = vector(comm.rank(), len);
    part.all_reduce_in_place(&mut buffer, ReduceOp::Sum)?;
    let total = |i: usize| members.iter().map(|rank| brings(*rank, i)).sum();
    same("all_reduce of a part", len, &buffer, (0..len).map(total));
    Ok(())
}
