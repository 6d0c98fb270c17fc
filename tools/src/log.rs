//! What the library logs, on standard error, as `PACELINE_LOG` filters it.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

/// The variable with the filter.
const VARIABLE: &str = "PACELINE_LOG";

/// Begins to log. Warnings and errors, if the variable is not set.
///
/// # Errors
///
/// The variable holds no filter.
pub fn begin() -> Result<(), String> {
    let text = std::env::var(VARIABLE).unwrap_or_else(|_| "warn".to_string());
    let filter = EnvFilter::try_new(&text).map_err(|error| {
        format!("{VARIABLE}={text}: {error}; write a level or a filter such as paceline_comm=debug")
    })?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(stderr().is_terminal()).init();
    Ok(())
}
