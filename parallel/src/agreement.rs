//! What all ranks know of each other: bytes of any length, and whether something went wrong anywhere.

use paceline_comm::Communicator;

use crate::error::{Doing, Error, Result};

/// Every rank's bytes, in rank order.
pub(crate) fn gather(comm: &Communicator, bytes: &[u8], what: &str) -> Result<Vec<Vec<u8>>> {
    let doing = || format!("gathering {what}");
    let mut lens = vec![0u64; comm.size()];
    comm.all_gather(&[bytes.len() as u64], &mut lens).doing(doing)?;
    let lens: Vec<usize> = lens.into_iter().map(|len| len as usize).collect();
    let mut all = vec![0u8; lens.iter().sum()];
    if !all.is_empty() {
        comm.all_gather_v(bytes, &mut all, &lens).doing(doing)?;
    }
    let mut rest = all.as_slice();
    Ok(lens
        .iter()
        .map(|len| {
            let (head, tail) = rest.split_at(*len);
            rest = tail;
            head.to_vec()
        })
        .collect())
}

/// What went well on this rank, if it went well on all. A rank whose own part failed gets its own error, and all others one
/// that names it.
pub(crate) fn agree<T>(comm: &Communicator, result: Result<T>, what: &str) -> Result<T> {
    let said = result.as_ref().err().map(|error| format!("!{error}")).unwrap_or_default();
    let all = gather(comm, said.as_bytes(), what);
    let value = result?;
    let all = all?;
    match all.iter().position(|said| !said.is_empty()) {
        None => Ok(value),
        Some(rank) => {
            let why = String::from_utf8_lossy(&all[rank][1..]).into_owned();
            Err(Error::Elsewhere { what: what.to_owned(), rank, why })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_is_everybodys() {
        std::thread::scope(|scope| {
            for comm in Communicator::in_process(3).unwrap() {
                scope.spawn(move || {
                    let mine = vec![comm.rank() as u8; comm.rank()];
                    assert_eq!(gather(&comm, &mine, "numbers").unwrap(), [vec![], vec![1], vec![2, 2]]);
                    assert_eq!(gather(&comm, &[], "nothing").unwrap(), vec![Vec::<u8>::new(); 3]);
                    let result = if comm.rank() == 1 { Err(Error::invalid("full")) } else { Ok(7) };
                    let error = agree(&comm, result, "writing").unwrap_err().to_string();
                    assert!(error.contains("full") && (comm.rank() == 1 || error.contains("rank 1")), "{error}");
                    assert_eq!(agree(&comm, Ok(7), "writing").unwrap(), 7);
                });
            }
        });
    }
}
