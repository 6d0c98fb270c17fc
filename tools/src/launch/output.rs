//! What ranks print, passed on in whole lines behind the rank's number.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::sync::Mutex;

/// The most of a line that is held back until its end comes.
const LINE_MAX: u64 = 64 << 10;

/// One of the launcher's two outputs, shared by the ranks.
pub struct Sink {
    out: Mutex<Box<dyn Write + Send>>,
    colours: bool,
}

impl Sink {
    /// Standard output; in colours if it is a terminal and `NO_COLOR` is not set.
    #[must_use]
    pub fn stdout() -> Sink {
        Sink::new(Box::new(io::stdout()), io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none())
    }

    /// Standard error, likewise.
    #[must_use]
    pub fn stderr() -> Sink {
        Sink::new(Box::new(io::stderr()), io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
    }

    /// Any output.
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, colours: bool) -> Sink {
        Sink { out: Mutex::new(out), colours }
    }

    /// Passes on what a rank prints until it ends.
    ///
    /// A line is written as one piece, so that lines of different ranks don't mix. One that never ends is passed on in
    /// pieces of 64 KiB.
    ///
    /// # Errors
    ///
    /// The output cannot be written. What the rank prints is then left unread.
    pub fn pass_on(&self, rank: usize, from: impl Read) -> io::Result<()> {
        let mut from = BufReader::new(from);
        let prefix = self.prefix(rank);
        let mut line = Vec::new();
        loop {
            line.clear();
            line.extend_from_slice(prefix.as_bytes());
            let read = from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).unwrap_or(0);
            if read == 0 {
                return Ok(());
            }
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            let mut out = self.out.lock().unwrap_or_else(|error| error.into_inner());
            out.write_all(&line)?;
            out.flush()?;
        }
    }

    fn prefix(&self, rank: usize) -> String {
        const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];
        if self.colours {
            format!("\x1b[{}m[{rank}]\x1b[0m ", COLOURS[rank % COLOURS.len()])
        } else {
            format!("[{rank}] ")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_whole_and_numbered() {
        let long = "x".repeat(70_000);
        let cut = format!("[3] {}\n[3] {}\n", "x".repeat(65_536), "x".repeat(70_000 - 65_536));
        let rows = [
            ("a\nb\n", "[3] a\n[3] b\n"),
            ("no end", "[3] no end\n"),
            ("\n\n", "[3] \n[3] \n"),
            ("", ""),
            (long.as_str(), cut.as_str()),
        ];
        for (printed, want) in rows {
            let paper = Paper::default();
            Sink::new(Box::new(paper.clone()), false).pass_on(3, printed.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(paper.0.lock().unwrap().clone()).unwrap(), want);
        }
        let paper = Paper::default();
        Sink::new(Box::new(paper.clone()), true).pass_on(1, &b"a\n"[..]).unwrap();
        assert_eq!(paper.0.lock().unwrap().as_slice(), b"\x1b[33m[1]\x1b[0m a\n");
    }
}
