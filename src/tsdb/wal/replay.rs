//! Reads the log after a start (docs/storage.md section 10, step 7).
//!
//! Records are handed out in order of seq. If an offset holds bytes but no valid record, or if a
//! seq is skipped, the rest of the log is searched. If a later record states that the missing one
//! was durable, this is **damage**: all readable records are still returned, and the store must not
//! write. Otherwise it is a **torn tail** that was never acknowledged: no later record is returned,
//! and its bytes are cleared before the log continues.
//!
//! The search trusts no bytes that a sender may have written. In files of version 2 a record counts
//! only if it verifies with the file's secret, and a record whose header verifies is skipped as a
//! whole. In files of version 1, whose checksums have no key, the search never enters the body of a
//! record: it continues at the end of the bad one ([`super::record::end_of_bad_plain_record`]). If
//! that end is known only from a header that may be damaged, the records after it count only if
//! their numbers continue without a gap up to the end of the data, since a record planted in a body
//! repeats the number of the record after it. Otherwise the rest of the file counts as lost if
//! anything in it looks like a durable record. And no number may be greater than the bytes since
//! the break allow, at [`RECORD_BYTES_MIN`] for each record.
//!
//! A missing file that its predecessor's switch names, or that should lie between two others, is
//! damage too. If all records of a file are in the checkpoint, only its header, length and first
//! record are checked.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::file::{self, LogFile};
use super::log::FullFile;
use super::reader::LogReader;
use super::record::{
    BadEnd, BadHeader, FileHeader, Layout, MAGIC_WAL, Mark, OrgSpan, ParsedRecord, RECORD_BYTES_MIN,
    RecordHeader, RecordKind, parse_switch,
};
use super::samples;
use crate::kv::keyed::KEYED_FILE_HEADER_BYTES;
use crate::kv::ops;
use crate::model::{OrgId, StoreId};
use crate::tsdb::disk;
use crate::tsdb::error::{DiskError, OpenError};
use crate::tsdb::side_data;

/// The limit of a log file that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The limit of a torn tail, which is one group: 1 MiB, or one record. More bytes after the break
/// are damage.
const TORN_BYTES_MAX: u64 = 4 << 20;

/// The start of the log. It is recorded durably before any earlier file is unlinked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct LogOrigin {
    /// The number of the first file.
    pub(in crate::tsdb) file: u64,
    /// The number of its first record.
    pub(in crate::tsdb) seq: u64,
}

impl Default for LogOrigin {
    fn default() -> LogOrigin {
        LogOrigin { file: 1, seq: 1 }
    }
}

/// Damage of the log beyond a torn tail.
#[derive(Debug)]
pub(in crate::tsdb) struct LogDamage {
    /// The files to copy into quarantine.
    pub(in crate::tsdb) files: Vec<PathBuf>,
    /// The offset in the first of them, if known.
    pub(in crate::tsdb) offset: Option<u64>,
    /// The description for the operator.
    pub(in crate::tsdb) text: String,
}

/// The last file, and the offset in it at which the log continues.
#[derive(Debug)]
pub(in crate::tsdb) struct Tail {
    pub(in crate::tsdb) path: PathBuf,
    pub(in crate::tsdb) header: FileHeader,
    pub(in crate::tsdb) offset: u64,
    /// The bytes after the offset that were written and never acknowledged.
    pub(in crate::tsdb) torn_bytes: u64,
    /// For a file without records: the previous file, which ended with a switch to it.
    pub(in crate::tsdb) before: Option<PathBuf>,
}

/// The result of reading the log.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct LogEnd {
    pub(in crate::tsdb) files: u64,
    pub(in crate::tsdb) file_bytes: u64,
    pub(in crate::tsdb) records: u64,
    pub(in crate::tsdb) last_seq: u64,
    /// The last file with records, or the only file. `None` if there is no file.
    pub(in crate::tsdb) tail: Option<Tail>,
    /// The files after it, which hold no records (spares).
    pub(in crate::tsdb) spares: Vec<PathBuf>,
    /// The files before it whose first records can be read.
    pub(in crate::tsdb) full: Vec<FullFile>,
    /// The first record of the tail's file; without one, the next.
    pub(in crate::tsdb) first_seq: u64,
    /// Files from before the log's beginning, which an interrupted trimming left.
    pub(in crate::tsdb) trimmed: Vec<PathBuf>,
    pub(in crate::tsdb) damage: Option<LogDamage>,
}

