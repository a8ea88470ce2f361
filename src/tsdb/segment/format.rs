//! The segment file, byte by byte. Integers are little-endian, times are i64 milliseconds,
//! checksums are CRC32C.
//!
//! ```text
//!    0  8 "PROMSEG1"   8 u16 version 2  10 u16 header bytes 64  12 u32 zero    16 16 store id
//!   32 u32 org        36 u8 level      37 u8 flags            38 2 zero
//!   40 u64 segment seq                 48 u64 first log seq   56 u32 zero     60 u32 crc of 0..60
//!   64 sections, each at a multiple of 64, with zeros between them:
//!    1 DATA          family by family, series by series: varint bytes of each value block but the
//!                    last; value blocks ([`super::block`]), in order of time and back to back
//!    2 TIMES         time blocks, equal ones once
//!    3 COLUMNS       columns of bits ([`super::packed`]), equal ones once; 8 zeros
//!    4 FAMILIES      below
//!    5 DICTIONARIES  u32 n; (n + 1) x u32 offset from the start of the section: where each begins,
//!                    and where the last one ends; n dictionaries ([`super::dictionary`]): of the
//!                    label names; then of the values of each label name in turn
//!    6 SIDE_DATA     only with the flag for histograms: [`super::side_data`]
//!   footer   5 or 6 x { u32 section id, u32 crc, u64 offset, u64 bytes }, by id and by offset
//!            entry: u8 level, u8 flags (1 late samples, 2 histograms), u16 replaced n, u32 series,
//!              i64 least time, i64 greatest time, u64 file bytes, u64 samples, u64 first log seq,
//!              u64 last log seq, n x u64 segment seq replaced
//!   last 32  u32 footer bytes, u32 crc of {footer, store id, org, the rest of the file},
//!            u64 file bytes, u64 segment seq, 8 "PROMSEGE"
//! ```
//! Version 1 differs in one point: it has no value blocks that are written backward
//! (`block::values`).
//!
//! The checksums of DATA and TIMES here are for `check`; a reader verifies the checksum of each
//! block instead. The other sections are verified when the file is opened.
//!
//! The series of a target are scraped together, so they have the same times. A **timeline** is the
//! list of the time blocks of a series. Each row refers to a timeline by number.
//! ```text
//! FAMILIES   0 u32 families n      4 u32 timelines
//!            8 (n + 1) x u32 offset from the start of the section: where each record begins, and
//!              where the last one ends
//!            timelines, four columns: first time; last time; end of the list of its blocks in the
//!              fourth column; offsets in TIMES of the blocks of all lists
//!            n records, ascending by metric name, then by label names:
//!              varint 1 + number of the metric name among the values of `__name__` (0: none)
//!              varint rows   varint offset of its DATA   varint labels,
//!              labels x varint number of the name
//!              columns of its rows, ascending by series id: series id; timeline; offset of its
//!                blocks from the family's DATA, with one more value: the end of the last row
//!              for each label: u8 form; form 0: column of value numbers
//!                                       form 1: column of local numbers; column of value numbers
//!                                               by local number
//! ```
//! The manifest is a table of control (`tsdb::manifest`). The entry in the footer serves to check
//! it, and to rebuild it after a loss.

use super::{HISTOGRAMS, SegmentMeta};
use crate::model::{OrgId, StoreId};
use crate::tsdb::codec::Reader;
use crate::tsdb::error::Damage;

/// The version that is written. Version 1 is read as well.
pub(super) const VERSION: u16 = 2;
pub(super) const HEADER_BYTES: usize = 64;
pub(super) const TAIL_BYTES: usize = 32;
/// Sections begin at multiples of this.
pub(super) const ALIGNMENT: u64 = 64;
/// Zeros after the columns, so that a reader may always load 8 bytes.
pub(super) const COLUMNS_PAD: usize = 8;
/// Forms of a label's column.
pub(super) const DIRECT: u8 = 0;
pub(super) const LOCAL: u8 = 1;

const MAGIC: &[u8; 8] = b"PROMSEG1";
const END_MAGIC: &[u8; 8] = b"PROMSEGE";
pub(super) const SECTIONS: usize = 6;
const SECTION_BYTES: usize = 24;
/// Bound of a footer: the section entries, the segment's entry, 65,535 replaced segments.
const FOOTER_BYTES_MAX: usize = 1 << 20;

