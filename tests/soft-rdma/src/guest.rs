//! A guest: booted, heard until it ends, killed at its deadline.
//!
//! The processor is emulated: virtualization hangs inside some virtual machines, and is not there in others.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::archive::Archive;
use crate::command::find;
use crate::error::{Doing, Error, Result};
use crate::image::{base, below, bring};
use crate::kernel::Kernel;

const INIT: &str = include_str!("../guest/init");

/// How a guest is joined to others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Network {
    /// Not at all.
    Alone,
    /// It waits for the other at this socket.
    Listens(PathBuf),
    /// It goes to the other at this socket.
    Connects(PathBuf),
}

/// What to boot.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Its name, and its address's last number: 1 for host `a`, 2 for host `b`.
    pub number: u8,
    /// How it is joined to others.
    pub network: Network,
    /// How many processors it has.
    pub processors: u8,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// The interface's largest packet, in bytes.
    pub mtu: u32,
    /// How long it may take from its start to its end.
    pub deadline: Duration,
    /// Programs of the host that it has, in `/paceline`, or in `/paceline/deps` if they are tests.
    pub programs: Vec<PathBuf>,
    /// Other files and folders of the host, and where they lie in the guest. Programs among them come with their libraries.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// The shell script that it runs.
    pub script: String,
}

/// What a guest tells the host about itself.
#[derive(Clone, PartialEq, Debug)]
enum Mark {
    /// It is ready, so many seconds after its kernel began.
    Up(f64),
    /// The script ended with this status.
    End(i32),
    /// A step before the script failed.
    Broken(String),
}

impl Mark {
    fn parse(line: &str) -> Option<Mark> {
        let (word, rest) = line.strip_prefix("@soft-rdma ")?.split_once(' ')?;
        match word {
            "up" => rest.parse().ok().map(Mark::Up),
            "end" => rest.parse().ok().map(Mark::End),
            "broken" => Some(Mark::Broken(rest.to_owned())),
            _ => None,
        }
    }
}

/// How a guest ended that ran its script to the end.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The script's exit status.
    pub status: i32,
    /// From the start until the script began.
    pub boot: Duration,
    /// From the start to the end.
    pub whole: Duration,
}

impl Guest {
    /// A guest that is alone.
    #[must_use]
    pub fn new(script: String, deadline: Duration) -> Guest {
        let (number, network, processors) = (1, Network::Alone, 2);
        let (memory_mib, mtu, programs, files) = (3072, 4200, Vec::new(), Vec::new());
        Guest { number, network, processors, memory_mib, mtu, deadline, programs, files, script }
    }

    /// Sees to it that all is there that every guest needs.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if the machine can't make a guest.
    pub fn prepare(cache: &Path) -> Result<(PathBuf, Kernel, PathBuf)> {
        let emulator = find("qemu-system-x86_64", "qemu-system-x86")?;
        std::fs::create_dir_all(cache).doing(format!("making {}", cache.display()))?;
        let kernel = Kernel::get(cache)?;
        let base = base(cache, &kernel)?;
        Ok((emulator, kernel, base))
    }

    /// Two guests like this one, on a network of their own that goes through `socket`, with one processor each.
    #[must_use]
    pub fn pair(&self, socket: &Path) -> [Guest; 2] {
        let one = Guest { processors: 1, ..self.clone() };
        let other = Guest { number: 2, network: Network::Connects(socket.to_owned()), ..one.clone() };
        [Guest { network: Network::Listens(socket.to_owned()), ..one }, other]
    }