/// The progress of reading the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct ReplayPosition {
    /// The current file, counted from 1.
    pub(in crate::tsdb) file: u64,
    pub(in crate::tsdb) files: u64,
    /// Bytes read. Files that are only checked do not count.
    pub(in crate::tsdb) bytes: u64,
    /// Bytes of all files that are read.
    pub(in crate::tsdb) bytes_all: u64,
    pub(in crate::tsdb) records: u64,
}

/// The receiver of each record. An error ends the reading.
pub(in crate::tsdb) type OnRecord<'a> =
    &'a mut dyn FnMut(&RecordHeader, &[u8], &ReplayPosition) -> Result<(), OpenError>;

/// A valid record after a break.
struct LaterRecord {
    path: PathBuf,
    offset: u64,
}

/// Reads the log and hands out every record after `from_seq`.
///
/// Files whose records all come before are checked but not read, since the checkpoint holds their
/// content.
///
/// # Errors
/// [`OpenError`] if a file cannot be read, or belongs to another store or a newer version, and any
/// error of `on_record`. Damage is not an error.
pub(in crate::tsdb) fn replay(
    dir: &Path,
    store: StoreId,
    begin: LogOrigin,
    from_seq: u64,
    on_record: OnRecord<'_>,
) -> Result<LogEnd, OpenError> {
    let from_seq = from_seq.max(begin.seq.saturating_sub(1));
    let end = LogEnd::default();
    let position = ReplayPosition::default();
    let (memory, expected, next_file, broken) = (Vec::new(), None, None, None);
    let mut scan = LogScan {
        dir,
        store,
        begin,
        from_seq,
        on_record,
        end,
        position,
        memory,
        expected,
        next_file,
        broken,
        passed: 0,
        data_end: 0,
    };
    scan.files()?;
    Ok(scan.end)
}

struct LogScan<'a> {
    dir: &'a Path,
    store: StoreId,
    begin: LogOrigin,
    from_seq: u64,
    on_record: OnRecord<'a>,
    end: LogEnd,
    position: ReplayPosition,
    /// The buffer for reading files, reused from file to file.
    memory: Vec<u8>,
    /// The next seq; none before the first record.
    expected: Option<u64>,
    /// The number of the file that the last switch names.
    next_file: Option<u64>,
    broken: Option<LogBreak>,
    /// The bytes of the files before the current one, missing files included.
    passed: u64,
    /// The end of the last record, or the start of the log, counted like `passed`.
    data_end: u64,
}

/// The first gap in the log.
struct LogBreak {
    /// The missing seq.
    seq: u64,
    path: PathBuf,
    offset: u64,
    what: &'static str,
    /// Whether a later record proves that the missing one was durable.
    vouched: bool,
    /// The end of the last record before the gap, counted like [`LogScan::passed`].
    data_end: u64,
    /// Whether the file with the gap was searched.
    searched: bool,
    /// The valid records after the gap.
    later: Vec<LaterRecord>,
}

/// Records in a file of version 1 after a bad one whose end is uncertain. They count only if their
/// numbers continue without a gap up to the end of the data.
struct UncertainEnd {
    /// The offset of the bad record.
    offset: u64,
    /// The number of later records found before it.
    later: usize,
    /// Whether one of those proved that the missing record was durable.
    vouched: bool,
    /// Whether a record was found after it.
    has_record: bool,
}

impl LogBreak {
    /// Returns the greatest number that a record at `position` may have. `position` is counted like
    /// [`LogScan::passed`].
    const fn greatest_seq_at(&self, position: u64) -> u64 {
        self.seq.saturating_add(position.saturating_sub(self.data_end) / RECORD_BYTES_MIN)
    }

