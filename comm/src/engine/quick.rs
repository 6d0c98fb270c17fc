//! The short way for a small blocking call: over the boards, in the caller's thread, without becoming a call under way
//! unless it has to wait.

use std::collections::VecDeque;
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
use crate::error::{CallName, Result};

/// Looks that follow each other at once: a rest takes as long as a line's way from the peer.
const RESTLESS: u32 = 100;

/// Of calls that run together, how many are published at most before the first of them is finished. Boards have more slots.
const AHEAD: usize = 32;

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

    /// Looks until `ends` says that there is nothing more to look for, or so many times after the first: then a short call
    /// becomes one under way.
    #[inline(always)]
    pub(super) fn look_for_the_end(
        &mut self,
        attention: &Attention,
        looks: u32,
        mut ends: impl FnMut(&mut Core) -> bool,
    ) {
        for look in 0..=looks {
            if ends(self) {
                return;
            }
            if look < self.policies.caller.spins {
                if look >= RESTLESS {
                    std::hint::spin_loop();
                }
            } else if attention.is_raised() {
                return;
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Runs calls one after the other while nothing else is under way. What this rank brings to the next few is there before
    /// their turn: who waits for it finds more than one when it gets to look.
    pub(crate) fn run_all_quick<'a>(
        &mut self,
        attention: &Attention,
        mut calls: impl Iterator<Item = Quick<'a>>,
    ) -> Result<()> {
        if !self.endpoint.board().is_some_and(|board| board.gets_ahead()) {
            return calls.try_for_each(|quick| self.run_quick(attention, quick));
        }
        let mut next = VecDeque::with_capacity(AHEAD);
        loop {
            next.extend(calls.by_ref().take(AHEAD - next.len()));
            self.publish_ahead(&next);
            let Some(quick) = next.pop_front() else { return Ok(()) };
            self.run_quick(attention, quick)?;
        }
    }

    fn publish_ahead(&mut self, calls: &VecDeque<Quick<'_>>) {
        let mut any = false;
        for Quick { plan, memory, stamps, turn, .. } in calls {
            let published = self.endpoint.board().expect("all ranks have agreed that there are boards").published();
            if turn.number < published {
                continue;
            }
            // A turn between may be another thread's call.
            let posting = plan.posting.as_ref().expect("a call over the boards has a posting");
            let goes = turn.number == published;
            if !goes || !Exchange::publish_ahead(*turn, posting, memory, stamps, &mut self.endpoint) {
                break;
            }
            any = true;
        }
        if any {
            self.endpoint.ring_peers();
        }
    }

    /// Runs a call while nothing else is under way.
    #[inline]
    pub(crate) fn run_quick(&mut self, attention: &Attention, quick: Quick<'_>) -> Result<()> {
        let Quick { plan, memory, stamps, turn, sequence, timeout } = quick;
        let posting = plan.posting.as_ref().expect("a call over the boards has a posting");
        let mut exchange = Exchange::new(turn);
        let mut found = Ok(false);
        // Nothing can be in the way on a board.
        let looks = self.policies.caller.spins + self.policies.caller.yields;
        self.look_for_the_end(attention, looks, |core| {
            found = exchange.progress((plan, posting), &memory, stamps, &mut core.endpoint);
            if !matches!(found, Ok(false)) {
                core.endpoint.ring_peers();
            }
            exchange.done || found.is_err()
        });
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
