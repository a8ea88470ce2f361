//! The byte layout of log files and records. All integers are little-endian; checksums are CRC32C.
//!
//! File header, 64 bytes. In version 2 the secret of the file follows ([`crate::kv::keyed`] shows
//! its layout), and records begin at byte 4,128:
//! ```text
//!  0  8 "PROMWAL1"     8 u16 version 1 | 2   10 u16 header bytes 64 | 4,128   12 u32 file bytes
//! 16 16 store id      32 u64 file number  40 i64 created, ms
//! 48 u64 number of the file before it, 0 if none             56  4 zero   60 u32 crc of 0..60
//! ```
//! Record of version 2, which every new log file has: the 32-byte header of [`crate::kv::keyed`],
//! body, zeros to a multiple of 8. Its bytes 8 to 24 are those of version 1. No sender can forge
//! such a record. Whatever label values or names contain, a search for records after damage never
//! takes them for one.
//!
//! Record of version 1: 24-byte header, body, zeros to a multiple of 8. It occurs in log files of
//! earlier versions and in series registries, which are never searched for records:
//! ```text
//!  0 u32 body bytes L (1 .. 16 MiB; 0 = end of data)      4 u32 crc of bytes 0..4, then 8..24+L
//!  8 u64 seq (previous + 1)                              16 u32 org (0 in marks)
//! 20 u8  type  1 samples 2 series 3 histograms 4 metadata 5 mark 6 organisation dropped 7 seal
//!         8 switch 9 deletion 10 exemplars 11 starts 12 seal of all times 32, 33 registry
//! 21 u8  body version: 2 of samples (1 is read), else 1
//! 22 u16 lag = seq - last seq known durable when this was written (65,535 = that or more)
//! 24 body
//! ```
//! A valid record that states "s was durable" (`seq - lag >= s`) proves that damage at s is not a
//! torn tail.
//!
//! The log never appends samples to a file of version 1. The first write after a start leaves such
//! a file, with a switch, for a file of version 2.
//!
//! Body of a mark:
//! ```text
//! u64 last seq known durable, varint n,
//! n x { varint org, i64 greatest time of a sample, u64 last seq of a record }
//! ```
//! The list describes the file before and occurs only in the first record of a file. n = 0
//! elsewhere, and if the file before held more than 16,384 organisations (the reader then reads
//! that file).
//!
//! Body of a seal, which closes a window of its organisation: `i64 U`, the exclusive end of the
//! window in ms. Samples before U in later records are late, both live and in a replay.
//!
//! Body of a seal of all times: `i64 U`, as in a seal. It takes all samples of the earlier records,
//! of any time, and sets the end of the window to U even if the end was later before.
//!
//! Body of a switch, the last record of a file that was left for the next one:
//! ```text
//! u64 number of the next file
//! ```
//! A switch is synced after the next file exists durably (with its zeros and its name), and
//! before the first record of that file is written. The switch costs one more write and sync for
//! each file, but no record that still fits waits for them. So a missing file that a switch names
//! was lost, with or without records. Without the switch the loss of the newest file would go
//! unnoticed, since no earlier file would mention it. Each file reserves room for its switch. Files
//! without one are read as well, since earlier versions wrote none.

use crate::kv::keyed::{KEYED_FILE_HEADER_BYTES, KEYED_HEADER_BYTES, RecordKey};
use crate::kv::plain::verifying_lengths;
use crate::kv::zeros::are_zeros;
use crate::model::{OrgId, StoreId};
use crate::tsdb::codec::{Reader, put_varint};
use crate::tsdb::error::Damage;

/// The length of the file header in bytes.
pub(in crate::tsdb) const FILE_HEADER_BYTES: usize = 64;
/// The length of a record header of version 1 in bytes.
pub(in crate::tsdb) const HEADER_BYTES: usize = 24;
/// The limit of a body that is read.
pub(in crate::tsdb) const BODY_BYTES_MAX: usize = 16 << 20;
/// The magic of log files. Other files of the store have the same header with another magic.
pub(in crate::tsdb) const MAGIC_WAL: [u8; 8] = *b"PROMWAL1";
/// The magic of the series registry.
pub(in crate::tsdb) const MAGIC_REGISTRY: [u8; 8] = *b"PROMREG1";
const VERSION: u16 = 1;
/// The version of files with keyed records.
const VERSION_KEYED: u16 = 2;
/// The length of the shortest keyed record. After this many bytes the sequence number has grown by
/// at most one.
pub(in crate::tsdb) const RECORD_BYTES_MIN: u64 = 32;
/// The version of all bodies except those of [`RecordKind::Samples`].
const BODY_VERSION: u8 = 1;
/// The version of the bodies of [`RecordKind::Samples`].
const SAMPLES_VERSION: u8 = 2;
/// The limit of organisations in a mark: 16,384 x 17 bytes is 0.3 MB, which fits the smallest file.
const MARK_ORGS_MAX: usize = 16_384;

