//! The samples' part of a backup, staged at one point in time. Files without further writes
//! (segments, full log files) are linked, files that still grow (the last log file, registries) are
//! copied.
//!
//! No file is sealed, compacted, trimmed or unlinked meanwhile, so the list of segments that the
//! caller copies from control agrees with the files (docs/storage.md section 13). Writes continue:
//! a record that was durable before the start is in the copy, later ones may be. Checkpoints are
//! omitted, since the log holds their samples.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::sync::IgnorePoison as _;
use crate::tsdb::Tsdb;
use crate::tsdb::disk;
use crate::tsdb::error::DiskError;
use crate::tsdb::wal::file;
use crate::tsdb::wal::record::{FileHeader, Layout, MAGIC_WAL, ParsedRecord, RecordKind, parse_switch};
use crate::tsdb::wal::sink::Sink;

/// The limit of a log file's bytes.
const LOG_FILE_BYTES_MAX: u64 = 64 << 20;

/// The reason why staging failed.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The store has no folder.
    #[error("this store has no folder")]
    Closed,
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The caller's part failed.
    #[error("{0}")]
    Between(String),
    /// A log file is damaged, so a backup of it would be incomplete.
    #[error("{} is damaged at byte {offset}: run `promlet check` on the stopped folder", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset of the damage.
        offset: u64,
    },
}

impl Tsdb {
    /// Stages the store in the folder `to`, which must be on the same file system. `between` copies
    /// control while no files change. Returns the number of the last log record in the copy. No
    /// file is synced.
    ///
    /// # Errors
    /// [`StageError`]. The created files remain, and the caller removes them.
    pub fn stage_backup(
        &self,
        to: &Path,
        between: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<u64, StageError> {
        let folder = self.folder.as_ref().ok_or(StageError::Closed)?;
        // All records up to here were acknowledged, or will be.
        let promised = match &self.log {
            Sink::Log(log) => Some(log.counters().applied_seq.load(Ordering::Acquire)),
            Sink::Memory(_) | Sink::ReadOnly { .. } => None,
        };
        let _guards = self.block_file_changes();
        between().map_err(StageError::Between)?;
        let root = folder.series.parent().unwrap_or(Path::new("."));
        copy_registries(&folder.series, &to.join("series"))?;
        link_segments(&root.join("segments"), &to.join("segments"))?;
        stage_log(&root.join("wal"), &to.join("wal"), promised)
    }

    /// Blocks seals, checkpoints and the removal of files while the guards live. A seal in progress
    /// completes first, at full speed.
    fn block_file_changes(&self) -> impl Sized + '_ {
        let sealer = self.hurry_sealer();
        let removal = self.removal.lock().ignore_poison();
        let checkpoints = self.checkpoints.lock().ignore_poison();
        (sealer, removal, checkpoints)
    }
}

fn make_dir(dir: &Path) -> Result<(), DiskError> {
    DirBuilder::new().mode(0o700).create(dir).map_err(DiskError::at("create directory", dir))
}

fn names(dir: &Path) -> Result<Vec<String>, DiskError> {
    if dir.is_dir() { disk::names(dir) } else { Ok(Vec::new()) }
}

/// Links a file, or copies it if the file system has no links.
fn link(from: &Path, to: &Path) -> Result<(), DiskError> {
    match fs::hard_link(from, to) {
        Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
            fs::copy(from, to).map(drop).map_err(DiskError::at("copy", from))
        }
        other => other.map_err(DiskError::at("link", from)),
    }
}

fn copy_registries(from: &Path, to: &Path) -> Result<(), DiskError> {
    make_dir(to)?;
    for name in names(from)?.iter().filter(|name| name.ends_with(".reg")) {
        let path = from.join(name);
        fs::copy(&path, to.join(name)).map_err(DiskError::at("copy", &path))?;
    }
    Ok(())
}

