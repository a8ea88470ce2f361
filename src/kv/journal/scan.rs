//! Reading of the journal: verifies every record, distinguishes a torn tail from damage, and reads
//! records after damage.

use std::fs;
use std::path::{Path, PathBuf};

use super::{
    BODY_VERSION, FILE_BYTES, HEADER_BYTES, JournalError, JournalHeader, Layout, MAGIC, RECORD_HEADER_BYTES,
    RECORD_TYPE, VERSION, VERSION_PLAIN, file_name,
};
use crate::kv::files::{self, FileError};
use crate::kv::frame;
use crate::kv::keyed::{KEYED_FILE_HEADER_BYTES, KEYED_HEADER_BYTES, RecordKey};
use crate::kv::ops;
use crate::kv::plain::verifying_lengths;
use crate::kv::rows::RowChanges;
use crate::kv::zeros::{are_zeros, written_bytes};
use crate::model::{StoreId, Timestamp};

/// Greatest valid sequence number, far beyond any real one, so that increments cannot overflow.
const SEQ_MAX: u64 = 1 << 62;

/// A record with a verified checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalRecord<'b> {
    pub(super) seq: u64,
    lag: u16,
    pub(super) body: &'b [u8],
    /// Offset of the next record.
    pub(super) end: usize,
}

/// The content of a file at an offset.
enum ScanItem<'b> {
    Record(JournalRecord<'b>),
    /// Zeros to the end of the file.
    End,
    Bad(&'static str),
    /// Like `Bad`, but the header of the record verifies, so its end is certain.
    Unreadable(usize),
}

/// Description of a record whose header verifies and whose body does not.
const UNREADABLE: &str = "a body that differs from its checksum";

fn at(bytes: &[u8], layout: Layout, offset: usize) -> ScanItem<'_> {
    let rest = bytes.get(offset..).unwrap_or_default();
    if rest.len() < layout.record_header_bytes() {
        return if are_zeros(rest) { ScanItem::End } else { ScanItem::Bad("bytes where no record fits") };
    }
    if rest.starts_with(&[0; 4]) {
        return if are_zeros(rest) { ScanItem::End } else { ScanItem::Bad("bytes after the end") };
    }
    match layout {
        Layout::Plain => plain_at(rest, offset),
        Layout::Keyed(key) => keyed_at(rest, key, offset),
        Layout::Lost => ScanItem::Bad("the secret of the file's records is damaged"),
    }
}

fn keyed_at(rest: &[u8], key: RecordKey, offset: usize) -> ScanItem<'_> {
    let Some((head, behind)) = rest.split_first_chunk::<KEYED_HEADER_BYTES>() else {
        return ScanItem::Bad("bytes where no record fits");
    };
    let Some(header) = key.verify(head) else { return ScanItem::Bad("a header that does not verify") };
    let body_bytes = header.body_bytes as usize;
    let end = offset + Layout::Keyed(key).record_bytes(body_bytes);
    match behind.get(..body_bytes).filter(|body| header.has_body(body)) {
        Some(body) => record(&header.fields, body, end),
        None => ScanItem::Unreadable(end),
    }
}

/// Parses the record with these bytes 8 to 24 of its header.
fn record<'b>(fields: &[u8; 16], body: &'b [u8], end: usize) -> ScanItem<'b> {
    let [s @ .., _, _, _, _, kind, version, g0, g1] = *fields;
    if (kind, version) != (RECORD_TYPE, BODY_VERSION) {
        return ScanItem::Bad("a record of another type or version");
    }
    let seq = u64::from_le_bytes(s);
    if seq == 0 || seq > SEQ_MAX {
        return ScanItem::Bad("a number that no change has");
    }
    ScanItem::Record(JournalRecord { seq, lag: u16::from_le_bytes([g0, g1]), body, end })
}

