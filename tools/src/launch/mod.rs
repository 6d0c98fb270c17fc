//! `paceline launch`: starts the ranks of a job on this host, and ends them together.
//!
//! Each rank is a process in a group of its own, with the variables that say who it is and where the ranks meet. What it
//! prints is passed on line by line behind its number. The first rank that fails ends the job: the others get a moment to
//! report what they saw, then SIGTERM, then SIGKILL. Ranks die with the launcher, however that dies.
//!
//! [`arguments`] says what to start, [`ranks`] starts it, [`output`] passes lines on, [`supervise`] decides when to end,
//! [`outcome`] says how it ended. With hosts nothing is started: [`instructions`] prints how to do it.

pub mod arguments;
pub mod hosts;
pub mod instructions;
pub mod outcome;
pub mod output;
pub mod ranks;
pub mod supervise;
pub mod sys;

use arguments::Arguments;

/// Runs the command. Returns the exit code: that of the rank that failed first (128 and the number for a signal), 0 if
/// none failed, 2 for a command line that means nothing, 124 after a timeout, 126 or 127 if the command cannot be
/// started.
#[must_use]
pub fn main(arguments: &Arguments) -> u8 {
    match start(arguments) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("paceline launch: {why}");
            2
        }
    }
}

fn start(arguments: &Arguments) -> Result<u8, String> {
    let n = arguments.ranks()?;
    if let Some(hosts) = &arguments.hosts {
        print!("{}", instructions::text(hosts, &arguments.command, arguments.port));
        return Ok(0);
    }
    let job = ranks::Job::new(n, arguments)?;
    Ok(supervise::run(&job))
}
