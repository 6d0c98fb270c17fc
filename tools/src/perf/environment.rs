//! The environment variables of the `*_perf` tools, all of them, read in this one place. They are nccl-tests'.

use std::path::PathBuf;

use super::failure::Failure;
use super::traffic::Traffic;

/// What the environment says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Environment {
    /// `NCCL_TESTS_MIN_BW`: the run fails if the average bus bandwidth is below 0.9 times this.
    pub min_bandwidth: Option<f64>,
    /// `NCCL_TESTS_ALLTOALLV_SPREAD`, or `_MATRIX_FILE` with `_MATRIX_SCALE`: the traffic of `alltoallv_perf`.
    pub traffic: Traffic,
    /// `NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY`: each rank's share of that traffic follows each row.
    pub summary: bool,
}

impl Environment {
    /// Reads it through `get`, which is `std::env::var` but for tests.
    ///
    /// # Errors
    ///
    /// A value that means nothing, or asks for what this build has not.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Environment, Failure> {
        let float = |name: &str, least: f64, most: f64| match get(name) {
            None => Ok(None),
            Some(text) => match text.parse::<f64>() {
                Ok(value) if least <= value && value <= most => Ok(Some(value)),
                _ => Err(Failure::Usage(format!("{name}: '{text}' is no number from {least} to {most}"))),
            },
        };
        if let Some(name) = ["NCCL_TESTS_SPLIT", "NCCL_TESTS_SPLIT_MASK"].into_iter().find(|name| get(name).is_some()) {
            return Err(Failure::NotInThisBuild(format!("{name}: groups are not supported; unset it")));
        }
        let spread = float("NCCL_TESTS_ALLTOALLV_SPREAD", 0.0, 1.0)?;
        let scale = float("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE", 0.0, 1e18)?.unwrap_or(1.0);
        let traffic = match get("NCCL_TESTS_ALLTOALLV_MATRIX_FILE") {
            Some(path) => Traffic::read(&PathBuf::from(path), scale)?,
            None => Traffic::Spread(spread.unwrap_or(1.0)),
        };
        let summary = float("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY", 0.0, 1e18)?.is_some_and(|value| value != 0.0);
        Ok(Environment { min_bandwidth: float("NCCL_TESTS_MIN_BW", 0.0, 1e18)?, traffic, summary })
    }

    /// Whether an average bus bandwidth is enough; none if nothing is demanded.
    #[must_use]
    pub fn enough(&self, bandwidth: f64) -> Option<bool> {
        self.min_bandwidth.map(|least| bandwidth >= 0.9 * least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_refuses() {
        let read = |name: &'static str, value: &'static str| {
            Environment::read(|asked| (asked == name).then(|| value.to_string()))
        };
        assert_eq!(Environment::read(|_| None).unwrap(), Environment::default());
        assert_eq!(read("NCCL_TESTS_MIN_BW", "2.5").unwrap().min_bandwidth, Some(2.5));
        assert_eq!(read("NCCL_TESTS_ALLTOALLV_SPREAD", "0.25").unwrap().traffic, Traffic::Spread(0.25));
        for (name, value, code) in [
            ("NCCL_TESTS_MIN_BW", "fast", 6),
            ("NCCL_TESTS_MIN_BW", "-1", 6),
            ("NCCL_TESTS_ALLTOALLV_SPREAD", "1.5", 6),
            ("NCCL_TESTS_ALLTOALLV_MATRIX_FILE", "/nowhere/at/all", 6),
            ("NCCL_TESTS_SPLIT", "MOD 2", 5),
        ] {
            assert_eq!(read(name, value).unwrap_err().exit_code(), code, "{name}={value}");
        }
        let environment = read("NCCL_TESTS_MIN_BW", "10").unwrap();
        assert_eq!((environment.enough(9.0), environment.enough(8.9)), (Some(true), Some(false)));
    }
}