    /// Saves the state before a bad record with an uncertain end.
    fn doubt(&self, offset: u64) -> UncertainEnd {
        UncertainEnd { offset, later: self.later.len(), vouched: self.vouched, has_record: false }
    }

    /// Applies the statement of a later record's header about the missing record. `first` is true
    /// if both are in one file.
    fn note(&mut self, found: &RecordHeader, first: bool) {
        self.vouched |= found.vouches_to().is_some_and(|durable| durable >= self.seq);
        // The next file is begun only once everything before it is durable.
        self.vouched |= !first;
    }

    /// Judges the rest of a file of version 1 in which records cannot be distinguished from
    /// senders' data. It is damage if anything there looks like a record that was durable after the
    /// missing one. No record of the file is returned.
    fn note_unsearched(
        &mut self,
        reader: &mut LogReader,
        passed: u64,
        from: u64,
        first: bool,
    ) -> Result<(), DiskError> {
        let mut offset = from;
        while offset < reader.length() && !self.vouched {
            let may_have = self.seq..=self.greatest_seq_at(passed.saturating_add(offset));
            let possible = reader
                .plain_header(offset)?
                .filter(|header| header.kind.is_some() && may_have.contains(&header.seq));
            if possible.is_some()
                && let ParsedRecord::Record(found, ..) = reader.record(offset)?
            {
                self.note(&found, first);
            }
            offset += 8;
        }
        Ok(())
    }
}