/// The type of a record's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Samples.
    Samples,
    /// Samples in the layout of version 1. Read, and written only if such a record is copied.
    SamplesV1,
    /// Definitions of series.
    Series,
    /// Native histograms.
    Histograms,
    /// Types, help texts and units of metrics.
    Metadata,
    /// A mark of the durable records.
    Mark,
    /// The organisation was dropped.
    Dropped,
    /// A seal of a window of time.
    Seal,
    /// A seal of samples of any time. The end of the window may become earlier.
    SealAll,
    /// The last record of a file, which names the next file.
    Switch,
    /// Samples were deleted.
    Delete,
    /// Exemplars.
    Exemplars,
    /// Start timestamps.
    Starts,
    /// Definitions of series in a registry.
    RegistrySeries,
    /// Metadata in a registry.
    RegistryMetadata,
}

impl RecordKind {
    pub(in crate::tsdb) const fn code(self) -> u8 {
        match self {
            RecordKind::Samples | RecordKind::SamplesV1 => 1,
            RecordKind::Series => 2,
            RecordKind::Histograms => 3,
            RecordKind::Metadata => 4,
            RecordKind::Mark => 5,
            RecordKind::Dropped => 6,
            RecordKind::Seal => 7,
            RecordKind::Switch => 8,
            RecordKind::Delete => 9,
            RecordKind::Exemplars => 10,
            RecordKind::Starts => 11,
            RecordKind::SealAll => 12,
            RecordKind::RegistrySeries => 32,
            RecordKind::RegistryMetadata => 33,
        }
    }

    /// Returns the version of its body.
    pub(in crate::tsdb) const fn version(self) -> u8 {
        match self {
            RecordKind::Samples => SAMPLES_VERSION,
            _ => BODY_VERSION,
        }
    }

    /// Returns whether its bodies are those of [`super::samples`], in either version.
    pub(in crate::tsdb) const fn is_samples(self) -> bool {
        matches!(self, RecordKind::Samples | RecordKind::SamplesV1)
    }

    /// Returns whether the record is synced in every mode. Other parts rely on it and on all
    /// records before it.
    pub(in crate::tsdb) const fn is_synced_at_once(self) -> bool {
        !self.is_samples()
            && !matches!(
                self,
                RecordKind::Series
                    | RecordKind::Histograms
                    | RecordKind::Metadata
                    | RecordKind::Exemplars
                    | RecordKind::Starts
            )
    }

    /// Returns whether the record helps to free disk space. Such records are written even if the
    /// disk is full.
    pub(in crate::tsdb) const fn gives_space(self) -> bool {
        matches!(self, RecordKind::Delete | RecordKind::Dropped | RecordKind::Seal | RecordKind::SealAll)
    }

