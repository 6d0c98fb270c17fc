//! The environment: the one place where variables of the process are read.
//!
//! A snapshot is taken once and passed on, so that nothing depends on when it looks and a test can bring its own.
//! Every variable that anything asks for stands in a table ([`VARIABLES`], [`LAUNCHER_VARIABLES`]); asking for another
//! panics, which keeps `docs/environment.md` complete.

#![forbid(unsafe_code)]

mod table;
mod values;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::time::Duration;

pub use table::{LAUNCHER_VARIABLES, VARIABLES, Variable};

/// A snapshot of environment variables.
///
/// A variable set to nothing but blanks counts as not set.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    pairs: BTreeMap<OsString, OsString>,
}

/// A variable whose value can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{variable}={value}: not understood; allowed: {allowed}")]
pub struct EnvironmentError {
    /// The variable's name.
    pub variable: String,
    /// What it is set to; a secret's value is not shown.
    pub value: String,
    /// What it may be set to, in words.
    pub allowed: String,
}

/// A `PACELINE_*` variable that is set and means nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// The name that is set.
    pub name: String,
    /// The variable that was probably meant.
    pub nearest: Option<&'static str>,
}

impl Environment {
    /// What the process was started with, as of now.
    #[must_use]
    pub fn from_process() -> Environment {
        Environment { pairs: std::env::vars_os().collect() }
    }

    /// The given names and values and nothing else.
    pub fn from_pairs<N, V>(pairs: impl IntoIterator<Item = (N, V)>) -> Environment
    where
        N: Into<OsString>,
        V: Into<OsString>,
    {
        Environment { pairs: pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }

    /// The same with one variable set to `value`.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Environment {
        self.pairs.insert(name.into(), value.into());
        self
    }

    /// The value of `name` without surrounding blanks; `None` where it is not set.
    ///
    /// # Errors
    /// The value is not UTF-8.
    ///
    /// # Panics
    /// `name` stands in no table of this module.
    pub fn text(&self, name: &str) -> Result<Option<&str>, EnvironmentError> {
        assert!(table::is_known(name), "{name} is missing from the tables in environment/table.rs");
        let Some(value) = self.pairs.get(std::ffi::OsStr::new(name)) else { return Ok(None) };
        let text = value.to_str().ok_or_else(|| EnvironmentError {
            variable: name.to_owned(),
            value: value.to_string_lossy().into_owned(),
            allowed: "text in UTF-8".to_owned(),
        })?;
        Ok(Some(text.trim()).filter(|text| !text.is_empty()))
    }

    /// Whether `name` is there at all, be it empty.
    #[must_use]
    pub fn is_present(&self, name: &str) -> bool {
        self.pairs.contains_key(std::ffi::OsStr::new(name))
    }

    /// The value of `name` as `read` understands it.
    ///
    /// # Errors
    /// `read` returned `None`; the error says that `allowed` is allowed.
    pub fn parsed<T>(
        &self,
        name: &str,
        allowed: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, EnvironmentError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match read(text) {
            Some(value) => Ok(Some(value)),
            None => Err(EnvironmentError {
                variable: name.to_owned(),
                value: if name == "PACELINE_TOKEN" { "(not shown)".to_owned() } else { text.to_owned() },
                allowed: allowed.to_owned(),
            }),
        }
    }

    /// The value of `name` as a whole number within `range`.
    ///
    /// # Errors
    /// It is something else.
    pub fn count(&self, name: &str, range: RangeInclusive<usize>) -> Result<Option<usize>, EnvironmentError> {
        let allowed = format!("a whole number, {} to {}", range.start(), range.end());
        self.parsed(name, &allowed, |text| text.parse().ok().filter(|number| range.contains(number)))
    }

    /// The value of `name` as a length of time: `30`, `30s`, `500ms`, `2m`, `1.5h`; more than zero, at most a week.
    ///
    /// # Errors
    /// It is something else.
    pub fn duration(&self, name: &str) -> Result<Option<Duration>, EnvironmentError> {
        self.parsed(name, "seconds, or a number with ms, s, m or h; more than 0 and at most 168h", values::duration)
    }

    /// The value of `name` as a port range: `29500-29599` or `29500`.
    ///
    /// # Errors
    /// It is something else.
    pub fn ports(&self, name: &str) -> Result<Option<RangeInclusive<u16>>, EnvironmentError> {
        self.parsed(name, "a port or a range lo-hi, 1 <= lo <= hi <= 65535", values::ports)
    }

    /// The value of `name` as one of the given words, upper or lower case.
    ///
    /// # Errors
    /// It is something else.
    pub fn one_of<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Option<T>, EnvironmentError> {
        let allowed = format!("one of {}", values::names(words));
        self.parsed(name, &allowed, |text| values::word(text, words))
    }

    /// The value of `name` as a list of the given words with commas between, in the order written, none twice.
    ///
    /// # Errors
    /// It is something else.
    pub fn list_of<T: Copy + PartialEq>(
        &self,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<Option<Vec<T>>, EnvironmentError> {
        let allowed = format!("a list, with commas, of {}, none twice", values::names(words));
        self.parsed(name, &allowed, |text| values::list(text, words))
    }

    /// The `PACELINE_*` variables that are set and mean nothing, each with the name that comes nearest.
    ///
    /// Names that begin with `PACELINE_TEST_` are left to tests.
    #[must_use]
    pub fn unknown(&self) -> Vec<Unknown> {
        let names = self.pairs.keys().map(|name| name.to_string_lossy().into_owned());
        let strays = names.filter(|name| name.starts_with("PACELINE_") && !name.starts_with("PACELINE_TEST_"));
        strays
            .filter(|name| !table::is_known(name))
            .map(|name| Unknown { nearest: values::nearest(&name, VARIABLES.iter().map(|row| row.name)), name })
            .collect()
    }

    /// Logs a warning for each of [`unknown`](Environment::unknown).
    pub fn warn_of_unknown(&self) {
        for Unknown { name, nearest } in self.unknown() {
            match nearest {
                Some(nearest) => tracing::warn!("{name} is set but means nothing; did you mean {nearest}?"),
                None => tracing::warn!("{name} is set but means nothing"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