impl LogScan<'_> {
    fn files(&mut self) -> Result<(), OpenError> {
        let mut files = Vec::new();
        let names = if self.dir.is_dir() { disk::names(self.dir)? } else { Vec::new() };
        for name in names {
            if let Some(number) = file::number_of(&name) {
                files.push((number, self.dir.join(name)));
            }
        }
        files.sort_unstable();
        let trimmed_count = files.partition_point(|(number, _)| *number < self.begin.file);
        self.end.trimmed = files.drain(..trimmed_count).map(|(_, path)| path).collect();
        let starts = files.iter().map(|(_, path)| FileStart::read(path)).collect::<Result<Vec<_>, _>>()?;
        // Skip each of the first files whose successor also begins at or before the first wanted
        // record.
        let in_time = |start: &&FileStart| start.first_seq.is_some_and(|first| first <= self.from_seq + 1);
        let skipped = starts.iter().skip(1).take_while(in_time).count();
        if files.first().is_some_and(|(number, _)| *number == self.begin.file) {
            // If a file was left before its first record, the numbers continue from the start of
            // the log.
            self.end.last_seq = self.begin.seq.saturating_sub(1);
        }
        self.position.files = files.len() as u64;
        for (_, path) in files.iter().skip(skipped) {
            self.position.bytes_all += std::fs::metadata(path).map_err(DiskError::at("look at", path))?.len();
        }
        let mut bytes_before = 0;
        let mut before: Option<u64> = self.begin.file.checked_sub(1);
        for (index, (number, path)) in files.iter().enumerate() {
            self.end.files += 1;
            self.position.file = self.end.files;
            let bytes = std::fs::metadata(path).map_err(DiskError::at("look at", path))?.len();
            self.end.file_bytes += bytes;
            if let Some(before) = before.filter(|before| before + 1 != *number) {
                let missing = file::path_of(self.dir, before + 1);
                let text = match number - before - 1 {
                    1 => format!("log file {} is missing", missing.display()),
                    more => format!("{more} log files are missing from {} on", missing.display()),
                };
                self.passed =
                    self.passed.saturating_add((number - before - 1).saturating_mul(FILE_BYTES_MAX));
                self.note_damage(path, text);
            }
            before = Some(*number);
            if let (Some(start), Some(next)) = (starts.get(index), starts.get(index + 1)) {
                self.end.full.extend(start.full(*number, path, bytes, next));
            }
            if index < skipped {
                self.look_at(*number, path)?;
            } else {
                self.position.bytes = bytes_before;
                bytes_before += bytes;
                let mut reader = LogReader::open(path, FILE_BYTES_MAX, std::mem::take(&mut self.memory))?;
                self.file(*number, path, &mut reader)?;
                self.memory = reader.into_memory();
            }
            self.passed = self.passed.saturating_add(capacity(path, bytes)?);
        }
        self.judge_break()?;
        self.judge_end(before);
        let tail = self.end.tail.as_ref().map_or(0, |tail| tail.header.number);
        self.end.full.retain(|file| file.number < tail);
        self.end.full.extend(self.left_for_an_empty_file(&files)?);
        let index = files.iter().position(|(number, _)| *number == tail);
        let first = index.and_then(|index| starts.get(index)?.first_seq);
        self.end.first_seq = first.unwrap_or(self.end.last_seq.saturating_add(1));
        Ok(())
    }

    /// Parses a file header. Damage is recorded; a header of another store or a newer version is an
    /// error.
    fn header(&mut self, number: u64, path: &Path, content: &[u8]) -> Result<FileHeader, OpenError> {
        let foreign = |what: &str| OpenError::Foreign { path: path.to_owned(), what: what.to_owned() };
        match FileHeader::parse(content, MAGIC_WAL) {
            Ok(header) if header.store != self.store => Err(foreign("a log file of another store")),
            Ok(header) if header.number != number => {
                self.note_damage(path, format!("{} is log file {}", path.display(), header.number));
                Ok(header)
            }
            Ok(header) if header.layout == Layout::Lost => {
                self.note_damage(path, format!("{}: the secret of its records is damaged", path.display()));
                Ok(header)
            }
            Ok(header) => Ok(header),
            Err(BadHeader::Newer) => Err(foreign("written by a newer version")),
            Err(BadHeader::Damaged(what)) => {
                self.note_damage_at(path, 0, format!("{}: {what}", path.display()));
                let layout = Layout::of(content, number);
                Ok(FileHeader { file_bytes: 0, store: self.store, number, created_ms: 0, before: 0, layout })
            }
        }
    }

    /// Checks a file that the checkpoint covers. It must exist with a valid outline, because the
    /// checkpoint is only a copy of it.
    fn look_at(&mut self, number: u64, path: &Path) -> Result<(), OpenError> {
        let start = read_start(path)?;
        self.header(number, path, &start)?;
        if let Some(text) = cut_short(path)? {
            self.note_damage(path, text);
        }
        let layout = Layout::of(&start, number);
        let at = layout.first_record();
        let what = match layout.parse(start.get(at..).unwrap_or_default()) {
            ParsedRecord::Record(..) => return Ok(()),
            ParsedRecord::Unreadable(..) => UNREADABLE,
            ParsedRecord::Bad(what) => what,
            ParsedRecord::End => "there is no record, though later files have some",
        };
        let text = format!("log damaged at byte {at} of {} ({what})", path.display());
        self.note_damage_at(path, at as u64, text);
        Ok(())
    }

    fn file(&mut self, number: u64, path: &Path, reader: &mut LogReader) -> Result<(), OpenError> {
        let header = self.header(number, path, reader.header()?)?;
        let continues = self.next_file == Some(number);
        let records_before = self.end.records;
        let mut offset = reader.first_record();
        while self.broken.is_none() {
            match reader.record(offset)? {
                ParsedRecord::Record(found, body, bytes) if self.fits(&found) => {
                    offset += bytes as u64;
                    self.position.bytes += bytes as u64;
                    self.data_end = self.passed.saturating_add(offset);
                    self.hand_out(&found, body, path)?;
                }
                ParsedRecord::Record(..) => self.break_at(path, offset, "records are missing before it"),
                ParsedRecord::Unreadable(..) => self.break_at(path, offset, UNREADABLE),
                ParsedRecord::Bad(what) => self.break_at(path, offset, what),
                ParsedRecord::End => {
                    if reader.written_from(offset)? > offset {
                        self.break_at(path, offset, "bytes after the end of data");
                    }
                    break;
                }
            }
        }
        let had_records = self.end.records > records_before;
        if self.broken.is_some() {
            self.search(path, offset, header, reader)?;
        } else if had_records || continues || self.end.tail.is_none() {
            let before = self.end.tail.take().map(|tail| tail.path).filter(|_| !had_records);
            self.end.tail = Some(Tail { path: path.to_owned(), header, offset, torn_bytes: 0, before });
        } else {
            self.end.spares.push(path.to_owned());
        }
        Ok(())
    }

    /// Returns whether this record is the next one.
    fn fits(&self, found: &RecordHeader) -> bool {
        match self.expected {
            Some(expected) => found.seq == expected,
            // The record is the first one that is read. Everything before it is in the checkpoint
            // or was never written.
            None => found.seq > 0 && found.seq <= self.from_seq.saturating_add(1),
        }
    }

    fn hand_out(&mut self, found: &RecordHeader, body: &[u8], path: &Path) -> Result<(), OpenError> {
        if found.kind.is_none() {
            let what = format!("record {} was written by a newer version", found.seq);
            return Err(OpenError::Foreign { path: path.to_owned(), what });
        }
        self.end.records += 1;
        self.end.last_seq = found.seq;
        self.expected = Some(found.seq.saturating_add(1));
        if found.kind == Some(RecordKind::Switch) {
            match parse_switch(body) {
                Ok(next) => self.next_file = Some(next),
                Err(e) => self.note_damage(path, format!("{}: switch {}: {e}", path.display(), found.seq)),
            }
        }
        if found.seq > self.from_seq {
            self.position.records = self.end.records;
            (self.on_record)(found, body, &self.position)?;
        }
        Ok(())
    }

    fn break_at(&mut self, path: &Path, offset: u64, what: &'static str) {
        let seq = self.expected.unwrap_or(self.begin.seq);
        let path = path.to_owned();
        self.broken = Some(LogBreak {
            seq,
            path,
            offset,
            what,
            vouched: false,
            data_end: self.data_end,
            searched: false,
            later: Vec::new(),
        });
    }

    /// Collects all valid records after the break in this file.
    fn search(
        &mut self,
        path: &Path,
        from: u64,
        header: FileHeader,
        reader: &mut LogReader,
    ) -> Result<(), OpenError> {
        let (passed, is_plain) = (self.passed, reader.layout() == Layout::Plain);
        let Some(broken) = &mut self.broken else { return Ok(()) };
        let first = !std::mem::replace(&mut broken.searched, true);
        let mut offset = if first { from } else { reader.first_record() };
        let seen_before = broken.later.len();
        // The expected number of the record at `offset` in a file of version 1.
        let mut here = first.then_some(broken.seq);
        let mut doubt: Option<UncertainEnd> = None;
        while offset < reader.length() {
            let may_have = broken.seq..=broken.greatest_seq_at(passed.saturating_add(offset));
            match reader.record(offset)? {
                ParsedRecord::Record(found, _, bytes)
                    if may_have.contains(&found.seq) && (doubt.is_none() || here == Some(found.seq)) =>
                {
                    if let Some(doubt) = &mut doubt {
                        doubt.has_record = true;
                    }
                    broken.note(&found, first);
                    broken.later.push(LaterRecord { path: path.to_owned(), offset });
                    offset += bytes as u64;
                    here = Some(found.seq.saturating_add(1));
                }
                // Its header verified, so its end is known even if its body is damaged.
                ParsedRecord::Unreadable(found, bytes) => {
                    if may_have.contains(&found.seq) {
                        broken.note(&found, first);
                    }
                    offset += bytes as u64;
                }
                found if is_plain => {
                    let is_end = found == ParsedRecord::End;
                    let whole =
                        if let ParsedRecord::Record(_, _, bytes) = found { Some(bytes) } else { None };
                    if is_end
                        && doubt.as_ref().is_some_and(|doubt| doubt.has_record)
                        && reader.written_from(offset)? == offset
                    {
                        doubt = None;
                        break;
                    }
                    let end = match (whole, here) {
                        (Some(bytes), None) => Some(BadEnd { bytes, is_certain: true }),
                        // A record with an unexpected number after an uncertain end does not count.
                        (Some(_), Some(_)) if doubt.is_some() => None,
                        (_, Some(seq)) => reader.end_of_bad_record(offset, seq)?,
                        (None, None) => None,
                    };
                    let Some(end) = end else {
                        if doubt.is_none() {
                            broken.note_unsearched(reader, passed, offset, first)?;
                        }
                        break;
                    };
                    if !end.is_certain && doubt.is_none() {
                        doubt = Some(broken.doubt(offset));
                    }
                    here = here.map(|seq| seq.saturating_add(1));
                    offset += end.bytes as u64;
                }
                // A valid record with an unexpected number: its body is not searched. A number that
                // is too great is not applied, and no crash produces it.
                ParsedRecord::Record(found, _, bytes) => {
                    if found.seq > broken.seq {
                        broken.vouched = true;
                    }
                    offset += bytes as u64;
                }
                ParsedRecord::Bad(_) | ParsedRecord::End => offset += 8,
            }
        }
        // A file that records fill to its last byte has no other end mark.
        if let Some(doubt) = doubt.filter(|doubt| !doubt.has_record || offset < reader.length()) {
            broken.later.truncate(doubt.later);
            broken.vouched = doubt.vouched;
            broken.note_unsearched(reader, passed, doubt.offset, first)?;
        }
        if first {
            let torn_bytes = reader.written_from(from)? - from;
            if torn_bytes > TORN_BYTES_MAX {
                broken.vouched = true;
            }
            let before = self.end.tail.take().map(|tail| tail.path);
            let before = before.filter(|_| from <= reader.first_record());
            self.end.tail = Some(Tail { path: path.to_owned(), header, offset: from, torn_bytes, before });
        } else if broken.later.len() == seen_before {
            self.end.spares.push(path.to_owned());
        }
        Ok(())
    }

    /// Returns the file before the tail if the tail has no record yet, so that no mark describes
    /// that file.
    fn left_for_an_empty_file(&self, files: &[(u64, PathBuf)]) -> Result<Option<FullFile>, DiskError> {
        let Some(path) = self.end.tail.as_ref().and_then(|tail| tail.before.as_ref()) else {
            return Ok(None);
        };
        let Some((number, _)) = files.iter().find(|(_, have)| have == path) else { return Ok(None) };
        let first_seq = FileStart::read(path)?.first_seq;
        let spans = spans_of_file(path)?;
        let bytes = std::fs::metadata(path).map_err(DiskError::at("look at", path))?.len();
        Ok(first_seq.map(|first_seq| FullFile {
            number: *number,
            path: path.clone(),
            bytes,
            first_seq,
            last_seq: self.end.last_seq,
            spans: Some(spans.into_values().collect()),
        }))
    }

    /// Records damage if the newest file that a switch names is missing.
    fn judge_end(&mut self, newest: Option<u64>) {
        if let (Some(next), Some(newest)) = (self.next_file, newest)
            && next > newest
        {
            let from = self.end.last_seq.saturating_add(1);
            let text = format!(
                "log file {next} is missing, as the end of log file {newest} states: records from {from} on are lost"
            );
            let path = file::path_of(self.dir, newest);
            self.note_damage(&path, text);
        }
    }

    /// Decides whether a break is a torn tail or damage, and hands out the later records in case of
    /// damage.
    fn judge_break(&mut self) -> Result<(), OpenError> {
        let Some(broken) = self.broken.take() else { return Ok(()) };
        if !broken.vouched {
            return Ok(());
        }
        let (mut missing, mut next) = (Vec::new(), broken.seq);
        let mut open: Option<(&Path, LogReader)> = None;
        for later in &broken.later {
            let reader = match open.take() {
                Some((path, reader)) if path == later.path => reader,
                other => {
                    let memory = other.map_or_else(Vec::new, |(_, reader)| reader.into_memory());
                    LogReader::open(&later.path, FILE_BYTES_MAX, memory)?
                }
            };
            let (_, reader) = open.insert((&later.path, reader));
            if let ParsedRecord::Record(found, body, _) = reader.record(later.offset)?
                && found.seq >= next
            {
                if found.seq > next {
                    missing.push(format!("{next}-{}", found.seq - 1));
                }
                next = found.seq.saturating_add(1);
                self.hand_out(&found, body, &broken.path)?;
            }
        }
        let records = if missing.is_empty() { "none of them lost".to_owned() } else { missing.join(", ") };
        let text = format!(
            "log damaged at byte {} of {} ({}): records {records} unreadable",
            broken.offset,
            broken.path.display(),
            broken.what
        );
        self.note_damage_at(&broken.path, broken.offset, text);
        Ok(())
    }

    fn note_damage(&mut self, path: &Path, text: String) {
        match &mut self.end.damage {
            Some(damage) => {
                damage.text = format!("{}; {text}", damage.text);
                damage.files.push(path.to_owned());
            }
            none => *none = Some(LogDamage { files: vec![path.to_owned()], offset: None, text }),
        }
    }

    /// Like [`LogScan::note_damage`], with the offset in the file.
    fn note_damage_at(&mut self, path: &Path, offset: u64, text: String) {
        self.note_damage(path, text);
        if let Some(damage) = self.end.damage.as_mut().filter(|damage| damage.files.len() == 1) {
            damage.offset = Some(offset);
        }
    }
}

