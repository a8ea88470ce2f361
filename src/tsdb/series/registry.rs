//! The registry file of an organisation, `series/<org>.reg`: every series and what senders said, so that a start need
//! not read the whole log for names.
//!
//! The 64 byte header of log files with the word "PROMREG1" and the organisation as number, then records with the
//! log's header of version 1 (a registry is read up to its first bad record and never searched): type 32 with the body of [`super::definition`], type 33 with that of [`super::metadata`]; seq counts
//! from 1. Appended and synced by seals and checkpoints alone. A tail that is no record was never counted on and is cut.
//!
//! `series/<org>.copy` holds the same bytes and is appended after the registry. Once a deletion or retention has removed a
//! series' last row, and the log was trimmed, no other file has its labels, while samples that are written later still
//! use its id. A start that finds the registry damaged, short or missing continues with the copy; without a longer copy
//! it takes the names from segments and the log. A start also makes a copy that is missing or differs.

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

/// 2 M series take some 110 MB (docs/storage.md section 0, point 5); more than this is not a registry.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// Where the registry of an organisation lies.
pub(in crate::tsdb) fn path_of(dir: &Path, org: OrgId) -> PathBuf {
    dir.join(format!("{}.reg", org.0))
}

/// The organisation in a file's name.
pub(in crate::tsdb) fn org_of(name: &str) -> Option<OrgId> {
    name.strip_suffix(".reg").and_then(|n| n.parse().ok()).map(OrgId)
}

/// Where the copy of an organisation's registry is stored.
pub(in crate::tsdb) fn copy_of(dir: &Path, org: OrgId) -> PathBuf {
    dir.join(format!("{}.copy", org.0))
}

/// The organisations that have a registry or the copy of one in `dir`.
pub(in crate::tsdb) fn orgs_in(dir: &Path) -> Result<BTreeSet<OrgId>, DiskError> {
    let names = if dir.is_dir() { disk::names(dir)? } else { Vec::new() };
    let of_copy = |name: &String| name.strip_suffix(".copy").and_then(|n| n.parse().ok()).map(OrgId);
    Ok(names.iter().filter_map(|name| org_of(name).or_else(|| of_copy(name))).collect())
}

/// Where a registry ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct End {
    /// Bytes up to the end of the last valid record; 0: there is no file.
    pub(in crate::tsdb) bytes: u64,
    /// The seq of that record.
    pub(in crate::tsdb) seq: u64,
}

/// What reading a registry found.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum ReadRegistry {
    /// Valid up to here; bytes after it are to be cut.
    Valid(End),
    /// Not even its header is.
    Damaged(&'static str),
}

/// Hands out the records of a registry.
///
/// # Errors
/// [`OpenError`] where the file cannot be read, or is another store's or a newer version's.
pub(in crate::tsdb) fn read(
    path: &Path,
    store: StoreId,
    org: OrgId,
    on_record: &mut dyn FnMut(RecordKind, &[u8]) -> bool,
) -> Result<ReadRegistry, OpenError> {
    let foreign = |what: &str| OpenError::Foreign { path: path.to_owned(), what: what.to_owned() };
    let mut window = Window::open(path)?;
    match FileHeader::parse(window.at_least(FILE_HEADER_BYTES)?, MAGIC_REGISTRY) {
        Ok(header) if header.store != store => return Err(foreign("a registry of another store")),
        Ok(header) if header.number != u64::from(org.0) => {
            return Ok(ReadRegistry::Damaged("another organisation's"));
        }
        Ok(_) => {}
        Err(BadHeader::Newer) => return Err(foreign("written by a newer version")),
        Err(BadHeader::Damaged(what)) => return Ok(ReadRegistry::Damaged(what)),
    }
    window.pass(FILE_HEADER_BYTES);
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
                window.pass(bytes);
            }
            _ => break,
        }
    }
    Ok(ReadRegistry::Valid(end))
}

/// A file of which a piece is in memory at a time.
struct Window<'p> {
    file: File,
    path: &'p Path,
    content: Vec<u8>,
    passed: usize,
}

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 1 << 20;

impl Window<'_> {
    fn open(path: &Path) -> Result<Window<'_>, DiskError> {
        let file = ops::open_to_read(path).map_err(DiskError::at("open", path))?;
        let length = disk::length(&file, path)?;
        if length > FILE_BYTES_MAX {
            let why = format!("{length} bytes, {FILE_BYTES_MAX} allowed");
            return Err(DiskError::at("read", path)(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        Ok(Window { file, path, content: Vec::new(), passed: 0 })
    }

    /// What comes next, so many bytes of it or more where the file has them.
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

    fn pass(&mut self, bytes: usize) {
        self.passed = (self.passed + bytes).min(self.content.len());
    }
}

/// Reads the copy of a registry of which `have` bytes are valid: where it ends, if it has more. A copy that is damaged
/// or another store's has none.
///
/// # Errors
/// [`OpenError`] where the file cannot be read.
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

/// The registry of an organisation, or its copy where that has more valid bytes.
///
/// # Errors
/// [`OpenError`] where a file cannot be read, or the registry is another store's or a newer version's.
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

/// Whether the copy of a registry is missing or holds other bytes.
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

/// Writes the copy of a registry again from its first byte. Nothing is synced: a start makes a copy that a power cut took
/// again.
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

/// Puts the copy of a registry into its place, durably. A rename needs no room.
pub(in crate::tsdb) fn take_copy(dir: &Path, org: OrgId) -> Result<(), DiskError> {
    let copy = copy_of(dir, org);
    disk::sync_file(&disk::open_file(&copy)?, &copy)?;
    disk::rename(&copy, &path_of(dir, org))?;
    disk::sync_dir(dir)
}

/// Cuts what comes after the last valid record.
pub(in crate::tsdb) fn cut(path: &Path, end: End) -> Result<(), DiskError> {
    let file = disk::open_file(path)?;
    ops::set_len(&file, path, end.bytes)
        .and_then(|()| ops::sync_all(&file, path))
        .map_err(DiskError::at("cut", path))
}

/// Appends records to the registry, makes them durable, and appends them to its copy; makes the files if there are none.
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
        // The first records come with the file, whole: half a header is then damage and no crash.
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

/// Writes `bytes` at `offset` and ends the file behind them.
fn append_bytes(path: &Path, bytes: &[u8], offset: u64) -> Result<File, DiskError> {
    let file = disk::open_file(path)?;
    disk::write_at(&file, path, bytes, offset)?;
    ops::set_len(&file, path, offset + bytes.len() as u64).map_err(DiskError::at("write", path))?;
    Ok(file)
}
