//! Records: the files that detection reads, as one short text that another machine can unpack and detect from.
//!
//! A line is a file, `sys/devices/system/cpu/online = 0-1`, or a link, `sys/class/net/eth0 -> ../../devices/...`; a line break
//! within a file is `\n`, a backslash `\\`. Files of several processors with one content share a line:
//! `sys/devices/system/cpu/cpu{0-27,56-83}/topology/physical_package_id = 0`. Lines that begin with `#` are comments.
//! Addresses and serial numbers of devices aren't recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

use super::lists;
use super::processors::ControlGroups;
use super::source::{Source, names, text};

/// The most bytes of a record that are read.
const BYTES_MAX: usize = 4 << 20;
/// The most files and links that a record may unpack to.
const ENTRIES_MAX: usize = 1 << 18;

/// The files that detection reads; `*` stands for any name.
const PATTERNS: &[(&str, &[&str])] = &[
    ("sys/devices/system/cpu", &["online", "present", "modalias"]),
    ("sys/devices/system/cpu/cpu*/topology", &["physical_package_id", "thread_siblings_list"]),
    ("sys/devices/system/cpu/cpu*/cache/index*", &["level", "type", "size", "shared_cpu_list"]),
    ("sys/devices/system/node/node*", &["cpulist", "meminfo"]),
    ("sys/hypervisor", &["type"]),
    (
        "sys/bus/pci/devices/*",
        &[
            "class",
            "vendor",
            "device",
            "subsystem_vendor",
            "subsystem_device",
            "max_link_speed",
            "max_link_width",
            "numa_node",
        ],
    ),
    ("sys/class/infiniband/*", &["device"]),
    ("sys/class/infiniband/*/ports/*", &["link_layer", "rate", "state", "gid_attrs/ndevs/0"]),
    ("sys/class/net/*", &["device", "type", "speed", "dev_port", "operstate"]),
    ("proc", &["thread-self/status", "self/status", "self/cgroup", "cpuinfo"]),
];

/// Why a text is no record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It isn't in the form of records.
    #[error("line {line} of the record: {why}")]
    Line {
        /// From 1; 0 for all of it.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The files can't be written.
    #[error("unpacking line {line} of the record: {error}")]
    Writing {
        /// From 1.
        line: usize,
        /// Why not.
        error: std::io::Error,
    },
}

impl Source {
    /// The files that detection reads here, in the form of records.
    #[must_use]
    pub fn record(&self) -> String {
        let mut taken = Taken::default();
        for (folder, files) in PATTERNS {
            files.iter().for_each(|file| taken.walk(self, Path::new(""), &format!("{folder}/{file}")));
        }
        let groups = ControlGroups::read(self);
        groups.files().iter().for_each(|file| taken.walk(self, Path::new(""), &format!("sys/fs/cgroup/{file}")));
        taken.text()
    }

