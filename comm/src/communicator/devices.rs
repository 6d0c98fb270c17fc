//! What calls over memory of devices need of a communicator.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::{Communicator, Inner};
use crate::algorithm::Row;
use crate::collective::Collective;
use crate::cuda::Pending;
use crate::engine::{Plan, Slicing};
use crate::error::{Error, ErrorKind, Result};
use crate::reduce::{DataType, Kernel, ReduceOp};
use crate::request::{CallOptions, Sound};
use crate::schedule::Program;
use crate::select::Choice;

/// A handle that doesn't keep its communicator.
pub(crate) struct WeakCommunicator {
    inner: Weak<Inner>,
    options: CallOptions,
}

impl WeakCommunicator {
    /// The communicator, if it is still there.
    pub(crate) fn upgrade(&self) -> Option<Communicator> {
        Some(Communicator { inner: self.inner.upgrade()?, options: self.options.clone() })
    }
}

impl Communicator {
    /// Another handle with the same options.
    pub(crate) fn again(&self) -> Communicator {
        self.with(self.options.clone())
    }

    pub(crate) fn downgrade(&self) -> WeakCommunicator {
        WeakCommunicator { inner: Arc::downgrade(&self.inner), options: self.options.clone() }
    }

    /// The calls over memory of devices that wait for their streams, or run.
    pub(crate) fn pending(&self) -> &Arc<Pending> {
        &self.inner.pending
    }

    /// The algorithm that the handle's calls of a collective ask for, or the environment.
    pub(crate) fn wish(&self, collective: Collective) -> Option<&str> {
        self.inner.facts.wish(collective, &self.options)
    }

    /// The row that the handle's calls ask for.
    pub(crate) fn row_wished_for(&self, collective: Collective, uneven: bool) -> Result<Choice> {
        self.inner.facts.choose(collective, 0, uneven, &self.options)
    }

    /// The row of a name, where streams run it though nobody asks for it.
    pub(crate) fn row_named(&self, collective: Collective, name: &str) -> Result<Choice> {
        let options = CallOptions { algorithm: Some(name.to_owned()), ..CallOptions::default() };
        self.inner.facts.choose(collective, 0, false, &options)
    }

    /// All ranks' programs of a row.
    pub(crate) fn programs(&self, row: &Row, root: usize) -> Vec<Program> {
        (0..self.size()).map(|rank| self.inner.facts.program(row, rank, root)).collect()
    }

    /// The plan of a call by a row, cut as the engine cuts it, so that each element is in the same chunk.
    pub(crate) fn plan_by(&self, row: &Row, sound: &Sound, (data_type, op): (DataType, ReduceOp)) -> Plan {
        let program = self.inner.facts.program(row, self.rank(), sound.fingerprint.root as usize);
        let slicing = if row.moves_runs { Slicing::UNCUT } else { self.inner.facts.slicing() };
        let kernel = Kernel::of(data_type, op);
        Plan::new(row.collective, row.name, program, kernel, data_type.size(), sound.extent.clone(), slicing)
    }

    /// Looks for what other ranks have told, without waiting: which have left, or why the communicator has failed.
    pub(crate) fn look(&self) -> Result<Vec<usize>> {
        self.inner.engine.look()
    }

    #[cold]
    pub(super) fn wait_for_devices(&self) -> Result<()> {
        let timeout = self.timeout();
        if self.inner.pending.wait(Instant::now() + timeout) {
            return Ok(());
        }
        let cause = format!("calls over memory of a device, made before this one, have not ended after {timeout:.1?}");
        let hint = "their stream has not got to them: look at what it runs before, or wait for it first";
        Err(Error::new(ErrorKind::Timeout, cause).hint(hint))
    }
}