    /// Boots it and runs its script; `hear` gets each line that it writes, as it comes.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if the machine can't make a guest; if it doesn't boot, breaks down, or isn't done in time.
    pub fn run(&self, cache: &Path, mut hear: impl FnMut(&str)) -> Result<Ended> {
        let (emulator, kernel, base) = Guest::prepare(cache)?;
        let folder = tempfile::tempdir().doing("making a folder for the guest")?;
        let (initrd, console) = (folder.path().join("initrd"), folder.path().join("console"));
        std::fs::copy(base, &initrd).doing("copying the guest's files")?;
        self.append_to(&initrd, folder.path())?;

        let start = Instant::now();
        if let Network::Connects(socket) = &self.network {
            while !socket.exists() && start.elapsed() < self.deadline {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let mut child = self.command(&emulator, &kernel, &initrd, &console).spawn().doing("starting qemu")?;
        let lines = lines_of(&mut child);
        let heard = self.hear(&lines, start, &mut hear);
        let _ = child.kill();
        let _ = child.wait();
        heard.map_err(|error| Error::Failed(format!("{error}\n{}", last_lines(&console, 60))))
    }

    fn append_to(&self, initrd: &Path, scratch: &Path) -> Result<()> {
        let path = scratch.join("brought");
        let mut archive = Archive::create(&path)?;
        let Guest { number, mtu, .. } = self;
        let name = if *number == 1 { "a" } else { "b" };
        archive.text(Path::new("/init"), INIT)?;
        archive.text(Path::new("/run/script"), &self.script)?;
        let settings = format!("GUEST_NAME={name}\nGUEST_ADDRESS=192.168.77.{number}\nGUEST_MTU={mtu}\n");
        archive.text(Path::new("/run/settings"), &settings)?;
        for (source, target) in &self.files {
            if source.is_dir() {
                let place = |file: &Path| target.join(file.strip_prefix(source).expect("it lies below"));
                below(source, &mut |file| archive.program(file, &place(file)))?;
            } else {
                archive.program(source, target)?;
            }
        }
        for program in &self.programs {
            bring(&mut archive, program, scratch)?;
        }
        archive.finish()?;
        let mut all = std::fs::File::options().append(true).open(initrd).doing("opening the guest's files")?;
        let mut brought = std::fs::File::open(&path).doing("opening what the guest is brought")?;
        std::io::copy(&mut brought, &mut all).map(drop).doing("joining the guest's files")
    }

    fn command(&self, emulator: &Path, kernel: &Kernel, initrd: &Path, console: &Path) -> Command {
        let network = match &self.network {
            Network::Alone => "user,id=net,restrict=on,ipv6=off".to_owned(),
            Network::Listens(path) => format!("stream,id=net,server=on,addr.type=unix,addr.path={}", path.display()),
            Network::Connects(path) => format!("stream,id=net,server=off,addr.type=unix,addr.path={}", path.display()),
        };
        // A kernel that panics reboots at once, and a machine that reboots ends.
        let kernel_line =
            "console=ttyS0 loglevel=4 panic=-1 oops=panic mitigations=off nowatchdog rcupdate.rcu_expedited=1";
        // The emulator dies with this process, however that ends.
        let mut command = match find("setpriv", "util-linux") {
            Ok(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL"]).arg(emulator);
                command
            }
            Err(_) => Command::new(emulator),
        };
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm", "-no-reboot", "-nodefaults"]);
        command.args(["-display", "none", "-smp", &self.processors.to_string(), "-m", &self.memory_mib.to_string()]);
        command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initrd).args(["-append", kernel_line]);
        command.args(["-netdev", &network]);
        command.arg("-device").arg(format!("virtio-net-pci,netdev=net,mac=52:54:00:77:00:{:02x}", self.number));
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.args(["-chardev", "stdio,id=out,signal=off", "-serial", "chardev:out"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command
    }

    /// Listens until the guest has ended.
    fn hear(&self, lines: &Receiver<String>, start: Instant, hear: &mut impl FnMut(&str)) -> Result<Ended> {
        let (mut boot, mut last) = (None, String::new());
        loop {
            match lines.recv_timeout(self.deadline.saturating_sub(start.elapsed())) {
                Ok(line) => match Mark::parse(&line) {
                    Some(Mark::Up(_)) => boot = Some(start.elapsed()),
                    Some(Mark::End(status)) => {
                        let whole = start.elapsed();
                        return boot
                            .map(|boot| Ended { status, boot, whole })
                            .ok_or_else(|| Error::Failed(format!("the guest did not come up: {last}")));
                    }
                    Some(Mark::Broken(step)) => last = format!("this step failed: {step}"),
                    None => {
                        hear(&line);
                        if !line.is_empty() {
                            last = line;
                        }
                    }
                },
                Err(RecvTimeoutError::Timeout) => {
                    let stood = if boot.is_some() { "running its script" } else { "booting" };
                    let deadline = self.deadline;
                    let what = format!("the guest was still {stood} after {deadline:?}; it last wrote: {last}");
                    return Err(Error::Failed(what));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let when = start.elapsed();
                    let what = format!("the guest broke down after {when:.1?}; it last wrote: {last}");
                    return Err(Error::Failed(what));
                }
            }
        }
    }
}

/// The lines that a guest writes, read by a thread of their own; closed when it ends.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut line = Vec::new();
        while let Ok(1..) = output.read_until(b'\n', &mut line) {
            if sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

/// The end of what the kernel wrote.
fn last_lines(console: &Path, n_lines: usize) -> String {
    let text = std::fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(n_lines);
    format!("the kernel's last words:\n  {}", lines[first..].join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_told_from_output() {
        assert_eq!(Mark::parse("@soft-rdma up 7.25"), Some(Mark::Up(7.25)));
        assert_eq!(Mark::parse("@soft-rdma end 101"), Some(Mark::End(101)));
        assert_eq!(Mark::parse("@soft-rdma broken rdma link add"), Some(Mark::Broken("rdma link add".into())));
        for other in ["@soft-rdma", "@soft-rdma end", "@soft-rdma end soon", " @soft-rdma end 0", "test a ... ok"] {
            assert_eq!(Mark::parse(other), None, "{other}");
        }
    }
}
