//! The index of a block, version 2: series with their chunks, found by the postings of all series.

use std::path::Path;

use super::symbols::BlockSymbols;
use super::{BlockError, BlockFile, ByteReader, LABELS_MAX, Window, checksum};
use crate::model::{Label, Labels};

pub(super) const INDEX_FILE: &str = "index";
pub(super) const INDEX_MAGIC: u32 = 0xbaaa_d700;
pub(super) const INDEX_VERSION: u8 = 2;
/// Series begin at multiples of this many bytes.
pub(super) const SERIES_ALIGNMENT: u64 = 16;
/// Magic number and version.
const HEADER_BYTES: usize = 5;
/// Six positions and a checksum.
const TOC_BYTES: usize = 52;
/// The greatest length of the entry of a series in bytes.
const SERIES_BYTES_MAX: u64 = 64 << 20;
/// The greatest length of a label name or value in the postings table in bytes.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// A chunk in the files of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    /// The time of its first sample in milliseconds.
    pub first_ms: i64,
    /// The time of its last sample in milliseconds.
    pub last_ms: i64,
    /// The place of its file among the sorted files, from 0.
    pub file: u32,
    /// The position in the file in bytes.
    pub offset: u32,
}

/// A series of a block.
#[derive(Clone, Debug)]
pub struct BlockSeries {
    /// The number in the block, to which tombstones refer.
    pub number: u64,
    /// The label set.
    pub labels: Labels,
    /// The chunks, in the order of their times.
    pub chunks: Vec<ChunkRef>,
    /// The position of its entry in the index.
    pub(super) offset: u64,
}

/// An open index.
#[derive(Debug)]
pub(super) struct BlockIndex {
    pub(super) file: BlockFile,
    symbols: BlockSymbols,
    /// The position of the numbers of all series, and their count.
    all: (u64, u32),
    window: Window,
    postings: Window,
}

/// The positions of the sections that are read.
struct Toc {
    symbols: u64,
    postings_table: u64,
}

impl BlockIndex {
    /// Opens the index of a block, and checks all checksums but those of the series, which
    /// [`BlockIndex::series`] checks.
    pub(super) fn open(block: &Path) -> Result<BlockIndex, BlockError> {
        let file = BlockFile::open(&block.join(INDEX_FILE))?;
        let mut bytes = Vec::new();
        file.read(0, HEADER_BYTES, &mut bytes)?;
        let mut header = ByteReader::new(&bytes);
        if header.u32() != Some(INDEX_MAGIC) {
            return Err(file.damaged(0, "not an index"));
        }
        match header.u8() {
            Some(INDEX_VERSION) => {}
            version => {
                let version = version.unwrap_or_default();
                return Err(file.damaged(4, format!("the index has version {version}, only 2 is known")));
            }
        }
        let toc = read_toc(&file)?;
        let symbols = BlockSymbols::open(&file, toc.symbols)?;
        let all = check_postings(&file, toc.postings_table)?;
        Ok(BlockIndex { file, symbols, all, window: Window::default(), postings: Window::default() })
    }

    /// Returns the number of series.
    pub(super) const fn series_count(&self) -> u32 {
        self.all.1
    }

    /// Returns the series at a place in the list of all series.
    ///
    /// # Errors
    /// [`BlockError`].
    pub(super) fn series(&mut self, place: u32) -> Result<BlockSeries, BlockError> {
        let at = self.all.0.saturating_add(u64::from(place).saturating_mul(4));
        let number = ByteReader::new(self.postings.exactly(&self.file, at, 4)?).u32().unwrap_or_default();
        let (file, number) = (&self.file, u64::from(number));
        let offset = number.saturating_mul(SERIES_ALIGNMENT);
        let wrong = "the length of a series is wrong";
        let (length, start) = self.window.length(file, offset, SERIES_BYTES_MAX, wrong)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let entry = self.window.exactly(file, start, length.saturating_add(4))?;
        let (content, mut sum) = match entry.split_at_checked(length) {
            Some((content, sum)) => (content, ByteReader::new(sum)),
            None => return Err(file.damaged(offset, "a series ends early")),
        };
        if sum.u32() != Some(checksum(content)) {
            return Err(file.damaged(offset, "a series has the wrong checksum"));
        }
        let mut reader = ByteReader::new(content);
        let early = || file.damaged(offset, "a series ends early");
        let count = reader.length().ok_or_else(early)?;
        if count > LABELS_MAX {
            return Err(file.damaged(offset, format!("a series has more than {LABELS_MAX} labels")));
        }
        let mut labels = Vec::new();
        for _ in 0..count {
            let name = reader.uvarint().and_then(|number| u32::try_from(number).ok()).ok_or_else(early)?;
            let value = reader.uvarint().and_then(|number| u32::try_from(number).ok()).ok_or_else(early)?;
            let name = self.symbols.get(file, name, offset)?;
            labels.push(Label { name, value: self.symbols.get(file, value, offset)? });
        }
        if !labels.is_sorted_by(|a, b| a.name < b.name) {
            return Err(file.damaged(offset, "the labels of a series are not in order"));
        }
        labels.retain(|label| !label.value.is_empty());
        let chunks = read_chunk_refs(&mut reader).ok_or_else(early)?;
        if !reader.is_empty() {
            return Err(file.damaged(offset, "there are bytes after the chunks of a series"));
        }
        Ok(BlockSeries { number, labels: Labels::from_sorted(labels), chunks, offset })
    }
}

