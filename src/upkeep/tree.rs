//! Files of a folder and its subfolders: listed, linked or copied, hashed, made durable; the path in every error.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

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
    match DirBuilder::new().mode(0o700).create(dir) {
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
        match DirBuilder::new().mode(0o700).create(&way) {
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
        File::open(&dir).and_then(|d| d.sync_all()).map_err(at("sync", &dir))?;
    }
    Ok(())
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
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    copy(from, to, |_| ())
}

/// Copies a file (0600), holes kept, and makes it durable.
pub(super) fn copy(from: &Path, to: &Path, mut each: impl FnMut(u64)) -> Result<(), TreeError> {
    let mut source = File::open(from).map_err(at("open", from))?;
    let length = source.metadata().map_err(at("look at", from))?.size();
    let mut options = OpenOptions::new();
    let mut target = options.write(true).create_new(true).mode(0o600).open(to).map_err(at("create", to))?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut is_hole = false;
    loop {
        let n = source.read(&mut piece).map_err(at("read", from))?;
        let Some(bytes) = piece.get(..n).filter(|bytes| !bytes.is_empty()) else { break };
        // Log files are zeros to their end: they need no blocks until they are written.
        is_hole = bytes.iter().all(|b| *b == 0);
        let put =
            if is_hole { io::Seek::seek_relative(&mut target, n as i64) } else { target.write_all(bytes) };
        put.map_err(at("write", to))?;
        each(n as u64);
    }
    if is_hole {
        target.set_len(length).map_err(at("write", to))?;
    }
    target.sync_all().map_err(at("sync", to))
}

/// Writes a small file so that it is there whole or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TreeError> {
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&new);
    let mut file = opened.map_err(at("create", &new))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(at("write", &new))?;
    fs::rename(&new, path).map_err(at("rename", &new))?;
    let parent = path.parent().unwrap_or(Path::new("."));
    File::open(parent).and_then(|d| d.sync_all()).map_err(at("sync", parent))
}