fn plain_at(rest: &[u8], offset: usize) -> ScanItem<'_> {
    let Some((head, behind)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        return ScanItem::Bad("bytes where no record fits");
    };
    let [l0, l1, l2, l3, c0, c1, c2, c3, fields @ ..] = *head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    let Some((body, _)) = usize::try_from(length).ok().and_then(|n| behind.split_at_checked(n)) else {
        return ScanItem::Bad("a length beyond the file");
    };
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&[l0, l1, l2, l3]), &fields), body);
    if crc != u32::from_le_bytes([c0, c1, c2, c3]) {
        return ScanItem::Bad("a wrong checksum");
    }
    record(&fields, body, offset + Layout::Plain.record_bytes(body.len()))
}

/// A sequence of intact records without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordRun {
    /// Index of its file.
    file: usize,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) first: u64,
    pub(super) last: u64,
    /// The last change that these records declare durable.
    durable: u64,
}

/// The result of scanning one file.
#[derive(Debug, Default)]
pub(super) struct FileScan {
    pub(super) runs: Vec<RecordRun>,
    /// First bad bytes before each run that follows such bytes, and after the last run.
    pub(super) bad: Vec<(usize, &'static str)>,
    /// A file of version 1 has data after the last bad bytes that may be changes, or bytes of users
    /// that imitate them. No part of it is read.
    pub(super) is_unsearched: bool,
}

/// Changes of a file of version 1 after a bad record with an uncertain end. They count only if
/// their numbers continue without a gap up to the end of the data.
struct UncertainEnd {
    /// Offset of the bad record, and the expected change.
    offset: usize,
    seq: Option<u64>,
    /// Number of runs found before it.
    runs: usize,
    bad: usize,
}

/// Reads every intact record of a file, also after damage; `next` is the expected sequence number
/// of its first record.
pub(super) fn scan_file(bytes: &[u8], layout: Layout, file: usize, mut next: Option<u64>) -> FileScan {
    let mut found = FileScan::default();
    let mut offset = layout.file_header_bytes();
    let mut uncertain: Option<UncertainEnd> = None;
    let discard_uncertain = |mut found: FileScan, uncertain: UncertainEnd| {
        found.runs.truncate(uncertain.runs);
        found.bad.truncate(uncertain.bad + 1);
        found.is_unsearched = looks_durable(bytes, uncertain.offset, uncertain.seq);
        found
    };
    loop {
        match at(bytes, layout, offset) {
            ScanItem::End => {
                return match uncertain {
                    Some(uncertain) if found.runs.len() == uncertain.runs => {
                        discard_uncertain(found, uncertain)
                    }
                    _ => found,
                };
            }
            ScanItem::Record(record) => {
                if let Some(uncertain) = uncertain.take_if(|_| next != Some(record.seq)) {
                    return discard_uncertain(found, uncertain);
                }
                let durable = record.seq.saturating_sub(u64::from(record.lag));
                match found.runs.last_mut().filter(|run| run.end == offset && run.last + 1 == record.seq) {
                    Some(run) => {
                        (run.end, run.last) = (record.end, record.seq);
                        run.durable = run.durable.max(durable);
                    }
                    None => {
                        let (first, last) = (record.seq, record.seq);
                        let run = RecordRun { file, start: offset, end: record.end, first, last, durable };
                        found.runs.push(run);
                    }
                }
                offset = record.end;
                next = Some(record.seq + 1);
            }
            ScanItem::Unreadable(end) => {
                found.bad.push((offset, UNREADABLE));
                offset = end;
                next = next.map(|next| next + 1);
            }
            ScanItem::Bad(what) => {
                let bad = found.bad.len();
                found.bad.push((offset, what));
                let is_plain = layout == Layout::Plain;
                let place = match next {
                    _ if !is_plain => next_keyed(bytes, layout, offset, next).map(|place| (place, true)),
                    Some(seq) => end_of_bad_record(bytes, offset, seq),
                    None => None,
                };
                let Some((place, is_certain)) = place else {
                    if let Some(uncertain) = uncertain {
                        return discard_uncertain(found, uncertain);
                    }
                    found.is_unsearched = is_plain && looks_durable(bytes, offset, next);
                    return found;
                };
                if !is_certain && uncertain.is_none() {
                    uncertain = Some(UncertainEnd { offset, seq: next, runs: found.runs.len(), bad });
                }
                offset = place;
                if is_plain {
                    next = next.map(|next| next + 1);
                }
            }
        }
    }
}

/// Returns the offset of the next verifying record after bad bytes that replaced change `seq`. Its
/// number may exceed `seq` by at most the number of records that fit between them.
fn next_keyed(bytes: &[u8], layout: Layout, bad: usize, seq: Option<u64>) -> Option<usize> {
    let fits = |offset: usize, found: u64| {
        let records = (offset - bad) / KEYED_HEADER_BYTES;
        seq.is_none_or(|seq| (seq..=seq.saturating_add(records as u64)).contains(&found))
    };
    let Layout::Keyed(key) = layout else { return None };
    // No header consists of zeros, so none begins behind the data.
    let mut places = (bad.next_multiple_of(8).max(bad + 8)..written_bytes(bytes)).step_by(8);
    places.find(|offset| match keyed_at(bytes.get(*offset..).unwrap_or_default(), key, *offset) {
        ScanItem::Record(record) => fits(*offset, record.seq),
        // Further changes may follow the damage. The content of its values is never searched.
        ScanItem::Unreadable(_) => true,
        ScanItem::End | ScanItem::Bad(_) => false,
    })
}

/// Returns the end of the bad record at `bad` in a file of version 1, which should be change `seq`,
/// and whether that end is certain. It is certain if exactly one length explains the checksum;
/// otherwise it follows from the header, which may be damaged.
fn end_of_bad_record(bytes: &[u8], bad: usize, seq: u64) -> Option<(usize, bool)> {
    let rest = bytes.get(bad..)?;
    let header = rest.first_chunk::<RECORD_HEADER_BYTES>()?;
    let [l0, l1, l2, l3, _, _, _, _, s @ .., z0, z1, z2, z3, kind, version, _, _] = *header;
    let is_change = [z0, z1, z2, z3, kind, version] == [0, 0, 0, 0, RECORD_TYPE, BODY_VERSION];
    let end = |length: usize| bad + Layout::Plain.record_bytes(length);
    if is_change && u64::from_le_bytes(s) == seq {
        match verifying_lengths(rest, FILE_BYTES).as_slice() {
            [] => {}
            [length] => return Some((end(*length), true)),
            _ => return None,
        }
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    ((1..=FILE_BYTES).contains(&length) && end(length) <= bytes.len()).then(|| (end(length), false))
}

/// Returns whether a file of version 1 has anything after `bad` that looks like a change that
/// declares `seq` durable.
fn looks_durable(bytes: &[u8], bad: usize, seq: Option<u64>) -> bool {
    let mut places = (bad.next_multiple_of(8).max(bad + 8)..bytes.len()).step_by(8);
    // Checked before the checksum, which would be computed over a random length at every offset.
    let begins = |offset: usize| {
        let head = bytes.get(offset..offset + RECORD_HEADER_BYTES);
        head.is_some_and(|h| h.get(16..22) == Some(&[0, 0, 0, 0, RECORD_TYPE, BODY_VERSION]))
    };
    let knows = |record: &JournalRecord<'_>| {
        let durable = record.seq.saturating_sub(u64::from(record.lag));
        seq.is_none_or(|seq| durable >= seq)
    };
    places.any(|offset| {
        begins(offset)
            && matches!(at(bytes, Layout::Plain, offset), ScanItem::Record(record) if knows(&record))
    })
}

/// A tail that was being written when the machine stopped; none of it was confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kv) struct Torn {
    pub(in crate::kv) path: PathBuf,
    pub(in crate::kv) offset: u64,
    /// Number of bytes from the first bad one to the last that is not zero.
    pub(in crate::kv) bytes: u64,
}