fn link_segments(from: &Path, to: &Path) -> Result<(), DiskError> {
    make_dir(to)?;
    for org in names(from)? {
        let dir = from.join(&org);
        let segments: Vec<_> = names(&dir)?.into_iter().filter(|name| name.ends_with(".seg")).collect();
        if !segments.is_empty() {
            make_dir(&to.join(&org))?;
        }
        for name in segments {
            link(&dir.join(&name), &to.join(&org).join(&name))?;
        }
    }
    Ok(())
}

/// Stages the log: links the full files, and copies the last one up to its last record, which must
/// not come before `promised`. If the store takes no writes (`promised` is none), links every file.
fn stage_log(from: &Path, to: &Path, promised: Option<u64>) -> Result<u64, StageError> {
    make_dir(to)?;
    let mut numbers: Vec<u64> = names(from)?.iter().filter_map(|name| file::number_of(name)).collect();
    numbers.sort_unstable();
    let mut full = numbers.len();
    while let Some(number) = full.checked_sub(1).and_then(|index| numbers.get(index)) {
        // Goes back from the newest file to the first one with a record. The files before it take
        // no more records.
        if promised.is_none() {
            break;
        }
        full -= 1;
        if holds_a_record(&file::path_of(from, *number), *number)? {
            break;
        }
    }
    for number in numbers.iter().take(full) {
        link(&file::path_of(from, *number), &file::path_of(to, *number))?;
    }
    let (Some(mut number), Some(promised)) = (numbers.get(full).copied(), promised) else { return Ok(0) };
    let mut last_seq = 0;
    loop {
        let path = file::path_of(from, number);
        let prefix = copy_prefix(&path, &file::path_of(to, number))?;
        last_seq = last_seq.max(prefix.last_seq);
        // If the log has moved on to the next file meanwhile, that file belongs to the copy as
        // well, with or without records.
        match prefix.next {
            Some(next) => number = next,
            None if last_seq < promised => {
                return Err(StageError::Damaged { path, offset: prefix.end as u64 });
            }
            None => return Ok(last_seq),
        }
    }
}

fn holds_a_record(path: &Path, number: u64) -> Result<bool, DiskError> {
    let content = disk::read_file(path, LOG_FILE_BYTES_MAX)?;
    let layout = Layout::of(&content, number);
    let first = content.get(layout.first_record()..).unwrap_or_default();
    Ok(matches!(layout.parse(first), ParsedRecord::Record(..)))
}

/// The copied beginning of a log file.
struct Prefix {
    end: usize,
    last_seq: u64,
    /// The next file, if the last record is a switch.
    next: Option<u64>,
}

/// Copies a log file up to its last whole record, and extends the copy to the length of the file.
/// All promised records were written before the read began, so incomplete or reordered writes come
/// after them.
fn copy_prefix(from: &Path, to: &Path) -> Result<Prefix, StageError> {
    let content = disk::read_file(from, LOG_FILE_BYTES_MAX)?;
    let damaged = |offset: usize| StageError::Damaged { path: from.to_owned(), offset: offset as u64 };
    let Ok(FileHeader { layout, .. }) = FileHeader::parse(&content, MAGIC_WAL) else {
        return Err(damaged(0));
    };
    let mut prefix = Prefix { end: 0, last_seq: 0, next: None };
    let mut end = layout.first_record();
    while let ParsedRecord::Record(header, body, bytes) = layout.parse(content.get(end..).unwrap_or_default())
    {
        if prefix.last_seq != 0 && header.seq != prefix.last_seq + 1 {
            return Err(damaged(end));
        }
        prefix.last_seq = header.seq;
        prefix.next = if header.kind == Some(RecordKind::Switch) { parse_switch(body).ok() } else { None };
        end += bytes;
    }
    let copy = disk::create_file(to)?;
    // The other bytes are zeros, which need no blocks.
    copy.write_all_at(content.get(..end).unwrap_or_default(), 0)
        .and_then(|()| copy.set_len(content.len() as u64))
        .map_err(DiskError::at("write", to))?;
    prefix.end = end;
    Ok(prefix)
}
