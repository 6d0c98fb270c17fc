//! Drawings: read back as they were written, current where the algorithms' files show them, and no text is fatal.

use paceline_comm::algorithm::{ROWS, row};
use paceline_comm::collective::Collective;
use paceline_comm::schedule::check::{Mode, prove};
use paceline_comm::schedule::text::{draw, parse};
use proptest::prelude::*;

#[test]
fn drawings_are_read_back_as_they_were_written() {
    for row in ROWS {
        for n in (1..=17).filter(|n| (row.fits)(*n)) {
            let programs = row.programs(n, n / 2);
            let text = draw(&programs);
            assert_eq!(parse(&text).as_ref(), Ok(&programs), "{text}");
            let one = &programs[n as usize - 1];
            assert_eq!(parse(&one.to_text()).as_deref(), Ok(&programs[n as usize - 1..]), "{}", one.to_text());
        }
    }
}

#[test]
fn errors_say_where() {
    let head = "ranks 2 root 0 chunks 1\n | 0 | 1 |\n";
    let cases = [
        ("", "line 1, column 1: expected \"ranks\", found the end of the line"),
        ("ranks", "line 1, column 6: expected a number, found the end of the line"),
        ("ranks 2 root 2 chunks 1", "line 1, column 14: root 2 must be below the number of ranks, 2"),
        ("ranks 0 root 0 chunks 1", "line 1, column 14: root 0 must be below the number of ranks, 0"),
        ("ranks 99999999999 root", "line 1, column 7: 99999999999 is above 4294967295"),
        ("ranks 2 root 0 chunks 1 x", "line 1, column 25: expected the end of the line, found 'x'"),
        ("ranks 2 root 0 chunks 1", "line 1, column 1: expected '|', found the end of the line"),
        ("ranks 2 root 0 chunks 1\n\n|", "line 3, column 2: expected a rank"),
        ("ranks 2 root 0 chunks 1\n| 0 | 0 |", "line 2, column 7: rank 0 must be below 2 and above the rank before it"),
        ("ranks 2 root 0 chunks 1\n| 2 |", "line 2, column 3: rank 2 must be below 2 and above the rank before it"),
        ("ranks 2 root 0 chunks 1\n| 0", "line 2, column 4: expected '|', found the end of the line"),
    ];
    let rounds = [
        ("1 | | |", "line 3, column 1: expected round 0"),
        ("0 | |", "line 3, column 6: expected a chunk, found the end of the line"),
        ("0 | | | |", "line 3, column 9: expected the end of the line, found '|'"),
        ("0 | 0>1 0< | |", "line 3, column 12: expected a rank, found '|'"),
        ("0 | 0>10<1 | |", "line 3, column 9: expected a blank or '|', found '<'"),
        ("0 | 0 | |", "line 3, column 6: expected one of > < + =, found ' '"),
        ("0 | 3..3>1 | |", "line 3, column 6: the run 3..3 has no chunks"),
        ("0 | s0>1 | |", "line 3, column 7: expected '[', found '>'"),
        ("0 | s0[3:2]>1 | |", "line 3, column 8: chunk 2 is not in a run that begins with chunk 3"),
        ("0 | ü>1 | |", "line 3, column 5: expected a chunk, found 'ü'"),
        ("0 | 0=i0* | |", "line 3, column 11: expected how many runs, found '|'"),
    ];
    let check = |text: &str, want: &str| {
        let said = parse(text).expect_err(text).to_string();
        assert_eq!(said, want, "\n{text}");
    };
    cases.into_iter().for_each(|(text, want)| check(text, want));
    rounds.into_iter().for_each(|(text, want)| check(&format!("{head}{text}"), want));
}

/// The drawings in a file's comments: the first line of each block names the row, the rest is the drawing.
///
/// Returns the text with every drawing as it should be, and how many there are.
fn redrawn(source: &str) -> (String, usize) {
    let (mut text, mut n_drawings) = (String::new(), 0);
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        if line != "//! ```text" {
            continue;
        }
        let named = lines.peek().and_then(|line| line.strip_prefix("//! ")).and_then(|line| line.split_once(' '));
        let named = named.and_then(|(collective, name)| row(Collective::named(collective)?, name));
        let Some(row) = named else { continue };
        text.push_str(lines.next().expect("the row's name"));
        let head = lines.next().expect("the head of the drawing").trim_start_matches("//! ").to_owned();
        let numbers: Vec<u32> = head.split(' ').filter_map(|word| word.parse().ok()).collect();
        for line in draw(&row.programs(numbers[0], numbers[1])).lines() {
            text.push_str(&format!("\n//! {line}"));
        }
        text.push('\n');
        n_drawings += 1;
        while lines.next_if(|line| *line != "//! ```").is_some() {}
    }
    (text, n_drawings)
}

/// The files of a folder and of those in it.
fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the algorithms are there");
    let paths = entries.map(|entry| entry.expect("a file").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn drawings_in_the_files_of_algorithms_are_current() {
    let mut n_drawings = 0;
    for path in files(concat!(env!("CARGO_MANIFEST_DIR"), "/src/algorithm").as_ref()) {
        let source = std::fs::read_to_string(&path).expect("a text");
        let (text, count) = redrawn(&source);
        n_drawings += count;
        if std::env::var_os("PACELINE_UPDATE").is_some() {
            std::fs::write(&path, &text).expect("the file can be written");
        } else {
            let name = path.display();
            assert!(text == source, "a drawing in {name} is not current: run this test with PACELINE_UPDATE=1");
        }
    }
    assert!(n_drawings >= 11, "only {n_drawings} drawings are left");
}

/// Whatever can be read can be checked without a panic, for every collective and mode.
fn check_anything(text: &str) {
    let Ok(programs) = parse(text) else { return };
    for collective in Collective::ALL {
        for (in_place, uneven) in [(false, false), (false, true), (true, false), (true, true)] {
            let _ = prove(collective, &programs, Mode { in_place, uneven });
        }
    }
}

proptest! {
    #[test]
    fn no_text_is_fatal(text in "\\PC{0,200}") {
        check_anything(&text);
    }

    #[test]
    fn no_text_of_the_right_characters_is_fatal(
        rounds in prop::collection::vec("[0-9is\\[\\]:.<>+=* |]{0,60}", 0..4),
        head in "ranks [1-4] root 0 chunks [1-9]",
    ) {
        let lines: Vec<String> = rounds.iter().zip(0..).map(|(round, number)| format!("{number} |{round}")).collect();
        check_anything(&format!("{head}\n| 0 | 1 |\n{}", lines.join("\n")));
    }

    #[test]
    fn no_change_of_a_drawing_is_fatal(
        index in 0..ROWS.len(),
        n in 1u32..6,
        edits in prop::collection::vec((any::<prop::sample::Index>(), "[0-9is\\[\\]:.<>+=*| \n]{0,3}"), 1..4),
    ) {
        let mut text = draw(&ROWS[index].programs(n, 0));
        for (at, with) in edits {
            let at = at.index(text.len());
            text.replace_range(at..=at, &with);
        }
        check_anything(&text);
    }
}
