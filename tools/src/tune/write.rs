//! How a profile gets into its file: whole, or not at all.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use paceline_comm::Profile;

/// Writes `newer` over what the file holds of the same, and keeps the rest; what there is to say about it, in lines.
///
/// # Errors
///
/// The file can't be written; then it is as it was.
pub fn merge_into(path: &Path, newer: Profile) -> Result<String, String> {
    let said = |error: std::io::Error| format!("writing {}: {error}", path.display());
    let mut notes = String::new();
    let merged = match std::fs::read_to_string(path) {
        Ok(text) => match Profile::parse(&text) {
            Ok(old) if old.host.processor == newer.host.processor => old.merged(newer),
            Ok(old) => {
                notes = format!(
                    "what {} held is replaced: it is of another processor, {}\n",
                    path.display(),
                    old.host.processor
                );
                newer
            }
            Err(error) => {
                notes = format!("what {} held is replaced: {error}\n", path.display());
                newer
            }
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => newer,
        Err(error) => return Err(said(error)),
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(said)?;
    // Others who run jobs on the host may read it, as far as their masks allow.
    let mut file =
        tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(folder).map_err(said)?;
    file.write_all(merged.text().as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(said)?;
    file.persist(path).map_err(|error| said(error.error))?;
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_comm::{Circumstances, Crossover, MeasuredChoices, ProfileHost};

    fn profile(processor: &str, ranks: usize, row: &str) -> Profile {
        let host = ProfileHost { name: "here".to_owned(), processor: processor.to_owned(), cores: 2 };
        let among = Circumstances { link: "shm".to_owned(), ranks, crowding: 1, hosts: Vec::new() };
        let from = vec![Crossover { bytes: 0, row: row.to_owned() }];
        let choices = vec![MeasuredChoices { among, collective: "all_reduce".to_owned(), from }];
        Profile { choices, ..Profile::new(host) }
    }

    #[test]
    fn files_are_merged_or_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("profile.json");
        let read = || Profile::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(merge_into(&path, profile("a", 2, "ring")).unwrap(), "");
        assert_eq!(merge_into(&path, profile("a", 4, "ring")).unwrap(), "");
        assert_eq!(merge_into(&path, profile("a", 2, "direct")).unwrap(), "");
        let rows: Vec<_> = read().choices.iter().map(|c| (c.among.ranks, c.from[0].row.clone())).collect();
        assert_eq!(rows, [(2, "direct".to_owned()), (4, "ring".to_owned())]);
        assert!(merge_into(&path, profile("b", 2, "ring")).unwrap().contains("another processor, a"));
        assert_eq!(read().choices.len(), 1);
        std::fs::write(&path, "{").unwrap();
        assert!(merge_into(&path, profile("b", 2, "ring")).unwrap().contains("not a profile"));
        assert_eq!(read(), profile("b", 2, "ring"));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