    /// Returns the kind; none if a newer version wrote the record.
    pub(in crate::tsdb) const fn of(code: u8, version: u8) -> Option<RecordKind> {
        match (code, version) {
            (1, SAMPLES_VERSION) => Some(RecordKind::Samples),
            (1, BODY_VERSION) => Some(RecordKind::SamplesV1),
            (2, BODY_VERSION) => Some(RecordKind::Series),
            (3, BODY_VERSION) => Some(RecordKind::Histograms),
            (4, BODY_VERSION) => Some(RecordKind::Metadata),
            (5, BODY_VERSION) => Some(RecordKind::Mark),
            (6, BODY_VERSION) => Some(RecordKind::Dropped),
            (7, BODY_VERSION) => Some(RecordKind::Seal),
            (8, BODY_VERSION) => Some(RecordKind::Switch),
            (9, BODY_VERSION) => Some(RecordKind::Delete),
            (10, BODY_VERSION) => Some(RecordKind::Exemplars),
            (11, BODY_VERSION) => Some(RecordKind::Starts),
            (12, BODY_VERSION) => Some(RecordKind::SealAll),
            (32, BODY_VERSION) => Some(RecordKind::RegistrySeries),
            (33, BODY_VERSION) => Some(RecordKind::RegistryMetadata),
            _ => None,
        }
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct RecordHeader {
    pub(in crate::tsdb) seq: u64,
    pub(in crate::tsdb) org: OrgId,
    /// `None` if a newer version wrote it.
    pub(in crate::tsdb) kind: Option<RecordKind>,
    pub(in crate::tsdb) lag: u16,
}

impl RecordHeader {
    /// Returns the last sequence number that this record states to be durable; none if the lag is
    /// too large to be stated.
    pub(in crate::tsdb) fn vouches_to(&self) -> Option<u64> {
        if self.lag == u16::MAX { None } else { Some(self.seq.saturating_sub(u64::from(self.lag))) }
    }
}

/// The layout of a file's records, which decides how they are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum Layout {
    /// Version 1: a checksum without a key.
    Plain,
    /// Version 2.
    Keyed(RecordKey),
    /// Version 2 without a readable copy of its secret. None of its records can be verified.
    Lost,
}

impl Layout {
    /// Returns the layout of a log file, whose first [`KEYED_FILE_HEADER_BYTES`] bytes are `start`.
    pub(in crate::tsdb) fn of(start: &[u8], file_number: u64) -> Layout {
        match FileHeader::parse(start, MAGIC_WAL) {
            Ok(header) => header.layout,
            Err(_) => RecordKey::find_without_header(start, file_number).map_or(Layout::Plain, Layout::Keyed),
        }
    }

    /// Returns the offset of the first record of a file.
    pub(in crate::tsdb) const fn first_record(self) -> usize {
        match self {
            Layout::Plain => FILE_HEADER_BYTES,
            Layout::Keyed(_) | Layout::Lost => KEYED_FILE_HEADER_BYTES,
        }
    }

    /// Returns the length of a record header in bytes.
    pub(in crate::tsdb) const fn header_bytes(self) -> usize {
        match self {
            Layout::Plain => HEADER_BYTES,
            Layout::Keyed(_) | Layout::Lost => KEYED_HEADER_BYTES,
        }
    }

    /// Returns the length of a whole record in bytes, padding included.
    pub(in crate::tsdb) const fn record_bytes(self, body_bytes: usize) -> usize {
        (self.header_bytes() + body_bytes).next_multiple_of(8)
    }

    /// Returns the length of a switch record, which each file keeps free.
    pub(in crate::tsdb) const fn switch_bytes(self) -> usize {
        self.record_bytes(8)
    }

    /// Appends a record, as [`put_record`] does.
    pub(in crate::tsdb) fn put(self, out: &mut Vec<u8>, record: NewRecord, body: &[u8]) {
        let NewRecord { seq, org, kind, durable } = record;
        let Layout::Keyed(key) = self else { return put_record(out, seq, org, kind, durable, body) };
        debug_assert!(!body.is_empty() && body.len() <= BODY_BYTES_MAX, "1 byte to 16 MiB");
        let start = out.len();
        out.extend_from_slice(&key.header(fields(seq, org, kind, durable), body));
        out.extend_from_slice(body);
        out.resize(start + self.record_bytes(body.len()), 0);
    }

    /// Parses the record at the start of `bytes`.
    pub(in crate::tsdb) fn parse(self, bytes: &[u8]) -> ParsedRecord<'_> {
        match self {
            Layout::Plain => parse_plain_record(bytes),
            Layout::Keyed(key) => parse_keyed(key, bytes),
            Layout::Lost => ParsedRecord::Bad("the secret of the file's records is damaged"),
        }
    }

    /// Returns how many bytes [`Layout::parse`] needs to parse the record with the header `header`,
    /// or to reject it.
    pub(in crate::tsdb) fn promised_bytes(self, header: &[u8]) -> usize {
        match self {
            Layout::Plain => promised_bytes(header),
            // Only a verified length is worth reading.
            Layout::Keyed(key) => header
                .first_chunk()
                .and_then(|header| key.verify(header))
                .map_or(KEYED_HEADER_BYTES, |header| self.record_bytes(header.body_bytes as usize)),
            Layout::Lost => KEYED_HEADER_BYTES,
        }
    }
}

