//! Reading the journal: every record checked, a torn tail told from damage.

use std::fs;
use std::path::{Path, PathBuf};

use super::{
    BODY_VERSION, FILE_BYTES, HEADER_BYTES, Header, JournalError, MAGIC, RECORD_HEADER_BYTES, RECORD_TYPE,
    VERSION,
};
use crate::kv::files::{self, FileError};
use crate::kv::frame;
use crate::kv::ops;
use crate::kv::rows::Rows;
use crate::model::{StoreId, Timestamp};

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
}

fn at(bytes: &[u8], offset: usize) -> At<'_> {
    let rest = bytes.get(offset..).unwrap_or_default();
    let Some((head, behind)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        return if rest.iter().all(|b| *b == 0) { At::End } else { At::Bad("bytes where no record fits") };
    };
    let [l0, l1, l2, l3, c0, c1, c2, c3, s @ .., _, _, _, _, kind, version, g0, g1] = *head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    if length == 0 {
        return if rest.iter().all(|b| *b == 0) { At::End } else { At::Bad("bytes behind the end") };
    }
    let Some((body, _)) = usize::try_from(length).ok().and_then(|n| behind.split_at_checked(n)) else {
        return At::Bad("a length beyond the file");
    };
    let covered = rest.get(8..RECORD_HEADER_BYTES + body.len()).unwrap_or_default();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&[l0, l1, l2, l3]), covered);
    if crc != u32::from_le_bytes([c0, c1, c2, c3]) {
        return At::Bad("a wrong checksum");
    }
    if (kind, version) != (RECORD_TYPE, BODY_VERSION) {
        return At::Bad("a record of another type or version");
    }
    At::Record(Record {
        seq: u64::from_le_bytes(s),
        lag: u16::from_le_bytes([g0, g1]),
        body,
        end: offset + (RECORD_HEADER_BYTES + body.len()).next_multiple_of(8),
    })
}

/// The readable front of one file.
pub(super) struct FileScan<'b> {
    pub(super) records: Vec<Record<'b>>,
    /// Where the first bad bytes are, and what is wrong with them.
    pub(super) bad: Option<(usize, &'static str)>,
    /// Where the next record would go.
    pub(super) end: usize,
}

/// Reads records from the front; the first one must have the seq `next`.
pub(super) fn scan_file(bytes: &[u8], mut next: u64) -> FileScan<'_> {
    let mut found = FileScan { records: Vec::new(), bad: None, end: HEADER_BYTES };
    loop {
        match at(bytes, found.end) {
            At::End => return found,
            At::Bad(what) => found.bad = Some((found.end, what)),
            At::Record(record) if record.seq != next => {
                found.bad = Some((found.end, "a record out of its turn"))
            }
            At::Record(record) => {
                next = next.saturating_add(1);
                found.end = record.end;
                found.records.push(record);
                continue;
            }
        }
        return found;
    }
}

/// The first record behind `from` that proves that change `seq` was durable once.
pub(super) fn vouching(bytes: &[u8], from: usize, seq: u64) -> Option<u64> {
    let candidates = (from.next_multiple_of(8)..bytes.len()).step_by(8);
    // Zeros are most of a file and no record.
    let mut starts =
        candidates.filter(|offset| bytes.get(*offset..offset + 4).is_some_and(|word| word != [0; 4]));
    starts.find_map(|offset| match at(bytes, offset) {
        At::Record(later) if later.seq > seq && later.seq.saturating_sub(u64::from(later.lag)) >= seq => {
            Some(later.seq)
        }
        _ => None,
    })
}

/// A tail that was being written when the machine stopped; nothing in it was ever answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kv) struct Torn {
    pub(in crate::kv) path: PathBuf,
    pub(in crate::kv) offset: u64,
    /// Bytes from the first bad one to the last that is not zero.
    pub(in crate::kv) bytes: u64,
    /// The change that was being written.
    pub(in crate::kv) seq: u64,
}

/// What the journal holds.
#[derive(Debug, Default)]
pub(in crate::kv) struct Survey {
    /// Files in order of their numbers.
    pub(in crate::kv) files: Vec<(u64, PathBuf)>,
    /// Which of `files` the next record goes to, and where in it; the ones behind it are empty.
    pub(in crate::kv) current: usize,
    pub(in crate::kv) offset: u64,
    pub(in crate::kv) first_seq: Option<u64>,
    /// 0 when there is no record.
    pub(in crate::kv) last_seq: u64,
    pub(in crate::kv) records: u64,
    pub(in crate::kv) torn: Option<Torn>,
}

