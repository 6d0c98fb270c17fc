//! One operation of a test, ready to be started again and again on any buffers.

use paceline_comm::reduce::{DataType, ReduceOp};

use super::benchmark::Action;
use super::comm::{Buffers, Comm, CommError, Counts, Exchange, Request};
use super::layout::Layout;

/// An operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What is called.
    pub action: Action,
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
    /// Runs once, from one buffer to another, both as long as the layout says.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    pub fn run_separate<C: Comm>(&self, comm: &C, input: &[u8], output: &mut [u8]) -> Result<(), CommError> {
        if self.action != Action::Hypercube {
            return self.run(comm, Buffers::Separate { input, output });
        }
        let own = comm.rank() * input.len();
        output[own..own + input.len()].copy_from_slice(input);
        self.hypercube(comm, output)
    }

    /// Runs once in one buffer, as long as the larger of the two would be.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    pub fn run_in_place<C: Comm>(&self, comm: &C, buffer: &mut [u8]) -> Result<(), CommError> {
        match self.action {
            Action::Hypercube => self.hypercube(comm, buffer),
            _ => self.run(comm, Buffers::InPlace(buffer)),
        }
    }

    fn run<C: Comm>(&self, comm: &C, buffers: Buffers<'_>) -> Result<(), CommError> {
        let Operation { data_type, op, root, .. } = *self;
        let (rank, n) = (comm.rank(), comm.size());
        let (collective, counts) = match self.action {
            Action::Collective(collective) => (collective, None),
            Action::AllToAllV => (paceline_comm::collective::Collective::AllToAll, self.counts()),
            Action::Ring => {
                return comm.exchange(Exchange { to: (rank + 1) % n, from: (rank + n - 1) % n, data_type, buffers });
            }
            Action::Hypercube => unreachable!("a hypercube is run by exchanges"),
        };
        comm.run(Request { collective, data_type, op, root, count: self.layout.count, buffers, counts })
    }

    fn counts(&self) -> Option<Counts<'_>> {
        self.layout.peers.as_ref().map(|peers| Counts {
            send_counts: &peers.send_counts,
            send_offsets: &peers.send_offsets,
            recv_counts: &peers.recv_counts,
            recv_offsets: &peers.recv_offsets,
        })
    }

    /// In round k each rank exchanges the 2^k blocks it holds with the rank that differs in bit k.
    ///
    /// ```text
    /// n = 4   round 0: 0 <-> 1, 2 <-> 3, one block each     round 1: 0 <-> 2, 1 <-> 3, two blocks each
    /// ```
    fn hypercube<C: Comm>(&self, comm: &C, buffer: &mut [u8]) -> Result<(), CommError> {
        let (rank, n, block) = (comm.rank(), comm.size(), self.layout.count * self.element);
        for bit in (0..n.trailing_zeros()).map(|k| 1usize << k) {
            let held = rank & !(bit - 1);
            let missing = held ^ bit;
            let first = held.min(missing) * block;
            let (low, high) = buffer[first..first + 2 * bit * block].split_at_mut(bit * block);
            let (input, output) = if held < missing { (low, high) } else { (high, low) };
            let buffers = Buffers::Separate { input, output };
            let (peer, data_type) = (rank ^ bit, self.data_type);
            comm.exchange(Exchange { to: peer, from: peer, data_type, buffers })?;
        }
        Ok(())
    }
}
