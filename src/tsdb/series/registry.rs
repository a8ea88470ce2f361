//! The registry file of an organisation, `series/<org>.reg`. It has every series and all metadata
//! of metrics, so that a start need not read the whole log for names.
//!
//! The file begins with the 64-byte header of log files, with the word "PROMREG1" and the
//! organisation as number. Records follow, with the log's record header of version 1, because a
//! registry is read up to its first invalid record and never searched. Type 32 has the body of
//! [`super::definition`], type 33 that of [`super::metadata`]. Sequence numbers count from 1. Only
//! seals and checkpoints append to the file, and sync it. An invalid tail was never relied upon and
//! is cut.
//!
//! `series/<org>.copy` has the same bytes and is appended after the registry. After a deletion or
//! retention has removed a series' last row and the log was trimmed, no other file has its labels,
//! while later samples still use its id. A start that finds the registry damaged, short or missing
//! continues with the copy. If no copy is longer, it takes the names from segments and the log. A
//! start also writes a copy that is missing or differs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::kv::ops;
use crate::model::{OrgId, StoreId};
use crate::tsdb::disk;
use crate::tsdb::error::{DiskError, OpenError};
use crate::tsdb::wal::record::{
    BadHeader, FILE_HEADER_BYTES, FileHeader, HEADER_BYTES, Layout, MAGIC_REGISTRY, ParsedRecord, RecordKind,
    parse_plain_record, promised_bytes, put_record,
};

/// The largest registry that is read. 2 M series take about 110 MB (docs/storage.md section 0,
/// point 5).
const FILE_BYTES_MAX: u64 = 4 << 30;

/// Returns the path of an organisation's registry.
pub(in crate::tsdb) fn path_of(dir: &Path, org: OrgId) -> PathBuf {
    dir.join(format!("{}.reg", org.0))
}

/// Returns the organisation in a registry's file name.
pub(in crate::tsdb) fn org_of(name: &str) -> Option<OrgId> {
    name.strip_suffix(".reg").and_then(|n| n.parse().ok()).map(OrgId)
}

/// Returns the path of the copy of an organisation's registry.
pub(in crate::tsdb) fn copy_of(dir: &Path, org: OrgId) -> PathBuf {
    dir.join(format!("{}.copy", org.0))
}

/// Returns the organisations that have a registry or the copy of one in `dir`.
pub(in crate::tsdb) fn orgs_in(dir: &Path) -> Result<BTreeSet<OrgId>, DiskError> {
    let names = if dir.is_dir() { disk::names(dir)? } else { Vec::new() };
    let of_copy = |name: &String| name.strip_suffix(".copy").and_then(|n| n.parse().ok()).map(OrgId);
    Ok(names.iter().filter_map(|name| org_of(name).or_else(|| of_copy(name))).collect())
}

/// The end of a registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct End {
    /// The bytes up to the end of the last valid record; 0 if there is no file.
    pub(in crate::tsdb) bytes: u64,
    /// The sequence number of that record.
    pub(in crate::tsdb) seq: u64,
}

/// The result of reading a registry.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum ReadRegistry {
    /// The records up to here are valid; later bytes are to be cut.
    Valid(End),
    /// The header is invalid.
    Damaged(&'static str),
}

/// Calls `on_record` with each record of a registry, until it returns false.
///
/// # Errors
/// [`OpenError`] if the file cannot be read, or belongs to another store or a newer version.
pub(in crate::tsdb) fn read(
    path: &Path,
    store: StoreId,
    org: OrgId,
    on_record: &mut dyn FnMut(RecordKind, &[u8]) -> bool,
) -> Result<ReadRegistry, OpenError> {
    let foreign = |what: &str| OpenError::Foreign { path: path.to_owned(), what: what.to_owned() };
    let mut window = FileWindow::open(path)?;
    match FileHeader::parse(window.at_least(FILE_HEADER_BYTES)?, MAGIC_REGISTRY) {
        Ok(header) if header.store != store => return Err(foreign("a registry of another store")),
        Ok(header) if header.number != u64::from(org.0) => {
            return Ok(ReadRegistry::Damaged("it belongs to another organisation"));
        }
        Ok(_) => {}
        Err(BadHeader::Newer) => return Err(foreign("written by a newer version")),
        Err(BadHeader::Damaged(what)) => return Ok(ReadRegistry::Damaged(what)),
    }
    window.advance(FILE_HEADER_BYTES);
    let mut end = End { bytes: FILE_HEADER_BYTES as u64, seq: 0 };
    loop {
        let bytes = promised_bytes(window.at_least(HEADER_BYTES)?);
        match parse_plain_record(window.at_least(bytes)?) {
            ParsedRecord::Record(header, body, bytes) if header.seq == end.seq + 1 && header.org == org => {
                let Some(kind) = header.kind else { return Err(foreign("written by a newer version")) };
                if !on_record(kind, body) {
                    break;
                }
                end = End { bytes: end.bytes + bytes as u64, seq: header.seq };
                window.advance(bytes);
            }
            _ => break,
        }
    }
    Ok(ReadRegistry::Valid(end))
}

