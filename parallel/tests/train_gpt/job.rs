//! The example as a process, with what it prints in files and an end to every wait.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

/// A model and a run that take a moment. The text is put in by [`Job::start`].
pub const TINY: &str = "--layers 4 --width 16 --heads 2 --length 16 --batch 8 --steps 6 --warm-up 2 --precision f64 \
                        --peak-flops 1e9 --text @text";

/// No wait is longer.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// A folder with a text.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let words = ["rank ", "peer ", "chunk ", "bucket ", "ring. "];
    let word = |at: usize| words[(at * at / 3 + at / 7) % words.len()];
    std::fs::write(text(&folder), (0..500).map(word).collect::<String>()).unwrap();
    folder
}

pub fn text(folder: &TempDir) -> PathBuf {
    folder.path().join("text")
}

/// What a process came to.
#[derive(Debug)]
#[allow(dead_code, reason = "printed where a test fails")]
pub struct Done {
    pub words: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The example, running. It is killed when it is dropped.
pub struct Job {
    words: String,
    child: Child,
    outputs: TempDir,
}

impl Job {
    /// Starts the example with these words; `@text` is the folder's text.
    pub fn start(folder: &TempDir, words: &str) -> Job {
        Job::start_with(folder, words, &[])
    }

    /// The same, with further variables.
    pub fn start_with(folder: &TempDir, words: &str, variables: &[(&str, &str)]) -> Job {
        let text = text(folder).display().to_string();
        let outputs = tempfile::tempdir().unwrap();
        let output = |name: &str| Stdio::from(std::fs::File::create(outputs.path().join(name)).unwrap());
        let mut command = Command::new(program());
        // Of several answers to one question the last counts.
        let words: Vec<&str> =
            words.split_whitespace().map(|word| if word == "@text" { &text[..] } else { word }).collect();
        let words = last_of_each(&words);
        command.args(&words).stdin(Stdio::null()).stdout(output("stdout")).stderr(output("stderr"));
        command.envs([("RAYON_NUM_THREADS", "1"), ("CANDLE_NUM_THREADS", "1"), ("PACELINE_PROFILE", "none")]);
        command.envs(variables.iter().copied());
        let child = command.spawn().unwrap();
        Job { words: words.join(" "), child, outputs }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub fn end(mut self) -> Done {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it doesn't end: {:?}", self.said(None));
            std::thread::sleep(LOOK);
        };
        self.said(status.code())
    }

    /// Waits for something that it does.
    pub fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "still waiting for {what}: {:?}", self.said(None));
            std::thread::sleep(LOOK);
        }
    }

    /// The ranks that it has started, and their process numbers.
    pub fn ranks(&self) -> BTreeMap<usize, u32> {
        let parent = format!("\nPPid:\t{}\n", self.pid());
        let mut ranks = BTreeMap::new();
        for entry in std::fs::read_dir("/proc").unwrap() {
            let entry = entry.unwrap();
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
            if String::from_utf8_lossy(&read("status")).contains(&parent) {
                let environment = String::from_utf8_lossy(&read("environ")).into_owned();
                let rank = environment.split('\0').find_map(|word| word.strip_prefix("PACELINE_RANK="));
                ranks.extend(rank.map(|rank| (rank.parse::<usize>().unwrap(), pid)));
            }
        }
        ranks
    }

    fn said(&self, code: Option<i32>) -> Done {
        let read = |name: &str| std::fs::read_to_string(self.outputs.path().join(name)).unwrap();
        Done { words: self.words.clone(), code, stdout: read("stdout"), stderr: read("stderr") }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Options whose value is given again later are left out.
fn last_of_each<'w>(words: &[&'w str]) -> Vec<&'w str> {
    let mut kept: Vec<&[&'w str]> = Vec::new();
    let options = words.chunk_by(|_, next| !next.starts_with("--"));
    for option in options {
        if option[0] != "--compare" {
            kept.retain(|other| other[0] != option[0]);
        }
        kept.push(option);
    }
    kept.concat()
}

/// The example's program, which lies beside the tests' folder.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its program");
    let program =
        test.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps").join("examples/train_gpt");
    assert!(program.exists(), "{} is missing: cargo build -p paceline-parallel --examples", program.display());
    program
}

/// A line of a run's file, as far as tests look at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub step: u64,
    pub loss: f64,
    pub norm: f64,
    pub learning_rate: f64,
    pub hidden: Option<f64>,
    pub validation: Option<f64>,
}

/// The steps in a file, without a line that is only begun.
pub fn rows(csv: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(csv).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let row = |line: &str| {
        let fields: BTreeMap<&str, &str> = names.iter().copied().zip(line.split(',')).collect();
        let number = |name: &str| fields[name].parse::<f64>().ok();
        Row {
            step: fields["step"].parse().unwrap(),
            loss: number("loss").unwrap(),
            norm: number("norm").unwrap_or(f64::NAN),
            learning_rate: number("learning_rate").unwrap(),
            hidden: number("hidden"),
            validation: number("validation"),
        }
    };
    lines.map(row).collect()
}

fn number(pid: u32) -> Pid {
    Pid::from_raw(pid as i32).expect("a process has a number")
}

pub fn kill(pid: u32) {
    kill_process(number(pid), Signal::KILL).unwrap();
}

/// Whether there is such a process, dead ones that nobody has waited for left out.
pub fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    test_kill_process(number(pid)).is_ok() && !status.contains("\nState:\tZ")
}
