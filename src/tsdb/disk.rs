//! The few file operations of this room: private modes, synced, with the path in every error, and the faults that
//! tests put in.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use super::error::DiskError;
use crate::kv::ops;

/// How the file system answers.
#[derive(Clone, Debug, Default)]
pub enum Disk {
    /// As it is.
    #[default]
    Real,
    /// With the faults of a test.
    Faulty(Arc<Faults>),
}

/// Faults that a test turns on while the store runs.
#[derive(Debug)]
pub struct Faults {
    /// So many writes to the log succeed, then each fails; negative: all succeed.
    pub log_writes_left: AtomicI64,
    /// So many syncs of the log succeed, then each fails; negative: all succeed.
    pub log_syncs_left: AtomicI64,
    /// What the file system says is free, in bytes; `u64::MAX` asks the real one.
    pub free_bytes: AtomicU64,
    /// How many inodes the file system says are free; `u64::MAX` asks the real one. Without any no log file is made.
    pub free_inodes: AtomicU64,
    /// Bytes of a log file while little comes; 0: as they are. Records must fit.
    pub log_file_bytes: AtomicU32,
    /// Log files are always allocated rather than filled with zeros, whatever the size of the groups.
    pub allocate_log_files: AtomicBool,
    /// So many steps of seals are done, then a seal stops as if the process had ended; negative: never.
    pub seal_steps_left: AtomicI64,
    /// So many steps of compactions and retention are done, then they stop as if the process had ended; negative: never.
    pub upkeep_steps_left: AtomicI64,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            log_writes_left: AtomicI64::new(-1),
            log_syncs_left: AtomicI64::new(-1),
            free_bytes: AtomicU64::new(u64::MAX),
            free_inodes: AtomicU64::new(u64::MAX),
            log_file_bytes: AtomicU32::new(0),
            allocate_log_files: AtomicBool::new(false),
            seal_steps_left: AtomicI64::new(-1),
            upkeep_steps_left: AtomicI64::new(-1),
        }
    }
}

/// Free and total bytes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) free: u64,
    pub(super) total: u64,
    /// Inodes that a process without privileges may use; `u64::MAX` where the file system has no such limit.
    pub(super) free_inodes: u64,
}

/// Inodes that must be free before samples are taken again after there was no room.
const INODES_MIN: u64 = 8;

impl Disk {
    /// A new log file.
    pub(super) fn create_log(&self, path: &Path) -> Result<File, DiskError> {
        if let Disk::Faulty(faults) = self
            && faults.free_inodes.load(Ordering::SeqCst) == 0
        {
            return Err(DiskError::at("create", path)(io::ErrorKind::StorageFull.into()));
        }
        create_file(path)
    }

    /// Writes to a log file.
    pub(super) fn write_log(&self, file: &File, path: &Path, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Disk::Faulty(faults) = self {
            count_down(&faults.log_writes_left)?;
        }
        ops::write_at(file, path, bytes, offset)
    }

    /// How large a log file is made that would have so many bytes.
    pub(super) fn log_file_bytes(&self, normal: u32) -> u32 {
        match self {
            Disk::Faulty(faults) if faults.log_file_bytes.load(Ordering::SeqCst) > 0 => {
                faults.log_file_bytes.load(Ordering::SeqCst)
            }
            _ => normal,
        }
    }

    /// Whether the next log file is made of allocated blocks rather than of written zeros, given the mean bytes of a
    /// group in the file before it.
    pub(super) fn allocates_log_file(&self, group_bytes: u64) -> bool {
        match self {
            Disk::Faulty(faults) if faults.allocate_log_files.load(Ordering::SeqCst) => true,
            _ => group_bytes >= ALLOCATE_GROUP_BYTES,
        }
    }

    /// Makes the bytes of a log file durable; its length does not change.
    pub(super) fn sync_log(&self, file: &File, path: &Path) -> io::Result<()> {
        if let Disk::Faulty(faults) = self {
            count_down(&faults.log_syncs_left)?;
        }
        ops::sync_data(file, path)
    }

    /// Whether a seal goes on after a step.
    pub(super) fn seal_goes_on(&self) -> bool {
        match self {
            Disk::Real => true,
            Disk::Faulty(faults) => count_down(&faults.seal_steps_left).is_ok(),
        }
    }