/// The description of a record with a valid header and a damaged body.
const UNREADABLE: &str = "record body differs from its checksum";

/// Returns the bytes that a file had room for, by its header or its length. If the header is
/// damaged, returns the limit of a file.
fn capacity(path: &Path, length: u64) -> Result<u64, DiskError> {
    let mut start = Vec::new();
    let file = std::fs::File::open(path).map_err(DiskError::at("open", path))?;
    file.take(64).read_to_end(&mut start).map_err(DiskError::at("read", path))?;
    let bytes = FileHeader::parse(&start, MAGIC_WAL).map(|header| u64::from(header.file_bytes));
    Ok(length.max(bytes.unwrap_or(FILE_BYTES_MAX)))
}

/// Reads the file header and the first record, which is a mark of at most 0.35 MB.
fn read_start(path: &Path) -> Result<Vec<u8>, DiskError> {
    let file = std::fs::File::open(path).map_err(DiskError::at("open", path))?;
    let mut start = Vec::new();
    let some = KEYED_FILE_HEADER_BYTES as u64 + 4_096;
    (&file).take(some).read_to_end(&mut start).map_err(DiskError::at("read", path))?;
    let layout = Layout::of(&start, number_in(path));
    let rest = start.get(layout.first_record()..).unwrap_or_default();
    let whole = layout.promised_bytes(rest);
    if whole > rest.len() && whole <= 400 << 10 {
        start.resize(layout.first_record() + whole, 0);
        match file.read_exact_at(&mut start, 0) {
            Err(e) if e.kind() != std::io::ErrorKind::UnexpectedEof => {
                return Err(DiskError::at("read", path)(e));
            }
            _ => {}
        }
    }
    Ok(start)
}