/// Indexes of [`Footer::sections`].
pub(super) const DATA: usize = 0;
pub(super) const TIMES: usize = 1;
pub(super) const COLUMNS: usize = 2;
pub(super) const FAMILIES: usize = 3;
pub(super) const DICTIONARIES: usize = 4;
pub(super) const SIDE_DATA: usize = 5;

/// The first 64 bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) store: StoreId,
    pub(super) org: OrgId,
    pub(super) level: u8,
    pub(super) flags: u8,
    pub(super) seq: u64,
    pub(super) first_log_seq: u64,
}

/// Result of decoding the first 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecodedHeader {
    Supported(SegmentHeader),
    Newer(u16),
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&64u16.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.store.0);
        out.extend_from_slice(&self.org.0.to_le_bytes());
        out.extend_from_slice(&[self.level, self.flags, 0, 0]);
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&self.first_log_seq.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    /// Decodes the header. A newer version is returned without a check of the rest.
    pub(super) fn decode(bytes: &[u8]) -> Result<DecodedHeader, Damage> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or_else(|| Damage::new(0, "shorter than a header"))?;
        let mut reader = Reader::new(bytes);
        if &reader.array()? != MAGIC {
            return Err(Damage::new(0, "not a segment"));
        }
        let version = reader.u16()?;
        if version > VERSION {
            return Ok(DecodedHeader::Newer(version));
        }
        let crc = bytes.get(60..).and_then(<[u8]>::first_chunk).copied().map(u32::from_le_bytes);
        if version == 0 || crc != bytes.get(..60).map(crc32c::crc32c) {
            return Err(Damage::new(0, "wrong checksum of the header"));
        }
        reader.take(6)?;
        let store = StoreId(reader.array()?);
        let org = OrgId(reader.u32()?);
        let [level, flags, _, _] = reader.array()?;
        Ok(DecodedHeader::Supported(SegmentHeader {
            store,
            org,
            level,
            flags,
            seq: reader.u64()?,
            first_log_seq: reader.u64()?,
        }))
    }
}

/// Position, size and checksum of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) crc: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The footer of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) sections: [Section; SECTIONS],
    /// The hash is unset, since the footer cannot contain the hash of its own file.
    pub(super) meta: SegmentMeta,
}

/// Returns the checksum that is in the last 32 bytes and in the manifest.
fn footer_crc(store: StoreId, org: OrgId, footer: &[u8], after: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(footer), &store.0);
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &org.0.to_le_bytes()), after)
}

impl Footer {
    /// Encodes the footer and the last 32 bytes, and sets the file size and checksum of `meta`.
    /// `start` is the offset of the footer in the file.
    pub(super) fn encode(&mut self, store: StoreId, start: u64) -> Vec<u8> {
        let replaced = u16::try_from(self.meta.replaces.len()).unwrap_or(u16::MAX);
        self.meta.replaces.truncate(usize::from(replaced));
        let count = sections_of(self.meta.flags);
        let bytes = count * SECTION_BYTES + self.meta.entry_bytes();
        self.meta.file_bytes = start + (bytes + TAIL_BYTES) as u64;
        let mut out = Vec::with_capacity(bytes + TAIL_BYTES);
        for (id, section) in (1u32..).zip(self.sections.iter().take(count)) {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&section.crc.to_le_bytes());
            out.extend_from_slice(&section.offset.to_le_bytes());
            out.extend_from_slice(&section.bytes.to_le_bytes());
        }
        self.meta.put_entry(&mut out);
        let mut after = Vec::with_capacity(24);
        after.extend_from_slice(&self.meta.file_bytes.to_le_bytes());
        after.extend_from_slice(&self.meta.seq.to_le_bytes());
        after.extend_from_slice(END_MAGIC);
        self.meta.footer_crc = footer_crc(store, self.meta.org, &out, &after);
        let length = u32::try_from(out.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&self.meta.footer_crc.to_le_bytes());
        out.extend_from_slice(&after);
        out
    }

    /// Decodes the footer of a whole file. The offset of [`Damage`] counts from the start of the
    /// file.
    pub(super) fn decode(file: &[u8], store: StoreId, org: OrgId, flags: u8) -> Result<Footer, Damage> {
        let tail_at = file.len().saturating_sub(TAIL_BYTES);
        let at_tail = |what| Damage::new(tail_at, what);
        let mut tail = Reader::new(file.get(tail_at..).unwrap_or_default());
        let length = usize::try_from(tail.u32()?).unwrap_or(usize::MAX);
        let crc = tail.u32()?;
        let after = file.get(tail_at + 8..).unwrap_or_default();
        let (file_bytes, seq) = (tail.u64()?, tail.u64()?);
        if &tail.array()? != END_MAGIC {
            return Err(at_tail("the end of the segment is missing"));
        }
        if length > FOOTER_BYTES_MAX {
            return Err(at_tail("footer too large"));
        }
        let start = tail_at.checked_sub(length).ok_or_else(|| at_tail("footer larger than the file"))?;
        let bytes = file.get(start..tail_at).unwrap_or_default();
        if footer_crc(store, org, bytes, after) != crc {
            return Err(at_tail("wrong checksum of the footer"));
        }
        if file_bytes != file.len() as u64 {
            return Err(at_tail("wrong file length in the footer"));
        }
        let in_file = |damage: Damage| Damage { offset: damage.offset + start as u64, what: damage.what };
        let mut reader = Reader::new(bytes);
        let sections = sections(&mut reader, start as u64, sections_of(flags)).map_err(in_file)?;
        let mut meta = SegmentMeta::take_entry(&mut reader, org, seq).map_err(in_file)?;
        reader.end().map_err(in_file)?;
        meta.footer_crc = crc;
        Ok(Footer { sections, meta })
    }
}

