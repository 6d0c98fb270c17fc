//! What `paceline launch` is told.

use std::ffi::OsString;
use std::time::Duration;

use super::hosts::{Hosts, RANKS_MAX};

/// The fewest bytes of a token.
pub const TOKEN_LEAST: usize = 8;

/// Start the ranks of a job on this host, or print how to start them on several
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// How many ranks
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    pub n: Option<usize>,
    /// Hosts with how many ranks each, such as a:2,b:2; prints how to start there, and starts nothing
    #[arg(long, value_name = "HOST:N,...")]
    pub hosts: Option<Hosts>,
    /// Seconds after which the job is ended
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Seconds from SIGTERM to SIGKILL
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "5")]
    pub grace: Duration,
    /// Pass output on as it is, not line by line behind the rank's number
    #[arg(long)]
    pub no_prefix: bool,
    /// The secret that the ranks prove to know, at least 8 bytes; by default a random one
    #[arg(long, value_name = "SECRET", env = "PACELINE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// With --hosts: the port where the ranks meet, on the first host
    #[arg(long, value_name = "PORT", default_value_t = 29400)]
    pub port: u16,
    /// The command that each rank runs
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl Arguments {
    /// How many ranks there are to be.
    ///
    /// # Errors
    ///
    /// None or too many are asked for, or two answers that differ; a token too short.
    pub fn ranks(&self) -> Result<usize, String> {
        if self.token.as_ref().is_some_and(|token| token.len() < TOKEN_LEAST) {
            return Err(format!("--token: a secret has at least {TOKEN_LEAST} bytes"));
        }
        match (self.n, &self.hosts) {
            (None, None) => Err("say how many ranks: -n N".to_string()),
            (Some(n), Some(hosts)) if n != hosts.ranks() => {
                Err(format!("-n asks for {n} ranks and --hosts for {}", hosts.ranks()))
            }
            (_, Some(hosts)) => Ok(hosts.ranks()),
            (Some(n), None) if (1..=RANKS_MAX).contains(&n) => Ok(n),
            (Some(n), None) => Err(format!("-n {n}: a host takes 1 to {RANKS_MAX} ranks")),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    Duration::try_from_secs_f64(value).map_err(|_| "not a length of time".to_string())
}
