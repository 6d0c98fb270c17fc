//! What a rank does with one micro-batch at one stage, and its notation.
//!
//! | Text | Meaning |
//! |---|---|
//! | `2F0` | stage 2: forward of micro-batch 0 |
//! | `2B0` | stage 2: whole backward of micro-batch 0, gradients of input and weights |
//! | `2I0` | stage 2: gradient of the input alone, which the stage before waits for |
//! | `2W0` | stage 2: gradient of the weights alone, for which nobody waits |
//! | `2F4+5B1` | a forward and a backward done together, one's transfers behind the other's arithmetic |
//!
//! What lowering puts between them is written as [`Transfer`](super::Transfer) says.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use super::cursor::{Cursor, ParseError};

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Forward.
    Forward,
    /// The whole backward: [`Kind::Input`] and [`Kind::Weight`] in one.
    Backward,
    /// The gradient of the stage's input.
    Input,
    /// The gradient of the stage's weights.
    Weight,
}

impl Kind {
    /// All kinds, in the order of their definition.
    pub const ALL: [Kind; 4] = [Kind::Forward, Kind::Backward, Kind::Input, Kind::Weight];

    /// The letter of the notation.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Kind::Forward => 'F',
            Kind::Backward => 'B',
            Kind::Input => 'I',
            Kind::Weight => 'W',
        }
    }

    /// Whether the stage before waits for it.
    #[must_use]
    pub const fn makes_gradient(self) -> bool {
        matches!(self, Kind::Backward | Kind::Input)
    }
}

/// One computation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Action {
    /// The stage, from 0 at the model's input.
    pub stage: u32,
    /// What is computed.
    pub kind: Kind,
    /// The micro-batch, from 0.
    pub micro_batch: u32,
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.stage, self.kind.letter(), self.micro_batch)
    }
}

/// What a rank does at one position of its list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// One computation.
    One(Action),
    /// A forward and a backward that overlap. Neither may need the other; both end when the step ends.
    Both {
        /// The forward.
        forward: Action,
        /// The backward, whole or of the input alone.
        backward: Action,
    },
}

impl Step {
    /// The computations in it.
    pub fn actions(self) -> impl Iterator<Item = Action> {
        let (first, second) = match self {
            Step::One(action) => (action, None),
            Step::Both { forward, backward } => (forward, Some(backward)),
        };
        std::iter::once(first).chain(second)
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Step::One(action) => action.fmt(f),
            Step::Both { forward, backward } => write!(f, "{forward}+{backward}"),
        }
    }
}

pub(super) fn forward(stage: u32, micro_batch: u32) -> Step {
    Step::One(Action { stage, kind: Kind::Forward, micro_batch })
}

pub(super) fn backward(stage: u32, micro_batch: u32) -> Step {
    Step::One(Action { stage, kind: Kind::Backward, micro_batch })
}

pub(super) fn input(stage: u32, micro_batch: u32) -> Step {
    Step::One(Action { stage, kind: Kind::Input, micro_batch })
}

pub(super) fn weight(stage: u32, micro_batch: u32) -> Step {
    Step::One(Action { stage, kind: Kind::Weight, micro_batch })
}

pub(super) fn read_action(cursor: &mut Cursor<'_>) -> Result<Action, ParseError> {
    let stage = cursor.number("an action such as 2F0")?;
    let Some(kind) = Kind::ALL.into_iter().find(|kind| cursor.take(kind.letter())) else {
        return cursor.expected("one of F B I W");
    };
    Ok(Action { stage, kind, micro_batch: cursor.number("a micro-batch")? })
}

pub(super) fn read_step(cursor: &mut Cursor<'_>) -> Result<Step, ParseError> {
    let at = cursor.clone();
    let forward = read_action(cursor)?;
    if !cursor.take('+') {
        return Ok(Step::One(forward));
    }
    let backward = read_action(cursor)?;
    if forward.kind != Kind::Forward || !backward.kind.makes_gradient() {
        return Err(at.error(format!("{forward}+{backward} is not a forward and a backward, such as 2F4+5B1")));
    }
    Ok(Step::Both { forward, backward })
}

impl FromStr for Action {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Action, ParseError> {
        let mut cursor = Cursor::new(text, 1);
        let action = read_action(&mut cursor)?;
        cursor.end().map(|()| action)
    }
}

impl FromStr for Step {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Step, ParseError> {
        let mut cursor = Cursor::new(text, 1);
        let step = read_step(&mut cursor)?;
        cursor.end().map(|()| step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_as_they_are_written() {
        let action = Action { stage: 2, kind: Kind::Forward, micro_batch: 0 };
        assert_eq!(("2F0".parse(), action.to_string().as_str()), (Ok(action), "2F0"));
        for text in ["0F0", "12B345", "3I1", "7W2", "2F4+5B1", "2F4+5I1"] {
            assert_eq!(text.parse::<Step>().map(|step| step.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn errors_name_the_column() {
        let cases = [
            ("", 1, "expected an action such as 2F0, found the end of the line"),
            ("2X0", 2, "expected one of F B I W, found 'X'"),
            ("2F", 3, "expected a micro-batch, found the end of the line"),
            ("2F0 x", 5, "expected the end of the line, found 'x'"),
            ("2F4294967296", 3, "4294967296 is above 4294967295"),
            ("2F0+2F1", 1, "2F0+2F1 is not a forward and a backward, such as 2F4+5B1"),
            ("2B0+2F1", 1, "2B0+2F1 is not a forward and a backward, such as 2F4+5B1"),
        ];
        for (text, column, what) in cases {
            let want = ParseError { line: 1, column, what: what.to_owned() };
            assert_eq!(text.parse::<Step>(), Err(want), "{text}");
        }
    }
}