    /// Whether a compaction or retention goes on after a step.
    pub(super) fn upkeep_goes_on(&self) -> bool {
        match self {
            Disk::Real => true,
            Disk::Faulty(faults) => count_down(&faults.upkeep_steps_left).is_ok(),
        }
    }

    /// What is left on the file system of `dir`, for a process without privileges.
    pub(super) fn space(&self, dir: &Path) -> Result<Space, DiskError> {
        let found =
            rustix::fs::statvfs(dir).map_err(|e| DiskError::at("look at the space of", dir)(e.into()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let total = found.f_blocks.saturating_mul(found.f_frsize);
        let free_inodes = if found.f_files == 0 { u64::MAX } else { found.f_favail };
        let space = Space { free, total, free_inodes };
        let Disk::Faulty(faults) = self else { return Ok(space) };
        let or = |fault: &AtomicU64, real| match fault.load(Ordering::SeqCst) {
            u64::MAX => real,
            fault => fault,
        };
        Ok(Space {
            free: or(&faults.free_bytes, free),
            total,
            free_inodes: or(&faults.free_inodes, free_inodes),
        })
    }
}

/// Mean bytes of a group from which on an allocated log file costs the disk less than a zeroed one.
///
/// Zeros double the bytes of the log. In allocated blocks the first write to a place changes the
/// file's metadata instead, which each sync commits to the journal of the file system: a few KiB on
/// ext4. With groups of 12 KiB the disk writes 7.7 bytes per sample instead of 11.0, and a sender at
/// full speed is 10 to 15 % slower. Smaller groups are better off with zeros, also because a sync
/// without metadata waits for one flush less.
const ALLOCATE_GROUP_BYTES: u64 = 8 << 10;

fn count_down(left: &AtomicI64) -> io::Result<()> {
    let step = |n: i64| if n > 0 { Some(n - 1) } else { None };
    match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step) {
        Err(0) => Err(io::Error::other("injected fault")),
        _ => Ok(()),
    }
}

impl Space {
    /// Whether samples are taken again that stopped with less than `needed` bytes or without an inode for the next log
    /// file. A tenth above the floor, so that writes do not flicker.
    pub(super) fn allows_samples_again(self, needed: u64) -> bool {
        self.free >= needed.saturating_add(needed / 10) && self.free_inodes >= INODES_MIN
    }

    /// Samples stop below this: 2 %, at least 256 MiB and at most 1 GiB (docs/storage.md section 12).
    pub(super) fn samples_floor(self) -> u64 {
        (self.total / 50).clamp(256 << 20, 1 << 30)
    }

    /// Checkpoints and compactions that take much stop below this: 5 %, at least 1 and at most 4 GiB.
    pub(super) fn growth_floor(self) -> u64 {
        (self.total / 20).clamp(1 << 30, 4 << 30)
    }

    /// What must be free for a checkpoint or a compaction that writes so many bytes: as above, or so much that it takes the
    /// 16th part at most of what is left to samples. So a small store on a disk that others filled is kept up as ever.
    pub(super) fn growth_needs(self, bytes: u64) -> u64 {
        let above = |bytes: u64| self.samples_floor().saturating_add(bytes);
        above(bytes).max(self.growth_floor()).min(above(bytes.saturating_mul(16)))
    }
}

/// Creates `dir` (mode 0700) unless it is there. Not its parents, and not synced.
pub(super) fn create_dir(dir: &Path) -> Result<(), DiskError> {
    match ops::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        other => other.map_err(DiskError::at("create directory", dir)),
    }
}

/// Makes the names in `dir` durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), DiskError> {
    ops::sync_dir(dir).map_err(DiskError::at("sync directory", dir))
}

/// A new file of mode 0600 for reading and writing; one of that name is replaced.
pub(super) fn create_file(path: &Path) -> Result<File, DiskError> {
    ops::create(path).map_err(DiskError::at("create", path))
}

/// An existing file, for reading and writing.
pub(super) fn open_file(path: &Path) -> Result<File, DiskError> {
    ops::open(path).map_err(DiskError::at("open", path))
}

/// Renames; the caller syncs the directory.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), DiskError> {
    ops::rename(from, to).map_err(DiskError::at("rename", from))
}