/// Damage of bytes that were durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kv) struct Damage {
    pub(in crate::kv) path: PathBuf,
    pub(in crate::kv) offset: u64,
    /// Description of the damage, and the proof that it is not a torn tail.
    pub(in crate::kv) what: String,
    /// No intact record follows, so the number of lost changes is unknown.
    pub(in crate::kv) is_last: bool,
}

/// One file of the journal.
#[derive(Clone, Debug)]
pub(in crate::kv) struct JournalFile {
    pub(in crate::kv) number: u64,
    pub(in crate::kv) path: PathBuf,
    /// Set if the file never had a record and cannot take one: its header is damaged, or it has
    /// bytes that are not a record.
    pub(in crate::kv) unusable: Option<&'static str>,
    /// Whether the records of the file are keyed with a secret (version 2). Other files are not
    /// appended to.
    pub(in crate::kv) is_keyed: bool,
}

/// The contents of the journal.
#[derive(Debug, Default)]
pub(in crate::kv) struct Survey {
    /// Ordered by number.
    pub(in crate::kv) files: Vec<JournalFile>,
    /// Index of the file that takes the next record; the ones after it are empty.
    pub(in crate::kv) current: usize,
    /// Offset of the next record in that file.
    pub(in crate::kv) offset: u64,
    runs: Vec<RecordRun>,
    pub(in crate::kv) torn: Option<Torn>,
    pub(in crate::kv) damage: Vec<Damage>,
}

