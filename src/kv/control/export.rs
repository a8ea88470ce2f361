//! Exports: full copies of control in a plain file, from which it is rebuilt together with the
//! journal.
//!
//! File `exports/control-<seq>.plx`; the newest two are kept. Little-endian:
//! ```text
//! header, 64 bytes
//!  0  8 "PROMPLX1"     8 u16 version 1   10 u16 header bytes 64   12 u32 0
//! 16 16 store id      32 u64 seq of its last change    40 20 zero    60 u32 CRC32C of 0..60
//! rows, in key order, without the row "commit" of table 0, which is created on rebuild
//!  0 u16 key bytes, never 0    2 u16 value bytes    4 key, framed value
//! footer, 32 bytes
//!  0 u32 0   4 u64 rows   12 u64 seq   20 8 "PROMPLXE"   28 u32 CRC32C of all before this word
//! ```
//! An export is written as `.new`, synced and renamed, and then `exports/` is synced. One is
//! written when 2 MiB of journal have gathered, every 15 minutes if anything has changed, and at a
//! clean stop. A journal file is removed when the *older* of the two exports covers it, so that one
//! bad export is not fatal (docs/storage.md section 6).

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::state::{ControlState, META_KEY, Meta};
use crate::kv::database::{DatabaseError, ScanControl};
use crate::kv::files::{self, FileError};
use crate::kv::frame::{self, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::kv::ops;
use crate::kv::rows::KeyAndValue;
use crate::model::StoreId;

const MAGIC: &[u8; 8] = b"PROMPLX1";
const END_MAGIC: &[u8; 8] = b"PROMPLXE";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 64;
const FOOTER_BYTES: usize = 32;
/// Number of exports that are kept.
const KEPT: usize = 2;
/// Space in bytes that an export leaves free for later changes.
const SPARE_BYTES: u64 = 64 << 20;

/// Errors of writing an export; the journal still has all changes.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A file operation failed; the unfinished file was removed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The rows could not be read.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The disk has not enough space for an export in addition to that for account changes.
    #[error("an export needs {needed} bytes, but only {free} are free")]
    NoRoom {
        /// Free bytes.
        free: u64,
        /// Required bytes.
        needed: u64,
    },
    /// Control accepts no more changes, or was closed.
    #[error("account changes are closed: {0}")]
    Closed(String),
}

impl ExportError {
    /// Returns whether the disk, its inodes or a quota are used up.
    pub(super) fn is_no_room(&self) -> bool {
        match self {
            ExportError::File(e) => files::is_no_room(&e.source),
            ExportError::Database(e) => e.is_no_room(),
            ExportError::NoRoom { .. } => true,
            ExportError::Closed(_) => false,
        }
    }
}

/// A completed export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportReport {
    /// Sequence number of the last change in the export.
    pub seq: u64,
    /// Number of rows.
    pub rows: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of journal files that were removed because of it.
    pub journal_files_removed: u64,
}

/// A file of `exports/`, as described by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kv) struct Export {
    pub(in crate::kv) seq: u64,
    pub(in crate::kv) path: PathBuf,
}

/// Reasons why a file cannot be used as an export.
#[derive(Debug, thiserror::Error)]
pub(in crate::kv) enum BadExport {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} belongs to store {found}", path.display())]
    Foreign { path: PathBuf, found: StoreId },
    #[error("{} has version {found}, but this program reads {VERSION}", path.display())]
    Newer { path: PathBuf, found: u16 },
    #[error("{} is damaged at offset {offset}: {what}", path.display())]
    Damaged { path: PathBuf, offset: u64, what: String },
}

impl BadExport {
    /// Returns the offset of the damage, if any.
    pub(super) fn offset(&self) -> Option<u64> {
        match self {
            BadExport::Damaged { offset, .. } => Some(*offset),
            BadExport::File(_) | BadExport::Foreign { .. } | BadExport::Newer { .. } => None,
        }
    }
}

