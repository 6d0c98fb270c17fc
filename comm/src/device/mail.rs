//! From messages between pairs of ranks to the launch that moves this rank's part of them.
//!
//! Both ranks of a message know its length, and all else follows from that and from how the boards are laid out: so both cut
//! it alike, and the length rides in every flag.

use super::plan::check_site;
use super::{Board, Grid, Kernel, Site, Tuning};
use crate::error::{Error, Result};

/// A message as one of its two ranks knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Which way it goes.
    pub direction: Direction,
    /// The other rank.
    pub peer: usize,
    /// Where this rank has it on its device.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// From this rank to the peer.
    Sent,
    /// From the peer to this rank.
    Received,
}

/// What messages are part of. A message of one kind doesn't meet one of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageKind {
    /// Each is a call of its own.
    Single,
    /// All are blocks of one all_to_all.
    Block,
}

/// One message, as the kernel reads it; `Message` in `kernels/mail.cuh` is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
struct Entry {
    address: u64,
    bytes: u64,
    span: u32,
    lanes: u16,
    kind: u16,
}

const RANKS: usize = Board::RANKS_MAX;
const WAYS: usize = 2 * RANKS;

/// The one argument of [`Kernel::Mail`]; `MailArguments` in `kernels/mail.cuh` is the same, and says what each field is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct MailArguments {
    boards: [u64; RANKS],
    status: u64,
    abort: u64,
    limit_ns: u64,
    slots_at: u64,
    slot: u32,
    lanes: u32,
    rank: u32,
    ranks: u32,
    in_place: u32,
    begins: [u16; WAYS + 2],
    reserved: [u32; 2],
    messages: [Entry; MailPlan::MESSAGES_MAX],
}

const _: () = assert!(size_of::<MailArguments>() == 3328, "the kernel's text asserts the same");

/// A launch that moves messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MailPlan {
    /// Exactly so many threads of [`Kernel::Mail`].
    pub grid: Grid,
    /// The kernel's one argument.
    pub arguments: MailArguments,
}

impl MailPlan {
    /// The most messages of one launch.
    pub const MESSAGES_MAX: usize = 128;

    /// The longest message.
    pub const BYTES_MAX: u64 = (1 << 40) - 1;

    /// The launch of this rank's part of `messages`. It may be launched any number of times, and in a captured graph. Messages
    /// between the same two ranks go in the order in which both name them; otherwise the order is of no account.
    ///
    /// In place are blocks that go where those lie that leave for the same rank: one each way, equally long.
    ///
    /// # Errors
    ///
    /// What no launch can do: too many messages, messages of this rank to itself or of more than [`MailPlan::BYTES_MAX`] bytes,
    /// ranks that there are not; or as [`Plan::new`](super::Plan::new).
    pub fn new(
        messages: &[Message],
        kind: MessageKind,
        in_place: bool,
        site: &Site<'_>,
        tuning: &Tuning,
    ) -> Result<MailPlan> {
        check_site("a message", site, tuning)?;
        let (ranks, me) = (site.boards.len(), site.rank);
        if messages.len() > MailPlan::MESSAGES_MAX {
            let cause = format!("a group of {} messages", messages.len());
            let hint = format!("make several groups, of up to {} messages, alike on all ranks", MailPlan::MESSAGES_MAX);
            return Err(Error::invalid(cause).hint(hint));
        }
        if let Some(wrong) = messages.iter().find(|message| message.peer >= ranks || message.peer == me) {
            let cause = format!("a message between rank {me} and rank {} of {ranks}", wrong.peer);
            return Err(Error::invalid(cause).hint("a message over boards is between two of their ranks"));
        }
        if let Some(long) = messages.iter().find(|message| message.bytes > MailPlan::BYTES_MAX) {
            let cause = format!("a message of {} bytes", long.bytes);
            return Err(Error::invalid(cause).hint(format!("cut it into messages of {} bytes", MailPlan::BYTES_MAX)));
        }
        let (board, lanes_max) = (site.board, tuning.blocks.min(site.board.lanes()));
        let slot = board.slot(ranks);
        let mut arguments = MailArguments {
            boards: [0; RANKS],
            status: site.status,
            abort: site.abort,
            limit_ns: u64::try_from(site.limit.as_nanos()).unwrap_or(u64::MAX),
            slots_at: board.slots_at(),
            slot: u32::try_from(slot).unwrap_or(u32::MAX / 16 * 16),
            lanes: board.lanes(),
            rank: me as u32,
            ranks: ranks as u32,
            in_place: u32::from(in_place),
            begins: [0; WAYS + 2],
            reserved: [0; 2],
            messages: [Entry::default(); MailPlan::MESSAGES_MAX],
        };
        arguments.boards[..ranks].copy_from_slice(site.boards);
        let mut placed = 0;
        for way in 0..WAYS {
            let (peer, direction) = (way / 2, [Direction::Sent, Direction::Received][way % 2]);
            for message in messages.iter().filter(|it| (it.peer, it.direction) == (peer, direction)) {
                let (span, lanes) = cut(message.bytes, u64::from(arguments.slot), lanes_max, tuning.threads);
                let kind = kind as u16;
                arguments.messages[placed] =
                    Entry { address: message.address, bytes: message.bytes, span, lanes, kind };
                placed += 1;
            }
            arguments.begins[way + 1..].fill(placed as u16);
        }
        let blocks = arguments.messages[..placed].iter().map(|entry| u32::from(entry.lanes)).max().unwrap_or(1);
        Ok(MailPlan { grid: Grid { blocks, threads: tuning.threads }, arguments })
    }

