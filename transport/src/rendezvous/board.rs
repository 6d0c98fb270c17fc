//! Boards: places where the root can leave a notice of its addresses for ranks that can't know them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::pmi::Session;
use super::{Period, RendezvousError};

/// Where the root listens, and the random name by which its job is told from others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Notice {
    pub(super) name: [u8; 16],
    pub(super) addresses: Vec<SocketAddr>,
}

const HEAD: &str = "paceline-rendezvous-1";
/// No notice is longer; what is, is no notice.
const LONGEST: u64 = 64 << 10;

impl Notice {
    /// One line without blanks, as both a file and the process manager can carry it; at most `most` bytes, for which
    /// addresses at the end are left out.
    pub(super) fn to_line(&self, most: usize) -> String {
        let mut line = format!("{HEAD}/");
        self.name.iter().for_each(|byte| write!(line, "{byte:02x}").expect("strings take all"));
        for address in &self.addresses {
            let part = format!("/{address}");
            if line.len() + part.len() <= most {
                line += &part;
            }
        }
        line
    }
}

impl FromStr for Notice {
    type Err = ();

    fn from_str(text: &str) -> Result<Notice, ()> {
        let mut parts = text.trim_end().split('/');
        if parts.next() != Some(HEAD) {
            return Err(());
        }
        let hex = parts.next().filter(|hex| hex.len() == 32 && hex.is_ascii()).ok_or(())?;
        let name = u128::from_str_radix(hex, 16).map_err(drop)?.to_be_bytes();
        let addresses = parts.map(|part| part.parse().map_err(drop)).collect::<Result<Vec<_>, ()>>()?;
        if addresses.is_empty() { Err(()) } else { Ok(Notice { name, addresses }) }
    }
}

/// A place for the notice.
pub(super) trait Board {
    fn publish(&mut self, notice: &Notice, period: Period) -> Result<(), RendezvousError>;

    /// The notice, which may be an earlier run's, or why there is none yet.
    fn look(&mut self, period: Period) -> Result<Result<Notice, String>, RendezvousError>;

    /// Takes the notice back.
    fn withdraw(&mut self, notice: &Notice);

    /// In words.
    fn place(&self) -> String;
}

/// A file that all hosts see.
pub(super) struct File {
    path: PathBuf,
}

impl File {
    pub(super) fn new(path: &Path) -> File {
        File { path: path.to_owned() }
    }

    fn read(&self) -> Result<Notice, String> {
        use std::io::Read;
        let file = std::fs::File::open(&self.path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "the file isn't there yet".to_owned(),
            _ => format!("the file can't be read: {error}"),
        })?;
        let regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let mut text = String::new();
        let read = if regular { file.take(LONGEST).read_to_string(&mut text) } else { Ok(0) };
        read.ok().and_then(|_| text.parse().ok()).ok_or_else(|| "the file isn't a rendezvous's".to_owned())
    }
}

impl Board for File {
    /// The file appears whole or not at all: it is written under another name and then renamed.
    fn publish(&mut self, notice: &Notice, _: Period) -> Result<(), RendezvousError> {
        let refuse = |problem: String| {
            let doing = format!("rank 0 writing its address to {}", self.path.display());
            RendezvousError::System { doing, problem }
        };
        if self.path.exists() && self.read().is_err() {
            return Err(refuse("the file exists and isn't a rendezvous's; not overwritten".to_owned()));
        }
        let mut draft = self.path.clone().into_os_string();
        draft.push(format!(".{}.draft", std::process::id()));
        let line = notice.to_line(LONGEST as usize - 1) + "\n";
        let written = std::fs::write(&draft, line).and_then(|()| std::fs::rename(&draft, &self.path));
        written.map_err(|error| {
            let _ = std::fs::remove_file(&draft);
            refuse(error.to_string())
        })
    }

    fn look(&mut self, _: Period) -> Result<Result<Notice, String>, RendezvousError> {
        Ok(self.read())
    }

    fn withdraw(&mut self, notice: &Notice) {
        if self.read().is_ok_and(|there| there == *notice) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn place(&self) -> String {
        format!("the address in file {}", self.path.display())
    }
}

/// The key-value space of the process manager.
pub(super) struct Pmi {
    session: Session,
    with_root: bool,
}

impl Pmi {
    /// `with_root` says that rank 0 is in this process.
    pub(super) fn new(session: Session, with_root: bool) -> Pmi {
        Pmi { session, with_root }
    }
}

impl Board for Pmi {
    fn publish(&mut self, notice: &Notice, period: Period) -> Result<(), RendezvousError> {
        self.session.publish(notice, period)
    }

    fn look(&mut self, period: Period) -> Result<Result<Notice, String>, RendezvousError> {
        let found = if self.with_root { self.session.noted() } else { self.session.fetch(period)? };
        Ok(found.ok_or_else(|| "rank 0 has published no address yet".to_owned()))
    }

    fn withdraw(&mut self, _: &Notice) {}

    fn place(&self) -> String {
        "the address in the process manager".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices() {
        let addresses = vec!["10.0.0.1:5".parse().unwrap(), "[fd00::2]:65535".parse().unwrap()];
        let notice = Notice { name: [0xab; 16], addresses };
        let line = notice.to_line(1000);
        assert_eq!(line.parse(), Ok(notice.clone()));
        assert_eq!(format!("{line}\n").parse(), Ok(notice.clone()));
        let short: Notice = notice.to_line(line.len() - 1).parse().unwrap();
        assert_eq!(short.addresses, notice.addresses[..1]);
        for text in ["", "x", "paceline-rendezvous-1/", &line[..40], &line[..line.len() - 7], "paceline-rendezvous-2/a"]
        {
            assert_eq!(text.parse::<Notice>(), Err(()), "{text}");
        }
    }
}
