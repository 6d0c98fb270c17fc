//! The fuzz corpora, replayed; and some thousands of their neighbours, for hosts where nobody fuzzes.

use std::panic::catch_unwind;
use std::path::Path;

use paceline_tests::{Random, corpus, mix, seed};

/// The files of a corpus: each with its name and content, in the order of the names.
fn files(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("a folder that can be read").path();
        (path.file_name().expect("a name").to_string_lossy().into_owned(), std::fs::read(&path).expect("a file"))
    };
    let mut files: Vec<_> = entries.map(read).collect();
    files.sort();
    assert!(files.len() >= 10, "{}: only {} files", folder.display(), files.len());
    files
}

/// Something like `bytes`: bytes changed, left out, doubled, or from another file.
fn neighbour(bytes: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut near = bytes.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(near.len() as u64 + 1) as usize;
        let len = (random.below(9) as usize).min(near.len() - at);
        match random.below(5) {
            0 if at < near.len() => near[at] ^= 1 << random.below(8),
            1 if at < near.len() => {
                near[at] = *b"0123456789|<>+=.s[]: i#\n\0\xff".get(random.below(26) as usize).unwrap_or(&b' ')
            }
            2 => drop(near.drain(at..at + len)),
            3 => near.splice(at..at, near[at..at + len].to_vec()).for_each(drop),
            _ => {
                let from = random.below(other.len() as u64 + 1) as usize;
                let len = (random.below(40) as usize).min(other.len() - from);
                near.splice(at..at, other[from..from + len].iter().copied()).for_each(drop);
            }
        }
    }
    near
}

fn check(name: &str, target: fn(&[u8]), n_neighbours: u64) {
    let files = files(name);
    for (file, bytes) in &files {
        catch_unwind(|| target(bytes)).unwrap_or_else(|_| panic!("fuzz/corpus/{name}/{file}"));
    }
    for number in 0..n_neighbours {
        let random = &mut Random::new(mix(seed() ^ number << 20));
        let mut pick = || &files[random.below(files.len() as u64) as usize].1;
        let (one, other) = (pick(), pick());
        let near = neighbour(one, other, random);
        let text = String::from_utf8_lossy(&near).into_owned();
        catch_unwind(|| target(&near)).unwrap_or_else(|_| panic!("neighbour {number} of seed {}: {text:?}", seed()));
    }
}

#[test]
fn frames() {
    check("frame", corpus::frame, 20_000);
}

#[test]
fn schedules() {
    check("schedule", corpus::schedule, 5_000);
}
