//! One operation of a test, ready to be started again and again on any buffers.

use paceline_comm::{Buffers, Collective, Counts, DataType, ReduceOp, Request};

use super::benchmark::Action;
use super::comm::{Comm, CommError};
use super::layout::{Layout, Peers};

/// An operation of one rank.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What is called.
    pub action: Action,
    /// The rank that calls.
    pub rank: usize,
    /// How many ranks there are.
    pub n: usize,
    /// What the elements are.
    pub data_type: DataType,
    /// Bytes of one element.
    pub element: usize,
    /// How they are combined, if they are.
    pub op: ReduceOp,
    /// The root, if there is one.
    pub root: usize,
    /// How the elements lie.
    pub layout: Layout,
}

impl Operation {
    /// Runs once, from one buffer to another or in one that is as long as the longer of the two.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    ///
    /// # Panics
    ///
    /// If a ring is to run in place: what leaves would be overwritten by what arrives.
    pub fn run<C: Comm>(&self, comm: &C, buffers: Buffers<'_>) -> Result<(), CommError> {
        if self.action == Action::Hypercube {
            return self.hypercube(comm, buffers);
        }
        comm.run(self.request(buffers))
    }

    /// Runs on several pairs of buffers at the same time. A hypercube, which is several calls, runs once after the other.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    pub fn run_group<'a, C: Comm>(
        &'a self,
        comm: &C,
        buffers: impl Iterator<Item = Buffers<'a>>,
    ) -> Result<(), CommError> {
        if self.action == Action::Hypercube {
            return buffers.into_iter().try_for_each(|buffers| self.hypercube(comm, buffers));
        }
        comm.run_group(buffers.map(|buffers| self.request(buffers)).collect())
    }

    fn request<'a>(&'a self, buffers: Buffers<'a>) -> Request<'a> {
        let Operation { data_type, op, root, rank, n, .. } = *self;
        let count = self.layout.count;
        match self.action {
            Action::Collective(collective) => {
                let buffers = self.own_block_only(collective, buffers);
                Request { op, root, ..Request::new(collective, data_type, count, buffers) }
            }
            Action::AllToAllV => {
                let request = Request::new(Collective::AllToAll, data_type, count, buffers);
                request.counts(counts(self.layout.peers.as_ref().expect("alltoallv has counts by peer")))
            }
            Action::Ring => {
                assert!(matches!(buffers, Buffers::Separate { .. }), "a ring runs between two buffers");
                let request = Request::new(Collective::SendRecv, data_type, count, buffers);
                request.root((rank + 1) % n).source((rank + n - 1) % n)
            }
            Action::Hypercube => unreachable!("a hypercube is several requests"),
        }
    }

    /// In place, only the root has all blocks. nccl-tests gives the others as much room and uses their own block of it.
    fn own_block_only<'a>(&self, collective: Collective, buffers: Buffers<'a>) -> Buffers<'a> {
        let block = self.layout.count * self.element;
        let own = self.rank * block..(self.rank + 1) * block;
        match (collective, buffers) {
            (Collective::Gather, Buffers::InPlace(buffer)) if self.rank != self.root => {
                Buffers::Separate { input: &buffer[own], output: &mut [] }
            }
            (Collective::Scatter, Buffers::InPlace(buffer)) if self.rank != self.root => {
                Buffers::Separate { input: &[], output: &mut buffer[own] }
            }
            (_, buffers) => buffers,
        }
    }

    /// In round k each rank exchanges the 2^k blocks it holds with the rank that differs in bit k.
    ///
    /// ```text
    /// n = 4   round 0: 0 <-> 1, 2 <-> 3, one block each     round 1: 0 <-> 2, 1 <-> 3, two blocks each
    /// ```
    fn hypercube<C: Comm>(&self, comm: &C, buffers: Buffers<'_>) -> Result<(), CommError> {
        let (rank, n, block) = (self.rank, self.n, self.layout.count * self.element);
        let buffer = match buffers {
            Buffers::InPlace(buffer) => buffer,
            Buffers::Separate { input, output } => {
                comm.copy(input, &mut output[rank * block..(rank + 1) * block])?;
                output
            }
        };
        for bit in (0..n.trailing_zeros()).map(|k| 1usize << k) {
            let held = rank & !(bit - 1);
            let missing = held ^ bit;
            let first = held.min(missing) * block;
            let (low, high) = buffer[first..first + 2 * bit * block].split_at_mut(bit * block);
            let (input, output) = if held < missing { (low, high) } else { (high, low) };
            let buffers = Buffers::Separate { input, output };
            let peer = rank ^ bit;
            let request = Request::new(Collective::SendRecv, self.data_type, bit * self.layout.count, buffers);
            comm.run(request.root(peer).source(peer))?;
        }
        Ok(())
    }
}

fn counts(peers: &Peers) -> Counts<'_> {
    Counts {
        send_counts: &peers.send_counts,
        send_offsets: &peers.send_offsets,
        recv_counts: &peers.recv_counts,
        recv_offsets: &peers.recv_offsets,
    }
}
