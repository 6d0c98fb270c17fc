//! A room of one's own: empty /tmp and /dev/shm that only the jobs of one test see.

use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use super::{sys, tools};

/// The calling thread's own /tmp and /dev/shm, empty at first. Processes that the thread starts share them, others don't.
#[derive(Debug)]
pub struct Room {
    /// The places that are the room's own.
    places: Vec<&'static str>,
}

const PLACES: [&str; 2] = ["/tmp", "/dev/shm"];

impl Room {
    /// Moves the thread into a room, if the process may do that; otherwise says so.
    ///
    /// # Panics
    ///
    /// If root can't.
    #[must_use]
    pub fn enter() -> Room {
        if !tools::is_root("looking for what is left in /tmp and /dev/shm") {
            return Room { places: Vec::new() };
        }
        let program = std::env::current_exe().expect("this program has a path");
        let (places, taken): (Vec<_>, Vec<_>) = PLACES.into_iter().partition(|place| !program.starts_with(place));
        for place in taken {
            println!("skipped: what is left in {place}, because the tests themselves lie there");
        }
        sys::own_mounts().expect("root may have mounts of its own");
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).expect("root may keep its mounts to itself");
        for place in &places {
            mount("tmpfs", *place, "tmpfs", MountFlags::empty(), None).expect("root may mount a tmpfs");
        }
        Room { places }
    }

    /// What lies in /tmp and /dev/shm.
    ///
    /// # Panics
    ///
    /// If they can't be read.
    #[must_use]
    pub fn contents(&self) -> Vec<String> {
        let list = |place: &&'static str| {
            let entries = std::fs::read_dir(Path::new(place)).expect("it was mounted");
            entries.map(|entry| entry.expect("it was mounted").path().display().to_string()).collect::<Vec<_>>()
        };
        self.places.iter().flat_map(list).collect()
    }
}
