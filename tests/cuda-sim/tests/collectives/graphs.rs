//! Calls in captured graphs.

use std::time::Instant;

use paceline_comm::ReduceOp;
use paceline_comm::cuda::DeviceVec;

use super::world::{PATIENCE, Way, is_there, ranks};

#[test]
fn a_graph_makes_its_calls_whenever_it_is_launched() {
    if !is_there() {
        return;
    }
    for way in [Way::Host, Way::Direct] {
        ranks(2, way, |rank| {
            let on = |vector: &mut DeviceVec<i32>| {
                rank.devices.on(&rank.stream).all_reduce_in_place(vector, ReduceOp::Sum).unwrap()
            };
            let mut vector = DeviceVec::of(&rank.device, &[1i32; 3000]).unwrap();
            on(&mut vector).wait().unwrap();
            rank.stream.begin_capture().unwrap();
            let captured = on(&mut vector);
            on(&mut vector);
            let mut graph = rank.stream.end_capture().unwrap();
            assert!(captured.wait().unwrap_err().to_string().contains("captured"), "{way:?}");
            assert_eq!(vector.to_vec().unwrap(), [2; 3000], "{way:?}: what is captured doesn't run");
            for turn in 1..=4 {
                graph.launch(&rank.stream).unwrap();
                // Other calls come between.
                on(&mut vector).wait().unwrap();
                rank.stream.synchronize(Instant::now() + PATIENCE).unwrap();
                assert_eq!(vector.to_vec().unwrap(), [2i32 << (3 * turn); 3000], "{way:?}");
            }
            rank.devices.check().unwrap();
        });
    }
}
