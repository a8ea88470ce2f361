//! The file operations of this module: private modes, syncs, the path in every error, and fault
//! injection for tests.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use super::error::DiskError;
use crate::kv::ops;

/// The behaviour of the file system.
#[derive(Clone, Debug, Default)]
pub enum Disk {
    /// The real one.
    #[default]
    Real,
    /// The disk with the injected faults of a test.
    Faulty(Arc<Faults>),
}

/// Faults that a test injects while the store runs.
#[derive(Debug)]
pub struct Faults {
    /// The number of log writes that succeed before each fails; negative: all succeed.
    pub log_writes_left: AtomicI64,
    /// The number of log syncs that succeed before each fails; negative: all succeed.
    pub log_syncs_left: AtomicI64,
    /// The reported free space in bytes; `u64::MAX` for the real value.
    pub free_bytes: AtomicU64,
    /// The reported number of free inodes; `u64::MAX` for the real value. At 0 no log file is
    /// created.
    pub free_inodes: AtomicU64,
    /// The size of all log files; 0 for the real sizes. Records must fit.
    pub log_file_bytes: AtomicU32,
    /// Allocate log files instead of filling them with zeros, for any size of the groups.
    pub allocate_log_files: AtomicBool,
    /// The number of seal steps before a seal stops as if the process had ended; negative:
    /// unlimited.
    pub seal_steps_left: AtomicI64,
    /// The number of steps of compactions and retention before they stop as if the process had
    /// ended; negative: unlimited.
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

/// The space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    /// Free bytes.
    pub(super) free: u64,
    /// Bytes in all.
    pub(super) total: u64,
    /// Inodes available to unprivileged processes; `u64::MAX` if the file system has no such limit.
    pub(super) free_inodes: u64,
}

/// The free inodes that are required before samples are accepted again after a shortage.
const INODES_MIN: u64 = 8;

impl Disk {
    /// Creates a log file.
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

    /// Returns the size of a log file whose normal size is `normal`.
    pub(super) fn log_file_bytes(&self, normal: u32) -> u32 {
        match self {
            Disk::Faulty(faults) if faults.log_file_bytes.load(Ordering::SeqCst) > 0 => {
                faults.log_file_bytes.load(Ordering::SeqCst)
            }
            _ => normal,
        }
    }

    /// Returns whether the next log file is allocated instead of filled with zeros. `group_bytes`
    /// is the mean size of a group in the current file.
    pub(super) fn allocates_log_file(&self, group_bytes: u64) -> bool {
        match self {
            Disk::Faulty(faults) if faults.allocate_log_files.load(Ordering::SeqCst) => true,
            _ => group_bytes >= ALLOCATE_GROUP_BYTES,
        }
    }

    /// Makes the bytes of a log file durable. Its length must not have changed.
    pub(super) fn sync_log(&self, file: &File, path: &Path) -> io::Result<()> {
        if let Disk::Faulty(faults) = self {
            count_down(&faults.log_syncs_left)?;
        }
        ops::sync_data(file, path)
    }

    /// Returns whether a seal continues after a step.
    pub(super) fn seal_goes_on(&self) -> bool {
        match self {
            Disk::Real => true,
            Disk::Faulty(faults) => count_down(&faults.seal_steps_left).is_ok(),
        }
    }

    /// Returns whether a compaction or retention continues after a step.
    pub(super) fn upkeep_goes_on(&self) -> bool {
        match self {
            Disk::Real => true,
            Disk::Faulty(faults) => count_down(&faults.upkeep_steps_left).is_ok(),
        }
    }

    /// Returns the space of the file system of `dir` that is available to unprivileged processes.
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

/// The mean group size above which an allocated log file costs the disk less than a zeroed one, in
/// bytes.
///
/// Zeros double the bytes of the log. In allocated blocks the first write to a block changes the
/// file's metadata instead, which each sync commits to the file system's journal: a few KiB on
/// ext4. With groups of 12 KiB the disk writes 7.7 bytes per sample instead of 11.0, and a sender
/// at full speed is 10 to 15 % slower. Smaller groups are better off with zeros, also because a
/// sync without metadata waits for one flush less.
const ALLOCATE_GROUP_BYTES: u64 = 8 << 10;

fn count_down(left: &AtomicI64) -> io::Result<()> {
    let step = |n: i64| if n > 0 { Some(n - 1) } else { None };
    match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step) {
        Err(0) => Err(io::Error::other("injected fault")),
        _ => Ok(()),
    }
}

impl Space {
    /// Returns whether samples are accepted again after a shortage of `needed` bytes or of inodes.
    /// Requires a tenth more than the floor, so that the state does not flicker.
    pub(super) fn allows_samples_again(self, needed: u64) -> bool {
        self.free >= needed.saturating_add(needed / 10) && self.free_inodes >= INODES_MIN
    }

    /// Returns the free bytes below which no samples are accepted: 2 %, at least 256 MiB and at
    /// most 1 GiB (docs/storage.md section 12).
    pub(super) fn samples_floor(self) -> u64 {
        (self.total / 50).clamp(256 << 20, 1 << 30)
    }

