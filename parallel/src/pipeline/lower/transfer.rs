//! What passes between ranks, and its notation.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use crate::pipeline::action::{Action, Step, read_step};
use crate::pipeline::cursor::{Cursor, ParseError};

/// What is transferred.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Payload {
    /// What a stage's forward made, for the stage after it.
    Activation,
    /// The gradient of a stage's input, for the stage before it.
    Gradient,
}

/// What passes from one rank to another. Both ends name it alike, by the stage that made it.
///
/// | Text | Meaning |
/// |---|---|
/// | `2A0>3` | send the activation that stage 2 made of micro-batch 0 to rank 3 |
/// | `2A0<2` | receive it from rank 2 |
/// | `3G0>2` | send the gradient that stage 3 made for micro-batch 0 to rank 2 |
/// | `3G0<3` | receive it from rank 3 |
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Transfer {
    /// What it is.
    pub payload: Payload,
    /// The stage that made it.
    pub stage: u32,
    /// The micro-batch.
    pub micro_batch: u32,
}

impl Transfer {
    /// The stage that needs it.
    ///
    /// # Panics
    ///
    /// For a gradient of stage 0, which nobody needs.
    #[must_use]
    pub fn consumer(self) -> u32 {
        match self.payload {
            Payload::Activation => self.stage + 1,
            Payload::Gradient => self.stage.checked_sub(1).expect("the first stage's gradient goes nowhere"),
        }
    }

    /// A number that no other transfer of the schedule has, the same at both ends: receives can be posted in any order.
    /// There are fewer than 2^31 stages.
    #[must_use]
    pub fn tag(self) -> u64 {
        u64::from(self.micro_batch) << 32 | u64::from(self.stage) << 1 | u64::from(self.payload == Payload::Gradient)
    }
}

impl Display for Transfer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let letter = if self.payload == Payload::Activation { 'A' } else { 'G' };
        write!(f, "{}{letter}{}", self.stage, self.micro_batch)
    }
}

/// What a rank does at one position of its lowered list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lowered {
    /// Computes.
    Compute(Step),
    /// Sends.
    Send {
        /// To whom.
        to: u32,
        /// What.
        transfer: Transfer,
    },
    /// Receives.
    Recv {
        /// From whom.
        from: u32,
        /// What.
        transfer: Transfer,
    },
}

impl Lowered {
    /// The computations in it; none in a transfer.
    pub fn actions(self) -> impl Iterator<Item = Action> {
        let step = if let Lowered::Compute(step) = self { Some(step) } else { None };
        step.into_iter().flat_map(Step::actions)
    }
}

impl Display for Lowered {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Lowered::Compute(step) => step.fmt(f),
            Lowered::Send { to, transfer } => write!(f, "{transfer}>{to}"),
            Lowered::Recv { from, transfer } => write!(f, "{transfer}<{from}"),
        }
    }
}

impl FromStr for Lowered {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Lowered, ParseError> {
        let mut cursor = Cursor::new(text, 1);
        let start = cursor.clone();
        let stage = cursor.number("an action such as 2F0 or 2A0>3")?;
        let payload = match (cursor.take('A'), cursor.take('G')) {
            (true, _) => Payload::Activation,
            (_, true) => Payload::Gradient,
            _ => {
                cursor = start;
                let step = read_step(&mut cursor)?;
                return cursor.end().map(|()| Lowered::Compute(step));
            }
        };
        let transfer = Transfer { payload, stage, micro_batch: cursor.number("a micro-batch")? };
        let is_send = cursor.take('>');
        if !is_send && !cursor.take('<') {
            return cursor.expected("'>' or '<'");
        }
        let peer = cursor.number("a rank")?;
        cursor.end()?;
        Ok(if is_send { Lowered::Send { to: peer, transfer } } else { Lowered::Recv { from: peer, transfer } })
    }
}