fn parse_keyed(key: RecordKey, bytes: &[u8]) -> ParsedRecord<'_> {
    let Some((header, rest)) = bytes.split_first_chunk::<KEYED_HEADER_BYTES>() else {
        let what = "record header is cut short";
        return if are_zeros(bytes) { ParsedRecord::End } else { ParsedRecord::Bad(what) };
    };
    if header.starts_with(&[0; 4]) {
        return ParsedRecord::End;
    }
    let Some(verified) = key.verify(header) else {
        return ParsedRecord::Bad("record header does not verify");
    };
    let body_bytes = verified.body_bytes as usize;
    let (Some(found), 1..=BODY_BYTES_MAX) = (parse_fields(&verified.fields), body_bytes) else {
        return ParsedRecord::Bad("record header is impossible");
    };
    let bytes = Layout::Keyed(key).record_bytes(body_bytes);
    match rest.get(..body_bytes).filter(|body| verified.has_body(body)) {
        Some(body) => ParsedRecord::Record(found, body, bytes),
        None => ParsedRecord::Unreadable(found, bytes),
    }
}

/// The fields of a new record's header, besides length and checksums.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct NewRecord {
    /// The sequence number: that of the previous record plus 1.
    pub(in crate::tsdb) seq: u64,
    /// 0 in marks and switches.
    pub(in crate::tsdb) org: OrgId,
    pub(in crate::tsdb) kind: RecordKind,
    /// The sequence number of the last durable record.
    pub(in crate::tsdb) durable: u64,
}

/// Encodes bytes 8 to 24 of a record header.
fn fields(seq: u64, org: OrgId, kind: RecordKind, durable: u64) -> [u8; 16] {
    let lag = u16::try_from(seq.saturating_sub(durable)).unwrap_or(u16::MAX);
    let mut fields = [0; 16];
    fields[..8].copy_from_slice(&seq.to_le_bytes());
    fields[8..12].copy_from_slice(&org.0.to_le_bytes());
    fields[12] = kind.code();
    fields[13] = kind.version();
    fields[14..].copy_from_slice(&lag.to_le_bytes());
    fields
}

fn parse_fields(fields: &[u8; 16]) -> Option<RecordHeader> {
    let mut reader = Reader::new(fields);
    let parsed = (|| {
        let (seq, org, code, version, lag) =
            (reader.u64()?, reader.u32()?, reader.u8()?, reader.u8()?, reader.u16()?);
        Ok::<_, Damage>(RecordHeader { seq, org: OrgId(org), kind: RecordKind::of(code, version), lag })
    })();
    parsed.ok()
}

/// Parses bytes as a record header of version 1, without verification.
pub(in crate::tsdb) fn plain_header(bytes: &[u8]) -> Option<RecordHeader> {
    let [_, _, _, _, _, _, _, _, rest @ ..] = bytes.first_chunk::<HEADER_BYTES>()?;
    parse_fields(rest)
}

/// The end of a record of version 1 that does not verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct BadEnd {
    /// The length of the record in bytes.
    pub(in crate::tsdb) bytes: usize,
    /// True if exactly one length explains the checksum. Otherwise the length is that of the
    /// header, which may be damaged.
    pub(in crate::tsdb) is_certain: bool,
}

/// Returns the end of the record of version 1 at the start of `bytes`, which should be record `seq`
/// and does not verify; none if it cannot be determined.
///
/// In a file of version 1 a search continues only there, because a sender may have put whole
/// records into the body.
pub(in crate::tsdb) fn end_of_bad_plain_record(bytes: &[u8], seq: u64) -> Option<BadEnd> {
    let header = plain_header(bytes)?;
    if header.seq == seq && header.kind.is_some() {
        match verifying_lengths(bytes, BODY_BYTES_MAX).as_slice() {
            [] => {}
            [length] => return Some(BadEnd { bytes: record_bytes(*length), is_certain: true }),
            _ => return None,
        }
    }
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let fits = (1..=BODY_BYTES_MAX).contains(&length) && record_bytes(length) <= bytes.len();
    fits.then(|| BadEnd { bytes: record_bytes(length), is_certain: false })
}

/// Returns the length of a whole record of version 1 in bytes, padding included.
pub(in crate::tsdb) const fn record_bytes(body_bytes: usize) -> usize {
    (HEADER_BYTES + body_bytes).next_multiple_of(8)
}

