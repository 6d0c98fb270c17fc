//! Reads drawings back.

use std::fmt::{self, Display, Formatter};

use crate::schedule::{Program, Rank, Span, Step, input, output, scratch};

/// Why a text is not a drawing, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// What is wrong there.
    pub what: String,
}

impl Display for ParseError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

impl std::error::Error for ParseError {}

/// The programs that a drawing shows, in the order of its columns.
///
/// The format is that of [`draw`](super::draw). Blank lines and what follows a `#` are left out; how wide a column is
/// does not matter; an empty cell is no round. Nothing is promised of the programs:
/// [`prove`](crate::schedule::check::prove) says whether they do anything sensible. The memory taken is proportional to
/// the text.
///
/// ```
/// use paceline_comm::collective::Collective;
/// use paceline_comm::schedule::{check, text};
///
/// let programs = text::parse(
///     "ranks 2 root 0 chunks 1
///           | 0             | 1             |
///         0 | i0>1 s0[0]<1  | i0>0 s0[0]<0  |
///         1 | 0=i0          | 0=i0          |",
/// )?;
/// let mode = check::Mode { in_place: false, uneven: true };
/// let error = check::prove(Collective::AllReduce, &programs, mode).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "rank 0: chunk 0 of the output ends as chunk 0 of rank 0, but must be the fold of chunk 0 of all 2 ranks"
/// );
/// # Ok::<(), text::ParseError>(())
/// ```
///
/// # Errors
///
/// The first place where the text is not a drawing.
pub fn parse(text: &str) -> Result<Vec<Program>, ParseError> {
    let mut lines = text
        .lines()
        .zip(1..)
        .map(|(text, line)| Cursor { text: text.split('#').next().unwrap_or(""), at: 0, line })
        .filter(|cursor| !cursor.text.trim().is_empty());
    let end = Cursor { text: "", at: 0, line: text.lines().count().max(1) };
    let mut programs = head(&mut lines.next().unwrap_or(end.clone()), &mut lines.next().unwrap_or(end))?;
    for (mut cursor, round) in lines.zip(0u32..) {
        cursor.blanks();
        let at = cursor.clone();
        if cursor.number("the number of the round")? != round {
            return Err(at.error(format!("expected round {round}")));
        }
        cursor.expect('|')?;
        for program in &mut programs {
            let mut steps = Vec::new();
            while !cursor.eat('|') {
                steps.push(cursor.step()?);
                cursor.spaced()?;
            }
            program.round(steps);
        }
        cursor.end()?;
    }
    Ok(programs)
}

/// The programs, still empty, that the first two lines speak of.
fn head(numbers: &mut Cursor<'_>, columns: &mut Cursor<'_>) -> Result<Vec<Program>, ParseError> {
    let (size, _) = numbers.named("ranks")?;
    let (root, at) = numbers.named("root")?;
    if root >= size {
        return Err(at.error(format!("root {root} must be below the number of ranks, {size}")));
    }
    let (chunks, _) = numbers.named("chunks")?;
    numbers.end()?;
    columns.expect('|')?;
    let mut programs: Vec<Program> = Vec::new();
    while !columns.is_at_end() {
        let at = columns.clone();
        let me: Rank = columns.number("a rank")?;
        if me >= size || programs.last().is_some_and(|before| before.me >= me) {
            return Err(at.error(format!("rank {me} must be below {size} and above the rank before it")));
        }
        programs.push(Program::new(me, size, root, chunks));
        columns.expect('|')?;
    }
    if programs.is_empty() { Err(columns.error("expected a rank".to_owned())) } else { Ok(programs) }
}