    /// Returns the free bytes below which no large checkpoint or compaction runs: 5 %, at least 1
    /// GiB and at most 4 GiB.
    pub(super) fn growth_floor(self) -> u64 {
        (self.total / 20).clamp(1 << 30, 4 << 30)
    }

    /// Returns the free bytes that a checkpoint or compaction of `bytes` requires: those of
    /// [`Space::growth_floor`], or fewer if it writes at most 1/16 of the bytes above the samples'
    /// floor. So a small store stays maintained on a disk that other files filled.
    pub(super) fn growth_needs(self, bytes: u64) -> u64 {
        let above = |bytes: u64| self.samples_floor().saturating_add(bytes);
        above(bytes).max(self.growth_floor()).min(above(bytes.saturating_mul(16)))
    }
}

/// Creates `dir` (mode 0700) if it does not exist. Creates no parents and does not sync.
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

/// Creates a file of mode 0600 for reading and writing. Replaces an existing file.
pub(super) fn create_file(path: &Path) -> Result<File, DiskError> {
    ops::create(path).map_err(DiskError::at("create", path))
}

/// Opens an existing file for reading and writing.
pub(super) fn open_file(path: &Path) -> Result<File, DiskError> {
    ops::open(path).map_err(DiskError::at("open", path))
}

/// Renames a file. The caller syncs the directory.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), DiskError> {
    ops::rename(from, to).map_err(DiskError::at("rename", from))
}

/// Unlinks a file. The caller syncs the directory.
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

/// Removes a directory with its content. The caller syncs its parent.
pub(super) fn remove_dir_all(dir: &Path) -> Result<(), DiskError> {
    ops::remove_dir_all(dir).map_err(DiskError::at("remove", dir))
}

/// Unlinks a file if it exists. Returns whether the file existed. The caller syncs the directory.
pub(super) fn remove_if_there(path: &Path) -> Result<bool, DiskError> {
    match remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.source.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes a directory with its content if it exists. The caller syncs its parent.
pub(super) fn remove_dir_if_there(dir: &Path) -> Result<(), DiskError> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(DiskError::at("remove", dir)),
    }
}

/// Reads a file of at most `bytes_max` bytes.
pub(super) fn read_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, DiskError> {
    let length = fs::metadata(path).map_err(DiskError::at("look at", path))?.len();
    if length > bytes_max {
        let why = io::Error::new(io::ErrorKind::InvalidData, format!("{length} bytes, {bytes_max} allowed"));
        return Err(DiskError::at("read", path)(why));
    }
    fs::read(path).map_err(DiskError::at("read", path))
}

/// Reads the first `bytes_max` bytes of a file, fewer if it is shorter.
pub(super) fn read_start(path: &Path, bytes_max: u64) -> Result<Vec<u8>, DiskError> {
    let mut file = ops::open_to_read(path).map_err(DiskError::at("open", path))?;
    let mut start = Vec::new();
    read_on(&mut file, path, bytes_max, &mut start)?;
    Ok(start)
}

/// Appends the next bytes of a file to `out`, at most `bytes`. Returns their number.
pub(super) fn read_on(
    file: &mut File,
    path: &Path,
    bytes: u64,
    out: &mut Vec<u8>,
) -> Result<usize, DiskError> {
    file.take(bytes).read_to_end(out).map_err(DiskError::at("read", path))
}

/// Returns the names in a directory, sorted. The number is at most a million, to bound the memory.
pub(super) fn names(dir: &Path) -> Result<Vec<String>, DiskError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(DiskError::at("list", dir))?.take(1_000_000) {
        let entry = entry.map_err(DiskError::at("list", dir))?;
        found.push(entry.file_name().to_string_lossy().into_owned());
    }
    found.sort_unstable();
    Ok(found)
}

/// Fills a range of a file with zeros, in operations of 64 KiB.
pub(super) fn write_zeros(file: &File, path: &Path, from: u64, bytes: u64) -> io::Result<()> {
    const STEP_BYTES: usize = 1 << 16;
    let end = from.saturating_add(bytes);
    let mut at = from;
    while at < end {
        let bytes = usize::try_from(end - at).map_or(STEP_BYTES, |left| left.min(STEP_BYTES));
        ops::write_zeros(file, path, bytes, at)?;
        at += bytes as u64;
    }
    Ok(())
}

/// Opens an existing file for reading; none if it does not exist.
pub(super) fn open_to_read(path: &Path) -> Result<Option<File>, DiskError> {
    match ops::open_to_read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(DiskError::at("open", path)),
    }
}

/// Returns the length of an open file.
pub(super) fn length(file: &File, path: &Path) -> Result<u64, DiskError> {
    file.metadata().map(|found| found.len()).map_err(DiskError::at("look at", path))
}

/// Writes `content` and zeros up to `bytes` to a new file, durably.
pub(super) fn write_file(file: &File, path: &Path, content: &[u8], bytes: u64) -> Result<(), DiskError> {
    let length = content.len() as u64;
    ops::write_at(file, path, content, 0)
        .and_then(|()| write_zeros(file, path, length, bytes.saturating_sub(length)))
        .map_err(DiskError::at("write", path))?;
    sync_file(file, path)
}
