//! What each layer must not know, by reading the sources: `docs/architecture.md` has the reasons.
//!
//! Comments and texts are left out before looking, so that a layer may say what it doesn't know.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace").to_owned()
}

/// A source file: its path from the root, all of it, and its code but for the tests at its end.
struct Source {
    path: String,
    text: String,
    code: String,
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for folder in ["transport", "comm", "parallel", "bindings", "tools", "benches", "tests"] {
        collect(&root().join(folder), &mut found);
    }
    assert!(found.len() > 200, "only {} sources were found", found.len());
    found
}

fn collect(folder: &Path, found: &mut Vec<Source>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a folder that can be read").path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source is text");
            let path = path.strip_prefix(root()).expect("it lies below").to_string_lossy().into_owned();
            let tests = text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            found.push(Source { code: code_of(&text[..tests]), path, text });
        }
    }
}

/// The code without comments, and without what is in texts and between quotes. Lines stay lines.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw_text(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = hashes + 2;
            rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len())
        } else if next == '"' {
            quoted(rest, '"')
        } else if next == '\'' && is_character(rest) {
            quoted(rest, '\'')
        } else {
            code.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        code.extend(rest[..skipped].chars().filter(|char| *char == '\n'));
        code.push(' ');
        rest = &rest[skipped..];
    }
    code
}

/// How many hashes a raw text that begins here has.
fn raw_text(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// Whether a quote begins a character, and not a lifetime.
fn is_character(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    matches!((chars.next(), chars.next()), (Some('\\'), _) | (Some(_), Some('\'')))
}

/// How long a text or character that begins here is.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, char) in rest.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            char if char == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// The lines, from 1, in which `words` occur, not as a part of longer words.
fn lines_with(code: &str, words: &str) -> Vec<usize> {
    let whole = |line: &str, at: usize| {
        let (before, after) = (line[..at].chars().next_back(), line[at + words.len()..].chars().next());
        let bounded =
            |edge: Option<char>, outside: Option<char>| !(edge.is_some_and(is_word) && outside.is_some_and(is_word));
        bounded(words.chars().next(), before) && bounded(words.chars().next_back(), after)
    };
    let has = |line: &str| line.match_indices(words).any(|(at, _)| whole(line, at));
    code.lines().enumerate().filter(|(_, line)| has(line)).map(|(number, _)| number + 1).collect()
}

/// Whether a file is a test, or only built for tests.
fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("/model.rs")
}

fn is_library(path: &str) -> bool {
    ["comm/src/", "transport/src/", "parallel/src/", "bindings/c/src/"].iter().any(|crate_| path.starts_with(crate_))
}

/// Checks that none of `words` is in the code of the files that `applies` picks.
fn check_absent(why: &str, applies: impl Fn(&str) -> bool, words: &[&str]) {
    let sources = sources();
    let picked: Vec<&Source> = sources.iter().filter(|source| applies(&source.path)).collect();
    assert!(!picked.is_empty(), "{why}: applies to no file");
    let mut found = Vec::new();
    for Source { path, code, .. } in picked {
        for word in words {
            found.extend(lines_with(code, word).into_iter().map(|line| format!("{path}:{line}: {word}")));
        }
    }
    assert!(found.is_empty(), "{why}:\n{}", found.join("\n"));
}

/// Checks that exactly the listed files, of those that `applies` picks, have one of `words` in their code.
fn check_listed(why: &str, applies: impl Fn(&str) -> bool, words: &[&str], listed: &[&str]) {
    let sources = sources();
    let has = |source: &&Source| words.iter().any(|word| !lines_with(&source.code, word).is_empty());
    let found = sources.iter().filter(|source| applies(&source.path)).filter(has);
    let found: BTreeSet<&str> = found.map(|source| source.path.as_str()).collect();
    let listed: BTreeSet<&str> = listed.iter().copied().collect();
    let extra: Vec<_> = found.difference(&listed).collect();
    assert!(extra.is_empty(), "{why}: {words:?} in {extra:?}; if it must be there, list it here");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "{why}: no more {words:?} in {gone:?}; take it off the list");
}

#[test]
fn what_describes_algorithms_is_pure() {
    let pure = |path: &str| {
        let rooms = ["comm/src/schedule/", "comm/src/algorithm/", "comm/src/collective.rs"];
        rooms.iter().any(|room| path.starts_with(room))
    };
    let outside = ["paceline_transport", "std::time", "std::thread", "std::env", "std::fs", "std::io", "std::net"];
    check_absent("schedules are values: no world", pure, &outside);
    check_absent(
        "schedules are values: no threads",
        pure,
        &["std::sync", "Mutex", "atomic", "tracing", "unsafe", "libc"],
    );
    let users = ["crate::engine", "crate::communicator", "crate::request", "crate::select", "crate::reduce"];
    check_absent("schedules don't know who runs them", pure, &users);
}

