//! Profiles in files, as ranks that meet read them: obeyed when all ranks have the same one, and not otherwise.

use std::path::{Path, PathBuf};

use paceline_comm::{
    CallOptions, Circumstances, Collective, Communicator, Crossover, ErrorKind, MeasuredChoices, Profile, ProfileHost,
    ProfilePlace, ReduceOp, Rendezvous, Setup,
};
use paceline_transport::rendezvous::Hub;

/// A row that nobody would choose by its price.
const ODD: &str = "two_level";

fn odd_profile(link: &str, ranks: usize, row: &str) -> Profile {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let among =
        Circumstances { link: link.to_owned(), ranks, crowding: ranks.div_ceil(cores) as u32, hosts: Vec::new() };
    let from = [(0, row), (4096, "ring")].map(|(bytes, row)| Crossover { bytes, row: row.to_owned() }).to_vec();
    let choices = vec![MeasuredChoices { among, collective: "all_reduce".to_owned(), from }];
    let host = ProfileHost { name: "here".to_owned(), processor: "a processor".to_owned(), cores };
    Profile { choices, ..Profile::new(host) }
}

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn setup(hub: &Hub, rank: usize, profile: ProfilePlace) -> Setup {
    Setup { profile, ..Setup::new(rank, hub.size(), Rendezvous::Hub(hub.clone())) }
}

/// Joins one rank for each place in a thread of its own, and gives what `body` makes of each.
fn on_each<R: Send>(places: &[ProfilePlace], body: impl Fn(Communicator) -> R + Sync) -> Vec<R> {
    let (hub, body) = (Hub::new(places.len()), &body);
    let join = |(rank, place): (usize, &ProfilePlace)| {
        let setup = setup(&hub, rank, place.clone());
        move || body(Communicator::connect(&setup).unwrap())
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = places.iter().enumerate().map(|place| scope.spawn(join(place))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn chosen(comm: &Communicator, bytes: usize) -> &'static str {
    let mut sum = vec![1u8; bytes];
    comm.all_reduce_in_place(&mut sum, ReduceOp::Sum).unwrap();
    assert_eq!(sum, vec![comm.size() as u8; bytes]);
    comm.explain(Collective::AllReduce, bytes).unwrap().chosen
}

#[test]
fn all_ranks_obey_a_profile_that_all_have() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "odd.json", &odd_profile("inproc", 2, ODD).text());
    for place in [ProfilePlace::Named(path.clone()), ProfilePlace::Usual(path.clone())] {
        on_each(&[place.clone(), place], |comm| {
            assert_eq!((chosen(&comm, 8), chosen(&comm, 4096)), (ODD, "ring"));
            let explained = comm.explain(Collective::AllReduce, 8).unwrap();
            let measured = explained.measured.as_ref().unwrap();
            assert_eq!((measured.from_bytes, measured.below_bytes), (0, Some(4096)));
            assert!(explained.runner_up.unwrap().name != ODD && explained.seconds > 0.0);
            let text = explained.to_string();
            assert!(
                text.contains("measured to be the quickest from 0 to 4095 B by ") && text.contains("odd.json"),
                "{text}"
            );
            let barrier = comm.explain(Collective::Barrier, 0).unwrap();
            assert!(barrier.measured.is_none() && barrier.to_string().contains("the cheapest by inproc"), "{barrier}");
            let wish = CallOptions { algorithm: Some("ring".to_owned()), ..CallOptions::default() };
            assert_eq!(chosen(&comm.with(wish), 8), "ring");
        });
    }
}

#[test]
fn groups_and_threads_obey_it_where_it_is_for_so_many_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let profile = ProfilePlace::Named(written(folder.path(), "odd.json", &odd_profile("inproc", 2, ODD).text()));
    on_each(&vec![profile.clone(); 4], |comm| {
        assert_ne!(chosen(&comm, 8), ODD, "it is for two ranks");
        let half = comm.split(Some(comm.rank() as u64 % 2), 0).unwrap().unwrap();
        assert_eq!(half.size(), 2);
        // Four ranks share the host all the same: whether two are crowded depends on the group's own ranks.
        assert_eq!(chosen(&half, 8), ODD);
    });
    let setup = Setup { profile, ..Setup::alone() };
    let ranks = Communicator::connect_threads(&setup, 2).unwrap();
    std::thread::scope(|scope| {
        for comm in &ranks {
            scope.spawn(|| assert_eq!(chosen(comm, 8), ODD));
        }
    });
}

#[test]
fn a_profile_that_only_some_ranks_have_is_not_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let odd = ProfilePlace::Named(written(folder.path(), "odd.json", &odd_profile("inproc", 2, ODD).text()));
    let other = ProfilePlace::Named(written(folder.path(), "other.json", &odd_profile("inproc", 2, "ring").text()));
    let usual = on_each(&[ProfilePlace::Nowhere, ProfilePlace::Nowhere], |comm| chosen(&comm, 8));
    assert!(usual[0] == usual[1] && ![ODD, "ring"].contains(&usual[0]), "{usual:?}");
    for places in [[odd.clone(), ProfilePlace::Nowhere], [ProfilePlace::Nowhere, odd.clone()], [odd, other]] {
        assert_eq!(on_each(&places, |comm| chosen(&comm, 8)), usual, "{places:?}");
    }
}

#[test]
fn a_bad_file_is_an_error_where_it_is_named_and_ignored_in_the_usual_place() {
    let folder = tempfile::tempdir().unwrap();
    let sound = odd_profile("inproc", 2, ODD).text();
    let bad = [
        ("broken.json", sound[..100].to_owned(), "not a profile"),
        ("later.json", sound.replace("\"format\": 2", "\"format\": 9"), "format 9"),
        ("unknown.json", sound.replace(ODD, "four_level"), "no row \"four_level\""),
    ];
    let mut paths: Vec<(PathBuf, &str)> =
        bad.iter().map(|(name, text, why)| (written(folder.path(), name, text), *why)).collect();
    paths.push((folder.path().join("missing.json"), "No such file"));
    for (path, why) in paths {
        let named = Setup { profile: ProfilePlace::Named(path.clone()), ..Setup::alone() };
        let error = Communicator::connect(&named).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(text.contains(why) && text.contains(&path.display().to_string()), "{text}");
        let usual = [ProfilePlace::Usual(path.clone()), ProfilePlace::Usual(path)];
        assert!(on_each(&usual, |comm| chosen(&comm, 8)).iter().all(|row| *row != ODD));
    }
}
