//! Files of a folder and its subfolders: listed, linked or copied, hashed, made durable; the path in every error.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::kv::ops;

/// Files of a folder at most: segments, log files, exports; more is no data folder.
const FILES_MAX: usize = 1_000_000;
/// Folders within folders: `segments/<org>/`, and one more for good measure.
const DEPTH_MAX: usize = 4;
const PIECE_BYTES: usize = 256 << 10;

/// What failed, on which path.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The operating system refused.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The operation.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A folder that must be new holds something.
    #[error("{} is not empty: name a folder that does not exist yet", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// More files or folders within folders than a data folder has.
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

/// The files below `dir`, relative to it, sorted, with their lengths. Links and sockets are not followed nor listed.
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

/// Whether a path leads into a folder and not out of it.
pub(super) fn is_inside(path: &Path) -> bool {
    path.components().count() > 0 && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// A new folder (0700) that does not exist yet or is empty; its parents must exist.
pub(super) fn make_new(dir: &Path) -> Result<(), TreeError> {
    match ops::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let mut names = fs::read_dir(dir).map_err(at("list", dir))?;
            let only_lost_and_found = names.all(|entry| entry.is_ok_and(|e| e.file_name() == "lost+found"));
            if only_lost_and_found { Ok(()) } else { Err(TreeError::NotEmpty { path: dir.to_owned() }) }
        }
        other => other.map_err(at("create folder", dir)),
    }
}

/// Makes the folders (0700) on the way to the file `path` in `dir`.
pub(super) fn make_way(dir: &Path, path: &Path) -> Result<(), TreeError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let mut way = dir.to_owned();
    for part in parent.components() {
        way.push(part);
        match ops::create_dir(&way) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(at("create folder", &way))?,
        }
    }
    Ok(())
}

/// Makes all names below `dir` durable, and its own.
pub(super) fn sync_dirs(dir: &Path, files: impl Iterator<Item = PathBuf>) -> Result<(), TreeError> {
    let mut dirs = std::collections::BTreeSet::from([dir.to_owned()]);
    for file in files {
        let mut way = dir.to_owned();
        for part in file.parent().into_iter().flat_map(Path::components) {
            way.push(part);
            dirs.insert(way.clone());
        }
    }
    let absolute = std::path::absolute(dir).map_err(at("find", dir))?;
    dirs.extend(absolute.parent().map(Path::to_owned));
    for dir in dirs {
        ops::sync_dir(&dir).map_err(at("sync", &dir))?;
    }
    Ok(())
}

/// Makes a file durable.
pub(super) fn sync(path: &Path) -> Result<(), TreeError> {
    File::open(path).and_then(|file| ops::sync_all(&file, path)).map_err(at("sync", path))
}

/// SHA-256 of a file in hex; `each` is told the bytes of each piece.
pub(super) fn hash(path: &Path, mut each: impl FnMut(u64)) -> Result<String, TreeError> {
    let mut file = File::open(path).map_err(at("open", path))?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece).map_err(at("read", path))? {
            0 => return Ok(data_encoding::HEXLOWER.encode(&digest.finalize())),
            n => {
                digest.update(piece.get(..n).unwrap_or_default());
                each(n as u64);
            }
        }
    }
}

/// Puts a file at `to` as a second name for the same bytes, or as a copy where the file system has no such names.
/// For files that nobody writes to any more.
pub(super) fn link_or_copy(from: &Path, to: &Path) -> Result<(), TreeError> {
    if ops::link(from, to).is_ok() {
        return Ok(());
    }
    copy(from, to, |_| ())
}

/// Copies a file (0600), holes kept, and makes it durable.
pub(super) fn copy(from: &Path, to: &Path, mut each: impl FnMut(u64)) -> Result<(), TreeError> {
    let mut source = File::open(from).map_err(at("open", from))?;
    let length = source.metadata().map_err(at("look at", from))?.size();
    let target = ops::create_new(to).map_err(at("create", to))?;
    let mut piece = vec![0; PIECE_BYTES];
    let (mut place, mut is_hole) = (0, false);
    loop {
        let n = source.read(&mut piece).map_err(at("read", from))?;
        let Some(bytes) = piece.get(..n).filter(|bytes| !bytes.is_empty()) else { break };
        // Log files are zeros to their end: they need no blocks until they are written.
        is_hole = bytes.iter().all(|b| *b == 0);
        if !is_hole {
            ops::write_at(&target, to, bytes, place).map_err(at("write", to))?;
        }
        place += n as u64;
        each(n as u64);
    }
    if is_hole {
        ops::set_len(&target, to, length).map_err(at("write", to))?;
    }
    ops::sync_all(&target, to).map_err(at("sync", to))
}

/// Copies a small file so that it is there whole or not at all.
pub(super) fn copy_whole(from: &Path, to: &Path) -> Result<(), TreeError> {
    let bytes = fs::read(from).map_err(at("read", from))?;
    write_whole(to, &bytes)
}

/// Writes a small file so that it is there whole or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TreeError> {
    let new = path.with_extension("new");
    let file = ops::create(&new).map_err(at("create", &new))?;
    ops::write_at(&file, &new, bytes, 0).map_err(at("write", &new))?;
    ops::sync_all(&file, &new).map_err(at("write", &new))?;
    ops::rename(&new, path).map_err(at("rename", &new))?;
    let parent = path.parent().unwrap_or(Path::new("."));
    ops::sync_dir(parent).map_err(at("sync", parent))
}
