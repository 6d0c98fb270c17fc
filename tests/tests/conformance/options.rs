//! What may differ from call to call, and from setup to setup: the algorithm and the timeout.

use std::time::{Duration, Instant};

use paceline_comm::algorithm::ROWS;
use paceline_comm::{CallOptions, Collective, Communicator, ErrorKind, ReduceOp, Rendezvous, Setup};
use paceline_tests::world::{PATIENCE, Wire, at_once, on_each, world, world_of};
use paceline_transport::rendezvous::Hub;

fn wish(name: &str) -> CallOptions {
    CallOptions { timeout: Some(PATIENCE), algorithm: Some(name.into()) }
}

#[test]
fn a_call_may_wish_for_any_row_that_fits() {
    on_each(Wire::Inproc, 3, |comm| {
        for row in ROWS.iter().filter(|row| (row.fits)(3)) {
            let explained = comm.with(wish(row.name)).explain(row.collective, 5000).unwrap();
            assert_eq!(explained.chosen, row.name, "{explained}");
        }
        let error = comm.with(wish("rings")).all_reduce_in_place(&mut [1u8], ReduceOp::Sum).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(text.contains("no algorithm rings") && text.contains("recursive_doubling"), "{text}");
        let error = comm.with(wish("bruck")).broadcast(&mut [1u8], 0).unwrap_err();
        assert!(error.to_string().contains("there are: ring"), "{error}");
        comm.barrier().unwrap();
    });
}

fn setups(algorithms: &[&str]) -> Vec<Setup> {
    let hub = Hub::new(algorithms.len());
    let setup = |(rank, name): (usize, &&str)| Setup {
        algorithm: Some((*name).to_owned()),
        ..Wire::Shm.setup(rank, algorithms.len(), Rendezvous::Hub(hub.clone()))
    };
    algorithms.iter().enumerate().map(setup).collect()
}

#[test]
fn a_setup_may_wish_for_rows_and_a_call_for_others() {
    let both = "all_reduce=halving_doubling, broadcast=scatter_ring";
    at_once(world_of(setups(&[both, both])), |comm| {
        let chosen = |comm: &Communicator, of| comm.explain(of, 8).unwrap().chosen;
        assert_eq!(chosen(&comm, Collective::AllReduce), "halving_doubling");
        assert_eq!(chosen(&comm, Collective::Broadcast), "scatter_ring");
        assert_eq!(chosen(&comm.with(wish("ring")), Collective::AllReduce), "ring");
        let mut total = [1u8; 99];
        comm.all_reduce_in_place(&mut total, ReduceOp::Sum).unwrap();
        assert_eq!(total, [2; 99]);
        let part = comm.split(Some(0), 0).unwrap().unwrap();
        assert_eq!(chosen(&part, Collective::AllReduce), "halving_doubling");
    });
}

#[test]
fn setups_that_wish_for_different_rows_are_told() {
    let ends = at_once(setups(&["ring", "ring", "direct"]), |setup| Communicator::connect(&setup).unwrap_err());
    for (rank, error) in ends.iter().enumerate() {
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        let want: &[usize] = if rank == 2 { &[0, 1] } else { &[2] };
        assert_eq!(error.peers(), want, "{error}");
    }
    for (name, why) in
        [("rigns", "no algorithm"), ("all_redcue=ring", "no collective"), ("scatter=bruck", "no algorithm")]
    {
        let error = Communicator::connect(&Setup { algorithm: Some(name.into()), ..Setup::alone() }).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

/// A call may be hastier than its communicator; who is late is named, and the communicator is dead.
#[test]
fn a_call_has_a_timeout_of_its_own() {
    for wire in Wire::threads() {
        let ends = at_once(world(wire, 3), |comm| {
            if comm.rank() == 2 {
                // Is there, answers nothing, calls nothing: what a rank looks like that computes too long.
                return comm.recv(&mut [0u8], 0).unwrap_err();
            }
            let hasty = comm.with(CallOptions { timeout: Some(Duration::from_secs(1)), algorithm: None });
            assert_eq!((hasty.timeout(), comm.timeout()), (Duration::from_secs(1), PATIENCE));
            let begin = Instant::now();
            let error = hasty.all_reduce_in_place(&mut [1u8; 5], ReduceOp::Sum).unwrap_err();
            assert!(begin.elapsed() < Duration::from_secs(4), "{wire:?}: took {:?}", begin.elapsed());
            let again = comm.barrier().unwrap_err();
            assert!(again.to_string().contains("this communicator has failed"), "{again}");
            assert_eq!(again.kind(), error.kind());
            error
        });
        for error in &ends {
            assert_eq!((error.kind(), error.peers()), (ErrorKind::Timeout, &[2][..]), "{wire:?}: {error}");
        }
    }
}

#[test]
fn a_timeout_may_be_endless_and_a_short_one_does_not_hurt_who_is_in_time() {
    for wire in Wire::threads() {
        on_each(wire, 2, |comm| {
            let endless = comm.with(CallOptions { timeout: Some(Duration::MAX), algorithm: None });
            endless.barrier().unwrap();
            let brief = comm.with(CallOptions { timeout: Some(Duration::from_secs(5)), algorithm: None });
            for _ in 0..20 {
                brief.barrier().unwrap();
            }
        });
    }
}