/// A place in a line.
#[derive(Clone)]
struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl Cursor<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn error(&self, what: String) -> ParseError {
        ParseError { line: self.line, column: 1 + self.text[..self.at].chars().count(), what }
    }

    fn expected<T>(&self, what: &str) -> Result<T, ParseError> {
        let found = match self.rest().chars().next() {
            None => "the end of the line".to_owned(),
            Some(found) => format!("{found:?}"),
        };
        Err(self.error(format!("expected {what}, found {found}")))
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn is_at_end(&mut self) -> bool {
        self.blanks();
        self.rest().is_empty()
    }

    fn end(&mut self) -> Result<(), ParseError> {
        if self.is_at_end() { Ok(()) } else { self.expected("the end of the line") }
    }

    /// Takes the text if it comes next, with no blanks before it.
    fn take(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    /// Takes the character if it comes next, after any blanks.
    fn eat(&mut self, wanted: char) -> bool {
        self.blanks();
        self.take(wanted.encode_utf8(&mut [0; 4]))
    }

    fn expect(&mut self, wanted: char) -> Result<(), ParseError> {
        if self.eat(wanted) { Ok(()) } else { self.expected(&format!("{wanted:?}")) }
    }

    /// A step is followed by a blank or by the end of its cell.
    fn spaced(&mut self) -> Result<(), ParseError> {
        let next = self.rest().chars().next();
        if next.is_some_and(|next| next == '|' || next.is_whitespace()) {
            Ok(())
        } else {
            self.expected("a blank or '|'")
        }
    }

    /// A word and a number: the number, and where it stands.
    fn named(&mut self, name: &str) -> Result<(u32, Self), ParseError> {
        self.blanks();
        if !self.take(name) {
            return self.expected(&format!("{name:?}"));
        }
        self.blanks();
        let at = self.clone();
        Ok((self.number("a number")?, at))
    }

    fn number(&mut self, what: &str) -> Result<u32, ParseError> {
        self.blanks();
        let len = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if len == 0 {
            return self.expected(what);
        }
        let digits = &self.text[self.at..self.at + len];
        let number = digits.parse().map_err(|_| self.error(format!("{digits} is above {}", u32::MAX)))?;
        self.at += len;
        Ok(number)
    }

    /// `first` or `first..end`: the first one, and how many.
    fn range(&mut self) -> Result<(u32, u32), ParseError> {
        let first = self.number("a chunk")?;
        let at = self.clone();
        if !self.take("..") {
            return Ok((first, 1));
        }
        let end = self.number("a chunk")?;
        match end.checked_sub(first) {
            Some(count) if count > 0 => Ok((first, count)),
            _ => Err(at.error(format!("the run {first}..{end} has no chunks"))),
        }
    }

    fn span(&mut self) -> Result<Span, ParseError> {
        if self.take("i") {
            let (first, count) = self.range()?;
            return Ok(input(first).run(count));
        }
        if !self.take("s") {
            let (first, count) = self.range()?;
            return Ok(output(first).run(count));
        }
        let slot = self.number("a slot")?;
        self.expect('[')?;
        let at = self.clone();
        let (mut base, mut run) = (None, self.range()?);
        if run.1 == 1 && self.take(":") {
            base = Some(run.0);
            run = self.range()?;
        }
        self.expect(']')?;
        let (like, count) = run;
        match like.checked_sub(base.unwrap_or(like)) {
            Some(skip) => Ok(Span { skip, ..scratch(slot, like).run(count) }),
            None => Err(at.error(format!("chunk {like} is not in a run that begins with chunk {}", base.unwrap_or(0)))),
        }
    }

    fn step(&mut self) -> Result<Step, ParseError> {
        self.blanks();
        let span = self.span()?;
        if self.take(">") {
            return Ok(Step::Send { to: self.number("a rank")?, source: span });
        }
        if self.take("<") {
            return Ok(Step::Recv { from: self.number("a rank")?, target: span });
        }
        if self.take("+") {
            return Ok(Step::RecvReduce { from: self.number("a rank")?, source: span, target: span });
        }
        if !self.take("=") {
            return self.expected("one of > < + =");
        }
        let source = self.span()?;
        if self.take("+") {
            return Ok(Step::RecvReduce { from: self.number("a rank")?, source, target: span });
        }
        if self.take("*") {
            return Ok(Step::Reduce { source, runs: self.number("how many runs")?, target: span });
        }
        Ok(Step::Copy { source, target: span })
    }
}
