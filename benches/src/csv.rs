//! Results as CSV: a line for each library, table and size, with what it was measured on.

use std::io::Write;

use crate::machine::Machine;
use crate::process::Outcome;
use crate::results::Results;

const HEADER: [&str; 16] = [
    "date",
    "cpu",
    "cores",
    "kernel",
    "commit",
    "wire",
    "ranks",
    "collective",
    "type",
    "bytes",
    "library",
    "version",
    "median_us",
    "min_us",
    "rounds",
    "outcome",
];

/// Writes all lines. `versions` are those of the results' libraries; unknown ones are left empty.
///
/// # Errors
///
/// If `to` can't be written.
pub fn write(to: impl Write, results: &Results, versions: &[Option<String>], machine: &Machine) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(to);
    csv.write_record(HEADER)?;
    for group in results.groups() {
        for bytes in results.sizes(group) {
            for (library, name) in results.libraries.iter().enumerate() {
                let Some(entry) = results.entry(group, bytes, library) else { continue };
                let us = |us: Option<f64>| us.map(|us| format!("{us:.4}")).unwrap_or_default();
                let outcome = match entry.end() {
                    None | Some(Outcome::Time(_)) => "measured".to_owned(),
                    Some(Outcome::NotOffered(why)) => format!("not offered: {why}"),
                    Some(Outcome::TooSlow(seconds)) => format!("too slow: more than {seconds} s"),
                    Some(Outcome::Failed(why)) => format!("failed: {why}"),
                };
                csv.write_record([
                    &machine.date,
                    &machine.processor,
                    &machine.cores.to_string(),
                    &machine.kernel,
                    machine.commit.as_deref().unwrap_or_default(),
                    group.wire.name(),
                    &group.ranks.to_string(),
                    group.call.name(),
                    group.element.name(),
                    &bytes.to_string(),
                    name,
                    versions[library].as_deref().unwrap_or_default(),
                    &us(entry.median_us()),
                    &us(entry.min_us()),
                    &entry.rounds().to_string(),
                    &outcome,
                ])?;
            }
        }
    }
    csv.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::sample;

    #[test]
    fn a_line_for_each_library_and_size() {
        let machine = Machine {
            date: "2030-01-02T03:04:05+00:00".into(),
            processor: "Some, CPU".into(),
            cores: 2,
            kernel: "6.1".into(),
            commit: None,
        };
        let mut bytes = Vec::new();
        let versions = [Some("0.1.0".to_owned()), None, Some("4.0.2".to_owned())];
        write(&mut bytes, &sample(), &versions, &machine).expect("memory can be written");
        let text = String::from_utf8(bytes).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 9);
        let begin = "2030-01-02T03:04:05+00:00,\"Some, CPU\",2,6.1,,shm,2,all_reduce,f32,8,";
        assert_eq!(lines[1], format!("{begin}paceline,0.1.0,2.0000,1.0000,3,measured"));
        assert_eq!(lines[2], format!("{begin}open mpi,,5.0000,5.0000,1,measured"));
        assert!(lines[9].ends_with("512,mpich,4.0.2,,,0,not offered: no such type"), "{}", lines[9]);
    }
}
