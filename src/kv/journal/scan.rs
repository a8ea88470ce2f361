//! Reading the journal: every record checked, a torn tail told from damage, and whatever can be read behind damage.

use std::fs;
use std::path::{Path, PathBuf};

use super::{
    BODY_VERSION, FILE_BYTES, HEADER_BYTES, Header, JournalError, Layout, MAGIC, RECORD_HEADER_BYTES,
    RECORD_TYPE, VERSION, VERSION_PLAIN, file_name,
};
use crate::kv::files::{self, FileError};
use crate::kv::frame;
use crate::kv::keyed::{KEYED_FILE_HEADER_BYTES, KEYED_HEADER_BYTES, RecordKey};
use crate::kv::ops;
use crate::kv::plain::verifying_lengths;
use crate::kv::rows::Rows;
use crate::model::{StoreId, Timestamp};

/// More changes than ever are made, so that counting on never overflows.
const SEQ_MAX: u64 = 1 << 62;

/// One record, checksum verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'b> {
    pub(super) seq: u64,
    lag: u16,
    pub(super) body: &'b [u8],
    /// Where the next record begins.
    pub(super) end: usize,
}

/// What stands at an offset.
enum At<'b> {
    Record(Record<'b>),
    /// Zeros to the end of the file.
    End,
    Bad(&'static str),
    /// As `Bad`; but the header of the record verifies, so it ends there for certain.
    Unreadable(usize),
}

/// What is wrong with a record whose header verifies.
const UNREADABLE: &str = "a body that differs from its checksum";

fn at(bytes: &[u8], layout: Layout, offset: usize) -> At<'_> {
    let rest = bytes.get(offset..).unwrap_or_default();
    let is_zero = |bytes: &[u8]| bytes.iter().all(|b| *b == 0);
    if rest.len() < layout.record_header_bytes() {
        return if is_zero(rest) { At::End } else { At::Bad("bytes where no record fits") };
    }
    if rest.starts_with(&[0; 4]) {
        return if is_zero(rest) { At::End } else { At::Bad("bytes behind the end") };
    }
    match layout {
        Layout::Plain => plain_at(rest, offset),
        Layout::Keyed(key) => keyed_at(rest, key, offset),
        Layout::Lost => At::Bad("the secret of the file's records is damaged"),
    }
}

fn keyed_at(rest: &[u8], key: RecordKey, offset: usize) -> At<'_> {
    let Some((head, behind)) = rest.split_first_chunk::<KEYED_HEADER_BYTES>() else {
        return At::Bad("bytes where no record fits");
    };
    let Some(header) = key.verify(head) else { return At::Bad("a header that does not verify") };
    let body_bytes = header.body_bytes as usize;
    let end = offset + Layout::Keyed(key).record_bytes(body_bytes);
    match behind.get(..body_bytes).filter(|body| header.has_body(body)) {
        Some(body) => record(&header.fields, body, end),
        None => At::Unreadable(end),
    }
}

/// The record whose header has these bytes 8 to 24.
fn record<'b>(fields: &[u8; 16], body: &'b [u8], end: usize) -> At<'b> {
    let [s @ .., _, _, _, _, kind, version, g0, g1] = *fields;
    if (kind, version) != (RECORD_TYPE, BODY_VERSION) {
        return At::Bad("a record of another type or version");
    }
    let seq = u64::from_le_bytes(s);
    if seq == 0 || seq > SEQ_MAX {
        return At::Bad("a number that no change has");
    }
    At::Record(Record { seq, lag: u16::from_le_bytes([g0, g1]), body, end })
}

fn plain_at(rest: &[u8], offset: usize) -> At<'_> {
    let Some((head, behind)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        return At::Bad("bytes where no record fits");
    };
    let [l0, l1, l2, l3, c0, c1, c2, c3, fields @ ..] = *head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    let Some((body, _)) = usize::try_from(length).ok().and_then(|n| behind.split_at_checked(n)) else {
        return At::Bad("a length beyond the file");
    };
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&[l0, l1, l2, l3]), &fields), body);
    if crc != u32::from_le_bytes([c0, c1, c2, c3]) {
        return At::Bad("a wrong checksum");
    }
    record(&fields, body, offset + Layout::Plain.record_bytes(body.len()))
}