/// Lists the exports by name, newest first.
pub(in crate::kv) fn list(dir: &Path) -> Result<Vec<Export>, FileError> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let number = |name: &str| name.strip_prefix("control-")?.strip_suffix(".plx")?.parse::<u64>().ok();
    let names = files::names(dir)?;
    let mut found: Vec<_> = names
        .iter()
        .filter_map(|name| Some(Export { seq: number(name)?, path: dir.join(name) }))
        .filter(|export| export.seq < 1 << 62)
        .collect();
    found.sort_unstable_by(|a, b| b.seq.cmp(&a.seq).then_with(|| a.path.cmp(&b.path)));
    Ok(found)
}

/// Removes unfinished files that a crash left. Creates the directory if it does not exist.
pub(super) fn prepare(dir: &Path) -> Result<(), FileError> {
    files::create_dir(dir)?;
    for name in files::names(dir)?.iter().filter(|name| name.ends_with(".new")) {
        let path = dir.join(name);
        ops::remove_file(&path).map_err(FileError::at("remove", &path))?;
    }
    Ok(())
}

fn header(store: StoreId, seq: u64) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&64_u16.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&store.0);
    out.extend_from_slice(&seq.to_le_bytes());
    out.resize(HEADER_BYTES - 4, 0);
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Writer of an export, which buffers, counts and checksums.
struct ExportWriter<'p> {
    path: &'p Path,
    file: File,
    buffered: Vec<u8>,
    written: u64,
    crc: u32,
}

/// Number of bytes that are buffered before a write.
const GATHERED_BYTES: usize = 64 << 10;

impl ExportWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffered.extend_from_slice(bytes);
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        if self.buffered.len() >= GATHERED_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        ops::write_at(&self.file, self.path, &self.buffered, self.written)?;
        self.written += self.buffered.len() as u64;
        self.buffered.clear();
        Ok(())
    }

    /// Writes the footer and makes the file durable. Returns its length.
    fn finish(mut self, rows: u64, seq: u64) -> io::Result<u64> {
        self.put(&[0; 4])?;
        self.put(&rows.to_le_bytes())?;
        self.put(&seq.to_le_bytes())?;
        self.put(END_MAGIC)?;
        self.put(&self.crc.to_le_bytes())?;
        self.flush()?;
        ops::sync_all(&self.file, self.path)?;
        Ok(self.written)
    }
}

/// Writes all rows of `state`, which must not change meanwhile. The export is durable when this
/// returns.
pub(super) fn write(dir: &Path, state: &ControlState, meta: &Meta) -> Result<ExportReport, ExportError> {
    let target = ExportTarget { store: meta.store, seq: meta.seq, expected_rows: meta.rows.values().sum() };
    write_rows(dir, target, |each| state.each_row(each))
}

/// Receives each row, in key order.
type EachRow<'e> = &'e mut dyn FnMut(&[u8], &[u8]) -> ScanControl;

/// The store and the last change of an export, and the approximate number of its rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExportTarget {
    pub(super) store: StoreId,
    pub(super) seq: u64,
    pub(super) expected_rows: u64,
}

