//! The short way for a small blocking call over links: its program runs in the caller's thread, without becoming a call under
//! way unless it has to wait.

use std::time::Duration;

use super::active::Active;
use super::attention::Attention;
use super::channels::{Channels, Naming};
use super::core::Core;
use super::memory::Memory;
use super::operation::{Beside, Operation};
use super::plan::SharedPlan;
use super::stamp::Stamps;
use crate::error::{CallName, Result};

/// A call over links, ready to run.
pub(crate) struct Small<'a> {
    pub(crate) plan: &'a SharedPlan,
    pub(crate) memory: Memory,
    pub(crate) stamps: &'a Stamps,
    pub(crate) sequence: u64,
    pub(crate) timeout: Duration,
}

impl Core {
    /// Runs a call while nothing else is under way.
    pub(crate) fn run_small(&mut self, attention: &Attention, small: Small<'_>) -> Result<()> {
        let Small { plan, memory, stamps, sequence, timeout } = small;
        let channels = Channels::Collective { sequence };
        let mut operation =
            Operation::new(plan.clone(), memory, channels, Naming::Whole, stamps.clone(), Beside::Nothing);
        let mut found = Ok(false);
        self.look_for_the_end(attention, self.policies.caller.clear_after, |core| {
            found = operation.progress(&mut core.endpoint);
            if !matches!(found, Ok(false)) {
                core.endpoint.ring_peers();
            }
            operation.is_done() || found.is_err()
        });
        let size = self.endpoint.size();
        let call = CallName { collective: plan.collective, sequence, algorithm: plan.row.into(), size };
        if operation.is_done() {
            self.witness.remember(call, stamps.own());
            return Ok(());
        }
        let active = Active::new(operation, call, timeout, None);
        match found {
            Ok(_) => self.drive(attention, &mut [active]),
            Err(fault) => Err(self.fault(&fault, &active)),
        }
    }
}