/// A stretch of whole records without a gap between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Place of its file among all.
    file: usize,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) first: u64,
    pub(super) last: u64,
    /// The last change that its records know to be durable.
    durable: u64,
}

/// What one file holds.
#[derive(Debug, Default)]
pub(super) struct FileScan {
    pub(super) runs: Vec<Run>,
    /// The first bytes that are no record, before each run that follows such bytes or behind the last one.
    pub(super) bad: Vec<(usize, &'static str)>,
    /// A file of version 1 goes on behind the last bad bytes with what may be changes, or what users made look like
    /// changes: none of it is read.
    pub(super) is_unsearched: bool,
}

/// Changes of a file of version 1 behind a bad one whose end is not certain: they count once their numbers continue
/// without a gap up to the end of the data.
struct Doubt {
    /// Where the bad record begins, and which change should be there.
    offset: usize,
    seq: Option<u64>,
    /// How many stretches had been found before it.
    runs: usize,
    bad: usize,
}

/// Reads every whole record of a file, behind damage too; `next` is the change that its first record should be.
pub(super) fn scan_file(bytes: &[u8], layout: Layout, file: usize, mut next: Option<u64>) -> FileScan {
    let mut found = FileScan::default();
    let mut offset = layout.file_header_bytes();
    let mut doubt: Option<Doubt> = None;
    let in_doubt = |mut found: FileScan, doubt: Doubt| {
        found.runs.truncate(doubt.runs);
        found.bad.truncate(doubt.bad + 1);
        found.is_unsearched = looks_durable(bytes, doubt.offset, doubt.seq);
        found
    };
    loop {
        match at(bytes, layout, offset) {
            At::End => {
                return match doubt {
                    Some(doubt) if found.runs.len() == doubt.runs => in_doubt(found, doubt),
                    _ => found,
                };
            }
            At::Record(record) => {
                if let Some(doubt) = doubt.take_if(|_| next != Some(record.seq)) {
                    return in_doubt(found, doubt);
                }
                let durable = record.seq.saturating_sub(u64::from(record.lag));
                match found.runs.last_mut().filter(|run| run.end == offset && run.last + 1 == record.seq) {
                    Some(run) => {
                        (run.end, run.last) = (record.end, record.seq);
                        run.durable = run.durable.max(durable);
                    }
                    None => {
                        let (first, last) = (record.seq, record.seq);
                        let run = Run { file, start: offset, end: record.end, first, last, durable };
                        found.runs.push(run);
                    }
                }
                offset = record.end;
                next = Some(record.seq + 1);
            }
            At::Unreadable(end) => {
                found.bad.push((offset, UNREADABLE));
                offset = end;
                next = next.map(|next| next + 1);
            }
            At::Bad(what) => {
                let bad = found.bad.len();
                found.bad.push((offset, what));
                let is_plain = layout == Layout::Plain;
                let place = match next {
                    _ if !is_plain => next_keyed(bytes, layout, offset, next).map(|place| (place, true)),
                    Some(seq) => end_of_bad_record(bytes, offset, seq),
                    None => None,
                };
                let Some((place, is_certain)) = place else {
                    if let Some(doubt) = doubt {
                        return in_doubt(found, doubt);
                    }
                    found.is_unsearched = is_plain && looks_durable(bytes, offset, next);
                    return found;
                };
                if !is_certain && doubt.is_none() {
                    doubt = Some(Doubt { offset, seq: next, runs: found.runs.len(), bad });
                }
                offset = place;
                if is_plain {
                    next = next.map(|next| next + 1);
                }
            }
        }
    }
}

/// Where the next record is that verifies behind bad bytes, in whose place change `seq` was. Its number is at most as
/// much greater as the bytes between them allow.
fn next_keyed(bytes: &[u8], layout: Layout, bad: usize, seq: Option<u64>) -> Option<usize> {
    let fits = |offset: usize, found: u64| {
        let records = (offset - bad) / KEYED_HEADER_BYTES;
        seq.is_none_or(|seq| (seq..=seq.saturating_add(records as u64)).contains(&found))
    };
    let Layout::Keyed(key) = layout else { return None };
    let mut places = (bad.next_multiple_of(8).max(bad + 8)..bytes.len()).step_by(8);
    places.find(|offset| match keyed_at(bytes.get(*offset..).unwrap_or_default(), key, *offset) {
        At::Record(record) => fits(*offset, record.seq),
        // Of changes there may be more behind it, and what its values contain is not looked at.
        At::Unreadable(_) => true,
        At::End | At::Bad(_) => false,
    })
}

/// In a file of version 1: where the record at `bad` ends, which should be change `seq` and does not verify, and whether
/// that is certain: exactly one length explains the checksum. Otherwise it is what the header says, which may be damaged.
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

/// Whether anything from `bad` on in a file of version 1 looks like a change that knows change `seq` to be durable.
fn looks_durable(bytes: &[u8], bad: usize, seq: Option<u64>) -> bool {
    let mut places = (bad.next_multiple_of(8).max(bad + 8)..bytes.len()).step_by(8);
    // Checked before the checksum, which would read on to a length of chance at every place.
    let begins = |offset: usize| {
        let head = bytes.get(offset..offset + RECORD_HEADER_BYTES);
        head.is_some_and(|h| h.get(16..22) == Some(&[0, 0, 0, 0, RECORD_TYPE, BODY_VERSION]))
    };
    let knows = |record: &Record<'_>| {
        let durable = record.seq.saturating_sub(u64::from(record.lag));
        seq.is_none_or(|seq| durable >= seq)
    };
    places.any(|offset| {
        begins(offset) && matches!(at(bytes, Layout::Plain, offset), At::Record(record) if knows(&record))
    })
}

