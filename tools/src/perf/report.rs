//! What the main rank writes: the table, the JSON report, and on a terminal the progress.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};

use super::arguments::Options;
use super::failure::Failure;
use super::json::Document;
use super::machine::now;
use super::table::{self, Device, Row};

/// Where reports go.
pub struct Reporter {
    program: String,
    out: Box<dyn Write + Send>,
    json: Option<(PathBuf, File, Document)>,
    progress: ProgressBar,
}

impl Reporter {
    /// A reporter that writes the table to `out`, and the JSON report where the options say.
    ///
    /// A file that exists is never written over: `.0`, `.1` and so on are tried after its name.
    ///
    /// # Errors
    ///
    /// The report's file cannot be made.
    pub fn new(
        program: &str,
        arguments: Vec<String>,
        options: &Options,
        out: Box<dyn Write + Send>,
    ) -> Result<Reporter, Failure> {
        let mut reporter = Reporter { program: program.to_string(), out, json: None, progress: ProgressBar::hidden() };
        if let Some(path) = &options.output {
            let (path, file) = create(path)
                .map_err(|error| Failure::Usage(format!("-J: cannot write a report to {}: {error}", path.display())))?;
            reporter.print(&format!("# Writing JSON output to {}\n", path.display()))?;
            reporter.json = Some((path, file, Document::begin(now(), arguments)));
        }
        Ok(reporter)
    }

    /// The banner and the header. `rows` is how many rows will come, as far as it is known.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub fn begin(
        &mut self,
        options: &Options,
        devices: &[Device],
        asked_max: u64,
        rows: Option<u64>,
    ) -> Result<(), Failure> {
        let asked = Options { max_bytes: asked_max, ..options.clone() };
        let mut text = table::banner(&self.program, &asked);
        devices.iter().for_each(|device| text.push_str(&table::device(device)));
        if options.max_bytes < asked_max {
            text.push_str(&format!("#\n# Reducing maxBytes to {} due to memory limitation\n", options.max_bytes));
        }
        text.push_str(&table::header(options));
        if let Some((_, _, document)) = &mut self.json {
            document.configure(&asked, devices);
        }
        self.print(&text)?;
        self.progress = progress(rows);
        Ok(())
    }

    /// What is under way.
    pub fn doing(&self, what: String) {
        self.progress.set_message(what);
    }

    /// A line of the table.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub fn row(&mut self, row: &Row, options: &Options) -> Result<(), Failure> {
        self.progress.inc(1);
        if let Some((_, _, document)) = &mut self.json {
            document.add(row, options);
        }
        self.print(&table::row(row, options.per_iteration))
    }

    /// A line of its own.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub fn note(&mut self, line: &str) -> Result<(), Failure> {
        self.print(&format!("{line}\n"))
    }

    /// The lines below the table.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub fn conclude(&mut self, out_of_bounds: u64, bandwidth: f64, enough: Option<bool>) -> Result<(), Failure> {
        if let Some((_, _, document)) = &mut self.json {
            document.conclude(out_of_bounds, bandwidth, enough);
        }
        self.print(&table::footer(&self.program, out_of_bounds, bandwidth, enough))
    }

    /// Ends the reports, with the error that ended the run, if one did.
    ///
    /// # Errors
    ///
    /// The JSON report cannot be written.
    pub fn end(mut self, failure: Option<&Failure>) -> Result<(), Failure> {
        self.progress.finish_and_clear();
        let Some((path, file, mut document)) = self.json.take() else { return Ok(()) };
        document.end(failure.map(ToString::to_string), now());
        let mut file = io::BufWriter::new(file);
        serde_json::to_writer(&mut file, &document)
            .map_err(io::Error::from)
            .and_then(|()| file.flush())
            .map_err(|error| Failure::Internal(format!("cannot write the report to {}: {error}", path.display())))
    }

    fn print(&mut self, text: &str) -> Result<(), Failure> {
        let out = &mut self.out;
        self.progress
            .suspend(|| out.write_all(text.as_bytes()).and_then(|()| out.flush()))
            .map_err(|error| Failure::Internal(format!("cannot write the table: {error}")))
    }
}

fn create(path: &Path) -> io::Result<(PathBuf, File)> {
    let names = (0..).map(|number| PathBuf::from(format!("{}.{number}", path.display())));
    for name in std::iter::once(path.to_path_buf()).chain(names) {
        match File::create_new(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => return Ok((name, file)),
        }
    }
    unreachable!("the names never end")
}

/// A bar on standard error; nothing where that is no terminal.
fn progress(rows: Option<u64>) -> ProgressBar {
    let style = |template: &str| ProgressStyle::with_template(template).expect("a valid template");
    match rows {
        Some(rows) => ProgressBar::new(rows).with_style(style("{bar:30} {pos}/{len} {msg} {eta}")),
        None => ProgressBar::new_spinner().with_style(style("{spinner} {pos} {msg}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        let made: Vec<PathBuf> = (0..3).map(|_| create(&path).unwrap().0).collect();
        let names = ["r.json", "r.json.0", "r.json.1"].map(|name| folder.path().join(name));
        assert_eq!(made, names);
        assert!(create(&folder.path().join("none/r.json")).is_err());
    }
}
