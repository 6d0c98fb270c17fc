//! Reads short texts from left to right, and says where one is wrong.

use thiserror::Error;

/// Why a text can't be read, and where.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}, column {column}: {what}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// What is wrong there.
    pub what: String,
}

/// A place in a line.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str, line: usize) -> Cursor<'a> {
        Cursor { text, at: 0, line }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(crate) fn error(&self, what: impl Into<String>) -> ParseError {
        ParseError { line: self.line, column: 1 + self.text[..self.at].chars().count(), what: what.into() }
    }

    pub(crate) fn expected<T>(&self, what: &str) -> Result<T, ParseError> {
        let found = match self.peek() {
            None => "the end of the line".to_owned(),
            Some(found) => format!("{found:?}"),
        };
        Err(self.error(format!("expected {what}, found {found}")))
    }

    /// The next character. Blanks are characters.
    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(crate) fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    pub(crate) fn is_at_end(&mut self) -> bool {
        self.blanks();
        self.rest().is_empty()
    }

    /// Takes the character if it comes next, with no blanks before it.
    pub(crate) fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    /// Takes a run of small letters and underscores, perhaps none.
    pub(crate) fn word(&mut self) -> &'a str {
        let is_inside = |c: &u8| c.is_ascii_lowercase() || *c == b'_';
        let len = self.rest().bytes().take_while(is_inside).count();
        let word = &self.rest()[..len];
        self.at += len;
        word
    }

    /// Takes a number, with no blanks before it.
    pub(crate) fn number(&mut self, what: &str) -> Result<u32, ParseError> {
        let len = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if len == 0 {
            return self.expected(what);
        }
        let digits = &self.rest()[..len];
        let number = digits.parse().map_err(|_| self.error(format!("{digits} is above {}", u32::MAX)))?;
        self.at += len;
        Ok(number)
    }

    pub(crate) fn end(&mut self) -> Result<(), ParseError> {
        if self.is_at_end() { Ok(()) } else { self.expected("the end of the line") }
    }
}