/// Returns the number of sections of a segment with these flags.
const fn sections_of(flags: u8) -> usize {
    if flags & HISTOGRAMS == 0 { SECTIONS - 1 } else { SECTIONS }
}

/// Decodes the section entries. Sections must be aligned, in order, without overlaps, and end
/// before `end`.
fn sections(reader: &mut Reader<'_>, end: u64, count: usize) -> Result<[Section; SECTIONS], Damage> {
    let mut sections = [Section::default(); SECTIONS];
    let mut free = HEADER_BYTES as u64;
    for (id, section) in (1u32..).zip(sections.iter_mut().take(count)) {
        if reader.u32()? != id {
            return Err(reader.damage("unexpected section"));
        }
        *section = Section { crc: reader.u32()?, offset: reader.u64()?, bytes: reader.u64()? };
        let past = section.offset.checked_add(section.bytes).filter(|past| *past <= end);
        let Some(past) = past.filter(|_| section.offset >= free && section.offset % ALIGNMENT == 0) else {
            return Err(reader.damage("a section overlaps another one or is not aligned"));
        };
        free = past;
    }
    Ok(sections)
}

impl SegmentMeta {
    const ENTRY_BYTES: usize = 56;

    fn entry_bytes(&self) -> usize {
        SegmentMeta::ENTRY_BYTES + self.replaces.len() * 8
    }

    /// Appends the first 56 bytes of an entry.
    fn put_fixed(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.level, self.flags]);
        out.extend_from_slice(&u16::try_from(self.replaces.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&self.series.to_le_bytes());
        out.extend_from_slice(&self.min_ms.to_le_bytes());
        out.extend_from_slice(&self.max_ms.to_le_bytes());
        for number in [self.file_bytes, self.samples, self.first_log_seq, self.last_log_seq] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn put_entry(&self, out: &mut Vec<u8>) {
        self.put_fixed(out);
        for seq in self.replaces.iter().take(usize::from(u16::MAX)) {
            out.extend_from_slice(&seq.to_le_bytes());
        }
    }

    fn take_entry(reader: &mut Reader<'_>, org: OrgId, seq: u64) -> Result<SegmentMeta, Damage> {
        let (mut meta, replaced) = SegmentMeta::take_fixed(reader, org, seq)?;
        meta.replaces = take_replaced(reader, replaced)?;
        Ok(meta)
    }

    fn take_fixed(reader: &mut Reader<'_>, org: OrgId, seq: u64) -> Result<(SegmentMeta, u16), Damage> {
        let [level, flags] = reader.array()?;
        let replaced = reader.u16()?;
        let meta = SegmentMeta {
            org,
            seq,
            level,
            flags,
            series: reader.u32()?,
            min_ms: reader.i64()?,
            max_ms: reader.i64()?,
            file_bytes: reader.u64()?,
            samples: reader.u64()?,
            first_log_seq: reader.u64()?,
            last_log_seq: reader.u64()?,
            footer_crc: 0,
            sha256: [0; 16],
            replaces: Vec::new(),
        };
        Ok((meta, replaced))
    }
}

fn take_replaced(reader: &mut Reader<'_>, count: u16) -> Result<Vec<u64>, Damage> {
    if usize::from(count) > reader.left() / 8 {
        return Err(reader.damage("count beyond the body"));
    }
    (0..count).map(|_| reader.u64()).collect()
}
