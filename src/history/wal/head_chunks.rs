//! The files of full chunks of the head.
//!
//! File: `u32 magic, u8 version, 3 zeros`, then chunks: `u64 series, i64 first time, i64 last time,
//! u8 encoding, uvarint length, data, u32 CRC-32C` of all before. The highest bit of the encoding
//! marks samples that arrived out of order. Zeros follow the last chunk.

use std::path::Path;

use super::super::block::{
    BlockError, BlockFile, ByteReader, CHUNK_BYTES_MAX, VARINT_BYTES_MAX, Window, checksum,
};
use crate::ingest::prometheus_chunk::ChunkKind;

const MAGIC: u32 = 0x0130_bc91;
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 8;
/// Series, times and encoding.
const FIXED_BYTES: usize = 25;
/// The bit of the encoding that marks samples that arrived out of order.
const OUT_OF_ORDER: u8 = 0x80;

/// A chunk of the head.
#[derive(Debug)]
pub(super) struct HeadChunk<'f> {
    pub(super) series: u64,
    /// The time of its last sample in milliseconds.
    pub(super) last_ms: i64,
    pub(super) is_out_of_order: bool,
    pub(super) kind: ChunkKind,
    pub(super) data: &'f [u8],
    file: &'f BlockFile,
    offset: u64,
}

impl HeadChunk<'_> {
    /// Returns an error about the chunk.
    pub(super) fn damaged(&self, reason: impl Into<String>) -> BlockError {
        self.file.damaged(self.offset, reason)
    }
}

/// Calls `each` with each chunk of a file.
///
/// # Errors
/// [`BlockError`], and those of `each`.
pub(super) fn read_chunks(
    path: &Path,
    each: &mut dyn FnMut(&HeadChunk<'_>) -> Result<(), BlockError>,
) -> Result<(), BlockError> {
    let file = BlockFile::open(path)?;
    if file.len() == 0 {
        return Ok(());
    }
    let mut window = Window::default();
    let mut header = ByteReader::new(window.exactly(&file, 0, HEADER_BYTES)?);
    if header.u32() != Some(MAGIC) || header.u8() != Some(VERSION) {
        return Err(file.damaged(0, "not a file of head chunks, or of an unknown version"));
    }
    let mut at = HEADER_BYTES as u64;
    while at < file.len() {
        let early = || file.damaged(at, "a chunk of the head ends early");
        let head = window.up_to(&file, at, FIXED_BYTES.saturating_add(VARINT_BYTES_MAX))?;
        if head.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let mut reader = ByteReader::new(head);
        let before = reader.len();
        let (series, _first) = (reader.u64().ok_or_else(early)?, reader.u64().ok_or_else(early)?);
        let last_ms = reader.u64().ok_or_else(early)?.cast_signed();
        let encoding = reader.u8().ok_or_else(early)?;
        let length = reader.uvarint().filter(|length| *length <= CHUNK_BYTES_MAX);
        let length = length.ok_or_else(|| file.damaged(at, "the length of a chunk is wrong"))?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let covered = before.saturating_sub(reader.len()).saturating_add(length);
        let bytes = window.exactly(&file, at, covered.saturating_add(4))?;
        let (content, sum) = bytes.split_at_checked(covered).ok_or_else(early)?;
        if ByteReader::new(sum).u32() != Some(checksum(content)) {
            return Err(file.damaged(at, "a chunk of the head has the wrong checksum"));
        }
        let kind = ChunkKind::of(u64::from(encoding & !OUT_OF_ORDER));
        let kind = kind.map_err(|error| file.damaged(at, error.to_string()))?;
        let data = content.get(covered.saturating_sub(length)..).unwrap_or_default();
        let is_out_of_order = encoding & OUT_OF_ORDER != 0;
        each(&HeadChunk { series, last_ms, is_out_of_order, kind, data, file: &file, offset: at })?;
        at = at.saturating_add(covered as u64).saturating_add(4);
    }
    Ok(())
}