impl Survey {
    /// Returns the first readable change, if any.
    pub(in crate::kv) fn first_seq(&self) -> Option<u64> {
        self.runs.first().map(|run| run.first)
    }

    /// Returns the last readable change; 0 if there is none.
    pub(in crate::kv) fn last_seq(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.last)
    }

    /// Returns the number of readable changes.
    pub(in crate::kv) fn records(&self) -> u64 {
        self.runs.iter().map(|run| run.last - run.first + 1).sum()
    }

    /// Returns the length of the runs that have changes after `seq`.
    pub(in crate::kv) fn bytes_behind(&self, seq: u64) -> u64 {
        self.runs.iter().filter(|run| run.last > seq).map(|run| (run.end - run.start) as u64).sum()
    }

    /// Returns the last change in the file with index `file` or in an earlier one.
    pub(in crate::kv) fn last_seq_in(&self, file: usize) -> u64 {
        self.runs.iter().rev().find(|run| run.file <= file).map_or(0, |run| run.last)
    }

    /// Returns the first gap of missing changes between `from` and `to` (both inclusive), or `None`
    /// if all of them can be read.
    pub(in crate::kv) fn missing(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let mut next = from;
        for run in self.runs.iter().filter(|run| run.last >= from) {
            if next > to || run.first > next {
                break;
            }
            next = run.last + 1;
        }
        let end = self.runs.iter().find(|run| run.first > next).map_or(to, |run| run.first - 1);
        (next <= to).then_some((next, end.min(to)))
    }
}

/// Reads and checks the whole journal, one file in memory at a time.
///
/// # Errors
/// [`JournalError`] if a file cannot be read, belongs to another store or has a newer version.
/// Damage is not an error.
pub(in crate::kv) fn survey(dir: &Path, store: StoreId) -> Result<Survey, JournalError> {
    let mut scan = JournalScan { survey: Survey::default(), first_break: None };
    for (number, path) in list(dir)? {
        let expected = scan.survey.files.last().map_or(number, |before| before.number + 1);
        if number > expected {
            let missing = dir.join(file_name(expected));
            scan.break_at(&missing, 0, "the file is missing", true);
        }
        let loaded = load(&path, store, number)?;
        scan.file(number, path, &loaded);
    }
    Ok(scan.finish())
}

struct JournalScan {
    survey: Survey,
    first_break: Option<FirstBreak>,
}

/// The first bytes that do not continue the records before them.
struct FirstBreak {
    file: usize,
    path: PathBuf,
    offset: usize,
    what: &'static str,
    /// Whether it is damage even without proof by later records.
    is_sure: bool,
    /// The expected change.
    seq: Option<u64>,
    /// Number of bytes from there to the last one of the file that is not zero.
    bytes: usize,
}

impl JournalScan {
    fn break_at(&mut self, path: &Path, offset: usize, what: &'static str, is_sure: bool) {
        let seq = self.survey.runs.last().map(|run| run.last + 1);
        let file = self.survey.files.len();
        let path = path.to_owned();
        // Only the first break is kept: it is the end of the journal if no records follow.
        self.first_break.get_or_insert(FirstBreak { file, path, offset, what, is_sure, seq, bytes: 0 });
    }