/// A tail that was being written when the machine stopped; nothing in it was ever answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kv) struct Torn {
    pub(in crate::kv) path: PathBuf,
    pub(in crate::kv) offset: u64,
    /// Bytes from the first bad one to the last that is not zero.
    pub(in crate::kv) bytes: u64,
}

/// Bytes that were durable once and are not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kv) struct Damage {
    pub(in crate::kv) path: PathBuf,
    pub(in crate::kv) offset: u64,
    /// What is wrong, and what proves that it is no torn tail.
    pub(in crate::kv) what: String,
    /// Whether no whole record comes behind it: then nobody knows how many there were.
    pub(in crate::kv) is_last: bool,
}

/// One file of the journal.
#[derive(Clone, Debug)]
pub(in crate::kv) struct JournalFile {
    pub(in crate::kv) number: u64,
    pub(in crate::kv) path: PathBuf,
    /// It never held a record and cannot take one: its header is damaged, or bytes that are no record stand in it.
    pub(in crate::kv) unusable: Option<&'static str>,
    /// Its records verify with a secret: version 2. Nothing is appended to another one.
    pub(in crate::kv) is_keyed: bool,
}

/// What the journal holds.
#[derive(Debug, Default)]
pub(in crate::kv) struct Survey {
    /// In order of their numbers.
    pub(in crate::kv) files: Vec<JournalFile>,
    /// Which of `files` the next record goes to, and where in it; the ones behind it are empty.
    pub(in crate::kv) current: usize,
    pub(in crate::kv) offset: u64,
    runs: Vec<Run>,
    pub(in crate::kv) torn: Option<Torn>,
    pub(in crate::kv) damage: Vec<Damage>,
}

impl Survey {
    /// The first change that can be read; none when there is none.
    pub(in crate::kv) fn first_seq(&self) -> Option<u64> {
        self.runs.first().map(|run| run.first)
    }

    /// The last change that can be read; 0 when there is none.
    pub(in crate::kv) fn last_seq(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.last)
    }

    /// Changes that can be read.
    pub(in crate::kv) fn records(&self) -> u64 {
        self.runs.iter().map(|run| run.last - run.first + 1).sum()
    }

    /// Bytes of the stretches that hold changes behind `seq`.
    pub(in crate::kv) fn bytes_behind(&self, seq: u64) -> u64 {
        self.runs.iter().filter(|run| run.last > seq).map(|run| (run.end - run.start) as u64).sum()
    }

    /// The last change in the file at `place` or one before it.
    pub(in crate::kv) fn last_seq_in(&self, place: usize) -> u64 {
        self.runs.iter().rev().find(|run| run.file <= place).map_or(0, |run| run.last)
    }

    /// The first changes missing between `from` and `to` (both included), or none if all of them can be read.
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
/// Where a file cannot be read, is another store's or a newer program's. Damage is not an error.
pub(in crate::kv) fn survey(dir: &Path, store: StoreId) -> Result<Survey, JournalError> {
    let mut walk = Walk { survey: Survey::default(), break_: None };
    for (number, path) in list(dir)? {
        let expected = walk.survey.files.last().map_or(number, |before| before.number + 1);
        if number > expected {
            let missing = dir.join(file_name(expected));
            walk.break_at(&missing, 0, "the file is missing", true);
        }
        let loaded = load(&path, store, number)?;
        walk.file(number, path, &loaded);
    }
    Ok(walk.finish())
}