#[test]
fn reductions_know_no_ranks() {
    let words =
        ["paceline_transport", "crate::engine", "crate::schedule", "crate::communicator", "std::thread", "tracing"];
    check_absent("reductions are arithmetic", |path| path.starts_with("comm/src/reduce/"), &words);
}

#[test]
fn transport_knows_no_collective() {
    let words = [
        "collective",
        "Collective",
        "all_reduce",
        "AllReduce",
        "reduce",
        "Reduce",
        "reduction",
        "broadcast",
        "Broadcast",
        "all_gather",
        "AllGather",
        "gather",
        "scatter",
        "DataType",
        "data_type",
        "dtype",
        "ReduceOp",
        "bf16",
        "f16",
        "paceline_comm",
    ];
    check_absent("transport moves bytes", |path| path.starts_with("transport/src/"), &words);
}

#[test]
fn only_the_engine_and_its_users_know_links() {
    let outside = |path: &str| {
        let users =
            ["comm/src/engine/", "comm/src/communicator/", "comm/src/cuda/", "comm/src/select/", "comm/src/lib.rs"];
        path.starts_with("comm/src/") && !users.iter().any(|user| path.starts_with(user))
    };
    check_absent("links are the engine's", outside, &["paceline_transport"]);
}

#[test]
fn the_parallel_layer_names_axes() {
    let parallel = |path: &str| path.starts_with("parallel/src/");
    check_absent("parallel knows no link and no algorithm", parallel, &["paceline_transport", "LinkKind", "algorithm"]);
    let pure = |path: &str| {
        path.starts_with("parallel/src/mesh/")
            || path.starts_with("parallel/src/pipeline/") && !path.starts_with("parallel/src/pipeline/run/")
    };
    check_absent("layouts and schedules know no tensor", pure, &["candle_core", "Tensor"]);
}

#[test]
fn arrows_between_crates_point_down() {
    let manifest = |name: &str| std::fs::read_to_string(root().join(name).join("Cargo.toml")).expect("a manifest");
    let uses = |text: &str, name: &str| text.lines().any(|line| line.starts_with(&format!("paceline-{name}.")));
    for (name, below) in [("transport", &[][..]), ("comm", &["transport"]), ("parallel", &["comm"])] {
        for other in
            ["transport", "comm", "parallel", "tools", "benches", "tests"].iter().filter(|other| **other != name)
        {
            assert!(!uses(&manifest(name), other) || below.contains(other), "{name} must not use {other}");
        }
    }
    for name in ["transport", "comm", "parallel", "tools", "benches"] {
        assert!(!uses(&manifest(name), "tests"), "nothing uses the tests");
        assert!(!uses(&manifest(name), "python"), "nothing uses the bindings");
    }
    assert!(uses(&manifest("comm"), "transport"), "the check sees what there is");
}

#[test]
fn c_is_called_in_sys_files_only() {
    let elsewhere = |path: &str| !path.ends_with("/sys.rs") && !is_test(path);
    check_absent("C calls are in sys.rs", elsewhere, &["libc::", "use libc"]);
}

#[test]
fn unsafe_code_is_in_few_files() {
    check_listed(
        "unsafe code is small and in few files",
        |path| !is_test(path) && !path.ends_with("/sys.rs"),
        &["unsafe"],
        &[
            "benches/src/device/rig.rs",
            "bindings/c/benches/overhead.rs",
            "bindings/c/src/abi/calls.rs",
            "bindings/c/src/abi/comms.rs",
            "bindings/c/src/abi/data.rs",
            "bindings/c/src/abi/info.rs",
            "bindings/c/src/abi/making.rs",
            "bindings/c/src/abi/memory.rs",
            "bindings/c/src/abi/mod.rs",
            "bindings/c/src/abi/works.rs",
            "bindings/c/src/call.rs",
            "bindings/c/src/config.rs",
            "bindings/c/src/device.rs",
            "bindings/c/src/group.rs",
            "bindings/c/src/log.rs",
            "bindings/python/src/array.rs",
            "bindings/python/src/call.rs",
            "bindings/python/src/communicator.rs",
            "bindings/python/src/dlpack.rs",
            "comm/src/communicator/buffer.rs",
            "comm/src/communicator/group.rs",
            "comm/src/communicator/prepare.rs",
            "comm/src/communicator/quick.rs",
            "comm/src/communicator/started.rs",
            "comm/src/cuda/buffer.rs",
            "comm/src/cuda/calls.rs",
            "comm/src/cuda/direct.rs",
            "comm/src/cuda/enqueue.rs",
            "comm/src/cuda/job.rs",
            "comm/src/cuda/passing.rs",
            "comm/src/cuda/staging.rs",
            "comm/src/cuda/streamed.rs",
            "comm/src/cuda/worker.rs",
            "comm/src/engine/exchange.rs",
            "comm/src/engine/memory.rs",
            "comm/src/engine/message.rs",
            "comm/src/engine/operation.rs",
            "comm/src/engine/pieces.rs",
            "comm/src/engine/straight.rs",
            "comm/src/engine/walk.rs",
            "comm/src/engine/windows.rs",
            "comm/src/reduce/element.rs",
            "comm/src/reduce/format.rs",
            "comm/src/reduce/kernel.rs",
            "comm/src/reduce/level.rs",
            "comm/src/reduce/loops.rs",
            "comm/src/reduce/mod.rs",
            "comm/src/reduce/x86.rs",
            "tools/src/perf/comm/device.rs",
            "transport/src/board/line.rs",
            "transport/src/board/mod.rs",
            "transport/src/board/pair.rs",
            "transport/src/cuda/compiler.rs",
            "transport/src/cuda/device.rs",
            "transport/src/cuda/event.rs",
            "transport/src/cuda/graph.rs",
            "transport/src/cuda/host.rs",
            "transport/src/cuda/host_call.rs",
            "transport/src/cuda/ipc.rs",
            "transport/src/cuda/memory.rs",
            "transport/src/cuda/module.rs",
            "transport/src/cuda/peer.rs",
            "transport/src/cuda/pointer.rs",
            "transport/src/cuda/stream.rs",
            "transport/src/endpoint/lend.rs",
            "transport/src/memory.rs",
            "transport/src/rdma/connect.rs",
            "transport/src/rdma/fetch.rs",
            "transport/src/rdma/link.rs",
            "transport/src/rdma/rail.rs",
            "transport/src/rdma/registration.rs",
            "transport/src/rdma/send.rs",
            "transport/src/rdma/slab.rs",
            "transport/src/rdma/verbs/completion.rs",
            "transport/src/rdma/verbs/context.rs",
            "transport/src/rdma/verbs/memory.rs",
            "transport/src/rdma/verbs/queue_pair.rs",
            "transport/src/ring/cells.rs",
            "transport/src/ring/receiver.rs",
            "transport/src/ring/sender.rs",
            "transport/src/ring/link.rs",
            "transport/src/segment.rs",
            "transport/src/stream.rs",
        ],
    );
}

