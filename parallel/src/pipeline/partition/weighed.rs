//! Stages of equal weight, as far as layers allow.

use super::{Layer, Partition, PartitionError};

/// What the parts of a model weigh, in any unit: time, parameters, bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct Weights {
    /// The embedding.
    pub embedding: f64,
    /// Each transformer layer.
    pub layers: Vec<f64>,
    /// The head and the loss.
    pub head: f64,
}

impl Partition {
    /// The division into stages of neighbouring layers whose heaviest stage is lightest; of those, the one with the
    /// least sum of squares. The embedding and the head may be a stage of their own.
    ///
    /// Takes time proportional to the number of stages and the square of that of layers.
    ///
    /// # Errors
    ///
    /// When there are fewer parts than stages, no stages, or a weight is negative or not finite.
    pub fn weighed(weights: &Weights, n_stages: u32) -> Result<Partition, PartitionError> {
        let layers = (0..).zip(&weights.layers).map(|(i, &weight)| (Layer::Transformer(i), weight));
        let items: Vec<(Layer, f64)> = std::iter::once((Layer::Embedding, weights.embedding))
            .chain(layers)
            .chain([(Layer::Loss, weights.head)])
            .collect();
        if let Some((layer, weight)) = items.iter().find(|(_, weight)| !(weight.is_finite() && *weight >= 0.0)) {
            return Err(PartitionError::NoWeight { what: format!("{layer:?}"), weight: *weight });
        }
        let n_stages = n_stages as usize;
        match n_stages {
            0 => return Err(PartitionError::NoStages),
            _ if items.len() < n_stages => return Err(PartitionError::TooFew { n_items: items.len(), n_stages }),
            _ => {}
        }
        let sums: Vec<f64> = std::iter::once(0.0)
            .chain(items.iter().scan(0.0, |sum, (_, weight)| {
                *sum += weight;
                Some(*sum)
            }))
            .collect();
        let (heaviest, _) = best(&sums, n_stages, f64::max);
        let within = |stage: f64| if stage <= heaviest { stage * stage } else { f64::INFINITY };
        let (_, ends) = best(&sums, n_stages, |stage, rest| within(stage) + rest);
        let mut first = 0;
        let stage = |end| {
            let layers = items[first..end].iter().map(|&(layer, _)| layer).collect();
            first = end;
            layers
        };
        Ok(Partition { stages: ends.into_iter().map(stage).collect() })
    }
}

/// The cheapest way to cut into `n_stages` runs, none empty: its cost, and where each run ends. `sums` are the weights
/// of the first 0, 1, ... items; `cost` joins a stage's weight and the cost of the stages before it.
fn best(sums: &[f64], n_stages: usize, cost: impl Fn(f64, f64) -> f64) -> (f64, Vec<usize>) {
    let n = sums.len() - 1;
    // Of the stages so far, by how many items they hold: the cost, and where the last of them begins.
    let mut tables = vec![(0..=n).map(|i| (if i == 0 { 0.0 } else { f64::INFINITY }, 0)).collect::<Vec<_>>()];
    for stage in 1..=n_stages {
        let before = &tables[stage - 1];
        let cheapest = |end: usize| {
            let ways = (stage - 1..end).map(|first| (cost(sums[end] - sums[first], before[first].0), first));
            ways.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, 0))
        };
        tables.push((0..=n).map(cheapest).collect());
    }
    let mut ends = vec![n];
    for stage in (2..=n_stages).rev() {
        let end = ends[ends.len() - 1];
        ends.push(tables[stage][end].1);
    }
    ends.reverse();
    (tables[n_stages][n].0, ends)
}