/// Appends a record of version 1. Bodies have 1 byte to 16 MiB; the writers' own limits are far
/// below.
pub(in crate::tsdb) fn put_record(
    out: &mut Vec<u8>,
    seq: u64,
    org: OrgId,
    kind: RecordKind,
    durable: u64,
    body: &[u8],
) {
    debug_assert!(!body.is_empty() && body.len() <= BODY_BYTES_MAX, "1 byte to 16 MiB");
    let start = out.len();
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    let rest = fields(seq, org, kind, durable);
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&length), &rest), body);
    out.extend_from_slice(&length);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&rest);
    out.extend_from_slice(body);
    out.resize(start + record_bytes(body.len()), 0);
}

/// The result of parsing the bytes at an offset at which a record may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum ParsedRecord<'a> {
    /// A valid record: header, body, and length in bytes with padding.
    Record(RecordHeader, &'a [u8], usize),
    /// A keyed record with a valid header and a damaged body, and its length in bytes.
    Unreadable(RecordHeader, usize),
    /// The end of the written records.
    End,
    /// Bytes that are neither a record nor the end of the log, and the reason.
    Bad(&'static str),
}

/// Returns the length that the header at the start of `bytes` states, or as many bytes as are
/// needed to reject it.
pub(in crate::tsdb) fn promised_bytes(bytes: &[u8]) -> usize {
    let body_bytes = bytes.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    if body_bytes > BODY_BYTES_MAX { HEADER_BYTES } else { record_bytes(body_bytes) }
}

/// Parses the record of version 1 at the start of `bytes`.
pub(in crate::tsdb) fn parse_plain_record(bytes: &[u8]) -> ParsedRecord<'_> {
    let mut reader = Reader::new(bytes);
    let Ok(length) = reader.array::<4>() else {
        return if are_zeros(bytes) {
            ParsedRecord::End
        } else {
            ParsedRecord::Bad("record header is cut short")
        };
    };
    let body_bytes = u32::from_le_bytes(length) as usize;
    if body_bytes == 0 {
        return ParsedRecord::End;
    }
    if body_bytes > BODY_BYTES_MAX {
        return ParsedRecord::Bad("record is longer than 16 MiB");
    }
    let read = |reader: &mut Reader<'_>| Ok::<_, Damage>((reader.u32()?, reader.array::<16>()?));
    let Ok((crc, rest)) = read(&mut reader) else { return ParsedRecord::Bad("record header is cut short") };
    let Ok(body) = reader.take(body_bytes) else { return ParsedRecord::Bad("record body is cut short") };
    if crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&length), &rest), body) != crc {
        return ParsedRecord::Bad("record checksum differs");
    }
    match parse_fields(&rest) {
        Some(header) => ParsedRecord::Record(header, body, record_bytes(body_bytes)),
        None => ParsedRecord::Bad("record header is cut short"),
    }
}

/// The header of a log file or registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct FileHeader {
    pub(in crate::tsdb) file_bytes: u32,
    pub(in crate::tsdb) store: StoreId,
    /// The number of the log file, or the organisation of a registry.
    pub(in crate::tsdb) number: u64,
    pub(in crate::tsdb) created_ms: i64,
    pub(in crate::tsdb) before: u64,
    /// [`Layout::Plain`] in registries.
    pub(in crate::tsdb) layout: Layout,
}

/// The reason why bytes are not a valid file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum BadHeader {
    /// Damaged, or of another program.
    Damaged(&'static str),
    /// Valid, but of a newer version.
    Newer,
}

