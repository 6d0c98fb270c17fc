//! How a rank waits: looks again at once, then lets others run, then sleeps.

/// What to do when a look at everything found nothing to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// Look again at once.
    Spin,
    /// Let another thread run, then look again.
    Yield,
    /// Look for what may be in the way, then look again.
    Clear,
    /// Sleep until something happens.
    Sleep,
}

/// Looks of a thread that has no core of its own: some tens of microseconds, about what waking it costs.
const SPINS_WITHOUT_CORE: u32 = 500;

/// What it costs to look whether something has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// It is in memory.
    Memory,
    /// A system call.
    SystemCall,
    /// A device that is a program of the kernel's does nothing meanwhile.
    TakesFromDevice,
}

/// How long to look before giving way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitPolicy {
    /// Looks before the first yield.
    pub(crate) spins: u32,
    /// Yields before the first sleep.
    pub(crate) yields: u32,
    /// Looks before it is worth looking for what may be in the way.
    pub(crate) clear_after: u32,
}

impl WaitPolicy {
    /// For `ranks` on a host where this process may use `cores`, and what a look costs.
    pub(crate) fn for_host(ranks: usize, cores: usize, look: Look) -> WaitPolicy {
        match (ranks > cores, look) {
            (true, Look::TakesFromDevice) => WaitPolicy { spins: 5, yields: 200, clear_after: 50 },
            (true, _) => WaitPolicy { spins: 5, yields: 200, clear_after: 5 },
            (false, Look::TakesFromDevice) => WaitPolicy { spins: 200, yields: 5000, clear_after: 300 },
            // Some milliseconds: as long as the peer may be without its core because something else runs there. Who sleeps
            // sooner must be woken, loses its own core meanwhile, and then the peer sleeps as well.
            (false, Look::Memory) => WaitPolicy { spins: 200_000, yields: 10, clear_after: 2_000 },
            (false, Look::SystemCall) => WaitPolicy { spins: 100, yields: 20, clear_after: 100 },
        }
    }
}

/// The policies of the threads that may drive a rank's calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitPolicies {
    /// Of a caller that runs its own call.
    pub(crate) caller: WaitPolicy,
    /// Of the progress thread, for callers that wait.
    pub(crate) progress: WaitPolicy,
}

impl WaitPolicies {
    /// For `ranks` on a host where this process may use `cores`, and what a look costs.
    pub(crate) fn for_host(ranks: usize, cores: usize, look: Look) -> WaitPolicies {
        let caller = WaitPolicy::for_host(ranks, cores, look);
        let progress = match look {
            // Another rank computes, perhaps, and the thread that is to move its bytes has only this one's core to run on. It
            // gets there at once when this one sleeps; when this one yields, only if it waits for this very core.
            Look::Memory | Look::SystemCall if 2 * ranks > cores => {
                let spins = caller.spins.min(SPINS_WITHOUT_CORE);
                WaitPolicy { spins, yields: 0, clear_after: caller.clear_after.min(spins) }
            }
            _ => caller,
        };
        WaitPolicies { caller, progress }
    }
}

/// Counts the looks since something last moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    policy: WaitPolicy,
    looks: u32,
}

impl Waiter {
    pub(crate) fn new(policy: WaitPolicy) -> Waiter {
        Waiter { policy, looks: 0 }
    }

    /// Something moved.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.looks = 0;
    }

    /// Nothing moved.
    #[inline]
    pub(crate) fn next(&mut self) -> Pause {
        let WaitPolicy { spins, yields, clear_after } = self.policy;
        self.looks = self.looks.saturating_add(1);
        match self.looks {
            looks if looks == clear_after + 1 => Pause::Clear,
            looks if looks <= spins => Pause::Spin,
            looks if looks <= spins + yields => Pause::Yield,
            _ => Pause::Sleep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_threads_keep_no_core_from_each_other() {
        let policies = |cores| WaitPolicies::for_host(2, cores, Look::Memory);
        assert_eq!(policies(4).progress, policies(4).caller);
        assert_eq!(policies(2).caller, policies(4).caller);
        assert_eq!((policies(2).progress.spins, policies(2).progress.yields), (SPINS_WITHOUT_CORE, 0));
        let device = WaitPolicies::for_host(2, 2, Look::TakesFromDevice);
        assert_eq!(device.progress, device.caller);
    }

    #[test]
    fn gives_way_step_by_step() {
        let mut waiter = Waiter::new(WaitPolicy { spins: 2, yields: 2, clear_after: 2 });
        let pauses: Vec<_> = (0..6).map(|_| waiter.next()).collect();
        use Pause::{Clear, Sleep, Spin, Yield};
        assert_eq!(pauses, [Spin, Spin, Clear, Yield, Sleep, Sleep]);
        waiter.reset();
        assert_eq!(waiter.next(), Spin);
    }
}
