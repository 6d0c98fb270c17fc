//! The short way for a small blocking call: over the boards, in the caller's thread, without becoming a call under way
//! unless it has to wait.

use std::time::Duration;

use super::active::Active;
use super::attention::Attention;
use super::channels::{Channels, Naming};
use super::core::Core;
use super::exchange::{Exchange, Turn};
use super::memory::Memory;
use super::operation::Operation;
use super::plan::SharedPlan;
use super::stamp::Stamps;
use super::wait::rest_after;
use crate::error::{CallName, Result};

/// A call over the boards, ready to run.
pub(crate) struct Quick<'a> {
    pub(crate) plan: &'a SharedPlan,
    pub(crate) memory: Memory,
    pub(crate) stamps: &'a Stamps,
    pub(crate) turn: Turn,
    pub(crate) sequence: u64,
    pub(crate) timeout: Duration,
}

impl Core {
    /// Whether nothing is under way and nothing wrong.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty() && self.dead.is_none()
    }

    /// Runs a call while nothing else is under way.
    #[inline]
    pub(crate) fn run_quick(&mut self, attention: &Attention, quick: Quick<'_>) -> Result<()> {
        let Quick { plan, memory, stamps, turn, sequence, timeout } = quick;
        let posting = plan.posting.as_ref().expect("a call over the boards has a posting");
        let mut exchange = Exchange::new(turn);
        let mut found = Ok(false);
        for look in 0..=self.policy.spins + self.policy.yields {
            found = exchange.progress((plan, posting), &memory, stamps, &mut self.endpoint);
            if !matches!(found, Ok(false)) {
                self.endpoint.ring_peers();
            }
            if exchange.done || found.is_err() {
                break;
            }
            if look < self.policy.spins {
                rest_after(look);
            } else if attention.is_raised() {
                break;
            } else {
                std::thread::yield_now();
            }
        }
        let size = self.endpoint.size();
        let call = CallName { collective: plan.collective, sequence, algorithm: plan.row.into(), size };
        if exchange.done && !exchange.unfit {
            self.witness.remember(call, stamps.own());
            return Ok(());
        }
        let channels = Channels::Collective { sequence };
        let (plan, stamps) = (plan.clone(), stamps.clone());
        let operation = Operation::begun(plan, memory, channels, Naming::Whole, stamps, exchange);
        let active = Active::new(operation, call, timeout, None);
        match found {
            Ok(_) => self.drive(attention, &mut [active]),
            Err(fault) => Err(self.fault(&fault, &active)),
        }
    }
}