/// Parses the number in the name of a log file.
fn number_in(path: &Path) -> u64 {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    file::number_of(&name).unwrap_or_default()
}

/// The content of a file's first record.
struct FileStart {
    first_seq: Option<u64>,
    /// The spans of the file before; empty if the record has none.
    spans: Vec<OrgSpan>,
}

impl FileStart {
    /// Reads only the first record. A damaged one is reported when its file is read.
    fn read(path: &Path) -> Result<FileStart, DiskError> {
        let start = read_start(path)?;
        let layout = Layout::of(&start, number_in(path));
        Ok(match layout.parse(start.get(layout.first_record()..).unwrap_or_default()) {
            ParsedRecord::Record(header, body, _) => {
                let mark = (header.kind == Some(RecordKind::Mark)).then(|| Mark::parse(body).ok()).flatten();
                let spans = mark.map(|mark| mark.orgs).unwrap_or_default();
                FileStart { first_seq: Some(header.seq), spans }
            }
            _ => FileStart { first_seq: None, spans: Vec::new() },
        })
    }

    /// Describes the file with this start, given the start of the `next` one.
    fn full(&self, number: u64, path: &Path, bytes: u64, next: &FileStart) -> Option<FullFile> {
        Some(FullFile {
            number,
            path: path.to_owned(),
            bytes,
            first_seq: self.first_seq?,
            last_seq: next.first_seq?.checked_sub(1)?,
            spans: (!next.spans.is_empty()).then(|| next.spans.clone()),
        })
    }
}

