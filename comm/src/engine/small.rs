//! The short way for a small blocking call over links: its program runs in the caller's thread, without becoming a call under
//! way unless it has to wait.

use std::time::Duration;

use super::active::Active;
use super::attention::Attention;
use super::channels::Channels;
use super::core::Core;
use super::memory::Memory;
use super::operation::Operation;
use super::plan::SharedPlan;
use super::stamp::Stamps;
use super::straight::{Look, Runner, Stage, Straight};
use crate::error::{CallName, Result};

/// A call over links, ready to run.
pub(crate) struct Small<'a> {
    pub(crate) plan: &'a SharedPlan,
    /// The plan's program, if it runs straight.
    pub(crate) straight: Option<&'a Straight>,
    pub(crate) memory: Memory,
    pub(crate) stamps: &'a Stamps,
    pub(crate) sequence: u64,
    pub(crate) timeout: Duration,
}

impl Core {
    /// Runs a call while nothing else is under way.
    pub(crate) fn run_small(&mut self, attention: &Attention, small: Small<'_>) -> Result<()> {
        let Small { plan, straight, memory, stamps, sequence, timeout } = small;
        let channels = Channels::Collective { sequence };
        let size = self.endpoint.size();
        let call = CallName { collective: plan.collective, sequence, algorithm: plan.row.into(), size };
        let (mut stage, mut look) = (Stage::default(), Look::Otherwise);
        if let Some(straight) = straight {
            let runner = Runner { plan, memory: &memory, stamps, channels };
            self.look_for_the_end(attention, self.policies.caller.clear_after, |core| {
                look = straight.look(&runner, &mut stage, &mut core.endpoint);
                if look != Look::Nothing {
                    core.endpoint.ring_peers();
                }
                matches!(look, Look::Done | Look::Otherwise)
            });
        }
        if look == Look::Done {
            self.scratch = memory.into_scratch();
            self.witness.remember(call, stamps.own());
            return Ok(());
        }
        let mut operation = Operation::resumed(plan.clone(), memory, channels, stamps.clone(), stage);
        let mut found = Ok(false);
        if look == Look::Otherwise {
            self.look_for_the_end(attention, self.policies.caller.clear_after, |core| {
                found = operation.progress(&mut core.endpoint);
                if !matches!(found, Ok(false)) {
                    core.endpoint.ring_peers();
                }
                operation.is_done() || found.is_err()
            });
        }
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