    /// Unpacks a record into a folder, and reads from there.
    ///
    /// # Errors
    ///
    /// A line is no file and no link, leads out of the folder, or can't be written.
    pub fn unpack(record: &str, folder: &Path) -> Result<Source, RecordError> {
        if record.len() > BYTES_MAX {
            let why = format!("it has {} bytes, and no record has more than {BYTES_MAX}", record.len());
            return Err(RecordError::Line { line: 0, why });
        }
        let mut entries = 0;
        let mut targets = Vec::new();
        for (line, text) in (1..).zip(record.lines()) {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| RecordError::Line { line, why: format!("{why}: {text:?}") };
            let entry = Entry::parse(text).map_err(wrong)?;
            entries += entry.paths.len();
            if entries > ENTRIES_MAX {
                return Err(wrong("there are far too many files"));
            }
            entry.write(folder).map_err(|error| RecordError::Writing { line, error })?;
            targets.extend(entry.paths.iter().filter_map(|path| Some((line, entry.leads_to(path)?))));
        }
        // A folder that a link leads to counts, also if there is nothing in it that is read.
        for (line, target) in targets {
            let made = std::fs::create_dir_all(folder.join(target));
            made.or_else(|error| if error.kind() == std::io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
                .map_err(|error| RecordError::Writing { line, error })?;
        }
        Ok(Source::at(folder))
    }
}

/// What is to be recorded, by path from the root.
#[derive(Default)]
struct Taken {
    links: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
}

impl Taken {
    /// Takes what a pattern leads to from `done` on; `rest` is what of the pattern is left.
    fn walk(&mut self, source: &Source, done: &Path, rest: &str) {
        let (first, after) = rest.split_once('/').unwrap_or((rest, ""));
        if let Some((before, behind)) = first.split_once('*') {
            for name in
                names(&source.path(done)).iter().filter(|name| name.starts_with(before) && name.ends_with(behind))
            {
                self.walk(source, done, &if after.is_empty() { name.clone() } else { format!("{name}/{after}") });
            }
            return;
        }
        let mut here = done.join(first);
        let there = source.path(&here);
        let is_link = std::fs::read_link(&there).ok().filter(|_| done.starts_with("sys"));
        if let Some(target) = is_link {
            let Some(resolved) = resolve(done, &target) else { return };
            self.links.insert(here.display().to_string(), target.display().to_string());
            if after.is_empty() {
                return;
            }
            here = resolved;
        }
        if !after.is_empty() {
            self.walk(source, &here, after);
        } else if let Some(text) = text(&there).and_then(|text| shortened(first, &text)) {
            self.files.insert(here.display().to_string(), text);
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        // Files of processors with one content, by their paths around the number.
        let mut alike: BTreeMap<(&str, &str, &str), BTreeSet<u32>> = BTreeMap::new();
        for (path, content) in &self.files {
            let parts = path.strip_prefix(CORES).and_then(|rest| rest.split_once('/'));
            match parts.and_then(|(id, after)| Some((id.parse().ok()?, after))) {
                Some((id, after)) => {
                    alike.entry((CORES, after, content)).or_default().insert(id);
                }
                None => {
                    let _ = writeln!(out, "{path} = {}", escaped(content));
                }
            }
        }
        for ((before, after, content), ids) in alike {
            let ids: Vec<u32> = ids.into_iter().collect();
            let _ = writeln!(out, "{before}{{{}}}/{after} = {}", lists::list_text(&ids), escaped(content));
        }
        for (path, target) in &self.links {
            let _ = writeln!(out, "{path} -> {target}");
        }
        out
    }
}

const CORES: &str = "sys/devices/system/cpu/cpu";

/// What of a file detection looks at, where that is little.
fn shortened(name: &str, text: &str) -> Option<String> {
    let line = |start: &str| text.lines().find(|line| line.contains(start)).map(str::to_owned);
    match name {
        "status" => line("Cpus_allowed_list:"),
        "meminfo" => line("MemTotal:"),
        // What follows are hundreds of numbers of features.
        "modalias" => text.split(":feature:").next().map(str::to_owned),
        "cpuinfo" => line("hypervisor").map(|_| "flags : hypervisor".to_owned()),
        _ => Some(text.to_owned()),
    }
}

/// Where a link in a folder leads: first up, then down. `None` if out of the root, or up again.
fn resolve(folder: &Path, target: &Path) -> Option<PathBuf> {
    let mut path = folder.to_owned();
    let mut is_down = false;
    for part in target.components() {
        match part {
            Component::ParentDir if is_down => return None,
            Component::ParentDir => path.pop().then_some(())?,
            Component::Normal(name) => {
                is_down = true;
                path.push(name);
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

fn unescaped(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        plain.push(match char {
            '\\' => match chars.next()? {
                'n' => '\n',
                '\\' => '\\',
                _ => return None,
            },
            char => char,
        });
    }
    Some(plain)
}

/// A line of a record.
struct Entry {
    paths: Vec<PathBuf>,
    /// What a link leads to.
    target: Option<PathBuf>,
    content: String,
}

impl Entry {
    fn parse(line: &str) -> Result<Entry, &'static str> {
        if let Some((path, target)) = line.split_once(" -> ") {
            let (paths, target) = (paths(path)?, PathBuf::from(target));
            let entry = Entry { paths, target: Some(target), content: String::new() };
            let stays = entry.paths.iter().all(|path| entry.leads_to(path).is_some());
            return if stays { Ok(entry) } else { Err("the link leads out of the record") };
        }
        let (path, content) =
            line.split_once(" = ").ok_or("neither a file (path = content) nor a link (path -> target)")?;
        let content = unescaped(content).ok_or("a backslash must be followed by n or another one")?;
        Ok(Entry { paths: paths(path)?, target: None, content: content + "\n" })
    }

    /// Where a link at a path leads.
    fn leads_to(&self, path: &Path) -> Option<PathBuf> {
        resolve(path.parent()?, self.target.as_ref()?)
    }

    fn write(&self, folder: &Path) -> std::io::Result<()> {
        for path in &self.paths {
            let path = folder.join(path);
            // Nothing is written through a link: links of a record may lead to each other.
            let parent = path.parent().unwrap_or(folder);
            std::fs::create_dir_all(parent)?;
            if parent.canonicalize()? != folder.canonicalize()?.join(parent.strip_prefix(folder).unwrap_or(parent)) {
                return Err(std::io::Error::other(format!("{} is behind a link of the record", path.display())));
            }
            match &self.target {
                Some(target) => std::os::unix::fs::symlink(target, &path)?,
                None => {
                    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
                    std::io::Write::write_all(&mut file, self.content.as_bytes())?;
                }
            }
        }
        Ok(())
    }
}

/// The paths that one may stand for.
fn paths(text: &str) -> Result<Vec<PathBuf>, &'static str> {
    let all = match text.split_once('{') {
        None => vec![PathBuf::from(text)],
        Some((before, rest)) => {
            let (ids, after) = rest.split_once('}').ok_or("{ without }")?;
            let ids = lists::list(ids).ok_or("no list of numbers between { and }")?;
            ids.iter().map(|id| PathBuf::from(format!("{before}{id}{after}"))).collect()
        }
    };
    let is_plain = |path: &PathBuf| {
        let within = path.starts_with("sys") || path.starts_with("proc");
        within && path.components().all(|part| matches!(part, Component::Normal(_))) && path.components().count() > 1
    };
    if all.iter().all(is_plain) { Ok(all) } else { Err("no path below sys or proc") }
}
