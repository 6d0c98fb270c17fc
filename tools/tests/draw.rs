//! `paceline draw` as a user starts it: texts that can be read back, pictures that hold together, and what is refused.

use std::process::{Command, Output};

use paceline_comm::Collective;
use paceline_comm::algorithm::{ROWS, row};
use paceline_comm::schedule::check::{Mode, prove};
use paceline_comm::schedule::text::{draw, parse};

fn paceline(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_paceline")).arg("draw").args(words.split(' ')).output().unwrap()
}

fn drawn(words: &str) -> String {
    let output = paceline(words);
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(words: &str) -> String {
    let output = paceline(words);
    assert!(!output.status.success() && output.stdout.is_empty(), "{words}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A picture's file.
fn picture(words: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drawn.svg");
    let said = drawn(&format!("{words} --svg {}", path.display()));
    assert!(said.starts_with(&format!("{}: ", path.display())), "{said}");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn texts_are_the_programs() {
    let ring = row(Collective::AllReduce, "ring").unwrap();
    assert_eq!(drawn("all_reduce ring -n 5"), draw(&ring.programs(5, 0)));
    assert_eq!(drawn("all_reduce ring"), draw(&ring.programs(4, 0)));
    let binomial = row(Collective::Broadcast, "binomial").unwrap();
    assert_eq!(drawn("broadcast binomial -n 6 --root 4"), draw(&binomial.programs(6, 4)));
}

#[test]
fn hosts_and_orders_make_programs_that_are_right() {
    for words in [
        "all_reduce two_level --hosts 3+5",
        "all_reduce two_level --hosts 2x4 --order 0,2,4,6,1,3,5,7",
        "all_reduce ring -n 4 --order 0,2,1,3",
        "all_gather two_level --hosts 1+2+3 --order 5,4,3,2,1,0",
        "broadcast two_level --hosts 3+5 --root 6 --order 7,6,5,4,3,2,1,0",
    ] {
        let text = drawn(words);
        let programs = parse(&text).unwrap();
        let collective = Collective::named(words.split(' ').next().unwrap()).unwrap();
        prove(collective, &programs, Mode { in_place: false, uneven: true })
            .unwrap_or_else(|why| panic!("{words}: {why}"));
    }
    let ordered = drawn("all_reduce ring -n 4 --order 0,2,1,3");
    assert!(ordered.lines().nth(2).unwrap().contains(">2") && ordered != drawn("all_reduce ring -n 4"), "{ordered}");
    assert!(drawn("all_reduce two_level --hosts 3+5").contains("ranks 8 root 0 chunks 10"));
}

#[test]
fn every_row_is_listed_and_has_a_picture() {
    let listed = drawn("--list");
    for row in ROWS {
        let line = listed.lines().find(|line| line.starts_with(&format!("{} ", row.collective.name())));
        assert!(line.is_some_and(|line| line.split_whitespace().any(|name| name == row.name)), "{listed}");
        let svg = picture(&format!("{} {} -n 4", row.collective.name(), row.name));
        assert!(svg.starts_with("<svg xmlns=") && svg.trim_end().ends_with("</svg>"), "{svg}");
        let tags = |open: &str| svg.matches(open).count();
        assert_eq!((tags("<g>"), tags("<text")), (tags("</g>"), tags("</text>")));
        assert!(!svg.contains("href") && !svg.contains("@import") && !svg.contains("NaN"), "stands alone");
    }
}

#[test]
fn pictures_have_an_arrow_for_each_message_and_colour_those_between_hosts() {
    let arrows = |svg: &str, class: &str| svg.matches(&format!("<polygon class=\"{class} full\"")).count();
    // One more of each kind in the legend.
    let svg = picture("all_reduce ring -n 8");
    assert_eq!((arrows(&svg, "one"), arrows(&svg, "two")), (8 * 14 + 1, 0));
    let svg = picture("all_reduce ring --hosts 2x4");
    assert_eq!((arrows(&svg, "one"), arrows(&svg, "two")), (6 * 14 + 1, 2 * 14 + 1));
    assert!(svg.contains("host 1") && svg.contains("28 of them between hosts"), "{svg}");
    let svg = picture("all_reduce ring --hosts 2x4 --order 0,2,4,6,1,3,5,7");
    assert_eq!((arrows(&svg, "one"), arrows(&svg, "two")), (6 * 14 + 1, 2 * 14 + 1));
    let svg = picture("broadcast direct -n 64");
    assert_eq!(arrows(&svg, "one"), 63 + 1);
    assert!(svg.contains("rank 0 sends i0 to rank 63"), "what an arrow is can be read");
    assert!(picture("all_reduce ring -n 1").contains("1 rank"));
}

#[test]
fn what_cannot_be_drawn_is_refused_with_what_can() {
    for (words, parts) in [
        ("all_reduced ring", &["all_reduced", "all_reduce, "][..]),
        ("all_reduce rink", &["no row rink", "ring, ", "two_level"]),
        ("all_reduce", &["which row", "ring, ", "two_level"]),
        ("--svg x.svg", &["COLLECTIVE"]),
        ("send ring", &["message between two ranks"]),
        ("all_reduce ring -n 65 --svg x.svg", &["65 ranks are too many", "64", "without --picture"]),
        ("all_to_all direct -n 1025", &["1025", "1024"]),
        ("all_reduce ring -n 0", &["0"]),
        ("all_reduce ring -n 4 --root 1", &["has no root"]),
        ("broadcast ring -n 4 --root 4", &["--root 4", "4 ranks"]),
        ("all_reduce ring -n 4 --hosts 2+3", &["-n 4", "5 ranks"]),
        ("all_reduce ring --hosts 2y3", &["3+5"]),
        ("all_reduce ring --hosts 0+3", &["3+5"]),
        ("all_reduce ring --hosts 65536x65536", &["too many"]),
        ("all_reduce ring -n 3 --order 0,1,1", &["each of the 3 ranks once"]),
        ("all_reduce direct -n 3 --order 0,2,1", &["another order"]),
        ("all_to_all exchange --svg /no/such/folder/x.svg", &["/no/such/folder/x.svg: "]),
    ] {
        let said = refused(words);
        parts.iter().for_each(|part| assert!(said.contains(part), "{words}: {said}"));
    }
    assert!(drawn("all_reduce recursive_doubling -n 128").lines().count() > 8, "as text it is still drawn");
}
