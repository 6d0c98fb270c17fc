//! `paceline topo`: the parts of this machine, or of one that a file or a copy of a tree describes, and how they are joined.

mod job;
mod svg;
mod tree;

use std::io::Write;
use std::path::PathBuf;

use paceline_transport::machine::{Machine, Part, Path, Source};

use crate::picture;

/// Show this machine's processors, GPUs and network ports, and what joins them
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Arguments {
    /// The table of paths between GPUs and network ports
    #[arg(long, group = "form")]
    pub matrix: bool,
    /// NCCL's format, which NCCL_TOPO_FILE takes
    #[arg(long, group = "form")]
    pub xml: bool,
    /// Where the job's ranks are, their order, rings and trees; under a launcher rank 0 speaks for all
    #[arg(long, group = "form", conflicts_with_all = ["from", "sysfs"])]
    pub job: bool,
    /// Everything that is known, and all paths
    #[arg(long, group = "form")]
    pub json: bool,
    /// A picture as SVG
    #[arg(long, group = "form")]
    pub svg: bool,
    /// The picture into a file that ends in .svg or .png, with nothing printed
    #[arg(long, visible_alias = "png", group = "form", value_name = "FILE", value_parser = picture::file)]
    pub picture: Option<PathBuf>,
    /// The kernel's files that all this is read from, for --sysfs elsewhere
    #[arg(long, group = "form", conflicts_with = "from")]
    pub record: bool,
    /// Read a file in NCCL's format (what NCCL_TOPO_DUMP_FILE writes) instead of this machine
    #[arg(long, value_name = "FILE.xml", conflicts_with = "sysfs")]
    pub from: Option<PathBuf>,
    /// Read what --record wrote, a copy of a machine's /sys, or a folder with such a `sys` and perhaps `proc`
    #[arg(long, value_name = "ROOT")]
    pub sysfs: Option<PathBuf>,
}

/// All that is known, as JSON has it.
#[derive(serde::Serialize)]
struct Report<'a> {
    machine: &'a Machine,
    paths: Vec<Row>,
}

/// A path between two of GPUs and network ports.
#[derive(serde::Serialize)]
struct Row {
    from: String,
    to: String,
    #[serde(flatten)]
    path: Path,
}

/// A machine in the form that is asked for, on standard output or in a file.
///
/// # Errors
///
/// The file or folder can't be read, the file isn't a machine, or the picture can't be written.
pub fn main(arguments: &Arguments) -> Result<(), String> {
    if let Some(file) = &arguments.picture {
        return picture::write(&drawing(&read(arguments)?), file);
    }
    // Who reads only the beginning is content.
    let _ = std::io::stdout().write_all(text(arguments)?.as_bytes());
    Ok(())
}

/// What is to be printed.
///
/// # Errors
///
/// The file or folder can't be read, or the file isn't a machine.
pub fn text(arguments: &Arguments) -> Result<String, String> {
    if arguments.record {
        let unpacked = tempfile::tempdir().map_err(|error| format!("making a folder for files: {error}"))?;
        return Ok(source(arguments, unpacked.path())?.record());
    }
    if arguments.job {
        let comm = paceline_comm::Communicator::from_env().map_err(|error| error.to_string())?;
        return Ok(job::text(&comm).unwrap_or_default());
    }
    let machine = read(arguments)?;
    if arguments.matrix {
        Ok(machine.matrix())
    } else if arguments.xml {
        Ok(machine.to_xml())
    } else if arguments.json {
        json(&machine)
    } else if arguments.svg {
        Ok(drawing(&machine))
    } else {
        Ok(tree::draw(&machine))
    }
}

fn drawing(machine: &Machine) -> String {
    svg::draw(&tree::grown(machine))
}

