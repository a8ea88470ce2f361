//! File operations of this room: private modes, syncs, and the path in every error.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::ops;

/// A failed file operation and its path.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", path.display())]
pub struct FileError {
    /// The operation: "open", "sync", "rename".
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The error of the operating system.
    pub source: io::Error,
}

impl FileError {
    /// Returns a function for `map_err` that adds the operation and the path.
    pub(super) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
        let path = path.to_owned();
        move |source| FileError { action, path, source }
    }
}

/// Returns whether an operation failed because the disk, its inodes or a quota are used up.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Creates `dir` (mode 0700) unless it exists. Does not create its parents and does not sync: see
/// [`sync_dir`].
pub(super) fn create_dir(dir: &Path) -> Result<(), FileError> {
    match ops::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        other => other.map_err(FileError::at("create directory", dir)),
    }
}

/// Makes the names in `dir` durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), FileError> {
    ops::sync_dir(dir).map_err(FileError::at("sync directory", dir))
}

/// Makes a file's bytes and its length durable.
pub(super) fn sync_file(path: &Path) -> Result<(), FileError> {
    File::open(path).and_then(|f| ops::sync_all(&f, path)).map_err(FileError::at("sync", path))
}

/// Creates a file of mode 0600 for writing; an existing one is replaced.
pub(super) fn create_file(path: &Path) -> Result<File, FileError> {
    ops::create(path).map_err(FileError::at("create", path))
}

/// Writes `bytes` as `dir/name` atomically: after a crash the file has all of them or does not
/// exist. It is written as `name.new`, synced and renamed, and the directory is synced.
pub(super) fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), FileError> {
    let new = dir.join(format!("{name}.new"));
    let file = create_file(&new)?;
    ops::write_at(&file, &new, bytes, 0).map_err(FileError::at("write", &new))?;
    ops::sync_all(&file, &new).map_err(FileError::at("sync", &new))?;
    drop(file);
    rename(&new, &dir.join(name))?;
    sync_dir(dir)
}

/// Renames; the caller syncs the directories.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    ops::rename(from, to).map_err(FileError::at("rename", from))
}

/// Returns the content of a file of at most `bytes_max` bytes, or `None` if the file does not
/// exist.
pub(super) fn read_small(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, FileError> {
    let length = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(FileError::at("look at", path)(e)),
    };
    if length > bytes_max {
        let why = io::Error::new(io::ErrorKind::InvalidData, format!("{length} bytes, {bytes_max} allowed"));
        return Err(FileError::at("read", path)(why));
    }
    fs::read(path).map(Some).map_err(FileError::at("read", path))
}

/// Returns the first `bytes` bytes of a file, or fewer if it is shorter.
pub(super) fn read_start(path: &Path, bytes: usize) -> Result<Vec<u8>, FileError> {
    let mut start = Vec::new();
    let file = File::open(path).map_err(FileError::at("open", path))?;
    file.take(bytes as u64).read_to_end(&mut start).map_err(FileError::at("read", path))?;
    Ok(start)
}

/// Returns the names in a directory, sorted. At most 1 M names are read, to bound the memory.
pub(super) fn names(dir: &Path) -> Result<Vec<String>, FileError> {
    let at = |e| FileError::at("list", dir)(e);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(at)?.take(1_000_000) {
        found.push(
            entry.map_err(|e| FileError::at("list", dir)(e))?.file_name().to_string_lossy().into_owned(),
        );
    }
    found.sort_unstable();
    Ok(found)
}
