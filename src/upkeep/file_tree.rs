//! File operations on a folder and its subfolders: list, link, copy, hash and sync. Every error
//! names the path.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::kv::ops;
use crate::kv::zeros::are_zeros;

/// The maximal number of files in a folder. A data folder with more segments, log files and exports
/// is not plausible.
const FILES_MAX: usize = 1_000_000;
/// The maximal depth of folders: `segments/<org>/`, and one more as a reserve.
const DEPTH_MAX: usize = 4;
const BLOCK_BYTES: usize = 256 << 10;

/// A failed operation and its path.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The operating system refused an operation.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The operation.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A folder that must be new is not empty.
    #[error("{} is not empty: name a folder that does not exist yet", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// There are more files or deeper folders than a data folder can have.
    #[error("{} holds more files or folders than a data folder can", path.display())]
    TooMany {
        /// The folder.
        path: PathBuf,
    },
}

pub(super) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TreeError {
    let path = path.to_owned();
    move |source| TreeError::File { action, path, source }
}

/// Returns the files below `dir` with paths relative to it and lengths in bytes, sorted by path.
/// Symbolic links and sockets are neither followed nor listed.
pub(super) fn files(dir: &Path) -> Result<Vec<(PathBuf, u64)>, TreeError> {
    let mut found = Vec::new();
    below(dir, Path::new(""), 0, &mut found)?;
    found.sort_unstable();
    Ok(found)
}

fn below(root: &Path, sub: &Path, depth: usize, found: &mut Vec<(PathBuf, u64)>) -> Result<(), TreeError> {
    let dir = root.join(sub);
    let too_many = || TreeError::TooMany { path: root.to_owned() };
    if depth > DEPTH_MAX {
        return Err(too_many());
    }
    for entry in fs::read_dir(&dir).map_err(at("list", &dir))? {
        let entry = entry.map_err(at("list", &dir))?;
        let path = sub.join(entry.file_name());
        let kind = entry.file_type().map_err(at("look at", &entry.path()))?;
        if kind.is_dir() {
            below(root, &path, depth + 1, found)?;
        } else if kind.is_file() {
            if found.len() >= FILES_MAX {
                return Err(too_many());
            }
            let length = entry.metadata().map_err(at("look at", &entry.path()))?.len();
            found.push((path, length));
        }
    }
    Ok(())
}

/// Returns whether a relative path stays inside a folder.
pub(super) fn is_inside(path: &Path) -> bool {
    path.components().count() > 0 && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Creates a folder (0700), which must not exist or must be empty. Its parent must exist.
pub(super) fn create_empty(dir: &Path) -> Result<(), TreeError> {
    match ops::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let mut names = fs::read_dir(dir).map_err(at("list", dir))?;
            let only_lost_and_found = names.all(|entry| entry.is_ok_and(|e| e.file_name() == "lost+found"));
            if only_lost_and_found { Ok(()) } else { Err(TreeError::NotEmpty { path: dir.to_owned() }) }
        }
        other => other.map_err(at("create folder", dir)),
    }
}

/// Creates the folders (0700) above the file `path` in `dir`.
pub(super) fn create_parents(dir: &Path, path: &Path) -> Result<(), TreeError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let mut folder = dir.to_owned();
    for part in parent.components() {
        folder.push(part);
        match ops::create_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(at("create folder", &folder))?,
        }
    }
    Ok(())
}

/// Syncs `dir`, its parent, and all folders above `files`, so that all names are durable.
pub(super) fn sync_dirs(dir: &Path, files: impl Iterator<Item = PathBuf>) -> Result<(), TreeError> {
    let mut dirs = std::collections::BTreeSet::from([dir.to_owned()]);
    for file in files {
        let mut folder = dir.to_owned();
        for part in file.parent().into_iter().flat_map(Path::components) {
            folder.push(part);
            dirs.insert(folder.clone());
        }
    }
    let absolute = std::path::absolute(dir).map_err(at("find", dir))?;
    dirs.extend(absolute.parent().map(Path::to_owned));
    for dir in dirs {
        ops::sync_dir(&dir).map_err(at("sync", &dir))?;
    }
    Ok(())
}

/// Syncs a file.
pub(super) fn sync(path: &Path) -> Result<(), TreeError> {
    File::open(path).and_then(|file| ops::sync_all(&file, path)).map_err(at("sync", path))
}

/// Returns the SHA-256 of a file in hexadecimal. `each` receives the bytes of each block that was
/// read.
pub(super) fn hash(path: &Path, mut each: impl FnMut(u64)) -> Result<String, TreeError> {
    let mut file = File::open(path).map_err(at("open", path))?;
    let mut digest = Sha256::new();
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match file.read(&mut block).map_err(at("read", path))? {
            0 => return Ok(data_encoding::HEXLOWER.encode(&digest.finalize())),
            n => {
                digest.update(block.get(..n).unwrap_or_default());
                each(n as u64);
            }
        }
    }
}

/// Links a file to `to`, or copies it if the file system has no hard links. The file must not be
/// written to any more.
pub(super) fn link_or_copy(from: &Path, to: &Path) -> Result<(), TreeError> {
    if ops::link(from, to).is_ok() {
        return Ok(());
    }
    copy(from, to, |_| ())
}

/// Copies a file (0600) with its holes, and syncs it.
pub(super) fn copy(from: &Path, to: &Path, mut each: impl FnMut(u64)) -> Result<(), TreeError> {
    let mut source = File::open(from).map_err(at("open", from))?;
    let length = source.metadata().map_err(at("look at", from))?.size();
    let target = ops::create_new(to).map_err(at("create", to))?;
    let mut block = vec![0; BLOCK_BYTES];
    let (mut offset, mut is_hole) = (0, false);
    loop {
        let n = source.read(&mut block).map_err(at("read", from))?;
        let Some(bytes) = block.get(..n).filter(|bytes| !bytes.is_empty()) else { break };
        // Log files are preallocated with zeros, which need no blocks until they are written.
        is_hole = are_zeros(bytes);
        if !is_hole {
            ops::write_at(&target, to, bytes, offset).map_err(at("write", to))?;
        }
        offset += n as u64;
        each(n as u64);
    }
    if is_hole {
        ops::set_len(&target, to, length).map_err(at("write", to))?;
    }
    ops::sync_all(&target, to).map_err(at("sync", to))
}

/// Copies a small file atomically: the target is complete or absent.
pub(super) fn copy_atomically(from: &Path, to: &Path) -> Result<(), TreeError> {
    let bytes = fs::read(from).map_err(at("read", from))?;
    write_atomically(to, &bytes)
}

/// Writes a small file atomically: it is complete or absent.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), TreeError> {
    let new = path.with_extension("new");
    let file = ops::create(&new).map_err(at("create", &new))?;
    ops::write_at(&file, &new, bytes, 0).map_err(at("write", &new))?;
    ops::sync_all(&file, &new).map_err(at("write", &new))?;
    ops::rename(&new, path).map_err(at("rename", &new))?;
    let parent = path.parent().unwrap_or(Path::new("."));
    ops::sync_dir(parent).map_err(at("sync", parent))
}
