//! `paceline explain`: which algorithm a call would run, what each would cost, and why.

use paceline_comm::{Collective, Communicator};

use crate::perf::arguments::size;
use crate::rows::collective;

/// The most ranks that are made up to ask.
const RANKS_MAX: u64 = 128;

/// Say which algorithm a call would run, and why
///
/// With -n the ranks are threads of one process, joined by its memory. Without, they are those that the environment
/// names: under a launcher rank 0 speaks for the job and its real links.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// The collective, such as all_reduce
    #[arg(value_parser = collective)]
    pub collective: Collective,
    /// The whole message: the vector, or all ranks' blocks together; K, M and G are binary
    #[arg(value_parser = size)]
    pub bytes: u64,
    /// How many ranks
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=RANKS_MAX))]
    pub n: Option<u64>,
}

/// The answer; nothing on ranks other than 0.
///
/// # Errors
///
/// The collective is a message, or the ranks don't come together.
pub fn text(arguments: &Arguments) -> Result<Option<String>, String> {
    let Arguments { collective, bytes, n } = *arguments;
    let bytes = usize::try_from(bytes).map_err(|_| format!("{bytes} bytes are more than memory can hold"))?;
    let comm = match n {
        Some(n) => Communicator::in_process(n as usize).map(|mut ranks| ranks.remove(0)),
        None => Communicator::from_env(),
    };
    let comm = comm.map_err(|error| error.to_string())?;
    let explanation = comm.explain(collective, bytes).map_err(|error| error.to_string())?;
    Ok((comm.rank() == 0).then(|| explanation.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_collective_has_an_answer() {
        for collective in Collective::ALL {
            for n in [1, 2, 5] {
                let answer = text(&Arguments { collective, bytes: 1 << 20, n: Some(n) });
                if collective.is_message() {
                    assert!(answer.unwrap_err().contains("nothing to choose"));
                } else {
                    let answer = answer.unwrap().unwrap();
                    assert!(answer.starts_with(&format!("{collective} of 1048576 B over {n} ranks: ")), "{answer}");
                }
            }
        }
    }
}