    fn file(&mut self, number: u64, path: PathBuf, loaded: &LoadedFile) {
        let LoadedFile { bytes, length, bad_header, layout } = loaded;
        let index = self.survey.files.len();
        // After a missing file the first change may have any number.
        let follows = self.survey.files.last().is_none_or(|before| before.number + 1 == number);
        let next = self.survey.runs.last().map(|run| run.last + 1).filter(|_| follows);
        let scan = scan_file(bytes, *layout, index, next);
        let is_zero = |bytes: Option<&[u8]>| bytes.is_none_or(are_zeros);
        // Every file is complete on disk before its first record, so a short or zeroed one was
        // damaged later.
        let is_spare = *length == FILE_BYTES
            && is_zero(bytes.get(layout.file_header_bytes()..))
            && !is_zero(bytes.get(..HEADER_BYTES));
        if let Some(what) = bad_header.filter(|_| !is_spare) {
            self.break_at(&path, 0, what, true);
        }
        let mut bad = scan.bad.iter().peekable();
        for run in &scan.runs {
            if let Some((offset, what)) = bad.next_if(|(offset, _)| *offset < run.start) {
                self.break_here(&path, *offset, what, bytes);
            }
            self.run(*run, &path, bytes, &scan.runs);
        }
        if *length < FILE_BYTES {
            self.break_at(&path, *length, "the file is cut short", true);
        }
        if let Some((offset, what)) = bad.next() {
            self.break_here(&path, *offset, what, bytes);
            if let Some(broken) = self.first_break.as_mut().filter(|_| scan.is_unsearched) {
                broken.is_sure = true;
            }
        }
        let holds = self.survey.runs.iter().any(|run| run.file == index);
        let begins_here = self.first_break.as_ref().is_some_and(|b| b.file == index);
        let unusable = match bad_header {
            Some(what) if is_spare => Some(*what),
            _ if !holds && !is_spare && !begins_here => Some("it has bytes that are not a record"),
            _ => None,
        };
        let is_keyed = matches!(layout, Layout::Keyed(_));
        self.survey.files.push(JournalFile { number, path, unusable, is_keyed });
    }

    fn break_here(&mut self, path: &Path, offset: usize, what: &'static str, bytes: &[u8]) {
        let is_new = self.first_break.is_none();
        self.break_at(path, offset, what, false);
        if let Some(broken) = self.first_break.as_mut().filter(|_| is_new) {
            broken.bytes = written_bytes(bytes).max(offset + 1) - offset;
        }
    }

    /// Adds the next run of records if it belongs to the journal.
    fn run(&mut self, run: RecordRun, path: &Path, bytes: &[u8], all: &[RecordRun]) {
        let expected = self.survey.runs.last().map(|before| before.last + 1);
        if expected.is_some_and(|expected| run.first != expected) {
            self.break_here(path, run.start, "a record out of order", bytes);
        }
        if let Some(broken) = self.first_break.take() {
            // A file is started after the previous one is durable, so any record here proves that
            // the break is damage.
            let seq = broken.seq.unwrap_or(run.first.saturating_sub(1));
            let proves = run.file > broken.file
                || broken.is_sure
                || all.iter().any(|later| later.start >= run.start && later.durable >= seq);
            if !proves || expected.is_some_and(|expected| run.first < expected) {
                self.first_break = Some(broken);
                return;
            }
            let what = format!("{}, and change {} after it proves that it was intact", broken.what, run.last);
            self.survey.damage.push(Damage {
                path: broken.path,
                offset: broken.offset as u64,
                what,
                is_last: false,
            });
        }
        (self.survey.current, self.survey.offset) = (run.file, run.end as u64);
        self.survey.runs.push(run);
    }

    fn finish(mut self) -> Survey {
        self.survey.offset = self.survey.offset.max(HEADER_BYTES as u64);
        if let Some(FirstBreak { path, offset, what, is_sure, bytes, .. }) = self.first_break.take() {
            if is_sure {
                let what = what.to_owned();
                self.survey.damage.push(Damage { path, offset: offset as u64, what, is_last: true });
            } else {
                let offset = offset as u64;
                self.survey.torn = Some(Torn { path, offset, bytes: bytes as u64 });
            }
        }
        self.survey
    }
}