fn read_chunk_refs(reader: &mut ByteReader<'_>) -> Option<Vec<ChunkRef>> {
    let count = reader.length()?;
    // Each takes at least 3 bytes, so the entry bounds them.
    if count > reader.len() {
        return None;
    }
    let mut chunks = Vec::with_capacity(count);
    let (mut last_ms, mut place) = (0_i64, 0_u64);
    for number in 0..count {
        let first_ms = match number {
            0 => reader.varint()?,
            _ => last_ms.checked_add_unsigned(reader.uvarint()?)?,
        };
        last_ms = first_ms.checked_add_unsigned(reader.uvarint()?)?;
        place = match number {
            0 => reader.uvarint()?,
            _ => place.checked_add_signed(reader.varint()?)?,
        };
        let (file, offset) = (u32::try_from(place >> 32).ok()?, u32::try_from(place & 0xffff_ffff).ok()?);
        chunks.push(ChunkRef { first_ms, last_ms, file, offset });
    }
    Some(chunks)
}

fn read_toc(file: &BlockFile) -> Result<Toc, BlockError> {
    let mut bytes = Vec::new();
    let Some(start) = file.len().checked_sub(TOC_BYTES as u64) else {
        return Err(file.damaged(0, "the index is shorter than its table of contents"));
    };
    file.read(start, TOC_BYTES, &mut bytes)?;
    let (content, sum) = bytes.split_at_checked(TOC_BYTES.saturating_sub(4)).unwrap_or_default();
    if ByteReader::new(sum).u32() != Some(checksum(content)) {
        return Err(file.damaged(start, "the table of contents has the wrong checksum"));
    }
    let mut reader = ByteReader::new(content);
    let mut next = || reader.u64().unwrap_or_default();
    let [symbols, _series, _label_indices, _label_table, _postings, postings_table] =
        [next(), next(), next(), next(), next(), next()];
    Ok(Toc { symbols, postings_table })
}

/// Checks the table of postings and all lists that it names. Returns the position of the numbers of
/// all series, and their count.
fn check_postings(file: &BlockFile, table: u64) -> Result<(u64, u32), BlockError> {
    let length = file.check_section(table)?;
    let content = table.saturating_add(4);
    let end = content.saturating_add(length);
    let mut window = Window::default();
    if length < 4 {
        return Err(file.damaged(table, "the table of postings has no count"));
    }
    let count = ByteReader::new(window.exactly(file, content, 4)?).u32().unwrap_or_default();
    let mut all = None;
    let mut at = content.saturating_add(4);
    for _ in 0..count {
        let entry = read_postings_entry(file, &mut window, at)?;
        let length = file.check_section(entry.list)?;
        if entry.is_all {
            let first = window.exactly(file, entry.list.saturating_add(4), 4)?;
            let found = ByteReader::new(first).u32().unwrap_or_default();
            if u64::from(found).saturating_mul(4).saturating_add(4) != length {
                return Err(
                    file.damaged(entry.list, "the list of all series has another length than its count")
                );
            }
            all = Some((entry.list.saturating_add(8), found));
        }
        at = entry.end;
        if at > end {
            return Err(file.damaged(at, "an entry ends after the end of the table of postings"));
        }
    }
    match all {
        Some(all) => Ok(all),
        None if count == 0 => Ok((0, 0)),
        None => Err(file.damaged(table, "the table of postings does not name the list of all series")),
    }
}

/// An entry of the table of postings.
struct PostingsEntry {
    /// Whether the list has all series.
    is_all: bool,
    /// The position of the list.
    list: u64,
    /// The end of the entry.
    end: u64,
}

fn read_postings_entry(file: &BlockFile, window: &mut Window, at: u64) -> Result<PostingsEntry, BlockError> {
    // Most entries are short; longer ones are read a second time.
    let mut most = 1_024;
    loop {
        let bytes = window.up_to(file, at, most)?;
        let is_whole = bytes.len() < most;
        let mut reader = ByteReader::new(bytes);
        let before = reader.len();
        let mut parse = || {
            let keys = reader.uvarint()?;
            let (name, value) = (reader.text()?, reader.text()?);
            Some((keys, name.is_empty() && value.is_empty(), reader.uvarint()?))
        };
        match parse() {
            Some((2, is_all, list)) => {
                let end = at.saturating_add(before.saturating_sub(reader.len()) as u64);
                return Ok(PostingsEntry { is_all, list, end });
            }
            None if !is_whole && most < TEXT_BYTES_MAX => most = most.saturating_mul(16),
            _ => return Err(file.damaged(at, "an entry of the table of postings is wrong")),
        }
    }
}
