//! The one thing that a process can only be told between fork and exec: to die with its parent.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Makes the processes that `command` starts get SIGKILL when the thread that starts them ends, however it does.
pub fn die_with_parent(command: &mut Command) {
    let launcher = getpid();
    let before_exec = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The launcher may have died before the request was made.
        if getppid() == Some(launcher) { Ok(()) } else { Err(io::Error::from(rustix::io::Errno::SRCH)) }
    };
    // SAFETY: between fork and exec the closure makes two system calls; it takes no lock and no memory. The error that it
    // may return is a number.
    unsafe { command.pre_exec(before_exec) };
}
