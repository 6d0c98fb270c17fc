//! Whole communicators between processes of one host, however many and however started.

use paceline_tests::process::{Plan, Said};

/// All ranks' digests, which must be there and equal.
fn agree(size: usize, said: &[Said]) {
    let results: Vec<&Said> = said.iter().filter(|said| said.word == "result").collect();
    assert_eq!(results.len(), size, "{said:#?}");
    assert!(results.iter().all(|result| result.rest == results[0].rest), "{results:#?}");
}

const ALL: &str = "join calls result";

#[test]
fn every_collective_between_processes() {
    for links in ["shm", "tcp"] {
        for size in [1, 2, 3, 4, 7, 8] {
            let said = Plan::new(size, ALL).variable("PACELINE_LINKS", links).all().succeed();
            agree(size, &said);
            let joined = said.iter().filter(|said| said.word == "joined");
            for Said { rank, rest, .. } in joined {
                let want: Vec<_> = (0..size).map(|peer| if peer == *rank { "self" } else { links }).collect();
                assert_eq!(*rest, want.join(","), "the links of rank {rank}");
            }
        }
    }
}
