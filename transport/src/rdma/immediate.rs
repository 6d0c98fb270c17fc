//! The thirty-two bits that ride with a write and tell the receiver of it: what it is, and a number.
//!
//! ```text
//! bit 31 30 29                                0
//!     kind | low thirty bits of the number
//! ```

#![forbid(unsafe_code)]

/// How many numbers there are before they come again.
pub(super) const NUMBERS: u64 = 1 << 30;

/// What a write tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Immediate {
    /// A frame, by its number, lies in its slot.
    Frame(u32),
    /// All frames below this number have been given back.
    Credit(u32),
    /// A trial write of a connection that is being made.
    Ping(u32),
    /// The sender leaves; frames below this number are all there will be.
    Goodbye(u32),
}

const LOW: u32 = (NUMBERS - 1) as u32;

impl Immediate {
    #[inline]
    pub(super) fn encode(self) -> u32 {
        let (kind, number) = match self {
            Immediate::Frame(number) => (0, number),
            Immediate::Credit(number) => (1, number),
            Immediate::Ping(number) => (2, number),
            Immediate::Goodbye(number) => (3, number),
        };
        kind << 30 | (number & LOW)
    }

    #[inline]
    pub(super) fn decode(bits: u32) -> Immediate {
        let number = bits & LOW;
        match bits >> 30 {
            0 => Immediate::Frame(number),
            1 => Immediate::Credit(number),
            2 => Immediate::Ping(number),
            _ => Immediate::Goodbye(number),
        }
    }
}

/// The number nearest to `near` whose low bits are `low`.
#[inline]
pub(super) fn extend(low: u32, near: u64) -> u64 {
    let ahead = (u64::from(low).wrapping_sub(near)) & (NUMBERS - 1);
    if ahead < NUMBERS / 2 { near + ahead } else { (near + ahead).saturating_sub(NUMBERS) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bits: u32) {
            prop_assert_eq!(Immediate::decode(bits).encode(), bits);
        }

        #[test]
        fn numbers_come_back_as_long_as_they_are_near(near in 0u64..1 << 40, away in -1_000_000i64..1_000_000) {
            let number = near.saturating_add_signed(away);
            prop_assert_eq!(extend((number % NUMBERS) as u32, near), number);
        }
    }
}
