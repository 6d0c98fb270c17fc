//! Calls as the messages between pairs of ranks that they are.

use super::buffer::DeviceBuffers;
use crate::collective::Collective;
use crate::device::{Direction, Message, MessageKind};
use crate::engine::{Extent, Shape};
use crate::request::{Request, Sound};

/// Whether a call on the devices is made of messages. Of an all_to_all with blocks of different lengths no rank knows the
/// longest, but each pair knows its own.
pub(super) fn is_mail(request: &Request<'_, DeviceBuffers>) -> bool {
    let is_uneven = request.collective == Collective::AllToAll && request.counts.is_some();
    request.collective.is_message() || is_uneven
}

/// Messages that go at a time.
#[derive(Debug)]
pub(super) struct Mail {
    pub(super) messages: Vec<Message>,
    pub(super) kind: MessageKind,
    /// Whether what comes from a rank goes where what goes there lies.
    pub(super) in_place: bool,
    /// What this rank copies itself: target, source, and bytes.
    pub(super) own: Vec<(u64, u64, u64)>,
}

impl Default for Mail {
    fn default() -> Mail {
        Mail { messages: Vec::new(), kind: MessageKind::Single, in_place: false, own: Vec::new() }
    }
}

impl Mail {
    /// Adds the messages of rank `me` in a call whose input lies at `input`.
    pub(super) fn add(&mut self, request: &Request<'_, DeviceBuffers>, sound: &Sound, input: u64, me: usize) {
        let output = sound.output.0.addr() as u64;
        if let Extent::Uneven { input: Shape::Table(sends), output: Shape::Table(receives) } = &sound.extent {
            self.kind = MessageKind::Block;
            self.in_place = sound.in_place && !sound.shifts_blocks();
            for (peer, (sent, received)) in sends.iter().zip(receives.iter()).enumerate() {
                self.send(peer, input + sent.start as u64, sent.len(), me);
                self.receive(peer, output + received.start as u64, received.len(), me);
            }
            return;
        }
        let bytes = |elements: u64| elements as usize * request.data_type.size();
        let (sends, receives) = (bytes(sound.message.0), bytes(sound.message.1));
        match request.collective {
            Collective::Send => self.send(request.root, input, sends, me),
            Collective::Recv => self.receive(request.root, output, receives, me),
            _ => {
                self.send(request.root, input, sends, me);
                self.receive(request.source, output, receives, me);
            }
        }
    }

    /// What this rank sends itself is added when it is received, which is next.
    fn send(&mut self, peer: usize, address: u64, bytes: usize, me: usize) {
        let bytes = bytes as u64;
        match peer == me {
            true => self.own.push((0, address, bytes)),
            false => self.messages.push(Message { direction: Direction::Sent, peer, address, bytes }),
        }
    }

    fn receive(&mut self, peer: usize, address: u64, bytes: usize, me: usize) {
        if peer != me {
            let bytes = bytes as u64;
            return self.messages.push(Message { direction: Direction::Received, peer, address, bytes });
        }
        let (_, source, length) = self.own.pop().expect("it was sent before");
        debug_assert_eq!(length, bytes as u64, "checked before");
        if source != address && bytes > 0 {
            self.own.push((address, source, length));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::DataType;
    use crate::request::Counts;

    const IN: u64 = 1 << 20;
    const OUT: u64 = 2 << 20;

    fn mail(request: Request<'_, DeviceBuffers>, me: usize) -> Mail {
        let sound = request.over(DeviceBuffers::places).check_places(me, 3).unwrap();
        let mut mail = Mail::default();
        mail.add(&request, &sound, sound.input.0.addr() as u64, me);
        mail
    }

    fn apart(collective: Collective) -> Request<'static, DeviceBuffers> {
        let buffers = DeviceBuffers::Separate { input: (IN, 40), output: (OUT, 80) };
        Request::new(collective, DataType::F32, 10, buffers)
    }

    fn message(direction: Direction, peer: usize, address: u64, bytes: u64) -> Message {
        Message { direction, peer, address, bytes }
    }

    #[test]
    fn messages_are_as_long_as_they_say() {
        let (to, from) = (Direction::Sent, Direction::Received);
        assert_eq!(mail(apart(Collective::Send).root(2), 0).messages, [message(to, 2, IN, 40)]);
        assert_eq!(mail(apart(Collective::Recv).root(2), 0).messages, [message(from, 2, OUT, 40)]);
        let both = mail(apart(Collective::SendRecv).root(1).source(2), 0);
        assert_eq!(both.messages, [message(to, 1, IN, 40), message(from, 2, OUT, 80)]);
        let equal = DeviceBuffers::Separate { input: (IN, 80), output: (OUT, 80) };
        let own = mail(apart(Collective::SendRecv).over(|_| equal).root(1).source(1), 1);
        assert_eq!((own.messages, own.own), (vec![], vec![(OUT, IN, 80)]));
    }

    #[test]
    fn blocks_of_nothing_are_messages_too() {
        let counts = Counts { send_counts: &[0, 2, 3], recv_counts: &[1, 2, 0], ..Counts::default() };
        let (to, from) = (Direction::Sent, Direction::Received);
        let blocks = mail(apart(Collective::AllToAll).counts(counts), 1);
        assert_eq!(blocks.messages.len(), 4);
        assert!(blocks.messages.contains(&message(from, 0, OUT, 4)), "{blocks:?}");
        assert!(blocks.messages.contains(&message(to, 2, IN + 8, 12)), "{blocks:?}");
        assert_eq!(blocks.messages.iter().filter(|it| it.bytes == 0).count(), 2, "{blocks:?}");
        assert_eq!((blocks.kind, blocks.in_place, blocks.own), (MessageKind::Block, false, vec![(OUT + 4, IN, 8)]));
    }
}