/// Reads the spans of a file's records per organisation, for the first mark of the next file.
pub(in crate::tsdb) fn spans_of_file(path: &Path) -> Result<BTreeMap<OrgId, OrgSpan>, DiskError> {
    let mut reader = LogReader::open(path, FILE_BYTES_MAX, Vec::new())?;
    let mut spans = BTreeMap::new();
    let mut scratch = Vec::new();
    let mut offset = reader.first_record();
    while let ParsedRecord::Record(header, body, bytes) = reader.record(offset)? {
        offset += bytes as u64;
        let org = header.org;
        if matches!(header.kind, Some(RecordKind::Mark | RecordKind::Switch)) {
            continue;
        }
        let span = spans.entry(org).or_insert(OrgSpan { org, greatest_ms: i64::MIN, last_seq: 0 });
        span.last_seq = header.seq;
        let beside = header.kind.map_or(i64::MIN, |kind| side_data::record::greatest_ms(kind, body));
        span.greatest_ms = span.greatest_ms.max(beside);
        if let Some(kind) = header.kind.filter(|kind| kind.is_samples())
            && samples::decode(kind, body, &mut scratch).is_ok()
        {
            let greatest = scratch.iter().map(|sample| sample.at_ms).max();
            span.greatest_ms = span.greatest_ms.max(greatest.unwrap_or(i64::MIN));
        }
    }
    Ok(spans)
}

