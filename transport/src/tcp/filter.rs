//! Which interfaces a user wants: NCCL's syntax, so that what people have in their job scripts works here.
//!
//! | filter | means |
//! |---|---|
//! | `eth,ib` | names that begin with `eth` or `ib` |
//! | `=eth0,ib0` | these names exactly |
//! | `^docker,lo` | all but names that begin with `docker` or `lo` |
//! | `^=docker0` | all but this name |
//! | empty | all |

#![forbid(unsafe_code)]

use std::str::FromStr;

/// A condition on interface names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    is_negated: bool,
    names: Vec<Name>,
    text: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Name {
    Exact(String),
    Prefix(String),
}

/// Why a text isn't a filter.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "interface filter {text:?}: {reason}; write `eth,ib` (prefixes), `=eth0` (exact names) or `^docker,lo` (all but these)"
)]
pub struct FilterError {
    text: String,
    reason: &'static str,
}

impl Filter {
    /// Whether the user wants an interface of this name.
    #[must_use]
    pub fn matches(&self, interface: &str) -> bool {
        let is_named = self.names.iter().any(|name| match name {
            Name::Exact(name) => interface == name,
            Name::Prefix(prefix) => interface.starts_with(prefix.as_str()),
        });
        self.names.is_empty() || is_named != self.is_negated
    }

    /// Whether the filter says which interfaces to take, and not only which not to take.
    #[must_use]
    pub fn names_some(&self) -> bool {
        !self.names.is_empty() && !self.is_negated
    }

    /// The filter as the user wrote it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    /// Blanks around names and empty names are ignored. `^` and `=` count for the whole list, and may be repeated in
    /// front of each name.
    fn from_str(text: &str) -> Result<Filter, FilterError> {
        let error = |reason| FilterError { text: text.to_owned(), reason };
        let list = text.trim();
        let is_negated = list.starts_with('^');
        let is_exact = list.trim_start_matches('^').trim_start().starts_with('=');
        let mut names = Vec::new();
        for item in list.split(',').map(str::trim) {
            let name = item.strip_prefix('^').unwrap_or(item).trim_start();
            if item.starts_with('^') && !is_negated {
                return Err(error("`^` must stand in front of the first name and then excludes all of them"));
            }
            if name.starts_with('=') && !is_exact {
                return Err(error("`=` must stand in front of the first name and then holds for all of them"));
            }
            let name = name.strip_prefix('=').unwrap_or(name).trim();
            if name.contains(['^', '=', '/']) || name.contains(char::is_whitespace) {
                return Err(error("no interface has such a name"));
            }
            match name {
                "" => {}
                name if is_exact => names.push(Name::Exact(name.to_owned())),
                name => names.push(Name::Prefix(name.to_owned())),
            }
        }
        if names.is_empty() && !list.is_empty() {
            return Err(error("it names no interface"));
        }
        Ok(Filter { is_negated, names, text: list.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_in_nccl() {
        let names = ["lo", "eth0", "eth1", "eth10", "ib0", "docker0", "br-1a2b"];
        let rows: &[(&str, &[&str])] = &[
            ("", &names),
            ("  ", &names),
            ("eth", &["eth0", "eth1", "eth10"]),
            ("eth1", &["eth1", "eth10"]),
            ("=eth1", &["eth1"]),
            ("=eth1,ib", &["eth1"]),
            ("=eth1,=ib0", &["eth1", "ib0"]),
            ("eth0, ib ,", &["eth0", "ib0"]),
            ("^docker,lo", &["eth0", "eth1", "eth10", "ib0", "br-1a2b"]),
            ("^docker,^lo,^br", &["eth0", "eth1", "eth10", "ib0"]),
            ("^=eth1", &["lo", "eth0", "eth10", "ib0", "docker0", "br-1a2b"]),
            ("wlan", &[]),
        ];
        for (text, want) in rows {
            let filter: Filter = text.parse().unwrap();
            let got: Vec<_> = names.into_iter().filter(|name| filter.matches(name)).collect();
            assert_eq!(&got, want, "{text:?}");
        }
        assert!(Filter::default().matches("eth0"));
    }

    #[test]
    fn wrong_filters_say_why() {
        let rows = [
            ("^", "it names no interface"),
            ("=,", "it names no interface"),
            (",", "it names no interface"),
            ("eth,^lo", "`^` must stand"),
            ("eth0,=ib0", "`=` must stand"),
            ("eth0 ib0", "no interface has such a name"),
            ("=^eth0", "no interface has such a name"),
        ];
        for (text, want) in rows {
            let error = text.parse::<Filter>().unwrap_err().to_string();
            assert!(error.contains(want) && error.contains(&format!("{text:?}")), "{text:?}: {error}");
        }
    }
}
