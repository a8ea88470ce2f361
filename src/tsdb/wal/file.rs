//! Log files, `wal/<number>.wal`. A file has its full length and all of its blocks before the first
//! record, so an append never meets a full disk. The bytes after the last record read as zeros.
//!
//! The blocks are filled with zeros or only allocated (`Disk::allocates_log_file`). Zeros cost as
//! many bytes as the log itself, and a later sync changes no metadata. Allocated blocks cost
//! nothing, but each sync also commits to the file system's journal that the blocks are now
//! written. A file system without allocation gets zeros.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::record::{FileHeader, Layout, MAGIC_WAL};
use crate::kv::descriptors::is_transient;
use crate::kv::keyed::RecordKey;
use crate::kv::ops;
use crate::model::StoreId;
use crate::tsdb::disk::{self, Disk};
use crate::tsdb::error::{AppendError, DiskError};

/// The size of a file under light load, so that a fresh or idle folder stays small.
pub(in crate::tsdb) const SMALL_BYTES: u32 = 1 << 20;
/// The size of the next file if the current one fills within 10 s.
pub(in crate::tsdb) const LARGE_BYTES: u32 = 16 << 20;

/// An open log file that takes records.
#[derive(Debug)]
pub(in crate::tsdb) struct LogFile {
    pub(in crate::tsdb) file: File,
    pub(in crate::tsdb) path: PathBuf,
    pub(in crate::tsdb) number: u64,
    pub(in crate::tsdb) bytes: u32,
    /// The layout of its records.
    pub(in crate::tsdb) layout: Layout,
}

/// The parameters of a new log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct NewFile {
    /// The file's number.
    pub(in crate::tsdb) number: u64,
    /// The number of the file before it, 0 if none.
    pub(in crate::tsdb) before: u64,
    pub(in crate::tsdb) bytes: u32,
    pub(in crate::tsdb) created_ms: i64,
    /// Created even when space is short, for records that free space.
    pub(in crate::tsdb) urgent: bool,
    /// The secret of its records. It is fresh even if a file number is used again.
    pub(in crate::tsdb) key: RecordKey,
    /// The mean size of a group in the previous file; 0 if unknown.
    pub(in crate::tsdb) group_bytes: u64,
}

/// The free bytes that even an urgent file requires, for the file itself and for account changes.
const URGENT_FLOOR: u64 = 32 << 20;

/// The reason why a log file could not be created.
#[derive(Debug)]
pub(in crate::tsdb) enum MakeError {
    /// Less space is free than the floor of docs/storage.md section 12.
    Full { free: u64, needed: u64 },
    /// The file system refused.
    Disk(DiskError),
}

impl MakeError {
    /// Returns the error for the caller of an append.
    pub(in crate::tsdb) fn refusal(&self) -> AppendError {
        match self {
            MakeError::Full { free, needed } => AppendError::DiskFull { free: *free, needed: *needed },
            MakeError::Disk(e) if self.is_transient() => AppendError::OutOfResources(e.line()),
            MakeError::Disk(e) => AppendError::Fenced(e.line()),
        }
    }

    /// Returns whether a later attempt may succeed: disk space, descriptors or memory were short.
    pub(in crate::tsdb) fn is_transient(&self) -> bool {
        match self {
            MakeError::Full { .. } => true,
            MakeError::Disk(e) => is_transient(&e.source),
        }
    }
}

/// Returns the path of the file with this number.
pub(in crate::tsdb) fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:010}.wal"))
}

/// Parses the number in a file's name.
pub(in crate::tsdb) fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".wal")
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|n| n.parse().ok())
}

/// Creates a log file. Writes the header and zeros (or allocates blocks) under a temporary name,
/// syncs the file, renames it, and syncs the directory.
pub(in crate::tsdb) fn make(
    disk: &Disk,
    dir: &Path,
    store: StoreId,
    new: NewFile,
) -> Result<LogFile, MakeError> {
    let space = disk.space(dir).map_err(MakeError::Disk)?;
    let needed = if new.urgent { URGENT_FLOOR } else { space.samples_floor() };
    if space.free < needed {
        return Err(MakeError::Full { free: space.free, needed });
    }
    let full = |e: DiskError| match e.source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            MakeError::Full { free: space.free, needed }
        }
        _ => MakeError::Disk(e),
    };
    let path = path_of(dir, new.number);
    let fresh = path.with_extension("wal.new");
    let file = disk.create_log(&fresh).map_err(full)?;
    let NewFile { number, before, bytes, created_ms, key, group_bytes, .. } = new;
    let bytes = disk.log_file_bytes(bytes);
    let layout = Layout::Keyed(key);
    let header =
        FileHeader { file_bytes: bytes, store, number, created_ms, before, layout }.encode(MAGIC_WAL);
    let begin = header.len() as u64;
    let fill = || {
        if disk.allocates_log_file(group_bytes) && ops::allocate(&file, &fresh, u64::from(bytes))? {
            return Ok(());
        }
        disk::write_zeros(&file, &fresh, begin, u64::from(bytes).saturating_sub(begin))
    };
    fill()
        .and_then(|()| ops::write_at(&file, &fresh, &header, 0))
        .map_err(DiskError::at("write", &fresh))
        .map_err(full)?;
    disk::sync_file(&file, &fresh).map_err(full)?;
    disk::rename(&fresh, &path).map_err(full)?;
    disk::sync_dir(dir).map_err(full)?;
    Ok(LogFile { file, path, number, bytes, layout })
}