/// Writes the rows that `rows` passes on as the export `target`.
pub(super) fn write_rows(
    dir: &Path,
    target: ExportTarget,
    rows: impl FnOnce(EachRow<'_>) -> Result<(), DatabaseError>,
) -> Result<ExportReport, ExportError> {
    let space = rustix::fs::statvfs(dir).map_err(|e| FileError::at("look at the space of", dir)(e.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let needed = SPARE_BYTES.saturating_add(target.expected_rows.saturating_mul(512));
    if free < needed {
        return Err(ExportError::NoRoom { free, needed });
    }
    let path = dir.join(format!("control-{:010}.plx", target.seq));
    let new = path.with_extension("plx.new");
    let written = write_file(&new, target, rows).and_then(|report| {
        files::rename(&new, &path)?;
        files::sync_dir(dir)?;
        Ok(report)
    });
    if written.is_err() {
        // A file whose sync failed is never used. The error of its removal would hide the cause.
        let _ = ops::remove_file(&new);
    }
    written
}

fn write_file(
    path: &Path,
    target: ExportTarget,
    each_row: impl FnOnce(EachRow<'_>) -> Result<(), DatabaseError>,
) -> Result<ExportReport, ExportError> {
    let ExportTarget { store, seq, .. } = target;
    let file = files::create_file(path)?;
    let mut out = ExportWriter { path, file, buffered: Vec::new(), written: 0, crc: 0 };
    let mut rows = 0_u64;
    let mut failed = out.put(&header(store, seq)).err();
    each_row(&mut |key, value| {
        if failed.is_some() || key == META_KEY {
            return if failed.is_some() { ScanControl::Stop } else { ScanControl::Continue };
        }
        let length = |bytes: &[u8]| u16::try_from(bytes.len()).map(u16::to_le_bytes);
        failed = match (length(key), length(value)) {
            (Ok(k), Ok(v)) => [&k[..], &v, key, value].iter().find_map(|piece| out.put(piece).err()),
            _ => Some(io::Error::other("a row of more than 65,535 bytes")),
        };
        rows += 1;
        ScanControl::Continue
    })?;
    let finished = failed.map_or_else(|| out.finish(rows, seq), Err);
    let bytes = finished.map_err(FileError::at("write", path))?;
    Ok(ExportReport { seq, rows, bytes, journal_files_removed: 0 })
}

/// Reads a whole export and checks every checksum, the order of the keys, and the counts. `each`
/// receives the rows and may stop with an error. Returns the number of rows.
pub(in crate::kv) fn read<E: From<BadExport>>(
    export: &Export,
    store: StoreId,
    mut each: impl FnMut(KeyAndValue) -> Result<(), E>,
) -> Result<u64, E> {
    let mut from = ExportReader::open(export)?;
    from.header(export, store)?;
    let mut rows = 0_u64;
    let mut before: Option<Vec<u8>> = None;
    loop {
        let [k0, k1, v0, v1] = from.take::<4>()?;
        let (key_bytes, value_bytes) =
            (usize::from(u16::from_le_bytes([k0, k1])), usize::from(u16::from_le_bytes([v0, v1])));
        if key_bytes == 0 && value_bytes == 0 {
            break;
        }
        if key_bytes == 0 || key_bytes > KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX {
            return Err(from.damaged("a row with an impossible length").into());
        }
        let (key, value) = (from.bytes(key_bytes)?, from.bytes(value_bytes)?);
        if before.as_ref().is_some_and(|before| *before >= key) {
            return Err(from.damaged("a row out of order").into());
        }
        frame::open(&key, &value).map_err(|e| from.damaged(&e.to_string()))?;
        before = Some(key.clone());
        each((key, value))?;
        rows += 1;
    }
    from.footer(rows, export.seq)?;
    Ok(rows)
}

struct ExportReader<'p> {
    path: &'p Path,
    inner: BufReader<File>,
    offset: u64,
    crc: u32,
}

impl<'p> ExportReader<'p> {
    fn open(export: &'p Export) -> Result<ExportReader<'p>, BadExport> {
        let path = &export.path;
        let file = File::open(path).map_err(FileError::at("open", path))?;
        Ok(ExportReader { path, inner: BufReader::with_capacity(64 << 10, file), offset: 0, crc: 0 })
    }

    fn header(&mut self, export: &Export, store: StoreId) -> Result<(), BadExport> {
        let head = self.take::<HEADER_BYTES>()?;
        let (covered, crc) =
            head.split_last_chunk::<4>().ok_or_else(|| self.damaged("its header is cut short"))?;
        if !covered.starts_with(MAGIC) || crc32c::crc32c(covered) != u32::from_le_bytes(*crc) {
            return Err(self.damaged("its header is damaged"));
        }
        let version = u16::from_le_bytes([head[8], head[9]]);
        if version > VERSION {
            return Err(BadExport::Newer { path: self.path.to_owned(), found: version });
        }
        let found = StoreId(std::array::from_fn(|n| head[16 + n]));
        if found != store {
            return Err(BadExport::Foreign { path: self.path.to_owned(), found });
        }
        if head[32..40] != export.seq.to_le_bytes() {
            return Err(self.damaged("its name does not match its header"));
        }
        Ok(())
    }

    fn damaged(&self, what: &str) -> BadExport {
        BadExport::Damaged { path: self.path.to_owned(), offset: self.offset, what: what.to_owned() }
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<(), BadExport> {
        match self.inner.read_exact(into) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(self.damaged("it is cut short")),
            other => Ok(other.map_err(FileError::at("read", self.path))?),
        }?;
        self.crc = crc32c::crc32c_append(self.crc, into);
        self.offset += into.len() as u64;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadExport> {
        let mut out = [0; N];
        self.fill(&mut out).map(|()| out)
    }

    /// Reads a byte string of at most 65,535 bytes.
    fn bytes(&mut self, length: usize) -> Result<Vec<u8>, BadExport> {
        let mut out = vec![0; length];
        self.fill(&mut out).map(|()| out)
    }

    /// Checks the footer after its first word, and that the file ends there.
    fn footer(&mut self, rows: u64, seq: u64) -> Result<(), BadExport> {
        let stored = self.take::<{ FOOTER_BYTES - 8 }>()?;
        let expected = self.crc;
        let crc = self.take::<4>()?;
        let whole = [&rows.to_le_bytes()[..], &seq.to_le_bytes(), END_MAGIC].concat();
        if crc != expected.to_le_bytes() {
            return Err(self.damaged("its checksum is wrong"));
        }
        if stored[..] != whole[..] {
            return Err(self.damaged("its footer does not match its rows"));
        }
        let mut more = [0; 1];
        match self.inner.read(&mut more).map_err(FileError::at("read", self.path))? {
            0 => Ok(()),
            _ => Err(self.damaged("data follows its end")),
        }
    }
}

/// Returns the store named in the header of an export; `None` if the header is damaged or of a
/// newer version.
///
/// # Errors
/// [`FileError`] if the file cannot be read.
pub(in crate::kv) fn store_of_export(path: &Path) -> Result<Option<StoreId>, FileError> {
    let start = files::read_start(path, HEADER_BYTES)?;
    let store = start.get(16..32).and_then(|bytes| bytes.first_chunk::<16>()).copied().map(StoreId);
    let seq = start.get(32..).and_then(|rest| rest.first_chunk::<8>()).copied().map(u64::from_le_bytes);
    Ok(store.zip(seq).filter(|(store, seq)| header(*store, *seq) == start).map(|(store, _)| store))
}

/// Returns the other store that a file belongs to, if its header is intact and names one.
pub(super) fn foreign(export: &Export, store: StoreId) -> Option<StoreId> {
    match ExportReader::open(export).and_then(|mut from| from.header(export, store)) {
        Err(BadExport::Foreign { found, .. }) => Some(found),
        _ => None,
    }
}

/// Reads and checks an export without storing its rows. Returns their number.
pub(in crate::kv) fn verify(export: &Export, store: StoreId) -> Result<u64, BadExport> {
    read::<BadExport>(export, store, |_| Ok(()))
}

/// Removes all exports but the newest two intact ones. Returns the change up to which the journal
/// may be removed.
///
/// `trusted` lists those known to be intact because this process wrote or read them.
pub(super) fn retain(dir: &Path, store: StoreId, trusted: &mut Vec<u64>) -> Result<Option<u64>, FileError> {
    let mut whole = Vec::new();
    for export in list(dir)? {
        if whole.len() == KEPT {
            ops::remove_file(&export.path).map_err(FileError::at("remove", &export.path))?;
            files::sync_dir(dir)?;
        } else if trusted.contains(&export.seq) || verify(&export, store).is_ok() {
            whole.push(export.seq);
        }
        // A damaged export among the newer ones stays for `check` to report; it does not count.
    }
    trusted.clone_from(&whole);
    Ok(whole.get(KEPT - 1).copied())
}
