//! Frames that were moved out of the way, so that those behind them could be read.

use std::collections::VecDeque;

use super::{Channel, Head, Stamp};

/// Per channel, the bytes that arrived before anyone waited for them.
#[derive(Default)]
pub(crate) struct Aside {
    queues: Vec<(Channel, VecDeque<Piece>)>,
}

struct Piece {
    stamp: Stamp,
    bytes: Vec<u8>,
    read: usize,
}

impl Aside {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Keeps what `head` shows. A frame that has arrived in part is kept in part; the rest follows.
    pub(crate) fn keep(&mut self, head: &Head<'_>) {
        let piece = Piece { stamp: head.stamp, bytes: head.bytes.to_vec(), read: 0 };
        match self.queues.iter_mut().find(|(channel, _)| *channel == head.channel) {
            Some((_, queue)) => queue.push_back(piece),
            None => self.queues.push((head.channel, VecDeque::from([piece]))),
        }
    }

    /// The oldest piece of a channel.
    pub(crate) fn head(&self, channel: Channel) -> Option<Head<'_>> {
        let (_, queue) = self.queues.iter().find(|(c, _)| *c == channel)?;
        let piece = queue.front()?;
        let bytes = &piece.bytes[piece.read..];
        Some(Head { channel, stamp: piece.stamp, left: bytes.len(), bytes })
    }

    /// Marks bytes of the oldest piece of a channel as read, and drops it when all are.
    pub(crate) fn advance(&mut self, channel: Channel, bytes: usize) {
        let place = self.queues.iter().position(|(c, _)| *c == channel).expect("advance follows a head");
        let queue = &mut self.queues[place].1;
        let piece = queue.front_mut().expect("a channel without pieces is not kept");
        piece.read += bytes;
        assert!(piece.read <= piece.bytes.len(), "advanced past the end of a piece");
        if piece.read == piece.bytes.len() {
            queue.pop_front();
            if queue.is_empty() {
                self.queues.swap_remove(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_their_order_within_a_channel() {
        let mut aside = Aside::default();
        let stamp = Stamp([1, 2]);
        let head = |channel, bytes| Head { channel: Channel(channel), stamp, left: 0, bytes };
        aside.keep(&head(1, b"ab"));
        aside.keep(&head(2, b""));
        aside.keep(&head(1, b"cd"));
        assert_eq!(aside.head(Channel(2)).unwrap().bytes, b"");
        aside.advance(Channel(2), 0);
        assert!(aside.head(Channel(2)).is_none());
        aside.advance(Channel(1), 1);
        assert_eq!(aside.head(Channel(1)).unwrap().bytes, b"b");
        aside.advance(Channel(1), 1);
        aside.advance(Channel(1), 2);
        assert!(aside.is_empty());
    }
}
