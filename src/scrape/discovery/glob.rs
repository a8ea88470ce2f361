//! Files whose last path part matches a pattern with `*`, `?` and `[a-z]`, as Go's `filepath.Glob`
//! finds them.

use std::path::{Path, PathBuf};

use crate::model::FileGlob;

/// The most entries of a folder that are compared with a pattern, inclusive.
const ENTRIES_MAX: usize = 100_000;

/// Returns the files that a path names, sorted. Its last part may be a pattern; a folder that does
/// not exist has no files. A path without a pattern is returned whether or not it exists.
///
/// # Errors
/// A sentence, if the folder cannot be read, the pattern is not valid, or more than `files_max`
/// files match.
pub(in crate::scrape) fn matching_files(path: &Path, files_max: usize) -> Result<Vec<PathBuf>, String> {
    let Some(last) = path.file_name().and_then(|name| name.to_str()) else {
        return Err(format!("{} is not the path of a file", path.display()));
    };
    if !last.contains(['*', '?', '[', '\\']) {
        return Ok(vec![path.to_owned()]);
    }
    let pattern = FileGlob::parse(last).ok_or_else(|| format!("{last:?} is not a valid pattern"))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", folder.display())),
    };
    let mut found = Vec::new();
    for entry in entries.take(ENTRIES_MAX) {
        let entry = entry.map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| pattern.matches(name)) {
            found.push(path.with_file_name(name));
        }
        if found.len() > files_max {
            return Err(format!("{} matches more than {files_max} files", path.display()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_part_of_a_path_is_a_pattern() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.json", "a.json", "c.yml"] {
            std::fs::write(folder.path().join(name), "[]").expect("written");
        }
        let found = matching_files(&folder.path().join("*.json"), 10).expect("read");
        assert_eq!(found, [folder.path().join("a.json"), folder.path().join("b.json")]);
        assert_eq!(matching_files(&folder.path().join("x/*.json"), 10), Ok(vec![]));
        assert_eq!(matching_files(&folder.path().join("x.json"), 10), Ok(vec![folder.path().join("x.json")]));
        assert!(matching_files(&folder.path().join("*.json"), 1).is_err());
    }
}
