//! The file operations on which all durability is based: one function each, so that a test can
//! record them and try every state that a power cut could have left (`recording`).
//!
//! An operation that fails for lack of descriptors or memory has had no effect and is retried
//! (`descriptors`). A sync is not retried unless a signal interrupted it: the state after a failed
//! sync is unknown.
//!
//! A file of the data folder that is written without these functions is not covered by such tests.
//! sled's own files are not covered: they are never the only copy of a row.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::descriptors::{retrying, retrying_interrupted};

/// Creates a directory of mode 0700.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    retrying(|| {
        #[cfg(test)]
        recording::fault(dir)?;
        DirBuilder::new().mode(0o700).create(dir)
    })?;
    #[cfg(test)]
    recording::record(|| recording::Op::CreateDir(dir.to_owned()));
    Ok(())
}

/// Creates a file of mode 0600 for reading and writing; an existing one is replaced.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let file = retrying(|| {
        #[cfg(test)]
        recording::fault(path)?;
        OpenOptions::new().write(true).read(true).create(true).truncate(true).mode(0o600).open(path)
    })?;
    #[cfg(test)]
    recording::record(|| recording::Op::Create(path.to_owned()));
    Ok(file)
}

/// Like [`create`], but fails if the file exists.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let file = retrying(|| {
        #[cfg(test)]
        recording::fault(path)?;
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    })?;
    #[cfg(test)]
    recording::record(|| recording::Op::Create(path.to_owned()));
    Ok(file)
}

/// Creates a hard link; the caller syncs the directory.
pub(crate) fn link(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(test)]
    recording::fault(to)?;
    fs::hard_link(from, to)?;
    #[cfg(test)]
    recording::record(|| recording::Op::Link(from.to_owned(), to.to_owned()));
    Ok(())
}

/// Opens an existing file for reading and writing.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    retrying(|| OpenOptions::new().read(true).write(true).open(path))
}

/// Opens an existing file for reading.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    retrying(|| File::open(path))
}

/// Writes all of `bytes` at `offset`.
pub(crate) fn write_at(file: &File, path: &Path, bytes: &[u8], offset: u64) -> io::Result<()> {
    // A retry writes the same bytes at the same offset, so a partial first attempt does no harm.
    retrying(|| {
        #[cfg(test)]
        recording::fault_of_write(path, || file.write_all_at(bytes, offset))?;
        file.write_all_at(bytes, offset)
    })?;
    #[cfg(test)]
    recording::record(|| recording::Op::Write { path: path.to_owned(), offset, bytes: bytes.to_vec() });
    let _ = path;
    Ok(())
}

/// Writes `bytes` zeros at `offset`, one page at a time. Larger writes create large pages in the
/// file cache, and the kernel then counts the whole large page as written for each small write that
/// follows.
pub(crate) fn write_zeros(file: &File, path: &Path, bytes: usize, offset: u64) -> io::Result<()> {
    static PAGE: [u8; 4_096] = [0; 4_096];
    #[cfg(test)]
    recording::fault(path)?;
    let end = offset.saturating_add(bytes as u64);
    let mut at = offset;
    while at < end {
        // Every page but the first begins at a multiple of its size.
        let to = (at / PAGE.len() as u64 + 1).saturating_mul(PAGE.len() as u64).min(end);
        let length = usize::try_from(to - at).unwrap_or(PAGE.len());
        file.write_all_at(PAGE.get(..length).unwrap_or(&PAGE), at)?;
        at = to;
    }
    #[cfg(test)]
    recording::record(|| recording::Op::Write { path: path.to_owned(), offset, bytes: vec![0; bytes] });
    let _ = path;
    Ok(())
}

/// Allocates the blocks of the first `bytes` bytes of a new file, which then read as zeros, and
/// sets its length.
///
/// Returns `false` if the file system does not support it; nothing has changed then.
pub(crate) fn allocate(file: &File, path: &Path, bytes: u64) -> io::Result<bool> {
    #[cfg(test)]
    recording::fault(path)?;
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) => {}
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL) => {
            return Ok(false);
        }
        Err(e) => return Err(e.into()),
    }
    #[cfg(test)]
    recording::record(|| recording::Op::SetLen { path: path.to_owned(), bytes });
    let _ = path;
    Ok(true)
}

/// Truncates or extends a file.
pub(crate) fn set_len(file: &File, path: &Path, bytes: u64) -> io::Result<()> {
    #[cfg(test)]
    recording::fault(path)?;
    file.set_len(bytes)?;
    #[cfg(test)]
    recording::record(|| recording::Op::SetLen { path: path.to_owned(), bytes });
    let _ = path;
    Ok(())
}

/// Calls `sync`, except in unit tests.
///
/// A unit test learns from `recording` which files were synced in which order, and tries the states
/// that a power cut leaves in a model of the disk; it cannot cut the power of the disk below it.
/// The syncs there would only take time, a third of that of the tests. Tests of the binary sync.
pub(crate) fn to_disk(sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    if cfg!(test) { Ok(()) } else { sync() }
}

/// Makes a file's bytes and its length durable.
pub(crate) fn sync_all(file: &File, path: &Path) -> io::Result<()> {
    retrying_interrupted(|| {
        #[cfg(test)]
        recording::fault(path)?;
        to_disk(|| file.sync_all())
    })?;
    #[cfg(test)]
    recording::record(|| recording::Op::Sync(path.to_owned()));
    let _ = path;
    Ok(())
}

/// Makes the bytes of a file durable whose length has not changed.
pub(crate) fn sync_data(file: &File, path: &Path) -> io::Result<()> {
    retrying_interrupted(|| {
        #[cfg(test)]
        recording::fault(path)?;
        to_disk(|| file.sync_data())
    })?;
    #[cfg(test)]
    recording::record(|| recording::Op::Sync(path.to_owned()));
    let _ = path;
    Ok(())
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    let opened = retrying(|| {
        #[cfg(test)]
        recording::fault(dir)?;
        File::open(dir)
    })?;
    retrying_interrupted(|| to_disk(|| opened.sync_all()))?;
    #[cfg(test)]
    recording::record(|| recording::Op::SyncDir(dir.to_owned()));
    Ok(())
}

/// Renames a file or directory; the caller syncs the directory.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(test)]
    recording::fault(from)?;
    fs::rename(from, to)?;
    #[cfg(test)]
    recording::record(|| recording::Op::Rename(from.to_owned(), to.to_owned()));
    Ok(())
}

/// Unlinks a file; the caller syncs the directory.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    recording::fault(path)?;
    fs::remove_file(path)?;
    #[cfg(test)]
    recording::record(|| recording::Op::Remove(path.to_owned()));
    Ok(())
}

/// Unlinks a directory and everything in it; the caller syncs its parent.
pub(crate) fn remove_dir_all(dir: &Path) -> io::Result<()> {
    #[cfg(test)]
    recording::fault(dir)?;
    fs::remove_dir_all(dir)?;
    #[cfg(test)]
    recording::record(|| recording::Op::Remove(dir.to_owned()));
    Ok(())
}

#[cfg(test)]
pub(crate) mod recording;