fn list(dir: &Path) -> Result<Vec<(u64, PathBuf)>, FileError> {
    let number = |name: &String| name.strip_suffix(".jnl")?.parse::<u64>().ok().filter(|n| *n < u64::MAX);
    let mut found: Vec<_> =
        files::names(dir)?.iter().filter_map(|name| Some((number(name)?, dir.join(name)))).collect();
    found.sort_unstable();
    Ok(found)
}

struct LoadedFile {
    /// Padded with zeros if the file is too short.
    bytes: Vec<u8>,
    length: usize,
    bad_header: Option<&'static str>,
    layout: Layout,
}

fn load(path: &Path, store: StoreId, number: u64) -> Result<LoadedFile, JournalError> {
    let mut bytes = files::read_small(path, FILE_BYTES as u64)?.unwrap_or_default();
    let length = bytes.len();
    bytes.resize(FILE_BYTES, 0);
    let layout = layout_of(&bytes, number);
    let bad_header = match decode_header(&bytes) {
        Err(HeaderError::Newer(found)) => return Err(JournalError::Newer { path: path.to_owned(), found }),
        Err(HeaderError::Damaged) => Some("its header is damaged"),
        Ok(header) if header.store != store => {
            let (path, found) = (path.to_owned(), header.store);
            return Err(JournalError::Foreign { path, expected: store, found });
        }
        Ok(header) if (header.number, header.previous) != (number, number.saturating_sub(1)) => {
            Some("it is another file of the journal")
        }
        Ok(header) => (header.layout == Layout::Lost).then_some("the secret of its records is damaged"),
    };
    Ok(LoadedFile { bytes, length, bad_header, layout })
}

/// Returns the layout of a file's records, also if its header is damaged.
pub(super) fn layout_of(bytes: &[u8], number: u64) -> Layout {
    match decode_header(bytes) {
        Ok(header) => header.layout,
        Err(_) => RecordKey::find_without_header(bytes, number).map_or(Layout::Plain, Layout::Keyed),
    }
}

/// Returns the store in the header of a journal file; `None` if the header is damaged or of a newer
/// version.
///
/// # Errors
/// [`FileError`] if the file cannot be read.
pub(in crate::kv) fn store_of_file(path: &Path) -> Result<Option<StoreId>, FileError> {
    let bytes = files::read_start(path, HEADER_BYTES)?;
    Ok(decode_header(&bytes).ok().map(|header| header.store))
}

pub(super) enum HeaderError {
    Newer(u16),
    Damaged,
}

pub(super) fn decode_header(bytes: &[u8]) -> Result<JournalHeader, HeaderError> {
    let head = bytes.first_chunk::<HEADER_BYTES>().ok_or(HeaderError::Damaged)?;
    let (covered, crc) = head.split_last_chunk::<4>().ok_or(HeaderError::Damaged)?;
    if !covered.starts_with(MAGIC) || crc32c::crc32c(covered) != u32::from_le_bytes(*crc) {
        return Err(HeaderError::Damaged);
    }
    let word = |offset: usize| {
        let eight = covered.get(offset..).and_then(|rest| rest.first_chunk::<8>()).copied();
        eight.map(u64::from_le_bytes).ok_or(HeaderError::Damaged)
    };
    let sizes = word(8)?;
    let version = (sizes & 0xffff) as u16;
    if version > VERSION {
        return Err(HeaderError::Newer(version));
    }
    let header_bytes = if version == VERSION_PLAIN { HEADER_BYTES } else { KEYED_FILE_HEADER_BYTES };
    if version == 0 || sizes != (FILE_BYTES as u64) << 32 | (header_bytes as u64) << 16 | u64::from(version) {
        return Err(HeaderError::Damaged);
    }
    let mut store = [0; 16];
    store.copy_from_slice(covered.get(16..32).ok_or(HeaderError::Damaged)?);
    let created = Timestamp::from_ms(word(40)?.cast_signed());
    let (number, previous) = (word(32)?, word(48)?);
    let layout = match version {
        VERSION_PLAIN => Layout::Plain,
        _ => RecordKey::find(bytes, number).map_or(Layout::Lost, Layout::Keyed),
    };
    Ok(JournalHeader { store: StoreId(store), number, previous, created, layout })
}

