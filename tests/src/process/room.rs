//! A room of one's own: empty /tmp and /dev/shm that only the jobs of one test see.

use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use super::{sys, tools};

/// The calling thread's own /tmp and /dev/shm, empty at first. Processes that the thread starts share them, others don't.
#[derive(Debug)]
pub struct Room {
    is_own: bool,
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
            return Room { is_own: false };
        }
        sys::own_mounts().expect("root may have mounts of its own");
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).expect("root may keep its mounts to itself");
        for place in PLACES {
            mount("tmpfs", place, "tmpfs", MountFlags::empty(), None).expect("root may mount a tmpfs");
        }
        Room { is_own: true }
    }

    /// What lies in /tmp and /dev/shm.
    ///
    /// # Panics
    ///
    /// If they can't be read.
    #[must_use]
    pub fn contents(&self) -> Vec<String> {
        if !self.is_own {
            return Vec::new();
        }
        let list = |place: &&str| {
            let entries = std::fs::read_dir(Path::new(place)).expect("it was mounted");
            entries.map(|entry| entry.expect("it was mounted").path().display().to_string()).collect::<Vec<_>>()
        };
        PLACES.iter().flat_map(list).collect()
    }
}