/// A sliding window over a file: a part of the file is in memory.
struct FileWindow<'p> {
    file: File,
    path: &'p Path,
    content: Vec<u8>,
    passed: usize,
}

/// The bytes of one read.
const WINDOW_BYTES: usize = 1 << 20;

impl FileWindow<'_> {
    fn open(path: &Path) -> Result<FileWindow<'_>, DiskError> {
        let file = ops::open_to_read(path).map_err(DiskError::at("open", path))?;
        let length = disk::length(&file, path)?;
        if length > FILE_BYTES_MAX {
            let why = format!("{length} bytes, {FILE_BYTES_MAX} allowed");
            return Err(DiskError::at("read", path)(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        Ok(FileWindow { file, path, content: Vec::new(), passed: 0 })
    }

    /// Returns the bytes that come next: at least `bytes` bytes, unless the file ends.
    fn at_least(&mut self, bytes: usize) -> Result<&[u8], DiskError> {
        let have = self.content.len() - self.passed;
        if have < bytes {
            self.content.drain(..self.passed);
            self.passed = 0;
            let more = (bytes - have).max(WINDOW_BYTES);
            disk::read_on(&mut self.file, self.path, more as u64, &mut self.content)?;
        }
        Ok(self.content.get(self.passed..).unwrap_or_default())
    }

    fn advance(&mut self, bytes: usize) {
        self.passed = (self.passed + bytes).min(self.content.len());
    }
}

/// Reads the copy of a registry of which `have` bytes are valid, and returns the copy's end if that
/// is later. A copy that is damaged or of another store counts as empty.
///
/// # Errors
/// [`OpenError`] if the file cannot be read.
pub(in crate::tsdb) fn read_longer_copy(
    dir: &Path,
    store: StoreId,
    org: OrgId,
    have: u64,
    on_record: &mut dyn FnMut(RecordKind, &[u8]) -> bool,
) -> Result<Option<End>, OpenError> {
    let path = copy_of(dir, org);
    if !std::fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() > have) {
        return Ok(None);
    }
    match read(&path, store, org, on_record) {
        Ok(ReadRegistry::Valid(end)) if end.bytes > have => Ok(Some(end)),
        Ok(_) | Err(OpenError::Foreign { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Returns the path of an organisation's registry, or of its copy if that has more valid bytes.
///
/// # Errors
/// [`OpenError`] if a file cannot be read, or the registry belongs to another store or a newer
/// version.
pub(in crate::tsdb) fn longest(dir: &Path, store: StoreId, org: OrgId) -> Result<PathBuf, OpenError> {
    let path = path_of(dir, org);
    let have = match path.exists() {
        true => read(&path, store, org, &mut |_, _| true)?,
        false => ReadRegistry::Damaged("missing"),
    };
    let have = if let ReadRegistry::Valid(end) = have { end.bytes } else { 0 };
    let copy = read_longer_copy(dir, store, org, have, &mut |_, _| true)?;
    Ok(if copy.is_some() { copy_of(dir, org) } else { path })
}

/// Returns whether the copy of a registry is missing or has other bytes.
pub(in crate::tsdb) fn copy_differs(dir: &Path, org: OrgId) -> Result<bool, DiskError> {
    let (path, copy) = (path_of(dir, org), copy_of(dir, org));
    let Some(mut ours) = disk::open_to_read(&path)? else { return Ok(false) };
    let Some(mut theirs) = disk::open_to_read(&copy)? else { return Ok(true) };
    if disk::length(&ours, &path)? != disk::length(&theirs, &copy)? {
        return Ok(true);
    }
    let (mut a, mut b) = (Vec::new(), Vec::new());
    loop {
        a.clear();
        b.clear();
        let read = disk::read_on(&mut ours, &path, WINDOW_BYTES as u64, &mut a)?;
        disk::read_on(&mut theirs, &copy, WINDOW_BYTES as u64, &mut b)?;
        if a != b || read == 0 {
            return Ok(a != b);
        }
    }
}

/// Writes the copy of a registry from its first byte. It is not synced: if a power cut destroys the
/// copy, the next start writes it again.
pub(in crate::tsdb) fn write_copy(dir: &Path, org: OrgId) -> Result<(), DiskError> {
    let (path, copy) = (path_of(dir, org), copy_of(dir, org));
    let new = copy.with_extension("copy.new");
    let mut source = ops::open_to_read(&path).map_err(DiskError::at("open", &path))?;
    let file = disk::create_file(&new)?;
    let (mut piece, mut at) = (Vec::new(), 0);
    while disk::read_on(&mut source, &path, WINDOW_BYTES as u64, &mut piece)? > 0 {
        disk::write_at(&file, &new, &piece, at)?;
        at += piece.len() as u64;
        piece.clear();
    }
    disk::rename(&new, &copy)
}

/// Replaces the registry by its copy, durably. A rename needs no free space.
pub(in crate::tsdb) fn take_copy(dir: &Path, org: OrgId) -> Result<(), DiskError> {
    let copy = copy_of(dir, org);
    disk::sync_file(&disk::open_file(&copy)?, &copy)?;
    disk::rename(&copy, &path_of(dir, org))?;
    disk::sync_dir(dir)
}

/// Cuts the bytes after the last valid record, and syncs the file.
pub(in crate::tsdb) fn cut(path: &Path, end: End) -> Result<(), DiskError> {
    let file = disk::open_file(path)?;
    ops::set_len(&file, path, end.bytes)
        .and_then(|()| ops::sync_all(&file, path))
        .map_err(DiskError::at("cut", path))
}

/// Appends records to the registry, syncs it, and then appends them to its copy. Creates the files
/// if they are missing.
pub(in crate::tsdb) fn append(
    dir: &Path,
    store: StoreId,
    org: OrgId,
    end: End,
    records: &[(RecordKind, Vec<u8>)],
) -> Result<End, DiskError> {
    if records.is_empty() {
        return Ok(end);
    }
    let path = path_of(dir, org);
    let mut bytes = Vec::new();
    if end.bytes == 0 {
        let header = FileHeader {
            file_bytes: 0,
            store,
            number: u64::from(org.0),
            created_ms: 0,
            before: 0,
            layout: Layout::Plain,
        };
        bytes.extend_from_slice(&header.encode(MAGIC_REGISTRY));
    }
    let mut seq = end.seq;
    for (kind, body) in records {
        seq += 1;
        put_record(&mut bytes, seq, org, *kind, seq, body);
    }
    let length = end.bytes + bytes.len() as u64;
    if end.bytes == 0 {
        // The first records are written together with the header, and the file is renamed
        // afterwards. So an incomplete header is damage and not the result of a crash.
        let new = path.with_extension("reg.new");
        let file = disk::create_file(&new)?;
        disk::write_at(&file, &new, &bytes, 0)?;
        disk::sync_file(&file, &new)?;
        disk::rename(&new, &path)?;
        disk::sync_dir(dir)?;
        write_copy(dir, org)?;
        return Ok(End { bytes: length, seq });
    }
    let file = append_bytes(&path, &bytes, end.bytes)?;
    disk::sync_file(&file, &path)?;
    let copy = copy_of(dir, org);
    match std::fs::metadata(&copy) {
        Ok(found) if found.len() >= end.bytes => drop(append_bytes(&copy, &bytes, end.bytes)?),
        _ => write_copy(dir, org)?,
    }
    Ok(End { bytes: length, seq })
}

/// Writes `bytes` at `offset` and truncates the file after them.
fn append_bytes(path: &Path, bytes: &[u8], offset: u64) -> Result<File, DiskError> {
    let file = disk::open_file(path)?;
    disk::write_at(&file, path, bytes, offset)?;
    ops::set_len(&file, path, offset + bytes.len() as u64).map_err(DiskError::at("write", path))?;
    Ok(file)
}
