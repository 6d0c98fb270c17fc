//! Who sends how much to whom in `alltoallv_perf`: more to ranks further on, or what a file says.

use std::path::Path;

use super::failure::Failure;

/// A pattern of traffic between ranks.
#[derive(Clone, PartialEq, Debug)]
pub enum Traffic {
    /// Generated: from an even share for everyone (spread 0) to shares that grow with the distance to the receiver, in
    /// ranks, around the ring (spread 1).
    Spread(f64),
    /// Bytes from each rank (row) to each rank (column).
    Matrix(Vec<Vec<u64>>),
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic::Spread(1.0)
    }
}

const ALIGNMENT: u64 = 16;

impl Traffic {
    /// Whether sizes follow from `-b` and `-e` rather than from a file.
    #[must_use]
    pub fn is_generated(&self) -> bool {
        matches!(self, Traffic::Spread(_))
    }

    /// Elements from one rank to another, where an even share would be `share` elements.
    ///
    /// Amounts are rounded down to 16 bytes, or to elements where the even share itself is below 16 bytes.
    #[must_use]
    pub fn elements(&self, from: usize, to: usize, n: usize, share: usize, element: usize) -> usize {
        let per_unit = if share * element < ALIGNMENT as usize { 1 } else { ALIGNMENT as usize / element };
        match self {
            Traffic::Matrix(rows) => (rows[from][to] & !(ALIGNMENT - 1)) as usize / element,
            Traffic::Spread(_) if n == 1 => share,
            Traffic::Spread(spread) => {
                let distance = ((to + n - from) % n) as f64;
                let (n, even) = (n as f64, share as f64);
                let by_distance = distance * even * n / (n * (n - 1.0) / 2.0);
                let elements = (1.0 - spread) * even + spread * by_distance;
                elements as usize / per_unit * per_unit
            }
        }
    }

    /// What each of `n` ranks sends and receives, and its bandwidths, when an operation takes `microseconds`: comment
    /// lines as nccl-tests prints them.
    #[must_use]
    pub fn summary(&self, n: usize, share: usize, element: usize, microseconds: f64) -> Vec<String> {
        let mode = match self {
            Traffic::Spread(spread) => {
                format!("mode=generated nranks={n} total_bytes={} spread={spread:.3}", n * share * element)
            }
            Traffic::Matrix(rows) => format!("mode=matrix nranks={n} matrix_dim={}", rows.len()),
        };
        let mut lines = vec![format!("# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: {mode} time_usec={microseconds:.2}")];
        for rank in 0..n {
            let bytes = |from, to| self.elements(from, to, n, share, element) * element;
            let sent: usize = (0..n).map(|to| bytes(rank, to)).sum();
            let received: usize = (0..n).map(|from| bytes(from, rank)).sum();
            let algorithm = sent.max(received) as f64 / 1e3 / microseconds;
            let bus = algorithm * (n as f64 - 1.0) / n as f64;
            lines.push(format!(
                "#   rank={rank} send_bytes={sent} recv_bytes={received} alg_bw={algorithm:.2} bus_bw={bus:.2}"
            ));
        }
        lines
    }

    /// Reads a square matrix of byte counts, one row a line, and multiplies it by `scale`.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, is not square, or holds something else than numbers of bytes.
    pub fn read(path: &Path, scale: f64) -> Result<Traffic, Failure> {
        let fail = |why: String| Failure::Usage(format!("the traffic matrix in {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| fail(format!("cannot be read: {error}")))?;
        Traffic::parse(&text, scale).map_err(fail)
    }

    fn parse(text: &str, scale: f64) -> Result<Traffic, String> {
        let rows: Vec<Vec<u64>> = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(number, line)| {
                line.split_whitespace()
                    .map(|word| match word.parse::<f64>() {
                        Ok(bytes) if bytes >= 0.0 && bytes * scale < i64::MAX as f64 => Ok((bytes * scale) as u64),
                        _ => Err(format!("line {}: '{word}' is no number of bytes", number + 1)),
                    })
                    .collect()
            })
            .collect::<Result<_, String>>()?;
        match rows.iter().find(|row| row.len() != rows.len()) {
            _ if rows.is_empty() => Err("it is empty".to_string()),
            Some(row) => {
                Err(format!("it has {} rows, and a row of {} numbers; it must be square", rows.len(), row.len()))
            }
            None => Ok(Traffic::Matrix(rows)),
        }
    }

    /// Whether the pattern serves `n` ranks and sizes from `min_bytes` to `max_bytes`.
    ///
    /// # Errors
    ///
    /// A matrix that is too small, more than one size with a matrix, or a size below what the matrix moves.
    pub fn check(&self, n: usize, min_bytes: u64, max_bytes: u64) -> Result<(), Failure> {
        let Traffic::Matrix(rows) = self else { return Ok(()) };
        if rows.len() < n {
            return Err(Failure::Usage(format!("the traffic matrix is for {} ranks, and there are {n}", rows.len())));
        }
        if min_bytes != max_bytes {
            return Err(Failure::Sizes("a traffic matrix fixes the size: -b and -e must be equal".to_string()));
        }
        let sent = |rank: usize| rows[rank][..n].iter().sum::<u64>();
        let received = |rank: usize| rows[..n].iter().map(|row| row[rank]).sum::<u64>();
        let need = (0..n).map(|rank| sent(rank).max(received(rank))).max().unwrap_or(0);
        if need > max_bytes {
            return Err(Failure::Sizes(format!("the traffic matrix needs -e {need} at least, not {max_bytes}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_grow_with_distance_and_are_balanced() {
        let row = |spread: f64| -> Vec<usize> {
            (0..4).map(|to| Traffic::Spread(spread).elements(0, to, 4, 600, 1)).collect()
        };
        assert_eq!(row(1.0), [0, 400, 800, 1200]);
        assert_eq!(row(0.0), [592, 592, 592, 592]);
        for n in 2..9 {
            let sent = |from| (0..n).map(|to| Traffic::default().elements(from, to, n, 480, 4)).sum::<usize>();
            let received = |to| (0..n).map(|from| Traffic::default().elements(from, to, n, 480, 4)).sum::<usize>();
            assert!((0..n).all(|rank| sent(rank) == sent(0) && received(rank) == sent(0)), "n = {n}");
        }
    }

    #[test]
    fn summaries_add_up() {
        let lines = Traffic::default().summary(3, 96, 4, 2.0);
        assert_eq!(
            lines[0],
            "# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=generated nranks=3 total_bytes=1152 spread=1.000 time_usec=2.00"
        );
        assert_eq!(lines[3], "#   rank=2 send_bytes=1152 recv_bytes=1152 alg_bw=0.58 bus_bw=0.38");
    }

    #[test]
    fn matrices() {
        let traffic = Traffic::parse("100 200 150\n50 100 75\n\n300 150 200\n", 1.0).unwrap();
        assert_eq!(traffic.elements(0, 1, 3, 0, 4), 48);
        assert_eq!(traffic.elements(2, 0, 3, 0, 1), 288);
        assert!(traffic.check(3, 1000, 1000).is_ok());
        for (n, min, max, code) in [(4, 1000, 1000, 6), (3, 500, 1000, 255), (3, 100, 100, 255)] {
            assert_eq!(traffic.check(n, min, max).unwrap_err().exit_code(), code, "{n} {min} {max}");
        }
        for (text, want) in [("", "empty"), ("1 2\n3", "square"), ("1 x\n2 3", "'x'"), ("-1", "'-1'"), ("nan", "'nan'")]
        {
            assert!(Traffic::parse(text, 1.0).unwrap_err().contains(want), "{text:?}");
        }
    }
}