/// Unlinks a file; the caller syncs the directory.
pub(super) fn remove_file(path: &Path) -> Result<(), DiskError> {
    ops::remove_file(path).map_err(DiskError::at("remove", path))
}

/// Writes all of `bytes` at `offset`.
pub(super) fn write_at(file: &File, path: &Path, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
    ops::write_at(file, path, bytes, offset).map_err(DiskError::at("write", path))
}

/// Makes a file's bytes and its length durable.
pub(super) fn sync_file(file: &File, path: &Path) -> Result<(), DiskError> {
    ops::sync_all(file, path).map_err(DiskError::at("sync", path))
}

/// Unlinks a directory and everything in it; the caller syncs its parent.
pub(super) fn remove_dir_all(dir: &Path) -> Result<(), DiskError> {
    ops::remove_dir_all(dir).map_err(DiskError::at("remove", dir))
}

/// Unlinks a file, if it is there; answers whether it was. The caller syncs the directory.
pub(super) fn remove_if_there(path: &Path) -> Result<bool, DiskError> {
    match remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.source.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Unlinks a directory and everything in it, if it is there; the caller syncs its parent.
pub(super) fn remove_dir_if_there(dir: &Path) -> Result<(), DiskError> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(DiskError::at("remove", dir)),
    }
}

/// The content of a file of at most `bytes_max` bytes.
pub(super) fn read_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, DiskError> {
    let length = fs::metadata(path).map_err(DiskError::at("look at", path))?.len();
    if length > bytes_max {
        let why = io::Error::new(io::ErrorKind::InvalidData, format!("{length} bytes, {bytes_max} allowed"));
        return Err(DiskError::at("read", path)(why));
    }
    fs::read(path).map_err(DiskError::at("read", path))
}

/// The first bytes of a file, `bytes_max` of them or fewer where it is shorter.
pub(super) fn read_start(path: &Path, bytes_max: u64) -> Result<Vec<u8>, DiskError> {
    let mut file = ops::open_to_read(path).map_err(DiskError::at("open", path))?;
    let mut start = Vec::new();
    read_on(&mut file, path, bytes_max, &mut start)?;
    Ok(start)
}

/// Appends the next bytes of a file to `out`, at most so many; answers how many there were.
pub(super) fn read_on(
    file: &mut File,
    path: &Path,
    bytes: u64,
    out: &mut Vec<u8>,
) -> Result<usize, DiskError> {
    file.take(bytes).read_to_end(out).map_err(DiskError::at("read", path))
}

/// The names in a directory, sorted. At most 1 M, so that a strange folder cannot eat the memory.
pub(super) fn names(dir: &Path) -> Result<Vec<String>, DiskError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(DiskError::at("list", dir))?.take(1_000_000) {
        let entry = entry.map_err(DiskError::at("list", dir))?;
        found.push(entry.file_name().to_string_lossy().into_owned());
    }
    found.sort_unstable();
    Ok(found)
}

/// Fills a part of a file with zeros, 64 KiB per operation of [`ops`].
pub(super) fn write_zeros(file: &File, path: &Path, from: u64, bytes: u64) -> io::Result<()> {
    const PIECE_BYTES: usize = 1 << 16;
    let end = from.saturating_add(bytes);
    let mut at = from;
    while at < end {
        let piece = usize::try_from(end - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        ops::write_zeros(file, path, piece, at)?;
        at += piece as u64;
    }
    Ok(())
}

/// An existing file, for reading; none if there is none of that name.
pub(super) fn open_to_read(path: &Path) -> Result<Option<File>, DiskError> {
    match ops::open_to_read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(DiskError::at("open", path)),
    }
}

/// The length of an open file.
pub(super) fn length(file: &File, path: &Path) -> Result<u64, DiskError> {
    file.metadata().map(|found| found.len()).map_err(DiskError::at("look at", path))
}

/// Fills a new file with `content` and zeros up to `bytes`, durably.
pub(super) fn write_file(file: &File, path: &Path, content: &[u8], bytes: u64) -> Result<(), DiskError> {
    let length = content.len() as u64;
    ops::write_at(file, path, content, 0)
        .and_then(|()| write_zeros(file, path, length, bytes.saturating_sub(length)))
        .map_err(DiskError::at("write", path))?;
    sync_file(file, path)
}
