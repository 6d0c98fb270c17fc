//! The short way for a blocking message: straight over the link, in the caller's thread, without becoming a call under way
//! unless it has to wait or comes in parts.

use std::time::Duration;

use super::active::Active;
use super::attention::Attention;
use super::channels::{Channels, Naming};
use super::core::Core;
use super::memory::Memory;
use super::operation::{Loans, Operation};
use super::plan::SharedPlan;
use super::stamp::Stamps;
use crate::collective::Collective;
use crate::error::{CallName, Result};
use crate::schedule::Buffer;

/// A message to one rank, or from one, or both, ready to run. None of them is this rank.
pub(crate) struct Message<'a> {
    pub(crate) plan: &'a SharedPlan,
    pub(crate) memory: Memory,
    pub(crate) stamps: &'a Stamps,
    pub(crate) channels: Channels,
    pub(crate) naming: Naming,
    pub(crate) sequence: u64,
    pub(crate) timeout: Duration,
}

/// What has come from the other rank.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrived {
    Nothing,
    /// The message, and it has been taken.
    Whole,
    /// A part of it, or something else.
    Otherwise,
}

impl Core {
    /// Runs a message while nothing else is under way.
    #[inline]
    pub(crate) fn run_message(&mut self, attention: &Attention, message: Message<'_>) -> Result<()> {
        let collective = message.plan.collective;
        let sends = collective != Collective::Recv;
        // SAFETY: they are dropped here or by the operation, before the message's memory.
        let loans = unsafe { message.memory.lend(&mut self.endpoint) };
        let (mut sent, mut received) = (if sends { Some(0) } else { None }, collective == Collective::Send);
        self.look_for_the_end(attention, self.policies.caller.clear_after, |core| {
            let sent_before = sent;
            if sent == Some(0) {
                sent = core.send_whole(&message);
            }
            let arrived = if received { Arrived::Nothing } else { core.receive_whole(&message) };
            received |= arrived == Arrived::Whole;
            if arrived == Arrived::Whole || sent != sent_before {
                core.endpoint.ring_peers();
            }
            // The long way sends the rest of what is in parts, receives it, and says what is wrong with anything else.
            let in_parts = sent.is_some_and(|bytes| bytes > 0) || arrived == Arrived::Otherwise;
            in_parts || (sent.is_none() && received)
        });
        if sent.is_none() && received { Ok(()) } else { self.run_rest(attention, message, loans, (sent, received)) }
    }

    /// Sends what the link takes at once: `None` if that is all, otherwise how many bytes. What is wrong with the link, the
    /// long way finds, too.
    #[inline]
    fn send_whole(&mut self, message: &Message<'_>) -> Option<usize> {
        let to = message.naming.target(1);
        let bytes = message.memory.bytes(Buffer::Input);
        // SAFETY: nothing writes the input while the call runs.
        let whole = unsafe { message.memory.read(Buffer::Input, 0..bytes) };
        match self.endpoint.send(to, message.channels.of(0, false), message.stamps.to(to), whole) {
            Ok(Some(taken)) if taken == bytes => None,
            Ok(Some(taken)) => Some(taken),
            Ok(None) | Err(_) => Some(0),
        }
    }

    /// Takes the message if it is there, whole and as expected.
    #[inline]
    fn receive_whole(&mut self, message: &Message<'_>) -> Arrived {
        let (from, channel) = (message.naming.source(1), message.channels.of(0, true));
        let bytes = message.memory.bytes(Buffer::Output);
        let head = match self.endpoint.head(from, channel) {
            Ok(Some(head)) => head,
            Ok(None) => return Arrived::Nothing,
            Err(_) => return Arrived::Otherwise,
        };
        if head.stamp != message.stamps.from(from) || head.left != bytes || head.bytes.len() != bytes {
            return Arrived::Otherwise;
        }
        // SAFETY: nothing else touches the output while the call runs.
        let target = unsafe { message.memory.write(Buffer::Output, 0..bytes) };
        target.copy_from_slice(head.bytes);
        self.endpoint.advance(from, channel, bytes);
        Arrived::Whole
    }

    /// Makes a call under way of what is left.
    #[cold]
    fn run_rest(
        &mut self,
        attention: &Attention,
        message: Message<'_>,
        loans: Loans,
        moved: (Option<usize>, bool),
    ) -> Result<()> {
        let Message { plan, memory, stamps, channels, naming, sequence, timeout } = message;
        let size = self.endpoint.size();
        let call = CallName { collective: plan.collective, sequence, algorithm: plan.row.into(), size };
        let (plan, stamps) = (plan.clone(), stamps.clone());
        let operation = Operation::message(plan, memory, channels, naming, stamps, loans, moved);
        self.drive(attention, &mut [Active::new(operation, call, timeout, None)])
    }
}
