//! Records of the kernel's files: taken, unpacked, and refused where they lead out of their folder.

use paceline_transport::machine::{Machine, Source};

use crate::fixtures::{RECORDS, from_record};

#[test]
fn a_record_of_a_record_is_the_same() {
    for (name, text) in RECORDS {
        let folder = tempfile::tempdir().unwrap();
        let again = Source::unpack(text, folder.path()).unwrap().record();
        let lines = |text: &str| {
            let mut lines: Vec<String> =
                text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(lines(&again), lines(text), "{name}");
    }
}

#[test]
fn this_machine_is_the_same_from_its_record() {
    let record = Source::here().record();
    let here = Machine::detect(&Source::here(), None);
    let again = from_record(&record);
    let states = |machine: &Machine| machine.nics.iter().map(|nic| nic.label()).collect::<Vec<_>>();
    assert_eq!(states(&again), states(&here), "{record}");
    assert_eq!(again.digest(), here.digest(), "{record}");
    // Only where this thread may run differs from where the process may, where something has bound it.
    assert_eq!(again.allowance, here.allowance, "{record}");
    assert_eq!(again.notes, here.notes, "{record}");
}

#[test]
fn what_is_no_record_is_refused() {
    let check = |line: &str, want: &str| {
        let folder = tempfile::tempdir().unwrap();
        let error = Source::unpack(&format!("# a comment\n{line}"), folder.path()).unwrap_err().to_string();
        assert!(error.contains(want), "{line}: {error}");
    };
    check("sys/online", "line 2 of the record: neither a file (path = content) nor a link");
    check("etc/passwd = 0", "no path below sys or proc");
    check("/sys/online = 0", "no path below sys or proc");
    check("sys/../../online = 0", "no path below sys or proc");
    check("sys = 0", "no path below sys or proc");
    check("sys/a -> /etc", "the link leads out of the record");
    check("sys/a -> ../../../etc", "the link leads out of the record");
    check("sys/a -> b/../../etc", "the link leads out of the record");
    check("sys/a = \\x", "a backslash must be followed by n or another one");
    check("sys/cpu{0-9999999}/a = 1", "no list of numbers");
    check("sys/cpu{0 = 1", "{ without }");
    check("sys/a = 1\nsys/a = 2", "line 3");
    check("sys/a = 1\nsys/a/b = 2", "line 3");
    check("sys/a -> b\nsys/b/c = 1\nsys/a/d = 1", "is behind a link of the record");
}
