//! Values that are and aren't understood, names that come near, and the documentation that follows the table.

use super::*;

fn with(value: &str) -> Environment {
    Environment::from_pairs([("PACELINE_PORTS", value)])
}

#[test]
fn durations() {
    for (text, want) in [
        ("30", Some(30_000)),
        (" 30s ", Some(30_000)),
        ("500ms", Some(500)),
        ("1.5m", Some(90_000)),
        ("168h", Some(604_800_000)),
        ("", None),
    ] {
        let got = with(text).duration("PACELINE_PORTS").unwrap();
        assert_eq!(got, want.map(Duration::from_millis), "{text:?}");
    }
    for text in ["0", "-1", "1d", "inf", "nan", "1e3", "169h", "s", "1 s x", "."] {
        let error = with(text).duration("PACELINE_PORTS").unwrap_err();
        assert!(error.to_string().starts_with(&format!("PACELINE_PORTS={text}: not understood; allowed: ")), "{error}");
    }
}

#[test]
fn port_ranges() {
    for (text, want) in [("29500-29600", 29500..=29600), ("7", 7..=7), ("1 - 65535", 1..=65535)] {
        assert_eq!(with(text).ports("PACELINE_PORTS").unwrap(), Some(want), "{text:?}");
    }
    for text in ["0", "0-5", "9-8", "1-65536", "a-b", "1-2-3", "-", "-5"] {
        assert!(with(text).ports("PACELINE_PORTS").is_err(), "{text:?}");
    }
}

#[test]
fn words_and_counts() {
    let words = [("shm", 1), ("tcp", 2)];
    assert_eq!(with("TCP, shm").list_of("PACELINE_PORTS", &words).unwrap(), Some(vec![2, 1]));
    for text in ["tcp,tcp", "tcp,", "udp", ","] {
        assert!(with(text).list_of("PACELINE_PORTS", &words).is_err(), "{text:?}");
    }
    assert_eq!(with("Shm").one_of("PACELINE_PORTS", &words).unwrap(), Some(1));
    let error = with("udp").one_of("PACELINE_PORTS", &words).unwrap_err();
    assert_eq!(error.to_string(), "PACELINE_PORTS=udp: not understood; allowed: one of shm, tcp");
    assert_eq!(with("64").count("PACELINE_PORTS", 1..=64).unwrap(), Some(64));
    for text in ["0", "65", "-1", "1.0", "x", "99999999999999999999999"] {
        assert!(with(text).count("PACELINE_PORTS", 1..=64).is_err(), "{text:?}");
    }
}

#[test]
fn text_that_is_not_utf8_is_an_error() {
    use std::os::unix::ffi::OsStringExt;
    let bad = OsString::from_vec(vec![b'a', 0xff]);
    let error = Environment::from_pairs([("PACELINE_JOB", bad)]).text("PACELINE_JOB").unwrap_err();
    assert_eq!(error.allowed, "text in UTF-8");
}

#[test]
fn a_secret_is_not_shown() {
    let environment = Environment::from_pairs([("PACELINE_TOKEN", "hunter2")]);
    let error = environment.parsed("PACELINE_TOKEN", "more", |_| None::<()>).unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[test]
#[should_panic(expected = "missing from the tables")]
fn a_variable_outside_the_tables_cannot_be_read() {
    let _ = Environment::default().text("PACELINE_NOWHERE");
}

#[test]
fn unknown_names_come_with_the_nearest() {
    for (name, nearest) in [
        ("PACELINE_RENDEVOUS", Some("PACELINE_RENDEZVOUS")),
        ("PACELINE_WORLD_SIZE", Some("PACELINE_SIZE")),
        ("PACELINE_TIMEOUTS", Some("PACELINE_TIMEOUT")),
        ("PACELINE_IFACE", None),
        ("PACELINE_FLUX_CAPACITOR", None),
    ] {
        let environment = Environment::from_pairs([(name, "1"), ("PACELINE_RANK", "0"), ("PACELINE_TEST_X", "1")]);
        assert_eq!(environment.unknown(), [Unknown { name: name.to_owned(), nearest }], "{name}");
    }
}

#[test]
fn profiles_have_a_usual_place_or_a_named_one_or_none() {
    use crate::rendezvous::ProfilePlace;
    let place = |pairs: &[(&str, &str)]| ProfilePlace::from_env(&Environment::from_pairs(pairs.to_vec())).unwrap();
    let name = format!("paceline/profile-{}.json", crate::machine::host_name());
    assert_eq!(place(&[]), ProfilePlace::Nowhere);
    assert_eq!(place(&[("HOME", "/h")]), ProfilePlace::Usual(format!("/h/.cache/{name}").into()));
    let both = [("HOME", "/h"), ("XDG_CACHE_HOME", "/c")];
    assert_eq!(place(&both), ProfilePlace::Usual(format!("/c/{name}").into()));
    let relative = [("HOME", "/h"), ("XDG_CACHE_HOME", "c")];
    assert_eq!(place(&relative), ProfilePlace::Usual(format!("/h/.cache/{name}").into()));
    assert_eq!(place(&[("HOME", "/h"), ("PACELINE_PROFILE", "none")]), ProfilePlace::Nowhere);
    assert_eq!(place(&[("PACELINE_PROFILE", "p.json")]), ProfilePlace::Named("p.json".into()));
}

/// `docs/environment.md` between its two marks is the table, word for word.
#[test]
fn documentation_follows_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/environment.md");
    let mut document = std::fs::read_to_string(path).unwrap();
    let mut stale = false;
    for (mark, head, rows) in [
        ("variables", ["Variable", "Default", "Meaning"], VARIABLES),
        ("launchers", ["Variable", "Launcher", "Read as"], LAUNCHER_VARIABLES),
    ] {
        let (begin, end) = (format!("<!-- begin {mark} -->\n"), format!("<!-- end {mark} -->"));
        let start = document.find(&begin).unwrap_or_else(|| panic!("{path} lacks {begin}")) + begin.len();
        let stop = document.find(&end).unwrap_or_else(|| panic!("{path} lacks {end}"));
        let mut table = format!("| {} |\n|---|---|---|\n", head.join(" | "));
        for row in rows {
            table += &format!("| `{}` | {} | {} |\n", row.name, row.default, row.meaning);
        }
        stale |= document[start..stop] != table;
        document.replace_range(start..stop, &table);
    }
    if Environment::from_process().text("PACELINE_UPDATE").unwrap() == Some("1") {
        std::fs::write(path, document).unwrap();
    } else {
        assert!(!stale, "docs/environment.md is out of date: run PACELINE_UPDATE=1 cargo test -p paceline-transport");
    }
}
