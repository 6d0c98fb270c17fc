//! Every collective once, as one call each that checks its own result.
//!
//! Where all ranks must hold equal bits the result goes into a digest, which the ranks compare afterwards. The floats
//! are such that the order of additions shows in the last bits.

use std::time::{Duration, Instant};

use paceline_comm::{Communicator, LinkKind, ReduceOp, Result};

use super::blocks;
use super::inputs::{Digest, brings, everyone, fraction, root_of, same, sum, vector};

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
    ("all_gather", blocks::all_gather),
    ("all_gather in place", blocks::all_gather_in_place),
    ("all_gather_v", blocks::all_gather_v),
    ("reduce_scatter", blocks::reduce_scatter),
    ("reduce_scatter_v", blocks::reduce_scatter_v),
    ("all_to_all", blocks::all_to_all),
    ("all_to_all_v", blocks::all_to_all_v),
    ("gather", blocks::gather),
    ("gather_v", blocks::gather_v),
    ("scatter", blocks::scatter),
    ("scatter_v", blocks::scatter_v),
    ("send and recv", send_and_recv),
    ("send_recv", send_recv),
    ("started calls", started),
    ("group", group),
    ("registered memory", registered),
    ("split", split),
];

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

/// Starts an all_reduce and computes until it has ended, without ever waiting for it; how many times it was looked at.
///
/// # Errors
///
/// As the call.
///
/// # Panics
///
/// If it doesn't end without the caller, or its result is wrong.
pub fn ends_beside(comm: &Communicator, len: usize, limit: Duration) -> Result<u64> {
    let work = comm.start_all_reduce(vector(comm.rank(), len), ReduceOp::Sum)?;
    let (deadline, mut state) = (Instant::now() + limit, 1u64);
    for looks in 1.. {
        for _ in 0..100_000 {
            state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        if work.test() {
            same("all_reduce beside computing", len, &work.wait()?, (0..len).map(|i| sum(comm.size(), i)));
            return Ok(looks);
        }
        assert!(Instant::now() < deadline, "a started call has not ended by itself in {limit:?}");
    }
    unreachable!("the deadline comes first")
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