/// Reads and checks the whole journal, one file in memory at a time.
pub(in crate::kv) fn survey(dir: &Path, store: StoreId) -> Result<Survey, JournalError> {
    let mut survey = Survey { files: list(dir)?, offset: HEADER_BYTES as u64, ..Survey::default() };
    let mut previous = None;
    for (index, (number, path)) in survey.files.clone().iter().enumerate() {
        let bytes = load(path, store, *number, survey.last_seq + 1)?;
        if let Some(gap) = previous.filter(|p| p + 1 != *number) {
            return Err(JournalError::FileMissing { dir: dir.to_owned(), number: gap + 1 });
        }
        previous = Some(*number);
        if let Some(torn) = &survey.torn {
            // The file before this one was durable before this one was used, so any record here speaks for it.
            if let At::End = at(&bytes, HEADER_BYTES) {
                continue;
            }
            return Err(damaged(
                &torn.path,
                torn.offset,
                torn.seq,
                format!("file {number} goes on behind it"),
            ));
        }
        let next = match at(&bytes, HEADER_BYTES) {
            At::Record(first) if survey.first_seq.is_none() => first.seq,
            _ => survey.last_seq + 1,
        };
        let scan = scan_file(&bytes, next);
        if let Some(last) = scan.records.last() {
            survey.first_seq = survey.first_seq.or(Some(next));
            survey.last_seq = last.seq;
            survey.records += scan.records.len() as u64;
            (survey.current, survey.offset) = (index, scan.end as u64);
        }
        if let Some((offset, what)) = scan.bad {
            let seq = survey.last_seq + 1;
            if let Some(later) = vouching(&bytes, offset, seq) {
                return Err(damaged(
                    path,
                    offset as u64,
                    seq,
                    format!("{what}, and change {later} behind it says it was whole"),
                ));
            }
            let last = bytes.iter().rposition(|b| *b != 0).unwrap_or(offset);
            let torn_bytes = (last + 1).saturating_sub(offset) as u64;
            survey.torn = Some(Torn { path: path.clone(), offset: offset as u64, bytes: torn_bytes, seq });
        }
    }
    Ok(survey)
}

fn damaged(path: &Path, offset: u64, seq: u64, what: String) -> JournalError {
    JournalError::Damaged { path: path.to_owned(), offset, seq, what }
}

fn list(dir: &Path) -> Result<Vec<(u64, PathBuf)>, FileError> {
    let number = |name: &String| name.strip_suffix(".jnl")?.parse::<u64>().ok();
    let mut found: Vec<_> =
        files::names(dir)?.iter().filter_map(|name| Some((number(name)?, dir.join(name)))).collect();
    found.sort_unstable();
    Ok(found)
}

/// A file's bytes, header checked, filled with zeros where it was cut short.
fn load(path: &Path, store: StoreId, number: u64, next: u64) -> Result<Vec<u8>, JournalError> {
    let mut bytes = files::read_small(path, FILE_BYTES as u64)?.unwrap_or_default();
    bytes.resize(FILE_BYTES, 0);
    let header = decode_header(&bytes).map_err(|e| match e {
        HeaderError::Newer(found) => JournalError::Newer { path: path.to_owned(), found },
        HeaderError::Damaged => damaged(path, 0, next, "its header is not what was written".to_owned()),
    })?;
    if header.store != store {
        return Err(JournalError::Foreign { path: path.to_owned(), expected: store, found: header.store });
    }
    if (header.number, header.previous) != (number, number.saturating_sub(1)) {
        return Err(damaged(
            path,
            0,
            next,
            format!("it was file {} behind file {}", header.number, header.previous),
        ));
    }
    Ok(bytes)
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
    if sizes != (FILE_BYTES as u64) << 32 | (HEADER_BYTES as u64) << 16 | u64::from(VERSION) {
        return Err(HeaderError::Damaged);
    }
    let mut store = [0; 16];
    store.copy_from_slice(covered.get(16..32).ok_or(HeaderError::Damaged)?);
    let created = Timestamp::from_ms(word(40)?.cast_signed());
    Ok(Header { store: StoreId(store), number: word(32)?, previous: word(48)?, created })
}

/// Hands out the changes from `from` on, in order, until `each` fails.
pub(in crate::kv) fn replay<E: From<JournalError>>(
    survey: &Survey,
    store: StoreId,
    from: u64,
    mut each: impl FnMut(u64, Rows) -> Result<(), E>,
) -> Result<(), E> {
    let Some(mut next) = survey.first_seq else { return Ok(()) };
    for (number, path) in &survey.files {
        let bytes = load(path, store, *number, next)?;
        for record in scan_file(&bytes, next).records {
            next = record.seq + 1;
            if record.seq >= from {
                let rows = decode_rows(record.body)
                    .map_err(|what| damaged(path, record.end as u64, record.seq, what.to_owned()))?;
                each(record.seq, rows)?;
            }
        }
    }
    if next != survey.last_seq + 1 {
        let at = survey.files.get(survey.current).map(|f| f.1.clone()).unwrap_or_default();
        return Err(damaged(&at, survey.offset, next, "it changed while it was read".to_owned()).into());
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
