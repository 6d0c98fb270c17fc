//! `paceline rows`: the library's algorithms, as it lists them.

use std::fmt::Write;

use paceline_comm::Collective;
use paceline_comm::algorithm::{ROWS, rows_for};

/// List the algorithms
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// Only those of one collective, such as all_reduce
    #[arg(value_parser = collective)]
    pub collective: Option<Collective>,
}

/// The collective of that name.
///
/// # Errors
///
/// There is none; the text lists those that exist.
pub fn collective(name: &str) -> Result<Collective, String> {
    let known = || Collective::ALL.map(Collective::name).join(", ");
    Collective::named(name).ok_or_else(|| format!("collectives are {}", known()))
}

/// The table.
#[must_use]
pub fn text(arguments: &Arguments) -> String {
    let mut text = format!("{:<15} {:<19} {:<9} {:<8} what it is\n", "collective", "algorithm", "in place", "uneven");
    let yes = |it: bool| if it { "yes" } else { "no" };
    let rows: Vec<_> = match arguments.collective {
        Some(collective) => rows_for(collective).collect(),
        None => ROWS.iter().collect(),
    };
    for row in rows {
        let (in_place, uneven) = (yes(row.in_place), yes(row.uneven));
        let line = format!("{:<15} {:<19} {in_place:<9} {uneven:<8} {}", row.collective.name(), row.name, row.summary);
        writeln!(text, "{}", line.trim_end()).expect("strings take everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_listed_once() {
        assert_eq!(text(&Arguments { collective: None }).lines().count(), ROWS.len() + 1);
        let one = text(&Arguments { collective: Some(Collective::AllReduce) });
        assert!(one.lines().skip(1).all(|line| line.starts_with("all_reduce ")), "{one}");
        assert!(collective("all_reduced").unwrap_err().contains("all_reduce,"));
    }
}
