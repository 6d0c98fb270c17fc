//! What many times say together.

use super::arguments::Average;

/// The ranks' times as one, `times` being in rank order.
#[must_use]
pub fn average(how: Average, times: impl IntoIterator<Item = f64>) -> f64 {
    let times: Vec<f64> = times.into_iter().collect();
    match how {
        Average::First => times[0],
        Average::Mean => times.iter().sum::<f64>() / times.len() as f64,
        Average::Min => times.into_iter().fold(f64::INFINITY, f64::min),
        Average::Max => times.into_iter().fold(0.0, f64::max),
    }
}

/// The distribution of the times of single iterations, in the unit of the times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The shortest.
    pub min: f64,
    /// The longest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// Half of the times are at most this.
    pub p50: f64,
    /// 95 of 100 times are at most this.
    pub p95: f64,
    /// 99 of 100 times are at most this. With fewer than 100 times, the longest.
    pub p99: f64,
    /// The standard deviation.
    pub deviation: f64,
}

impl Spread {
    /// The distribution of at least one time.
    #[must_use]
    pub fn of(times: &[f64]) -> Spread {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let nearest_rank = |percent: usize| sorted[((n * percent).div_ceil(100) - 1).min(n - 1)];
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let variance = sorted.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / n as f64;
        Spread {
            min: sorted[0],
            max: sorted[n - 1],
            mean,
            p50: sorted[n / 2],
            p95: nearest_rank(95),
            p99: nearest_rank(99),
            deviation: variance.sqrt(),
        }
    }

    /// The standard deviation in percent of the mean.
    #[must_use]
    pub fn variation(&self) -> f64 {
        if self.mean > 0.0 { 100.0 * self.deviation / self.mean } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages() {
        let times = [3.0, 1.0, 2.0];
        let rows = [(Average::First, 3.0), (Average::Mean, 2.0), (Average::Min, 1.0), (Average::Max, 3.0)];
        for (how, want) in rows {
            assert_eq!(average(how, times), want, "{how:?}");
        }
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let times: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let spread = Spread::of(&times);
        assert_eq!((spread.min, spread.max, spread.mean), (1.0, 200.0, 100.5));
        assert_eq!((spread.p50, spread.p95, spread.p99), (101.0, 190.0, 198.0));
        let one = Spread::of(&[4.0]);
        assert_eq!((one.min, one.p50, one.p99, one.max, one.deviation), (4.0, 4.0, 4.0, 4.0, 0.0));
        assert_eq!(Spread::of(&[1.0, 3.0]).variation(), 50.0);
    }
}
