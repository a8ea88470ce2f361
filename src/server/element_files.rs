//! The files that elements of other versions load later.
//!
//! A page of another origin may run an element of an earlier version: browsers keep its first file
//! for some time, and a page may be open while the server is upgraded. Such an element asks for
//! further files of its own version, and the program has only those of its own. So each version
//! leaves its files in the data folder:
//! ```text
//! elements/<version>-<hash of the bytes>-<name, with + for each slash>
//! ```
//! Nothing else depends on this folder: without a file, an element does without its tooltip or its
//! stream until the page is loaded again. So nothing is synced, and damaged files are removed.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::kv::ops;
use crate::ui::{ElementFile, element_files};

/// The folder below the data folder.
pub(super) const FOLDER: &str = "elements";
/// The most files of one path that are kept, in addition to that of this program.
const VERSIONS_MAX: usize = 4;
/// The most files of all paths that are kept.
const FILES_MAX: usize = 64;
/// The most bytes of a file. The largest one has about a tenth of it.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The end of the name of a file that is being written.
const UNFINISHED: &str = ".new";

/// Returns the files of other versions in `dir`. Those of the versions that were started least
/// recently are removed if there are too many.
///
/// # Errors
/// Those of the file system.
pub(super) fn others(dir: &Path) -> io::Result<Vec<ElementFile>> {
    let own: Vec<String> = element_files().map(|file| file_name(&file)).collect();
    let (mut others, mut counts) = (Vec::new(), HashMap::<String, usize>::new());
    for name in names(dir)?.into_iter().filter(|name| !own.contains(name)) {
        let file = read(dir, &name)?.filter(|file| {
            let count = counts.entry(file.path.clone()).or_default();
            *count += 1;
            *count <= VERSIONS_MAX && others.len() < FILES_MAX
        });
        match file {
            Some(file) => others.push(file),
            None => ops::remove_file(&dir.join(name))?,
        }
    }
    Ok(others)
}

/// Stores the files of this program in `dir`, also those that are there: their times tell when this
/// version was started last.
///
/// # Errors
/// Those of the file system.
pub(super) fn store(dir: &Path) -> io::Result<()> {
    match ops::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        created => created?,
    }
    for file in element_files() {
        let name = file_name(&file);
        let unfinished = dir.join(format!("{name}{UNFINISHED}"));
        ops::write_at(&ops::create(&unfinished)?, &unfinished, &file.bytes, 0)?;
        ops::rename(&unfinished, &dir.join(name))?;
    }
    Ok(())
}

/// Returns the names of the files in a folder, those that were written last first. A folder that
/// does not exist has none.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut found: Vec<(SystemTime, String)> = Vec::new();
    if !dir.exists() {
        return Ok(Vec::new());
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (data, name) = (entry.metadata()?, entry.file_name());
        // Folders, links, and names that are not UTF-8 stay.
        if let (true, Ok(name)) = (data.is_file(), name.into_string()) {
            found.push((data.modified()?, name));
        }
    }
    found.sort_unstable_by(|one, other| other.cmp(one));
    Ok(found.into_iter().map(|(_, name)| name).collect())
}

fn file_name(file: &ElementFile) -> String {
    let name = file.path.trim_start_matches('/').replace('/', "+");
    format!("{}-{:016x}-{name}", file.version, file.hash())
}

/// Reads a file. Returns `None` if its name or its bytes are not those that a server wrote.
fn read(dir: &Path, name: &str) -> io::Result<Option<ElementFile>> {
    let mut parts = name.splitn(3, '-');
    let [Some(version), Some(_), Some(rest)] = [parts.next(), parts.next(), parts.next()] else {
        return Ok(None);
    };
    let path = dir.join(name);
    if fs::metadata(&path)?.len() > FILE_BYTES_MAX {
        return Ok(None);
    }
    let bytes = fs::read(&path)?;
    let file =
        ElementFile { path: format!("/{}", rest.replace('+', "/")), version: version.to_owned(), bytes };
    Ok(Some(file).filter(|file| file_name(file) == name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn element(path: &str, version: &str, text: &str) -> ElementFile {
        let bytes = text.as_bytes().to_vec();
        ElementFile { path: path.to_owned(), version: version.to_owned(), bytes }
    }

    /// Writes a file as the version of `file` does, so many seconds after 1970.
    fn leave(dir: &Path, file: &ElementFile, at: u64) {
        fs::create_dir_all(dir).expect("a folder");
        let path = dir.join(file_name(file));
        fs::write(&path, &file.bytes).expect("a file");
        let written = fs::File::options().write(true).open(path).expect("the file");
        written.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(at)).expect("a time");
    }

    #[test]
    fn an_upgrade_finds_the_files_of_the_version_before_and_leaves_its_own() {
        let home = tempfile::tempdir().expect("a folder");
        let dir = home.path().join(FOLDER);
        assert_eq!(others(&dir).expect("no folder"), []);
        store(&dir).expect("a folder");
        let own: Vec<String> = element_files().map(|file| file_name(&file)).collect();
        let mut stored = names(&dir).expect("a folder");
        stored.sort();
        assert!(own.len() > 5 && own.iter().all(|name| stored.contains(name)), "{stored:?}");
        assert_eq!(stored.len(), own.len());
        let before = element("/chart/later.js", "0a1b2c3d", "export const v0a1b2c3d=1;");
        leave(&dir, &before, 1);
        for file in element_files() {
            leave(&dir, &file, 0);
        }
        for _ in 0..2 {
            assert_eq!(others(&dir).expect("the folder"), std::slice::from_ref(&before));
            store(&dir).expect("the folder");
        }
        assert!(names(&dir).expect("the folder").ends_with(&[file_name(&before)]), "a start is noted");
        // The version before, which is started again, finds the others.
        for file in element_files() {
            assert_eq!(read(&dir, &file_name(&file)).expect("a file"), Some(file));
        }
    }

    #[test]
    fn the_oldest_versions_and_damaged_files_are_removed() {
        let home = tempfile::tempdir().expect("a folder");
        let dir = home.path().join(FOLDER);
        let versions: Vec<ElementFile> = (0..9)
            .map(|at| element("/chart/later.js", &format!("{at:08x}"), &format!("text {at}")))
            .collect();
        for (at, file) in (1..).zip(&versions) {
            leave(&dir, file, at);
        }
        let damaged = element("/chart/cursor.js", "00000001", "whole");
        leave(&dir, &damaged, 1);
        fs::write(dir.join(file_name(&damaged)), "who").expect("a file");
        for other in ["x", "a-b-c", "00000001-0000000000000000-embed.js.new"] {
            fs::write(dir.join(other), "text").expect("a file");
        }
        let newest: Vec<ElementFile> = versions.iter().rev().take(VERSIONS_MAX).cloned().collect();
        assert_eq!(others(&dir).expect("the folder"), newest);
        assert_eq!(names(&dir).expect("the folder").len(), VERSIONS_MAX);
    }
}