/// Describes a file that is shorter than its header states.
///
/// All bytes of a log file are durable before its first record. No crash shortens it, so records
/// may be lost.
pub(in crate::tsdb) fn cut_short(path: &Path) -> Result<Option<String>, DiskError> {
    let mut start = Vec::new();
    let file = std::fs::File::open(path).map_err(DiskError::at("open", path))?;
    let length = file.metadata().map_err(DiskError::at("look at", path))?.len();
    file.take(KEYED_FILE_HEADER_BYTES as u64).read_to_end(&mut start).map_err(DiskError::at("read", path))?;
    Ok(match FileHeader::parse(&start, MAGIC_WAL) {
        Ok(header) if length < u64::from(header.file_bytes) => Some(format!(
            "{} has {length} bytes of {}: records behind byte {length} may be lost",
            path.display(),
            header.file_bytes
        )),
        // Other header damage is reported when the file's records are read.
        _ => None,
    })
}

/// Clears a torn tail and opens the file for more records.
pub(in crate::tsdb) fn resume(tail: &Tail) -> Result<LogFile, DiskError> {
    let file = disk::open_file(&tail.path)?;
    if tail.torn_bytes > 0 {
        disk::write_zeros(&file, &tail.path, tail.offset, tail.torn_bytes)
            .map_err(DiskError::at("clear the torn tail of", &tail.path))?;
    }
    let FileHeader { number, file_bytes: bytes, layout, .. } = tail.header;
    if tail.torn_bytes > 0 || tail.offset > layout.first_record() as u64 {
        // A killed process may have left records only in the page cache. From here on they count as
        // durable.
        ops::sync_all(&file, &tail.path).map_err(DiskError::at("sync", &tail.path))?;
    }
    Ok(LogFile { file, path: tail.path.clone(), number, bytes, layout })
}