struct Walk {
    survey: Survey,
    break_: Option<Break>,
}

/// The first bytes that do not continue what was read before.
struct Break {
    file: usize,
    path: PathBuf,
    offset: usize,
    what: &'static str,
    /// Whether it is damage even if nothing behind it says so.
    is_sure: bool,
    /// The change that is expected there.
    seq: Option<u64>,
    /// Bytes from there to the last one of the file that is not zero.
    bytes: usize,
}

impl Walk {
    fn break_at(&mut self, path: &Path, offset: usize, what: &'static str, is_sure: bool) {
        let seq = self.survey.runs.last().map(|run| run.last + 1);
        let file = self.survey.files.len();
        let path = path.to_owned();
        // The first one is where the journal ends, if it ends there.
        self.break_.get_or_insert(Break { file, path, offset, what, is_sure, seq, bytes: 0 });
    }

    fn file(&mut self, number: u64, path: PathBuf, loaded: &Loaded) {
        let Loaded { bytes, length, bad_header, layout } = loaded;
        let place = self.survey.files.len();
        // Behind a missing file the first change may have any number.
        let follows = self.survey.files.last().is_none_or(|before| before.number + 1 == number);
        let next = self.survey.runs.last().map(|run| run.last + 1).filter(|_| follows);
        let scan = scan_file(bytes, *layout, place, next);
        let is_zero = |bytes: Option<&[u8]>| bytes.is_none_or(|some| some.iter().all(|b| *b == 0));
        // Every file is whole on disk before its first record, so a short or a zeroed one was damaged later.
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
            if let Some(broken) = self.break_.as_mut().filter(|_| scan.is_unsearched) {
                broken.is_sure = true;
            }
        }
        let holds = self.survey.runs.iter().any(|run| run.file == place);
        let begins_here = self.break_.as_ref().is_some_and(|b| b.file == place);
        let unusable = match bad_header {
            Some(what) if is_spare => Some(*what),
            _ if !holds && !is_spare && !begins_here => Some("it holds bytes that are no record"),
            _ => None,
        };
        let is_keyed = matches!(layout, Layout::Keyed(_));
        self.survey.files.push(JournalFile { number, path, unusable, is_keyed });
    }

    fn break_here(&mut self, path: &Path, offset: usize, what: &'static str, bytes: &[u8]) {
        let is_new = self.break_.is_none();
        self.break_at(path, offset, what, false);
        if let Some(broken) = self.break_.as_mut().filter(|_| is_new) {
            let last = bytes.iter().rposition(|b| *b != 0).unwrap_or(offset);
            broken.bytes = (last + 1).saturating_sub(offset);
        }
    }

    /// Takes the next stretch of records, if it belongs to the journal.
    fn run(&mut self, run: Run, path: &Path, bytes: &[u8], all: &[Run]) {
        let expected = self.survey.runs.last().map(|before| before.last + 1);
        if expected.is_some_and(|expected| run.first != expected) {
            self.break_here(path, run.start, "a record out of its turn", bytes);
        }
        if let Some(broken) = self.break_.take() {
            // The file before was durable before this one was begun, so any record here speaks for it.
            let seq = broken.seq.unwrap_or(run.first.saturating_sub(1));
            let vouches = run.file > broken.file
                || broken.is_sure
                || all.iter().any(|later| later.start >= run.start && later.durable >= seq);
            if !vouches || expected.is_some_and(|expected| run.first < expected) {
                self.break_ = Some(broken);
                return;
            }
            let what = format!("{}, and change {} behind it says it was whole", broken.what, run.last);
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
        if let Some(Break { path, offset, what, is_sure, bytes, .. }) = self.break_.take() {
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

struct Loaded {
    /// Filled with zeros where the file was cut short.
    bytes: Vec<u8>,
    length: usize,
    bad_header: Option<&'static str>,
    layout: Layout,
}

fn load(path: &Path, store: StoreId, number: u64) -> Result<Loaded, JournalError> {
    let mut bytes = files::read_small(path, FILE_BYTES as u64)?.unwrap_or_default();
    let length = bytes.len();
    bytes.resize(FILE_BYTES, 0);
    let layout = layout_of(&bytes, number);
    let bad_header = match decode_header(&bytes) {
        Err(HeaderError::Newer(found)) => return Err(JournalError::Newer { path: path.to_owned(), found }),
        Err(HeaderError::Damaged) => Some("its header is not what was written"),
        Ok(header) if header.store != store => {
            let (path, found) = (path.to_owned(), header.store);
            return Err(JournalError::Foreign { path, expected: store, found });
        }
        Ok(header) if (header.number, header.previous) != (number, number.saturating_sub(1)) => {
            Some("it is another file of the journal")
        }
        Ok(header) => (header.layout == Layout::Lost).then_some("the secret of its records is damaged"),
    };
    Ok(Loaded { bytes, length, bad_header, layout })
}

/// How the records of a file are laid out, also where its header is damaged.
pub(super) fn layout_of(bytes: &[u8], number: u64) -> Layout {
    match decode_header(bytes) {
        Ok(header) => header.layout,
        Err(_) => RecordKey::find_without_header(bytes, number).map_or(Layout::Plain, Layout::Keyed),
    }
}

/// The store that the header of a journal file names; none where the header is damaged or a newer program's.
///
/// # Errors
/// When the file cannot be read.
pub(in crate::kv) fn store_of_file(path: &Path) -> Result<Option<StoreId>, FileError> {
    let bytes = files::read_start(path, HEADER_BYTES)?;
    Ok(decode_header(&bytes).ok().map(|header| header.store))
}

pub(super) enum HeaderError {
    Newer(u16),
    Damaged,
}

pub(super) fn decode_header(bytes: &[u8]) -> Result<Header, HeaderError> {
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
    Ok(Header { store: StoreId(store), number, previous, created, layout })
}

/// Hands out the changes that can be read from `from` on, in order, until `each` fails.
pub(in crate::kv) fn replay<E: From<JournalError>>(
    survey: &Survey,
    from: u64,
    mut each: impl FnMut(u64, Rows) -> Result<(), E>,
) -> Result<(), E> {
    let mut loaded: Option<(usize, Vec<u8>)> = None;
    for run in survey.runs.iter().filter(|run| run.last >= from) {
        let Some(file) = survey.files.get(run.file) else { continue };
        let (_, bytes) = match loaded.take().filter(|(place, _)| *place == run.file) {
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
            let At::Record(record) = at(bytes, layout, offset) else {
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

/// The rows of a record, every value's own frame verified.
pub(super) fn decode_rows(body: &[u8]) -> Result<Rows, &'static str> {
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
    let mut rows = Rows::new();
    for _ in 0..count {
        let (kind, behind) = rest.split_first().ok_or("a record with too few rows")?;
        rest = behind;
        let key = bytes(&mut rest).ok_or("a key beyond its record")?;
        let value = bytes(&mut rest).ok_or("a value beyond its record")?;
        let value = match kind {
            1 => {
                frame::open(key, value).map_err(|_| "a row that is not what was written")?;
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
        Err("bytes behind the last row")
    }
}

/// Zeroes a torn tail to the end of its file, gives the file its length back, and syncs it.
pub(in crate::kv) fn trim(torn: &Torn) -> Result<(), FileError> {
    let path = &torn.path;
    let file = fs::OpenOptions::new().write(true).open(path).map_err(FileError::at("open", path))?;
    let zeros = vec![0; FILE_BYTES.saturating_sub(usize::try_from(torn.offset).unwrap_or(FILE_BYTES))];
    ops::write_at(&file, path, &zeros, torn.offset).map_err(FileError::at("zero the torn tail of", path))?;
    ops::sync_all(&file, path).map_err(FileError::at("sync", path))
}