impl FileHeader {
    pub(in crate::tsdb) fn encode(&self, magic: [u8; 8]) -> Vec<u8> {
        let (version, bytes): (u16, u16) = match self.layout {
            Layout::Plain => (VERSION, 64),
            Layout::Keyed(_) | Layout::Lost => (VERSION_KEYED, 4_128),
        };
        let mut out = [0; KEYED_FILE_HEADER_BYTES];
        out[..8].copy_from_slice(&magic);
        out[8..10].copy_from_slice(&version.to_le_bytes());
        out[10..12].copy_from_slice(&bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.file_bytes.to_le_bytes());
        out[16..32].copy_from_slice(&self.store.0);
        out[32..40].copy_from_slice(&self.number.to_le_bytes());
        out[40..48].copy_from_slice(&self.created_ms.to_le_bytes());
        out[48..56].copy_from_slice(&self.before.to_le_bytes());
        let crc = crc32c::crc32c(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        if let Layout::Keyed(key) = self.layout {
            key.put(&mut out, self.number);
        }
        let mut out = out.to_vec();
        out.truncate(self.layout.first_record());
        out
    }

    /// Parses a file header. `bytes` may be only the first 64 bytes of the file. The secret of a
    /// file of version 2 is then unknown ([`Layout::Lost`]).
    pub(in crate::tsdb) fn parse(bytes: &[u8], magic: [u8; 8]) -> Result<FileHeader, BadHeader> {
        let head =
            bytes.first_chunk::<FILE_HEADER_BYTES>().ok_or(BadHeader::Damaged("file header is cut short"))?;
        let mut reader = Reader::new(head);
        let read = |reader: &mut Reader<'_>| {
            let (found, version, _bytes) = (reader.array::<8>()?, reader.u16()?, reader.u16()?);
            let header = FileHeader {
                file_bytes: reader.u32()?,
                store: StoreId(reader.array()?),
                number: reader.u64()?,
                created_ms: reader.i64()?,
                before: reader.u64()?,
                layout: Layout::Plain,
            };
            let _zero = reader.u32()?;
            Ok::<_, Damage>((found, version, header, reader.u32()?))
        };
        let (found, version, header, crc) = read(&mut reader).map_err(|e| BadHeader::Damaged(e.what))?;
        if crc32c::crc32c(&head[..60]) != crc {
            return Err(BadHeader::Damaged("file header checksum differs"));
        }
        if found != magic {
            return Err(BadHeader::Damaged("file is of another kind"));
        }
        match version {
            VERSION => Ok(header),
            VERSION_KEYED if magic == MAGIC_WAL => {
                let layout = RecordKey::find(bytes, header.number).map_or(Layout::Lost, Layout::Keyed);
                Ok(FileHeader { layout, ..header })
            }
            _ => Err(BadHeader::Newer),
        }
    }
}

/// A file's records of one organisation. Once none of them is needed, the file may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct OrgSpan {
    pub(in crate::tsdb) org: OrgId,
    pub(in crate::tsdb) greatest_ms: i64,
    pub(in crate::tsdb) last_seq: u64,
}

/// The body of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct Mark {
    pub(in crate::tsdb) durable: u64,
    pub(in crate::tsdb) orgs: Vec<OrgSpan>,
}

impl Mark {
    pub(in crate::tsdb) fn encode(&self) -> Vec<u8> {
        let orgs: &[OrgSpan] = if self.orgs.len() <= MARK_ORGS_MAX { &self.orgs } else { &[] };
        let mut out = self.durable.to_le_bytes().to_vec();
        put_varint(&mut out, orgs.len() as u64);
        for span in orgs {
            put_varint(&mut out, u64::from(span.org.0));
            out.extend_from_slice(&span.greatest_ms.to_le_bytes());
            out.extend_from_slice(&span.last_seq.to_le_bytes());
        }
        out
    }

    /// Parses a mark.
    pub(in crate::tsdb) fn parse(body: &[u8]) -> Result<Mark, Damage> {
        let mut reader = Reader::new(body);
        let durable = reader.u64()?;
        let count = reader.count(17)?;
        let mut orgs = Vec::with_capacity(count);
        for _ in 0..count {
            let org =
                u32::try_from(reader.varint()?).map_err(|_| reader.damage("organisation id over 32 bits"))?;
            orgs.push(OrgSpan { org: OrgId(org), greatest_ms: reader.i64()?, last_seq: reader.u64()? });
        }
        reader.end()?;
        Ok(Mark { durable, orgs })
    }
}

/// Encodes the body of a switch.
pub(in crate::tsdb) const fn encode_switch(next_file: u64) -> [u8; 8] {
    next_file.to_le_bytes()
}

/// Parses the body of a switch: the number of the next file.
pub(in crate::tsdb) fn parse_switch(body: &[u8]) -> Result<u64, Damage> {
    let mut reader = Reader::new(body);
    let next = reader.u64()?;
    reader.end()?;
    Ok(next)
}

/// Encodes the body of a seal: the exclusive end of the window in ms.
pub(in crate::tsdb) fn seal_body(until_ms: i64) -> Vec<u8> {
    until_ms.to_le_bytes().to_vec()
}

/// Parses the body of a seal.
pub(in crate::tsdb) fn parse_seal(body: &[u8]) -> Result<i64, Damage> {
    let mut reader = Reader::new(body);
    let until_ms = reader.i64()?;
    reader.end()?;
    Ok(until_ms)
}

#[cfg(test)]
mod tests;
