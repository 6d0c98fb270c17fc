//! Calls in which blocks belong to ranks.

use paceline_comm::{Communicator, ReduceOp, Result};

use super::inputs::{Digest, brings, everyone, places, root_of, same, sum, uneven, vector};

pub(super) fn all_gather(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let mut output = vec![0i64; len * comm.size()];
    comm.all_gather(&vector(comm.rank(), len), &mut output)?;
    same("all_gather", len, &output, everyone(comm.size(), len));
    digest.add(&output);
    Ok(())
}

pub(super) fn all_gather_in_place(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let mut buffer = vec![0i64; len * comm.size()];
    buffer[comm.rank() * len..][..len].copy_from_slice(&vector(comm.rank(), len));
    comm.all_gather_in_place(&mut buffer)?;
    same("all_gather in place", len, &buffer, everyone(comm.size(), len));
    digest.add(&buffer);
    Ok(())
}

pub(super) fn all_gather_v(comm: &Communicator, len: usize, digest: &mut Digest) -> Result<()> {
    let counts = uneven(comm.size(), len);
    let mut output = vec![0i64; counts.iter().sum()];
    comm.all_gather_v(&vector(comm.rank(), counts[comm.rank()]), &mut output, &counts)?;
    same("all_gather_v", len, &output, places(&counts).map(|(rank, i)| brings(rank, i)));
    digest.add(&output);
    Ok(())
}

pub(super) fn reduce_scatter(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let mut output = vec![0i64; len];
    comm.reduce_scatter(&vector(comm.rank(), len * comm.size()), &mut output, ReduceOp::Sum)?;
    let first = comm.rank() * len;
    same("reduce_scatter", len, &output, (first..first + len).map(|i| sum(comm.size(), i)));
    Ok(())
}

pub(super) fn reduce_scatter_v(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let counts = uneven(comm.size(), len);
    let first: usize = counts[..comm.rank()].iter().sum();
    let mut output = vec![0i64; counts[comm.rank()]];
    comm.reduce_scatter_v(&vector(comm.rank(), counts.iter().sum()), &mut output, &counts, ReduceOp::Sum)?;
    same("reduce_scatter_v", len, &output, (first..first + output.len()).map(|i| sum(comm.size(), i)));
    Ok(())
}

/// What `source` sends `target` as element `i`.
pub(super) fn sends(source: usize, target: usize, i: usize) -> i64 {
    brings(source * 31 + target, i)
}

pub(super) fn all_to_all(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    let input: Vec<i64> = (0..size).flat_map(|target| (0..len).map(move |i| sends(me, target, i))).collect();
    let mut output = vec![0i64; len * size];
    comm.all_to_all(&input, &mut output)?;
    same("all_to_all", len, &output, (0..size).flat_map(|source| (0..len).map(move |i| sends(source, me, i))));
    Ok(())
}

pub(super) fn all_to_all_v(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
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

pub(super) fn gather(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let root = root_of(comm, len);
    let mut output = vec![0i64; if comm.rank() == root { len * comm.size() } else { 0 }];
    comm.gather(&vector(comm.rank(), len), &mut output, root)?;
    same("gather", len, &output, everyone(comm.size(), len));
    Ok(())
}

pub(super) fn gather_v(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let (root, counts) = (root_of(comm, len), uneven(comm.size(), len));
    let mut output = vec![0i64; if comm.rank() == root { counts.iter().sum() } else { 0 }];
    comm.gather_v(&vector(comm.rank(), counts[comm.rank()]), &mut output, &counts, root)?;
    same("gather_v", len, &output, places(&counts).map(|(rank, i)| brings(rank, i)));
    Ok(())
}

pub(super) fn scatter(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let root = root_of(comm, len);
    let input: Vec<i64> = if comm.rank() == root { everyone(comm.size(), len).collect() } else { Vec::new() };
    let mut output = vec![0i64; len];
    comm.scatter(&input, &mut output, root)?;
    same("scatter", len, &output, (0..len).map(|i| brings(comm.rank(), i)));
    Ok(())
}

pub(super) fn scatter_v(comm: &Communicator, len: usize, _: &mut Digest) -> Result<()> {
    let (root, counts) = (root_of(comm, len), uneven(comm.size(), len));
    let is_root = comm.rank() == root;
    let all = places(&counts).map(|(rank, i)| brings(rank, i));
    let input: Vec<i64> = if is_root { all.collect() } else { Vec::new() };
    let mut output = vec![0i64; counts[comm.rank()]];
    comm.scatter_v(&input, &counts, &mut output, root)?;
    same("scatter_v", len, &output, (0..output.len()).map(|i| brings(comm.rank(), i)));
    Ok(())
}