#[test]
fn libraries_never_print() {
    let words = ["println!", "eprintln!", "print!", "eprint!", "dbg!", "std::process::exit", "process::abort"];
    check_absent("libraries log with tracing", |path| is_library(path) && !is_test(path), &words);
}

#[test]
fn the_environment_is_read_in_one_place() {
    let libraries = |path: &str| is_library(path) && !is_test(path);
    let words = ["env::var", "env::vars", "env::var_os", "env::vars_os"];
    check_listed("variables are read in one place", libraries, &words, &["transport/src/environment.rs"]);
}

/// Below the tools time is an argument; who waits for the real world may look at the real clock.
#[test]
fn the_clock_is_an_argument() {
    let comm = |path: &str| path.starts_with("comm/src/") && !is_test(path);
    let waiting = [
        "communicator/buffer.rs",
        "communicator/devices.rs",
        "communicator/split.rs",
        "communicator/started.rs",
        "cuda/attach.rs",
        "cuda/order.rs",
        "cuda/register.rs",
        "cuda/staging.rs",
        "cuda/watch.rs",
        "cuda/work.rs",
        "engine/completion.rs",
    ];
    let waiting = waiting.map(|path| format!("comm/src/{path}"));
    let waiting: Vec<&str> = waiting.iter().map(String::as_str).collect();
    check_listed("time is an argument", comm, &["Instant::now", "SystemTime"], &waiting);
    let links = |path: &str| {
        let rooms = [
            "transport/src/board/",
            "transport/src/link/",
            "transport/src/rdma/",
            "transport/src/ring/",
            "transport/src/sim/",
            "transport/src/tcp/",
        ];
        rooms.iter().any(|room| path.starts_with(room)) && !is_test(path)
    };
    check_absent("links don't look at a clock of their own", links, &["Instant::now", "SystemTime"]);
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut wrong = Vec::new();
    for Source { path, text, .. } in sources() {
        let lines = text.lines().count();
        if lines > 500 {
            wrong.push(format!("{path} has {lines} lines: split it by idea"));
        }
        if !text.starts_with("//! ") {
            wrong.push(format!("{path} doesn't open with a sentence that says what it is"));
        }
        for later in ["TODO", "FIXME", "XXX"] {
            let found = text.lines().position(|line| line.contains(&format!("// {later}")));
            wrong.extend(found.map(|line| format!("{path}:{}: {later}", line + 1)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_and_texts_are_no_code() {
    let text = "let a = \"unsafe \\\" unsafe\"; // unsafe\n/* unsafe\nunsafe */ let b: &'static str = r#\"unsafe\" \"#;\n\
                let c = '\"'; unsafe { d() } let e = '\\''; let f = '\\\\'; unsafe_code(); is_unsafe(); x.unsafe();\n";
    let code = code_of(text);
    assert_eq!(code.lines().count(), text.lines().count());
    assert_eq!(lines_with(&code, "unsafe"), [4]);
    assert_eq!(code.matches("unsafe").count(), 4, "{code}");
    assert_eq!(lines_with("a::std::time;\nstd::timer;\nstd::time::Instant", "std::time"), [1, 3]);
}
