//! What one kind of link charges, in a form that all ranks read alike.

use paceline_transport::LinkKind;

/// What one kind of link and the ranks at its ends charge, where no rank shares its core. All in seconds.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// From the end of sending to when the message is there.
    pub latency_s: f64,
    /// For each message, at the sender and at the receiver, whatever its length.
    pub message_s: f64,
    /// In memory: for each message, and each call over boards, beyond what fits into the line of its heading.
    pub payload_s: f64,
    /// For each byte sent or received; in memory, where one rank sends while another receives.
    pub byte_s: f64,
    /// For each byte of a contribution folded into another.
    pub fold_byte_s: f64,
    /// For each byte copied within a rank.
    pub copy_byte_s: f64,
    /// On boards: a line's way to its reader.
    pub board_latency_s: f64,
    /// On boards: what looking at one more board costs.
    pub board_peer_s: f64,
    /// On boards: for each byte published or taken.
    pub board_byte_s: f64,
}

/// How many prices there are.
const N_PRICES: usize = 9;
/// How long prices are as bytes.
pub(super) const PRICES_BYTES: usize = 3 * N_PRICES;

impl Prices {
    /// The least and the most that any price may be.
    const RANGE: std::ops::RangeInclusive<f64> = 1e-15..=10.0;

    /// What is assumed of a kind that has not been measured: figures of a small virtual machine with two cores
    /// (`docs/performance.md`).
    #[must_use]
    pub fn standard(kind: LinkKind) -> Prices {
        let (latency_s, message_s, byte_s) = match kind {
            LinkKind::Inproc | LinkKind::Shm => (175e-9, 80e-9, 1.0 / 57e9),
            LinkKind::Rdma => (1.5e-6, 0.6e-6, 1.0 / 12e9),
            LinkKind::Tcp | LinkKind::Sim => (8e-6, 3e-6, 1.0 / 1.5e9),
        };
        let prices = Prices {
            latency_s,
            message_s,
            payload_s: 40e-9,
            byte_s,
            fold_byte_s: 1.0 / 70e9,
            copy_byte_s: 1.0 / 70e9,
            board_latency_s: 175e-9,
            board_peer_s: 22e-9,
            board_byte_s: 1.0 / 52e9,
        };
        prices.rounded()
    }

    /// The prices by name.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); N_PRICES] {
        [
            ("latency_s", self.latency_s),
            ("message_s", self.message_s),
            ("payload_s", self.payload_s),
            ("byte_s", self.byte_s),
            ("fold_byte_s", self.fold_byte_s),
            ("copy_byte_s", self.copy_byte_s),
            ("board_latency_s", self.board_latency_s),
            ("board_peer_s", self.board_peer_s),
            ("board_byte_s", self.board_byte_s),
        ]
    }

    /// The same with every price replaced, by name.
    #[must_use]
    pub fn map(&self, mut price: impl FnMut(&'static str, f64) -> f64) -> Prices {
        Prices::of(self.named().map(|(name, old)| price(name, old)))
    }

    fn of(prices: [f64; N_PRICES]) -> Prices {
        let [latency_s, message_s, payload_s, byte_s, fold_byte_s, copy_byte_s, ..] = prices;
        let [.., board_latency_s, board_peer_s, board_byte_s] = prices;
        Prices {
            latency_s,
            message_s,
            payload_s,
            byte_s,
            fold_byte_s,
            copy_byte_s,
            board_latency_s,
            board_peer_s,
            board_byte_s,
        }
    }

    /// The name of a price that can't be one.
    pub(super) fn senseless(&self) -> Option<&'static str> {
        self.named().into_iter().find(|(_, price)| !Prices::RANGE.contains(price)).map(|(name, _)| name)
    }

    /// With three significant digits, as ranks tell each other.
    #[must_use]
    pub fn rounded(&self) -> Prices {
        Prices::decode(&self.encode())
    }

    /// Each price as three digits and a power of ten.
    pub(super) fn encode(&self) -> [u8; PRICES_BYTES] {
        let mut bytes = [0; PRICES_BYTES];
        for (place, (_, price)) in bytes.chunks_exact_mut(3).zip(self.named()) {
            let price = price.clamp(*Prices::RANGE.start(), *Prices::RANGE.end());
            let text = format!("{price:.2e}");
            let (digits, power) = text.split_once('e').expect("written so");
            let digits: u16 = digits.replace('.', "").parse().expect("three digits");
            let power: i8 = power.parse().expect("the range is small");
            place[..2].copy_from_slice(&digits.to_le_bytes());
            place[2] = power.to_le_bytes()[0];
        }
        bytes
    }

    /// Every rank reads the same text, and so has the same number to the last bit.
    pub(super) fn decode(bytes: &[u8]) -> Prices {
        let mut prices = [0.0; N_PRICES];
        for (price, said) in prices.iter_mut().zip(bytes.chunks_exact(3)) {
            let (digits, power) = (u16::from_le_bytes([said[0], said[1]]), i8::from_le_bytes([said[2]]));
            *price = format!("{digits}e{}", i32::from(power) - 2).parse().expect("a number");
        }
        Prices::of(prices)
    }

    /// The higher of each price.
    pub(super) fn or_higher(self, other: Prices) -> Prices {
        let (one, two) = (self.named(), other.named());
        Prices::of(std::array::from_fn(|price| one[price].1.max(two[price].1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_keep_three_digits() {
        let odd =
            Prices { latency_s: 1.23456e-6, message_s: 9.999e-8, byte_s: 1e-15, ..Prices::standard(LinkKind::Tcp) };
        let said = odd.rounded();
        assert_eq!((said.latency_s, said.message_s, said.byte_s), (1.23e-6, 1e-7, 1e-15));
        assert_eq!(said.rounded(), said);
        assert_eq!(Prices::standard(LinkKind::Shm).byte_s, 1.75e-11);
    }

    #[test]
    fn the_higher_price_counts() {
        let (shm, tcp) = (Prices::standard(LinkKind::Shm), Prices::standard(LinkKind::Tcp));
        let mixed = Prices { fold_byte_s: 1.0, ..shm }.or_higher(tcp);
        assert_eq!(mixed, Prices { fold_byte_s: 1.0, ..tcp });
    }

    #[test]
    fn senseless_prices_are_named() {
        let shm = Prices::standard(LinkKind::Shm);
        assert_eq!(shm.senseless(), None);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 11.0] {
            assert_eq!(Prices { byte_s: bad, ..shm }.senseless(), Some("byte_s"), "{bad}");
        }
    }
}