fn read(arguments: &Arguments) -> Result<Machine, String> {
    if let Some(file) = &arguments.from {
        return Machine::from_xml_file(file).map_err(|error| format!("{}: {error}", file.display()));
    }
    let unpacked = tempfile::tempdir().map_err(|error| format!("making a folder for files: {error}"))?;
    let source = source(arguments, unpacked.path())?;
    // Libraries know of this machine only.
    #[cfg(feature = "nvml")]
    if arguments.sysfs.is_none() {
        return Ok(Machine::detect(&source, Some(&paceline_transport::machine::Nvml)));
    }
    Ok(Machine::detect(&source, None))
}

/// Where the kernel's files are; those of a record are unpacked into a folder.
fn source(arguments: &Arguments, unpacked: &std::path::Path) -> Result<Source, String> {
    let Some(root) = &arguments.sysfs else { return Ok(Source::here()) };
    if root.is_dir() {
        return Ok(Source::at(root));
    }
    let wrong =
        |why: String| format!("{}: {why}; give what --record wrote, or a copy of a machine's /sys", root.display());
    let record = std::fs::read_to_string(root).map_err(|error| wrong(format!("it can't be read: {error}")))?;
    Source::unpack(&record, unpacked).map_err(|error| wrong(error.to_string()))
}

fn json(machine: &Machine) -> Result<String, String> {
    let parts = machine.endpoints();
    let row =
        |from: Part, to: Part| Row { from: machine.label(from), to: machine.label(to), path: machine.path(from, to) };
    let pairs = parts.iter().enumerate().flat_map(|(at, from)| parts[at + 1..].iter().map(|to| row(*from, *to)));
    let report = Report { machine, paths: pairs.collect() };
    serde_json::to_string_pretty(&report).map(|text| text + "\n").map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_shows_this_machine() {
        let shown = |change: fn(&mut Arguments)| {
            let mut arguments = Arguments::default();
            change(&mut arguments);
            text(&arguments).unwrap()
        };
        assert!(shown(|_| ()).contains("node 0"));
        assert!(shown(|arguments| arguments.matrix = true).contains("NUMA affinity"));
        let report: serde_json::Value = serde_json::from_str(&shown(|arguments| arguments.json = true)).unwrap();
        assert!(report["machine"]["cores"].as_array().is_some_and(|cores| !cores.is_empty()));
        assert!(shown(|arguments| arguments.svg = true).ends_with("</svg>\n"));
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("record");
        std::fs::write(&record, shown(|arguments| arguments.record = true)).unwrap();
        let again = text(&Arguments { xml: true, sysfs: Some(record), ..Arguments::default() }).unwrap();
        assert_eq!(again, shown(|arguments| arguments.xml = true));
        let file = folder.path().join("topology.xml");
        std::fs::write(&file, shown(|arguments| arguments.xml = true)).unwrap();
        let again = text(&Arguments { matrix: true, from: Some(file), ..Arguments::default() }).unwrap();
        assert_eq!(again, shown(|arguments| arguments.matrix = true));
    }

    #[test]
    fn a_picture_goes_into_a_file() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("machine.svg");
        let parsed = |option: &str, file: &str| Line::try_parse_from(["topo", option, file]);
        main(&parsed("--picture", file.to_str().unwrap()).unwrap().arguments).unwrap();
        let printed = text(&Arguments { svg: true, ..Arguments::default() }).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), printed);
        assert_eq!(parsed("--png", "a.png").unwrap().arguments.picture, Some("a.png".into()));
        assert!(parsed("--picture", "machine.gif").is_err());
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let error = text(&Arguments { sysfs: Some(at("none")), ..Arguments::default() }).unwrap_err();
        assert!(error.contains("none: it can't be read"), "{error}");
        let error = text(&Arguments { from: Some(at("none")), ..Arguments::default() }).unwrap_err();
        assert!(error.contains("can't be read"), "{error}");
        std::fs::write(at("wrong"), "<system>\n<cpu numaid=\"zero\"/>\n</system>").unwrap();
        let error = text(&Arguments { from: Some(at("wrong")), ..Arguments::default() }).unwrap_err();
        assert!(
            error.contains("wrong: line 2, column 6: numaid=\"zero\" of <cpu>; expected a whole number"),
            "{error}"
        );
    }
}
