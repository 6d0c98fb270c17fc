//! Runs a command on a machine whose CUDA driver is the one in software: `simulated COMMAND...`.
//!
//! How many devices it has and what they can do is what the environment says (`driver/README.md`).

use std::process::ExitCode;

use paceline_cuda_sim::Simulated;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("simulated: which command? simulated COMMAND...");
        return ExitCode::from(2);
    };
    let simulated = match Simulated::here() {
        Ok(simulated) => simulated,
        Err(reason) => {
            eprintln!("simulated: there can be no software driver: {reason}");
            return ExitCode::FAILURE;
        }
    };
    match simulated.command(&program).args(words).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("simulated: {} can't be started: {error}", program.display());
            ExitCode::FAILURE
        }
    }
}