/// Passes the readable changes from `from` on to `each`, in order, until it fails.
pub(in crate::kv) fn replay<E: From<JournalError>>(
    survey: &Survey,
    from: u64,
    mut each: impl FnMut(u64, RowChanges) -> Result<(), E>,
) -> Result<(), E> {
    let mut loaded: Option<(usize, Vec<u8>)> = None;
    for run in survey.runs.iter().filter(|run| run.last >= from) {
        let Some(file) = survey.files.get(run.file) else { continue };
        let (_, bytes) = match loaded.take().filter(|(index, _)| *index == run.file) {
            Some(same) => loaded.insert(same),
            None => {
                let mut bytes = files::read_small(&file.path, FILE_BYTES as u64)
                    .map_err(JournalError::from)?
                    .unwrap_or_default();
                bytes.resize(FILE_BYTES, 0);
                loaded.insert((run.file, bytes))
            }
        };
        let layout = layout_of(bytes, file.number);
        let mut offset = run.start;
        for seq in run.first..=run.last {
            let changed = |what: &str| JournalError::Damaged {
                path: file.path.clone(),
                offset: offset as u64,
                seq,
                what: what.to_owned(),
            };
            let ScanItem::Record(record) = at(bytes, layout, offset) else {
                return Err(changed("it changed while it was read").into());
            };
            if record.seq != seq {
                return Err(changed("it changed while it was read").into());
            }
            if seq >= from {
                each(seq, decode_rows(record.body).map_err(changed)?)?;
            }
            offset = record.end;
        }
    }
    Ok(())
}

/// Decodes the rows of a record and verifies the frame of every value.
pub(in crate::kv) fn decode_rows(body: &[u8]) -> Result<RowChanges, &'static str> {
    fn short(from: &mut &[u8]) -> Option<u16> {
        let (word, rest) = from.split_first_chunk::<2>()?;
        *from = rest;
        Some(u16::from_le_bytes(*word))
    }
    fn bytes<'b>(from: &mut &'b [u8]) -> Option<&'b [u8]> {
        let length = short(from)?;
        let (head, rest) = from.split_at_checked(length.into())?;
        *from = rest;
        Some(head)
    }
    let mut rest = body;
    let count = short(&mut rest).ok_or("a record without a row count")?;
    let mut rows = RowChanges::new();
    for _ in 0..count {
        let (kind, behind) = rest.split_first().ok_or("a record with too few rows")?;
        rest = behind;
        let key = bytes(&mut rest).ok_or("a key beyond its record")?;
        let value = bytes(&mut rest).ok_or("a value beyond its record")?;
        let value = match kind {
            1 => {
                frame::open(key, value).map_err(|_| "a damaged row")?;
                Some(value.to_vec())
            }
            2 if value.is_empty() => None,
            _ => return Err("a row that is neither put nor removed"),
        };
        rows.insert(key.to_vec(), value);
    }
    if rest.is_empty() && rows.len() == usize::from(count) {
        Ok(rows)
    } else {
        Err("bytes after the last row")
    }
}

/// Zeroes a torn tail to the end of its file, restores the length of the file, and syncs it.
pub(in crate::kv) fn trim(torn: &Torn) -> Result<(), FileError> {
    let path = &torn.path;
    let file = fs::OpenOptions::new().write(true).open(path).map_err(FileError::at("open", path))?;
    let zeros = vec![0; FILE_BYTES.saturating_sub(usize::try_from(torn.offset).unwrap_or(FILE_BYTES))];
    ops::write_at(&file, path, &zeros, torn.offset).map_err(FileError::at("zero the torn tail of", path))?;
    ops::sync_all(&file, path).map_err(FileError::at("sync", path))
}
