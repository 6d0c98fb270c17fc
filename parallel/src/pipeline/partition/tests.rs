//! Layers are divided as asked, and by weights as well as can be.

use proptest::prelude::*;

use super::*;

fn drawn(partition: Result<Partition, PartitionError>) -> String {
    partition.map_or_else(|error| error.to_string(), |partition| partition.to_string())
}

#[test]
fn layers_are_counted_out() {
    assert_eq!(drawn(Partition::even(6, 3)), "Ett|tt|ttL");
    assert_eq!(drawn(Partition::even(5, 3)), "Ett|tt|tL");
    assert_eq!(drawn(Partition::even(2, 1)), "EttL");
    assert_eq!(drawn(Partition::listed(&[1, 1, 2], 4)), "Et|t|ttL");
    assert_eq!(drawn(Partition::listed(&[0, 2, 0], 2)), "E|tt|L");
    let uneven = Partition::listed(&[7, 8, 9, 8], 32).unwrap();
    assert_eq!(uneven.stages.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 9, 9]);
    assert_eq!(uneven.stage_of(Layer::Transformer(15)), Some(2));
    assert_eq!(uneven.stage_of(Layer::Transformer(14)), Some(1));
    assert_eq!((uneven.stage_of(Layer::Loss), uneven.stage_of(Layer::Transformer(32))), (Some(3), None));

    assert_eq!(drawn(Partition::even(2, 3)), "2 layers can't be divided among 3 stages: each must have one");
    assert_eq!(drawn(Partition::even(2, 0)), "there must be a stage");
    assert_eq!(drawn(Partition::listed(&[], 0)), "there must be a stage");
    assert_eq!(
        drawn(Partition::listed(&[7, 8, 9, 7], 32)),
        "the list [7, 8, 9, 7] has 31 layers, but the model has 32"
    );
}

#[test]
fn weights_move_layers_away_from_embedding_and_head() {
    let weighed = |embedding, layers: &[f64], head, n_stages| {
        drawn(Partition::weighed(&Weights { embedding, layers: layers.to_vec(), head }, n_stages))
    };
    assert_eq!(weighed(0.0, &[1.0; 8], 0.0, 4), "Ett|tt|tt|ttL");
    assert_eq!(weighed(1.0, &[1.0; 30], 1.0, 4), "Ettttttt|tttttttt|tttttttt|tttttttL");
    assert_eq!(weighed(0.5, &[1.0; 9], 2.0, 3), "Ettt|tttt|ttL");
    assert_eq!(weighed(9.0, &[1.0; 4], 9.0, 3), "E|tttt|L");
    assert_eq!(weighed(9.0, &[1.0; 4], 9.0, 6), "E|t|t|t|t|L");
    assert_eq!(weighed(9.0, &[1.0; 4], 9.0, 7), "6 layers can't be divided among 7 stages: each must have one");
    assert_eq!(weighed(0.0, &[1.0, -1.0], 0.0, 2), "Transformer(1) weighs -1, which is no weight");
    assert_eq!(weighed(0.0, &[1.0], f64::NAN, 2), "Loss weighs NaN, which is no weight");
}

#[test]
fn drawings_are_read_as_megatron_reads_them() {
    let cases = [
        ("Et*3|(tt|)*2,m|L", "Ettt|tt|tt|m|L"),
        ("E|t*3|t*3|L", "E|ttt|ttt|L"),
        (" E t , t | m * 2 L ", "Ett|mmL"),
        ("E((t|)*2t)*2|L", "Et|t|tt|t|t|L"),
        ("E||tL", "E||tL"),
        ("E(t)*0L", "EL"),
    ];
    for (text, want) in cases {
        assert_eq!(Partition::drawn(text).map(|partition| partition.to_string()), Ok(want.to_owned()), "{text}");
    }
}

#[test]
fn errors_of_drawings_name_the_column() {
    let cases = [
        ("Et|x", 4, "expected one of E t m L | ( ,, found 'x'"),
        ("E(t|L", 6, "expected ')', found the end of the line"),
        ("Et)L", 3, "expected one of E t m L | ( ,, found ')'"),
        ("Et*L", 4, "expected how many times, found 'L'"),
        ("*3", 1, "expected one of E t m L | ( ,, found '*'"),
        ("tE|L", 1, "the first stage must begin with the embedding, E"),
        ("|EtL", 2, "the first stage must begin with the embedding, E"),
        ("Et|EL", 4, "there is one embedding, E, first of all"),
        ("E*2tL", 1, "there is one embedding, E, first of all"),
        ("EtLt", 4, "nothing can come behind the loss, L"),
        ("EtmtL", 4, "a transformer layer, t, can't come behind an m"),
        ("Et|tt", 6, "the last stage must end with the loss, L"),
        ("Et|tL|", 7, "the last stage must end with the loss, L"),
        ("", 1, "the last stage must end with the loss, L"),
        ("Et*9999999L", 4, "the drawing stands for more than 1048576 signs"),
        ("E((t*1000)*1000)*2L", 18, "the drawing stands for more than 1048576 signs"),
        ("((((((((((((((((((", 17, "parentheses lie more than 16 deep"),
    ];
    for (text, column, what) in cases {
        let error = Partition::drawn(text).expect_err(text);
        assert_eq!((error.column, error.what.as_str()), (column, what), "{text}");
    }
}

/// Every way to cut, tried: the lightest heaviest stage, and the least sum of squares among those.
fn tried(weights: &[f64], n_stages: u32) -> (f64, f64) {
    let n = weights.len();
    let mut best = (f64::INFINITY, f64::INFINITY);
    for cuts in 0u32..1 << (n - 1) {
        if cuts.count_ones() + 1 != n_stages {
            continue;
        }
        let mut stages = vec![0.0];
        for (i, weight) in weights.iter().enumerate() {
            *stages.last_mut().unwrap() += weight;
            if cuts >> i & 1 == 1 {
                stages.push(0.0);
            }
        }
        let heaviest = stages.iter().copied().fold(0.0, f64::max);
        let squares = stages.iter().map(|stage| stage * stage).sum();
        best = if (heaviest, squares) < best { (heaviest, squares) } else { best };
    }
    best
}

proptest! {
    #[test]
    fn weighed_stages_are_the_best_there_are(
        weights in prop::collection::vec(0u8..20, 2..10),
        n_stages in 1u32..6,
    ) {
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        prop_assume!(n_stages as usize <= weights.len());
        let (last, inner) = (weights.len() - 1, weights[1..weights.len() - 1].to_vec());
        let given = Weights { embedding: weights[0], layers: inner, head: weights[last] };
        let partition = Partition::weighed(&given, n_stages).unwrap();
        let mut rest = weights.iter();
        let sums: Vec<f64> = partition.stages.iter().map(|s| rest.by_ref().take(s.len()).sum()).collect();
        prop_assert!(rest.next().is_none() && partition.stages.iter().all(|stage| !stage.is_empty()));
        let squares = sums.iter().map(|sum| sum * sum).sum::<f64>();
        prop_assert_eq!((sums.iter().copied().fold(0.0, f64::max), squares), tried(&weights, n_stages));
    }

    #[test]
    fn drawings_are_read_as_they_are_written(counts in prop::collection::vec(0u32..5, 1..8), n_ahead in 0u32..3) {
        let mut partition = Partition::listed(&counts, counts.iter().sum()).unwrap();
        let last = partition.stages.len() - 1;
        let at = partition.stages[last].len() - 1;
        partition.stages[last].splice(at..at, (0..n_ahead).map(Layer::MultiToken));
        prop_assert_eq!(Partition::drawn(&partition.to_string()), Ok(partition));
    }
}