    /// The kernel of all such launches.
    pub const KERNEL: Kernel = Kernel::Mail;
}

/// The bytes of a chunk, and how many blocks share the chunks: each has something to do for all its threads, if there is
/// enough.
fn cut(bytes: u64, slot: u64, lanes_max: u32, threads: u32) -> (u32, u16) {
    let lanes = bytes.div_ceil(u64::from(threads) * 16).clamp(1, u64::from(lanes_max));
    let span = bytes.div_ceil(lanes).next_multiple_of(16).clamp(16, slot);
    let lanes = bytes.div_ceil(span).clamp(1, lanes);
    (span as u32, lanes as u16)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BOARDS: [u64; 16] = [0x1000; 16];

    fn site(rank: usize, ranks: usize) -> Site<'static> {
        let board = Board::new(1 << 20, 8).expect("a board");
        Site { rank, board, boards: &BOARDS[..ranks], status: 8, abort: 4, limit: Duration::from_secs(1) }
    }

    fn message(direction: Direction, peer: usize, bytes: u64) -> Message {
        Message { direction, peer, address: 64, bytes }
    }

    #[test]
    fn chunks_cover_a_message_and_fit_into_slots() {
        for slot in [16, 512, 16 << 10] {
            for threads in [32, 512] {
                for bytes in [0, 1, 15, 16, 17, 8191, 8192, 100_003, 1 << 30, MailPlan::BYTES_MAX] {
                    let (span, lanes) = cut(bytes, slot, 8, threads);
                    let what = format!("{bytes} bytes, slots of {slot}: {lanes} lanes of {span}");
                    assert!(span % 16 == 0 && 0 < span && u64::from(span) <= slot, "{what}");
                    assert!((1..=8).contains(&lanes), "{what}");
                    assert!(lanes == 1 || u64::from(span) * u64::from(lanes - 1) < bytes, "{what}: a lane has nothing");
                }
            }
        }
    }

    #[test]
    fn messages_are_sorted_by_their_ways_and_keep_their_order() {
        let (to, from) = (Direction::Sent, Direction::Received);
        let messages =
            [message(from, 2, 5), message(to, 2, 1), message(to, 0, 2), message(to, 2, 3), message(from, 0, 4)];
        let plan = MailPlan::new(&messages, MessageKind::Single, false, &site(1, 3), &Tuning::default()).unwrap();
        let arguments = plan.arguments;
        assert_eq!(arguments.messages.map(|it| it.bytes)[..6], [2, 4, 1, 3, 5, 0]);
        assert_eq!(arguments.begins[..8], [0, 1, 2, 2, 2, 4, 5, 5]);
        assert_eq!(plan.grid.blocks, 1);
    }

    #[test]
    fn both_ranks_cut_a_message_alike() {
        for bytes in [0, 100, 70_000, 1 << 33] {
            let of = |direction, me, peer| {
                let messages = [message(direction, peer, bytes)];
                let plan = MailPlan::new(&messages, MessageKind::Single, false, &site(me, 5), &Tuning::default());
                let plan = plan.expect("a plan");
                (plan.grid, plan.arguments.messages[0].span, plan.arguments.messages[0].lanes, plan.arguments.slot)
            };
            assert_eq!(of(Direction::Sent, 0, 4), of(Direction::Received, 4, 0), "{bytes} bytes");
        }
    }

    #[test]
    fn what_no_launch_can_do_is_refused() {
        let to = |peer, bytes| message(Direction::Sent, peer, bytes);
        let sound = Tuning::default();
        let cases = [
            (vec![to(1, 1); 129], site(0, 2), "a group of 129 messages"),
            (vec![to(0, 1)], site(0, 2), "between rank 0 and rank 0 of 2"),
            (vec![to(2, 1)], site(0, 2), "between rank 0 and rank 2 of 2"),
            (vec![to(1, 1 << 40)], site(0, 2), "a message of 1099511627776 bytes"),
            (vec![to(1, 1)], Site { limit: Duration::ZERO, ..site(0, 2) }, "give a limit"),
        ];
        for (messages, site, says) in cases {
            let error = MailPlan::new(&messages, MessageKind::Single, false, &site, &sound).expect_err(says);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
